"""What is inevitably in use when an op starts, and the pools that cannot hold it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.small import holding, op, small

TAKE, GIVE = {"acquire": {"m": 1}}, {"release_at_end": {"m": 1}}


def reason(problem: Problem) -> str | None:
    try:
        _ = ImpliedOrder(problem).pools
    except MemoryInfeasible as error:
        return str(error)
    return None


@pytest.mark.parametrize("capacity", [0, 1, 2.5])
def test_pool_that_is_just_full_from_the_beginning_is_kept(capacity: float) -> None:
    full = capacity * 1.000000001
    assert reason(small([op("a", 1)], capacity=capacity, initial=full)) is None
    too_full = capacity + 0.1
    expected = (
        f"memory: m holds {too_full:g} before anything runs, capacity {capacity:g}"
    )
    assert reason(small([op("a", 1)], capacity=capacity, initial=too_full)) == expected


def test_what_is_taken_before_and_given_back_after_is_in_use() -> None:
    # At the start of y, x still holds its unit, as only z (after y) gives it back.
    ops = [op("x", 1, **TAKE), op("y", 1, **TAKE), op("z", 1, **GIVE)]
    chain = [("x", "y"), ("y", "z")]
    assert reason(small(ops, chain, capacity=2)) is None
    expected = "memory: y together with x needs 2 of m, capacity 1.5"
    assert reason(small(ops, chain, capacity=1.5)) == expected


def test_what_fits_exactly_fits_and_all_holders_are_named() -> None:
    # The limit is the capacity and a billionth of it; w alone takes what is left of it.
    names = ["c", "a", "b"]
    ops = [op(name, 1, **TAKE) for name in names] + [
        op("w", 1, acquire={"m": 1.000000004})
    ]
    chain = [*names, "w"]
    edges = list(pairwise(chain))
    assert reason(small(ops, edges, capacity=4)) is None
    ops[-1] = op("w", 1, acquire={"m": 1.000000005})
    said = reason(small(ops, edges, capacity=4))
    assert said == "memory: w together with a, b, c needs 4.000000005 of m, capacity 4"


def test_eight_holders_are_named_at_most() -> None:
    names = [f"o{k}" for k in range(10)]
    ops = [op(name, 1, **TAKE) for name in names]
    edges = list(pairwise(names))
    said = reason(small(ops, edges, capacity=9))
    expected = ", ".join(names[:8])
    assert said == f"memory: o9 together with {expected} needs 10 of m, capacity 9"


def test_what_may_be_given_back_before_is_not_counted() -> None:
    ops = [op("x", 1, **TAKE), op("y", 1, **TAKE), op("z", 1, **GIVE)]
    assert reason(small(ops, [("x", "y"), ("x", "z")], capacity=1)) is None
    ops = [
        op("x", 1, **TAKE),
        op("y", 1, **TAKE),
        op("z", 1, **GIVE),
        op("v", 1, **GIVE),
    ]
    assert reason(small(ops, [("x", "z"), ("y", "v")], capacity=1)) is None


@pytest.mark.parametrize(
    ("lengths", "fits"), [((0, 0), True), ((0, 1), False), ((1, 0), False)]
)
def test_what_is_given_back_at_the_same_moment_needs_no_room(
    lengths: tuple[int, int], fits: bool
) -> None:
    ops = [op("x", lengths[0], **TAKE), op("y", lengths[1], **GIVE)]
    said = reason(small(ops, [("x", "y")], capacity=0.5))
    assert said == (None if fits else "memory: x alone needs 1 of m, capacity 0.5")


def test_what_is_held_from_the_beginning_or_for_ever_counts() -> None:
    for_ever: dict[str, Any] = op("x", 0, **TAKE)
    assert (
        reason(small([for_ever], capacity=0.5))
        == "memory: x alone needs 1 of m, capacity 0.5"
    )
    # The unit in use at first is given back by y, which follows x.
    ops = [holding("x", 1, 1), op("y", 1, **GIVE)]
    expected = "memory: x alone needs 2 of m (1 of it static), capacity 1.5"
    assert reason(small(ops, [("x", "y")], capacity=1.5, initial=1)) == expected
    assert reason(small(ops, capacity=1.5, initial=1)) is None

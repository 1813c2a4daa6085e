"""Pools as holds: which release gives back what which acquire took."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given

from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.structure.holds import ALWAYS, Adjacency, holds_of
from tests.marks import examples
from tests.small import op, small
from tests.strategies import in_use, problems

TAKE, GIVE = {"acquire": {"m": 1}}, {"release_at_end": {"m": 1}}


def holds(problem: Problem) -> list[tuple[str, str, float]]:
    """Return (acquire, release, amount) of the holds of the first pool, ``-`` for none."""
    found = holds_of(problem, problem.pools[0], Adjacency.of(problem))

    def name(number: int) -> str:
        return "-" if number == ALWAYS else problem.op_name(number)

    return [
        (name(first), name(last), float(amount))
        for first, last, amount in zip(
            found.acquire.tolist(), found.release.tolist(), found.amount, strict=True
        )
    ]


def base(problem: Problem) -> Fraction:
    return holds_of(problem, problem.pools[0], Adjacency.of(problem)).base


def test_an_op_may_give_back_what_it_took_itself() -> None:
    problem = small([op("a", 1, **TAKE, **GIVE)], capacity=1)
    assert holds(problem) == [("a", "a", 1)]


def test_a_release_gives_back_what_an_op_before_it_took_however_far() -> None:
    middle = [op(name, 1) for name in "xyz"]
    for length in range(4):
        chain = ["a", *"xyz"[:length], "b"]
        ops = [op("a", 1, **TAKE), *middle, op("b", 1, **GIVE)]
        problem = small(ops, list(pairwise(chain)), capacity=1)
        assert holds(problem) == [("a", "b", 1)]
        assert base(problem) == 0


def test_links_of_others_lead_nowhere() -> None:
    # a precedes x, and y precedes b, but nothing links x with y.
    ops = [op("a", 1, **TAKE), op("x", 1), op("y", 1), op("b", 1, **GIVE)]
    problem = small(ops, [("a", "x"), ("y", "b")], capacity=2, initial=1)
    assert holds(problem) == [("-", "b", 1), ("a", "-", 1)]
    assert base(problem) == 0


def test_acquires_that_do_not_precede_a_release_are_passed_over() -> None:
    ops = [op("other", 1, **TAKE), op("a", 1, **TAKE), op("b", 1, **GIVE)]
    problem = small(ops, [("a", "b")], capacity=2)
    assert holds(problem) == [("a", "b", 1), ("other", "-", 1)]


def test_amounts_are_split_and_what_is_left_is_held_for_ever() -> None:
    ops = [op("a", 1, acquire={"m": 3}), op("b", 1, acquire={"m": 1})]
    ops += [op("x", 1, release_at_end={"m": 2}), op("y", 1, release_at_end={"m": 1.5})]
    edges = [(first, last) for first in "ab" for last in "xy"]
    problem = small(ops, edges, capacity=5)
    assert holds(problem) == [
        ("a", "x", 2),
        ("a", "y", 1),
        ("b", "y", 0.5),
        ("b", "-", 0.5),
    ]


def test_more_given_back_than_taken_is_held_from_the_beginning() -> None:
    ops = [op("a", 1, **TAKE), op("b", 1, release_at_end={"m": 3})]
    problem = small(ops, [("a", "b")], capacity=4, initial=2.5)
    assert holds(problem) == [("a", "b", 1), ("-", "b", 2)]
    assert base(problem) == Fraction(1, 2)


def test_what_nobody_took_is_held_from_the_beginning_by_a_micro_batch_too() -> None:
    problem = small([op("b", 1, **GIVE)], capacity=1, initial=1)
    labels = np.zeros(1, dtype=np.int64)
    assert holds(replace(problem, stage=labels, microbatch=labels)) == [("-", "b", 1)]


def test_stages_of_a_micro_batch_give_back_their_own() -> None:
    instance = PipelineInstance(
        num_devices=1,
        num_microbatches=1,
        placement="vshape",
        times={"forward": 1, "backward_input": 1, "backward_weight": 1},
        memory={"capacity": 4, "activation": 1, "released_by_backward_weight": 0.5},
    )
    assert Counter(holds(lower(instance))) == Counter(
        (f"F{stage}.0", f"{kind}{stage}.0", 0.5) for stage in (0, 1) for kind in "IW"
    )


@examples(20)
@given(problems())
def test_holds_say_what_the_pool_says_at_every_moment(problem: Problem) -> None:
    """Whatever the starts, as long as precedences are kept."""
    start = np.zeros(problem.num_ops, dtype=np.int64)
    for _ in range(problem.num_ops):
        for before, after, lag in zip(
            problem.before, problem.after, problem.lag, strict=True
        ):
            earliest = start[before] + problem.duration[before] + lag
            start[after] = max(
                start[after], earliest + (int(after) * 7 + int(before)) % 3
            )
    end = start + problem.duration
    starts: dict[int, Any] = dict(enumerate(start.tolist()))
    for pool in problem.pools:
        found = holds_of(problem, pool, Adjacency.of(problem))
        for moment in np.unique(np.concatenate((start, end, [-1]))).tolist():
            used = found.base
            for first, last, amount in zip(
                found.acquire.tolist(),
                found.release.tolist(),
                found.amount,
                strict=True,
            ):
                begun = first == ALWAYS or start[first] <= moment
                used += (
                    amount if begun and (last == ALWAYS or end[last] > moment) else 0
                )
            assert used == in_use(pool, problem, starts, moment)

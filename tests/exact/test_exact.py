"""The exact solver and every bound against exhaustive search."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.kinds.graph import GraphInstance, lower_graph
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact import memory
from ppsolve.solver.exact.model import index_ordered
from ppsolve.solver.exact.params import AmountParams
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve_exactly
from tests.bruteforce import brute_force
from tests.exact.models import change_model
from tests.marks import first
from tests.strategies import nth_tiny_problem, serial_schedule

COUNT = 400


@cache
def solved(number: int) -> tuple[Problem, int | None]:
    """Return a problem and its optimum, None where memory never suffices."""
    problem = nth_tiny_problem(number, seed=7)
    return problem, brute_force(problem)


@pytest.mark.parametrize("number", first(48, range(COUNT)))
def test_exact_solver_and_bounds_agree_with_brute_force(number: int) -> None:
    problem, optimum = solved(number)
    implied = ImpliedOrder(problem)
    try:
        bounds = lower_bounds(implied)
    except MemoryInfeasible:
        assert optimum is None
        return
    answer = solve_exactly(
        implied, lower=0, incumbent=None, limits=SearchLimits(seconds=20)
    )
    if optimum is None:
        assert answer.infeasible
        return
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    assert (answer.schedule.value, answer.bound) == (optimum, optimum)
    for bound in bounds:
        assert bound.value <= optimum, bound.name
    assert index_ordered(implied, answer.schedule).value == optimum
    check_from_incumbent(problem, implied, optimum, number)


WITH_MEMORY = 229
"""How many of them have a pool."""


@cache
def with_memory(place: int) -> int:
    """Return the number of a problem by its place among those that have a pool."""
    earlier = with_memory(place - 1) if place else -1
    return next(
        n for n in range(earlier + 1, COUNT) if nth_tiny_problem(n, seed=7).pools
    )


@pytest.mark.slow
def test_all_problems_with_memory_are_counted() -> None:
    last = with_memory(WITH_MEMORY - 1)
    assert not any(nth_tiny_problem(n, seed=7).pools for n in range(last + 1, COUNT))


@pytest.mark.parametrize("place", first(12, range(WITH_MEMORY)))
def test_cumulatives_agree_with_brute_force(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small pools are reservoirs; as cumulatives, the form of large ones, they say the same."""
    change_model(monkeypatch, reservoir_events=-1)
    change_model(monkeypatch, order_literals=-1)
    problem, optimum = solved(with_memory(place))
    implied = ImpliedOrder(problem)
    try:
        answer = solve_exactly(
            implied, lower=0, incumbent=None, limits=SearchLimits(seconds=20)
        )
    except MemoryInfeasible:
        assert optimum is None
        return
    assert answer.infeasible == (optimum is None)
    if answer.schedule is not None:
        assert check_schedule(problem, answer.schedule) == []
        assert (answer.schedule.value, answer.bound) == (optimum, optimum)


def check_from_incumbent(
    problem: Problem, implied: ImpliedOrder, optimum: int, number: int
) -> None:
    """Solve again within the windows that a mediocre schedule and the bounds leave."""
    incumbent = serial_schedule(problem, np.random.default_rng(number))
    if incumbent is None:
        return
    answer = solve_exactly(
        implied,
        lower=best_bound(lower_bounds(implied)).value,
        incumbent=incumbent.normalised(),
        limits=SearchLimits(seconds=20),
    )
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    assert (answer.schedule.value, answer.bound) == (optimum, optimum)


def twins(count: int, excess: str) -> GraphInstance:
    """Ops of length 1 of which no two fit together, by ever different tiny amounts."""
    amounts = [Decimal("0.5") + Decimal(excess) * (k + 1) for k in range(count)]
    ops = [
        {"id": f"op{k}", "duration": 1, "acquire": {"m": a}, "release_at_end": {"m": a}}
        for k, a in enumerate(amounts)
    ]
    return GraphInstance(resources=[], ops=ops, pools=[{"name": "m", "capacity": 1}])


def test_memory_finer_than_any_scale_is_bounded_from_below_and_kept_from_above() -> (
    None
):
    # Too fine for 40 bits and too many amounts to compare: rounded down, all pairs seem to fit.
    problem = lower_graph(twins(6, "2e-9"))
    with patch.object(memory, "AMOUNTS", AmountParams(finest=2**20, combinations=1)):
        answer = solve_exactly(
            ImpliedOrder(problem),
            lower=0,
            incumbent=None,
            limits=SearchLimits(seconds=20),
        )
    assert not answer.memory_is_exact
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    # In 2^20 parts 0.5 + 12e-9 is half of the capacity: two ops at a time, three turns.
    assert (answer.bound, answer.schedule.value) == (3, 6)
    assert answer.stop_reason is StopReason.ROUNDING


def test_fine_memory_is_exact_where_the_horizon_is_short() -> None:
    problem = lower_graph(twins(24, "2e-9"))
    answer = solve_exactly(
        ImpliedOrder(problem), lower=0, incumbent=None, limits=SearchLimits(seconds=20)
    )
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    assert (answer.schedule.value, answer.bound) == (24, 24)

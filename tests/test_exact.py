"""The exact solver and every bound against exhaustive search."""

from __future__ import annotations

from functools import cache

import pytest

from ppsolve.models.problem import Problem
from ppsolve.solver.bounds import lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.engine import index_ordered
from ppsolve.solver.exact import solve_exactly
from ppsolve.solver.implied import ImpliedOrder, MemoryInfeasible
from ppsolve.solver.limits import Limits
from tests.bruteforce import brute_force
from tests.strategies import tiny_problems

COUNT = 400


@cache
def problems() -> list[tuple[Problem, int | None]]:
    return [(problem, brute_force(problem)) for problem in tiny_problems(COUNT, seed=7)]


@pytest.mark.parametrize("number", range(COUNT))
def test_exact_solver_and_bounds_agree_with_brute_force(number: int) -> None:
    problem, optimum = problems()[number]
    implied = ImpliedOrder(problem)
    try:
        bounds = lower_bounds(implied)
    except MemoryInfeasible:
        assert optimum is None
        return
    answer = solve_exactly(implied, lower=0, incumbent=None, limits=Limits(seconds=20))
    if optimum is None:
        assert answer.infeasible
        return
    assert answer.schedule is not None
    assert check_schedule(problem, answer.schedule) == []
    assert (answer.schedule.value, answer.bound) == (optimum, optimum)
    for bound in bounds:
        assert bound.value <= optimum, bound.name
    assert index_ordered(implied, answer.schedule).value == optimum

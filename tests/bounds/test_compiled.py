"""Bounds are the same compiled or not, and valid however little time there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import pytest

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.solver.bounds import lower_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels import compilation
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.small import op, small
from tests.strategies import tiny_problems


class Countdown(Clock):
    """A clock that is over after it was asked a number of times."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self._asked = asked

    @property
    def is_over(self) -> bool:
        self._asked -= 1
        return self._asked < 0

    def share(self, part: float) -> Self:
        return self


def values(problem: Problem, clock: Clock | None = None) -> dict[str, int] | str:
    """Return every bound by name, or why there is no schedule."""
    try:
        return {
            bound.name: bound.value
            for bound in lower_bounds(ImpliedOrder(problem), clock)
        }
    except MemoryInfeasible as error:
        return str(error)


def variants(count: int, seed: int) -> list[Problem]:
    objectives = (Objective.MAKESPAN, Objective.DEVICE_SPAN)
    return [
        replace(problem, objective=objective)
        for problem in tiny_problems(count, seed)
        for objective in objectives
    ]


def test_compiled_bounds_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for problem in variants(60, seed=5):
        found = []
        for compiled in (False, True):
            monkeypatch.setitem(compilation._state, "compiled", compiled)
            found.append(values(problem))
        assert found[0] == found[1]


@pytest.mark.parametrize("asked", [0, 3, 12])
def test_bounds_cut_short_are_no_higher(asked: int) -> None:
    for problem in variants(25, seed=6):
        whole, part = values(problem), values(problem, Countdown(asked))
        if isinstance(whole, str) or isinstance(part, str):
            assert whole == part
            continue
        assert {"critical-path", "work"} <= part.keys() <= whole.keys()
        assert all(value <= whole[name] for name, value in part.items())


def test_without_time_only_cheap_rules_are_begun() -> None:
    problem = small([op("a", 2, "r"), op("b", 3, "r")], [("a", "b")])
    assert values(problem, Clock(0.0)) == {"critical-path": 5, "work": 5}


def test_without_time_memory_that_cannot_fit_is_still_found() -> None:
    problem = small([op("a", 1, acquire={"m": 2})], capacity=1)
    with pytest.raises(MemoryInfeasible):
        lower_bounds(ImpliedOrder(problem), Clock(0.0))

"""The exact refresh where CP-SAT has no answer."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.solver.exact.question import ExactAnswer
from ppsolve.solver.kinds.kfac import exact
from tests.kinds.kfac.bruteforce import Task
from tests.kinds.kfac.test_exact import optimum, recheck, timeline

UNKNOWN = ExactAnswer(None, None, False, StopReason.TIME, True, 0.0)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the exact search alone with the published greedy, which is often wrong."""
    monkeypatch.setattr(
        ppsolve, "optimize", partial(ppsolve.optimize, heuristics=["pipefisher"])
    )


def test_a_search_without_an_answer_leaves_true_bounds_and_schedules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def solve(implied: Any, question: Any, limits: Any) -> ExactAnswer:
        nonlocal asked
        asked += 1
        return UNKNOWN

    monkeypatch.setattr(exact, "solve", solve)
    rng = random.Random(400)
    is_open = 0
    for _ in range(30):
        line = timeline(rng, 6, rng.choice((1, 7)))
        saved = {"capacity": rng.choice((1, 2, 3))}
        task = Task([line], saved=saved)
        fewest = task.fewest([0])
        _, result = optimum([line], saved=saved)
        if result.value is not None:
            assert fewest is not None and result.bound is not None
            assert result.bound <= fewest <= result.value
            assert (result.status is Status.OPTIMAL) == (result.bound == result.value)
            recheck(task, result)
        elif fewest is not None:
            assert result.status is Status.UNKNOWN
        is_open += result.status in {Status.UNKNOWN, Status.FEASIBLE}
    assert is_open and asked

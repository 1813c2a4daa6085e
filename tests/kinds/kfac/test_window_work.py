"""The exact refresh once more, by the model that counts the work in every hole, or by none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.solver.exact.question import ExactAnswer
from ppsolve.solver.kinds.kfac import exact
from tests.kinds.kfac.bruteforce import Task
from tests.kinds.kfac.test_exact import MARGINS, agree, optimum, recheck, shifted, timeline

UNKNOWN = ExactAnswer(None, None, False, StopReason.TIME, True, 0.0)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the exact search alone with the published greedy, which is often wrong."""
    monkeypatch.setattr(ppsolve, "optimize", partial(ppsolve.optimize, heuristics=["pipefisher"]))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the work in every hole wherever CP-SAT is asked for a number of iterations."""
    real, refuted = exact.solve, Counter[bool]()

    def solve(implied: Any, question: Any, limits: Any) -> ExactAnswer:
        outcome = real(implied, replace(question, window_work=True), limits)
        refuted[outcome.infeasible] += 1
        return outcome

    monkeypatch.setattr(exact, "solve", solve)
    yield
    assert refuted.total() > 5


def test_one_device_as_exhaustive_search(counted: None) -> None:
    rng = random.Random(0)
    for number in range(16):
        line = timeline(rng, 6, rng.choice((1, 7)), tagged=number % 4 == 0)
        agree([line], margin_ratio=rng.choice(MARGINS))


def test_a_clock_out_of_step_as_exhaustive_search(counted: None) -> None:
    rng = random.Random(100)
    for number in range(12):
        first, second = timeline(rng, 0), timeline(rng, 6, tagged=number % 4 == 0)
        agree([first, shifted(second, rng.randint(-20, 20))], margin_ratio=rng.choice(MARGINS))


def test_devices_that_meet_as_exhaustive_search(counted: None) -> None:
    rng = random.Random(200)
    for _ in range(12):
        lines = [timeline(rng, 3), shifted(timeline(rng, 3), rng.randint(-6, 6))]
        for line in lines:
            line["sync_kron_A:m"] = [[3, 3 + rng.randint(1, 6)]]
        agree(lines, margin_ratio=rng.choice(MARGINS), sync_groups=[[1, 0]])


def test_saved_memory_as_exhaustive_search(counted: None) -> None:
    rng = random.Random(300)
    for number in range(12):
        line = timeline(rng, 6, tagged=number % 4 == 0)
        saved = {"capacity": rng.choice((1, 2, 2.5, 3)), "input": 1.5, "error": 0.5}
        agree([line], margin_ratio=0, saved=saved)


def test_a_search_without_an_answer_leaves_true_bounds_and_schedules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Counter[bool]()

    def solve(implied: Any, question: Any, limits: Any) -> ExactAnswer:
        asked[question.window_work] += 1
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
    assert is_open and asked[True] and asked[False]

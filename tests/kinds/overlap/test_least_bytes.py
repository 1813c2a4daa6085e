"""The least peak of live bytes: what follows from each answer of the search, and from none."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.kinds.overlap import least_bytes as module
from ppsolve.solver.kinds.overlap.least_bytes import LeastBytes, least_bytes
from tests.kinds.overlap.bruteforce import Graph, program

PROGRAM = program("k0 1 b=4", "k1 1 b=2", "k2 1 b=2 <- k1", "k3 1 <- k0", "k4 1 <- k2")
"""Five kernels in any order take 5; as they stand k0, k1 and k2 are held together: 8 bytes."""

GRAPH = Graph(PROGRAM)
UNKNOWN = ExactAnswer(None, None, False, StopReason.TIME, True, 1.0)
REFUTED = ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 1.0)


class Said:
    """Takes the place of CP-SAT: gives an answer by cap, and keeps the caps and limits asked."""

    def __init__(self, answers: dict[int, Any]) -> None:
        self.answers = answers
        self.caps: list[int] = []
        self.limits: list[SearchLimits] = []

    def __call__(
        self, implied: Any, question: Any, limits: SearchLimits
    ) -> ExactAnswer:
        assert question.upper == 5
        problem = implied.problem
        (pool,) = problem.pools
        cap = int(pool.limit / 2)
        self.caps.append(cap)
        self.limits.append(limits)
        answer = self.answers[cap]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            start = np.zeros(problem.num_ops, dtype=np.int64)
            for time, name in enumerate(answer):
                start[int(name)] = time
            return ExactAnswer(
                Schedule(problem, start), 0, False, StopReason.PROVED, True, 1.0
            )
        found: ExactAnswer = answer
        return found


def search(
    monkeypatch: pytest.MonkeyPatch, answers: dict[int, Any], **limits: Any
) -> tuple[Said, LeastBytes]:
    said = Said(answers)
    monkeypatch.setattr(module, "solve", said)
    instance = OverlapInstance.parse(PROGRAM)
    found = least_bytes(instance, range(5), 5, SearchLimits(**limits))
    return said, found


def peak(order: list[int]) -> Fraction:
    return GRAPH.peak(GRAPH.replay(tuple(order)))


def test_the_program_holds_eight_bytes_as_it_stands() -> None:
    assert (peak([0, 1, 2, 3, 4]), peak([0, 3, 1, 2, 4]), peak([1, 2, 4, 0, 3])) == (
        8,
        4,
        4,
    )


def test_the_cap_is_halved_between_what_is_proved_and_what_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Bytes come in units of 2, so 8 are 4 units.
    said, found = search(monkeypatch, {2: "03124", 1: REFUTED})
    assert said.caps == [2, 1]
    assert (peak(found.order), found.lower) == (4, 4)


def test_all_smaller_caps_refuted_is_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    said, found = search(monkeypatch, {2: REFUTED, 3: REFUTED})
    assert said.caps == [2, 3]
    assert (found.order, found.lower) == ([0, 1, 2, 3, 4], 8)


def test_a_cap_that_no_output_keeps_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    said, found = search(
        monkeypatch, {2: module.MemoryInfeasible("too small"), 3: REFUTED}
    )
    assert (said.caps, found.lower) == ([2, 3], 8)


def test_a_cap_that_is_open_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said, found = search(monkeypatch, {2: UNKNOWN, 3: UNKNOWN})
    assert said.caps == [2, 3]
    assert (found.order, found.lower) == ([0, 1, 2, 3, 4], 0)
    # What is refuted below an open cap stays proved, and so does all below one refuted above it.
    _, found = search(monkeypatch, {2: REFUTED, 3: UNKNOWN})
    assert found.lower == 6
    _, found = search(monkeypatch, {2: UNKNOWN, 3: REFUTED})
    assert found.lower == 8


def test_a_schedule_that_no_program_runs_as_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "realised", lambda *given: None)
    early: list[SearchLimits] = []

    def settled(schedule: Schedule, limits: SearchLimits) -> Schedule | None:
        early.append(limits)
        return schedule if len(early) == 1 else None

    monkeypatch.setattr(module, "idle_free_schedule", settled)
    _, found = search(monkeypatch, {2: "03124", 3: "03124"})
    assert len(early) == 2
    assert (found.order, found.lower) == ([0, 1, 2, 3, 4], 0)


def test_a_schedule_is_made_free_of_idle_time_where_its_order_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, asked = module.realised, []

    def slow_at_first(*given: Any) -> Any:
        asked.append(given[2])
        found = real(*given)
        assert found is not None
        late = Schedule(found[1].problem, found[1].start + 1)
        return (found[0], late) if len(asked) == 1 else found

    monkeypatch.setattr(module, "realised", slow_at_first)
    monkeypatch.setattr(module, "idle_free_schedule", lambda schedule, limits: schedule)
    _, found = search(monkeypatch, {2: "03124", 1: REFUTED})
    assert len(asked) == 2
    assert (peak(found.order), found.lower) == (4, 4)


def test_no_time_leaves_the_order_and_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, found = search(monkeypatch, {}, seconds=0)
    assert (said.caps, found) == ([], LeastBytes([0, 1, 2, 3, 4], Fraction(0)))


def test_time_that_searches_used_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"seconds": None, "deterministic": 1.5}
    said, found = search(monkeypatch, {2: REFUTED, 3: REFUTED}, **limits)
    assert [one.deterministic for one in said.limits] == [1.5, 0.5]
    assert found.lower == 8
    said, found = search(monkeypatch, {2: REFUTED}, seconds=None, deterministic=1)
    assert (said.caps, found.lower) == ([2], 6)

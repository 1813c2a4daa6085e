"""How the exact search of a refresh counts up, what it concludes, and what it falls back on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import Status, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.kfac.instance import KfacInstance, TieBreak
from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.result import RefreshResult
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.kinds.kfac import exact
from ppsolve.solver.kinds.kfac.component import (
    ComponentResult,
    ComponentSchedule,
    completion_bound,
)
from ppsolve.solver.kinds.kfac.exact import Budget, ComponentSearch
from ppsolve.solver.kinds.kfac.requirements import fits_one_period
from tests.kinds.kfac.cases import pattern_of

UNKNOWN = ExactAnswer(None, None, False, StopReason.TIME, True, 0.0)
USED = 2.0  # deterministic time of a schedule
REFUTED = ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 0.0)
STOPPED = ExactAnswer(None, None, False, StopReason.INTERRUPTED, True, 0.0)
FOUND = "found by the real search"

PIPE = {"call_forward": [(0, 2)], "call_backward": [(4, 10)]}
"""An iteration of 10 with one hole, from 2 to 4."""

INVERSIONS = {
    "inv_kron_A:m": [(2, 3)],
    "inv_kron_B:m": [(3, 4)],
    "inv_kron_A:n": [(3, 4)],
}


def late(line: dict[str, Any], by: int) -> dict[str, Any]:
    return {
        label: [(a + by, b + by) for a, b in pairs] for label, pairs in line.items()
    }


TIDY = pattern_of({**PIPE, **INVERSIONS}, margin_ratio=0)
SKEWED = pattern_of(PIPE, late({**PIPE, **INVERSIONS}, 3), margin_ratio=0)


class Scripted(ComponentSearch):
    """What the search of each number of iterations answers, and which numbers are tried."""

    def __init__(self, pattern: RefreshPattern, said: dict[int, Any]) -> None:
        device = len(pattern.devices) - 1
        super().__init__(
            pattern, [device], TieBreak.NONE, Budget(SearchLimits(seconds=20))
        )
        self.said = said
        self.tried: list[int] = []

    def _attempt(self, iterations: int, limits: SearchLimits) -> ExactAnswer:
        self.tried.append(iterations)
        if self.said[iterations] is FOUND:
            return super()._attempt(iterations, limits)
        answer: ExactAnswer = self.said[iterations]
        return answer

    def search(self, most: int) -> ComponentResult:
        known = ComponentResult(
            tuple(self.devices), None, 1, "trivial", StopReason.TIME
        )
        return self.fewest(known, most, 1)


# Counting upwards ----------------------------------------------------------------------------


def test_a_number_refuted_above_an_open_one_does_not_raise_the_bound() -> None:
    # Where clocks are skewed a larger number may be harder, so nothing follows for 1.
    search = Scripted(SKEWED, {1: UNKNOWN, 2: REFUTED, 3: UNKNOWN})
    answer = search.search(3)
    assert (answer.lower, answer.by, answer.best) == (1, "trivial", None)
    assert answer.stop_reason is StopReason.TIME


def test_every_number_refuted_from_below_raises_the_bound() -> None:
    search = Scripted(SKEWED, {1: REFUTED, 2: REFUTED, 3: UNKNOWN})
    answer = search.search(3)
    assert (answer.lower, answer.by, answer.best) == (3, "cp-sat", None)
    assert answer.stop_reason is StopReason.TIME
    assert search.tried == [1, 2, 3, 3]


def test_all_numbers_refuted_is_a_proof() -> None:
    answer = Scripted(SKEWED, {1: REFUTED, 2: REFUTED}).search(2)
    assert (answer.lower, answer.best, answer.stop_reason) == (
        3,
        None,
        StopReason.PROVED,
    )


def test_a_schedule_above_an_open_number_is_kept_but_not_proved() -> None:
    # All inversions take 3, the hole 2: two iterations.
    search = Scripted(TIDY, {1: UNKNOWN, 2: FOUND, 3: UNKNOWN})
    answer = search.search(3)
    assert (answer.iterations, answer.lower, answer.is_proved) == (2, 1, False)
    assert search.tried == [3, 1, 2, 1]
    # With 1 refuted on the second, longer pass it is.
    answer = search.fewest(answer, 3, 1)
    assert answer.stop_reason is StopReason.TIME
    search.said[1] = REFUTED
    answer = search.fewest(answer, 3, 1)
    assert (answer.iterations, answer.lower, answer.is_proved) == (2, 2, True)
    assert answer.stop_reason is StopReason.PROVED


def test_the_largest_number_rules_out_all_only_where_all_iterations_are_alike() -> None:
    assert fits_one_period(TIDY, [0])
    search = Scripted(TIDY, {5: REFUTED})
    answer = search.search(5)
    assert (answer.lower, answer.stop_reason) == (6, StopReason.PROVED)
    assert search.tried == [5]
    assert not fits_one_period(SKEWED, [1])
    search = Scripted(SKEWED, {1: UNKNOWN, 2: UNKNOWN, 3: FOUND, 4: FOUND, 5: REFUTED})
    answer = search.search(5)
    assert (answer.iterations, answer.lower) == (3, 1)
    assert 5 not in search.tried


@pytest.mark.parametrize("pattern", [TIDY, SKEWED])
def test_an_interrupt_ends_the_search(pattern: RefreshPattern) -> None:
    search = Scripted(pattern, dict.fromkeys(range(1, 6), STOPPED))
    answer = search.search(5)
    assert (answer.lower, answer.best) == (1, None)
    assert answer.stop_reason is StopReason.INTERRUPTED
    assert len(search.tried) == 1


# One number, then amounts rounded up ------------------------------------------------------------


class Said:
    """Takes the place of CP-SAT: gives answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.limits: list[SearchLimits] = []

    def __call__(
        self, implied: Any, question: Any, limits: SearchLimits
    ) -> ExactAnswer:
        self.asked.append(question.rounding)
        self.limits.append(limits)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            start = np.array(answer[: implied.problem.num_ops], dtype=np.int64)
            schedule = Schedule(implied.problem, start)
            return ExactAnswer(
                schedule, answer[-1], False, StopReason.PROVED, False, USED
            )
        found: ExactAnswer = answer
        return found


def attempt(
    monkeypatch: pytest.MonkeyPatch, *answers: Any, **limits: float | None
) -> tuple[Said, ExactAnswer]:
    said = Said(*answers)
    monkeypatch.setattr(exact, "solve", said)
    component = ComponentSearch(TIDY, [0], TieBreak.NONE, Budget(SearchLimits()))
    outcome = component._attempt(2, SearchLimits(**limits))  # type: ignore[arg-type]
    assert not said.answers
    return said, outcome


GOOD = (0, 4, 10, 14, 2, 3, 12, 0)
BAD = (0, 4, 10, 14, 2, 3, 3, 0)
"""F and B of two iterations, three inversions (two of BAD overlap), and the bound."""


@pytest.mark.parametrize("answer", [GOOD, REFUTED, UNKNOWN, STOPPED])
def test_one_question_is_asked_where_no_rule_is_broken(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    said, outcome = attempt(monkeypatch, answer)
    assert said.asked == ["down"]
    assert (outcome.schedule is not None) == (answer is GOOD)


def test_a_schedule_that_breaks_a_rule_is_asked_for_again_with_amounts_rounded_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, outcome = attempt(monkeypatch, BAD, GOOD, seconds=None, deterministic=6)
    assert said.asked == ["down", "up"]
    assert [limits.deterministic for limits in said.limits] == [6, 6 - USED]
    assert outcome.schedule is not None
    assert check_schedule(outcome.schedule.problem, outcome.schedule) == []


def test_no_schedule_with_amounts_rounded_up_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, outcome = attempt(monkeypatch, BAD, REFUTED)
    assert (outcome.schedule, outcome.infeasible) == (None, False)


def test_a_capacity_that_nothing_keeps_refutes_the_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, outcome = attempt(monkeypatch, exact.MemoryInfeasible("too small"))
    assert (outcome.schedule, outcome.infeasible) == (None, True)


def test_time_is_shared_and_what_was_used_is_gone() -> None:
    budget = Budget(SearchLimits(seconds=None, deterministic=12, gap=0.5, seed=7))
    assert budget.share(4) == SearchLimits(None, 3, gap=0.0, seed=7)
    assert budget.share(4, cap=2).deterministic == 2
    budget.used_units += 4.0
    assert budget.share(4).deterministic == 2
    endless = Budget(SearchLimits(seconds=None))
    assert endless.share(2) == SearchLimits(None, None)
    assert endless.share(2, cap=5) == SearchLimits(None, 5)
    assert Budget(SearchLimits(seconds=0)).share(2, cap=5).seconds == 0
    assert Budget(SearchLimits(seconds=1000)).share(2, cap=5) == SearchLimits(5, None)


# Tie-breaks ----------------------------------------------------------------------------------


def tied(
    monkeypatch: pytest.MonkeyPatch, answer: Any, start: tuple[int, ...]
) -> ComponentResult:
    """Break the tie of the staleness from a known schedule with one answer of CP-SAT."""
    monkeypatch.setattr(exact, "solve", Said(answer))
    component = ComponentSearch(TIDY, [0], TieBreak.STALENESS, Budget(SearchLimits()))
    lowered = component.lowered(2)
    known = ComponentSchedule(
        lowered, Schedule(lowered.problem, np.array(start[:-1])), "by hand"
    )
    return component.break_tie(
        ComponentResult((0,), known, 2, "work", StopReason.PROVED), 1
    )


SLOW = (0, 4, 10, 14, 2, 12, 13, 0)


def test_a_fresher_schedule_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # The inversions end at 3, 13, 14 or at 3, 4, 13; 3, 4, 13 is the least there is.
    answer = tied(monkeypatch, GOOD, SLOW)
    assert answer.best is not None
    assert (answer.tie, answer.best.by) == ((20, 20), "cp-sat")


def test_a_fresher_schedule_that_breaks_a_rule_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The model's amounts are rounded down, so what it finds may exceed the memory.
    answer = tied(monkeypatch, BAD, SLOW)
    assert answer.best is not None
    assert (answer.tie, answer.best.by) == ((30, 20), "by hand")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (SLOW, StopReason.PROVED),
        (UNKNOWN, StopReason.PROVED),
        (STOPPED, StopReason.INTERRUPTED),
    ],
)
def test_nothing_fresher_leaves_the_schedule(
    monkeypatch: pytest.MonkeyPatch, found: Any, reason: StopReason
) -> None:
    answer = tied(monkeypatch, found, GOOD)
    assert answer.best is not None
    assert (answer.tie, answer.best.by) == ((20, 20), "by hand")
    assert answer.stop_reason is reason


def test_the_bound_of_the_model_counts_where_it_is_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tied(monkeypatch, (*SLOW[:-1], 25), SLOW).tie == (30, 25)


def test_the_freshness_bound_counts_syncs_that_meet_on_each_device() -> None:
    # Sync from 2 to 4 on both, then each its inversion from 12 to 14: nothing is fresher.
    line = {**PIPE, "sync_kron_A:m": [(0, 2)], "inv_kron_A:m": [(0, 2)]}
    pattern = pattern_of(line, line, margin_ratio=0, sync_groups=[[0, 1]])
    assert completion_bound(pattern, [0, 1], 2, TieBreak.STALENESS) == 28
    made = KfacInstance.parse(
        {"time_unit": "ns", "timelines": [line, line], "margin_ratio": 0}
        | {"sync_groups": [[0, 1]], "tie_break": "staleness"}
    )
    result = ppsolve.optimize(made, time_limit=20, workers=1)
    assert isinstance(result, RefreshResult) and result.tie_break is not None
    assert (result.tie_break.value, result.tie_break.bound) == (28, 28)


def test_the_smallest_jobs_are_poured_into_the_holes_first() -> None:
    # Curvature and inversion of A are 2, the inversion of B is 2: ends 4 and 14. Of all ops 1, 1
    # and 2 the ends are 3, 4 and 14. With one iteration only what fits counts.
    work = {
        "cov_kron_A:m": [(0, 1)],
        "inv_kron_A:m": [(0, 1)],
        "inv_kron_B:m": [(0, 2)],
    }
    pattern = pattern_of({**PIPE, **work}, margin_ratio=0)
    assert completion_bound(pattern, [0], 2, TieBreak.STALENESS) == 4 + 14
    assert completion_bound(pattern, [0], 2, TieBreak.USAGE) == 3 + 4 + 14
    assert completion_bound(pattern, [0], 1, TieBreak.USAGE) == 3 + 4
    assert completion_bound(pattern, [0], 2, TieBreak.NONE) == 0


# Rules of the task ---------------------------------------------------------------------------


def test_as_many_iterations_are_tried_as_ops_that_need_one_each() -> None:
    work = {f"inv_kron_A:m{number}": [(0, 2)] for number in range(12)}
    made = KfacInstance.parse(
        {"time_unit": "ns", "timelines": [{**PIPE, **work}], "margin_ratio": 0}
    )
    result = ppsolve.optimize(made, time_limit=20, workers=1)
    assert (result.status, result.value, result.bound) == (Status.OPTIMAL, 12, 12)


def test_parts_of_a_curvature_come_in_the_order_of_their_micro_batches() -> None:
    # The data of both is there at 2; the parts fill the hole from 2 to 6.
    line = {
        "call_forward": [(0, 1), (1, 2)],
        "call_backward": [(6, 8), (8, 10)],
        "cov_kron_A:m": [(0, 4)],
    }
    made = KfacInstance.parse(
        {"time_unit": "ns", "timelines": [line], "margin_ratio": 0}
    )
    result = ppsolve.optimize(made, time_limit=20, workers=1)
    assert result.value == 1
    assert result.schedule is not None
    data = result.schedule.model_dump(mode="json")
    assert ppsolve.check(made, data) == []
    ops = {op["id"]: op for op in data["ops"]}
    first, second = ops["0/cov_kron_A:m#0"], ops["0/cov_kron_A:m#1"]
    assert (first["start"], second["start"]) == (2, 4)
    first |= {"start": 4, "end": 6}
    second |= {"start": 2, "end": 4}
    assert [violation.rule for violation in ppsolve.check(made, data)] == ["precedence"]

"""Steps that take too long are left behind, and the rest of the run goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import ppsolve
from ppsolve import Progress, Status
from ppsolve.models.core.result import StopReason
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics, find_heuristic
from ppsolve.solver.board import Board, Bound, Incumbent
from ppsolve.solver.bounds import lower_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.run import schedule_task, steps
from ppsolve.solver.run import solve_run as runs
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.progress import TICK, ProgressReporter
from tests.clocks import CountingClock

PIPELINE = ppsolve.PipelineInstance(
    num_devices=3,
    num_microbatches=6,
    times={
        "forward": [3, 5, 4],
        "backward_input": [4, 3, 5],
        "backward_weight": [2, 4, 3],
    },
    memory={"capacity": 3, "activation": 1, "released_by_backward_weight": 0.43},
)


RELEASED = threading.Event()
"""Set once all tests have run, so that what was left behind ends."""


@pytest.fixture(autouse=True, scope="module")
def released() -> Iterator[None]:
    yield
    RELEASED.set()


def forever(*_: Any, **__: Any) -> Any:
    RELEASED.wait()


def run(names: list[str], endless: str, clock: Clock) -> Any:
    """Solve with some heuristics, of which one never ends."""
    heuristics = [
        replace(heuristic, propose=forever) if heuristic.name == endless else heuristic
        for heuristic in chosen_heuristics(PIPELINE, names)
    ]
    options = Options(time_limit=clock.left)
    return runs.SolveRun(
        kind_of(PIPELINE).task(PIPELINE), heuristics, options, clock=clock
    ).execute()


def test_a_heuristic_that_does_not_end_has_failed_and_the_run_goes_on() -> None:
    result = run(["1f1b", "list-tail", "list-work"], "list-tail", Clock(2.0))
    assert [(entry.name, entry.status) for entry in result.heuristics] == [
        ("1f1b", "feasible"),
        ("list-tail", "failed"),
        ("list-work", "failed"),
    ]
    assert result.heuristics[1].reason == runs.OUT_OF_TIME
    assert 0 < result.value <= result.heuristics[0].value


def test_a_search_that_does_not_end_is_left_out() -> None:
    result = run(["list-tail", "list-sweep"], "list-sweep", Clock(1.0))
    assert [entry.name for entry in result.heuristics] == ["list-tail"]
    assert result.status in {Status.FEASIBLE, Status.OPTIMAL}


def test_bounds_that_do_not_end_leave_time_for_a_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule_task, "quick_bounds", lambda *_: forever() or ())
    result = ppsolve.optimize(PIPELINE, time_limit=1.0, heuristics=["list-tail"])
    assert (result.status, result.bound_by) in {
        (Status.FEASIBLE, "trivial"),
        (Status.FEASIBLE, "cp-sat"),
        (Status.OPTIMAL, "cp-sat"),
    }
    assert [entry.status for entry in result.heuristics] == ["feasible"]


def test_no_time_at_all_is_an_answer_too() -> None:
    result = run(["1f1b", "zbv", "list-tail"], "", Clock(1e-9))
    assert (result.status, result.stop_reason) == (Status.UNKNOWN, StopReason.TIME)
    # What cannot be run is not blamed on the clock.
    assert [entry.status for entry in result.heuristics] == [
        "failed",
        "not_applicable",
        "failed",
    ]


def test_a_limit_of_zero_asks_no_clock() -> None:
    options = Options(time_limit=0.0)
    assert not options.clock().is_limited
    assert options.limits(Clock()).seconds == 0.0
    assert not Options(time_limit=3.0, deterministic=True).clock().is_limited
    limits = Options(time_limit=3.0, deterministic=True).limits(Clock())
    assert (limits.seconds, limits.deterministic) == (None, 3.0)


def test_time_counts_from_when_the_call_began() -> None:
    clock = Options(time_limit=3.0).clock(began=-1e9)
    assert clock.is_over
    assert clock.before(1.0).is_over


def test_bounds_stop_when_their_clock_is_over() -> None:
    problem = kind_of(PIPELINE).lower(PIPELINE)
    implied = schedule_task.ImpliedOrder(problem)
    found = [
        {bound.name: bound.value for bound in lower_bounds(implied, clock)}
        for clock in (Clock(0.0), CountingClock(2), None)
    ]
    assert 0 < len(found[0]) <= len(found[1]) <= len(found[2])
    assert all(
        found[2][name] >= value for bounds in found for name, value in bounds.items()
    )


class Told:
    """A listener and its clock, whose seconds the test sets."""

    def __init__(self) -> None:
        self.events: list[Progress] = []
        self.seconds = 0.0
        told = self

        class _Clock(Clock):
            @property
            def elapsed(self) -> float:
                return told.seconds

        self.board = Board()
        self.reporter = ProgressReporter(
            self.events.append, _Clock(), self.board, lambda value: value
        )


def test_a_phase_is_told_again_after_a_silent_second() -> None:
    told = Told()
    told.board.incumbent, told.board.bound = Incumbent(7, "a", Any), Bound("b", 5)  # type: ignore[arg-type]
    told.reporter.tell("phase", "cp-sat")
    told.reporter.tick()
    told.seconds = TICK
    told.reporter.tick()
    told.reporter.tick()
    assert [(event.event, event.source) for event in told.events] == [
        ("phase", "cp-sat")
    ] * 2
    assert (told.events[1].incumbent, told.events[1].bound) == (7, 5)
    assert told.events[1].gap == pytest.approx(2 / 7)


def test_the_board_tells_of_better_bounds() -> None:
    told = Told()
    for value in (3, 5, 4):
        told.board.raise_bound(value, "rule")
    assert [(event.event, event.source, event.bound) for event in told.events] == [
        ("bound", "rule", 3),
        ("bound", "rule", 5),
    ]


def test_nothing_is_told_once_the_run_is_over() -> None:
    told = Told()
    told.reporter.close()
    told.reporter.tell("incumbent", "a")
    assert told.events == []
    assert not told.reporter.is_heard


def test_a_search_tells_of_its_best_while_it_goes_on() -> None:
    names = ["1f1b", "list-sweep"]
    task = kind_of(PIPELINE).task(PIPELINE)
    for name in names:
        task.run_heuristic(find_heuristic(name))
    first, better = (task.outcomes[name] for name in names)
    assert first.schedule is not None
    assert better.schedule is not None

    def tells(request: Any) -> Any:
        request.effort.board.propose(better.schedule, "list-sweep")
        return forever()

    heuristics = [
        find_heuristic("1f1b"),
        replace(find_heuristic("list-sweep"), propose=tells),
    ]
    result = runs.SolveRun(
        kind_of(PIPELINE).task(PIPELINE),
        heuristics,
        Options(time_limit=2.0),
        clock=Clock(2.0),
    ).execute()
    assert better.schedule.value < first.schedule.value
    assert result.value is not None
    assert result.value <= better.schedule.value


def test_a_small_problem_is_searched_exactly_for_half_of_the_time_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def solve(turn: Any, limits: Any, **_: Any) -> StopReason:
        given.append(limits.seconds)
        return StopReason.TIME

    monkeypatch.setattr(steps, "solve_model", solve)
    ppsolve.optimize(PIPELINE, time_limit=100, heuristics=["1f1b", "list-sweep"])
    # The rest is for the sweep, which takes a tenth of a second where CP-SAT takes two.
    assert 0 < given[0] <= 50


def test_a_second_proof_that_does_not_end_leaves_the_first_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule_task.ScheduleTask, "verify", forever)
    found = ppsolve.optimize(PIPELINE, time_limit=3.0, heuristics=["1f1b"], verify=True)
    assert (found.status, found.bound_verified) == (Status.OPTIMAL, None)

"""The deadline is kept whatever CP-SAT does: told to end, waited for shortly, then given up on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from ortools.sat.python import cp_model

from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact import model as models
from ppsolve.solver.exact import search
from ppsolve.solver.exact.question import ExactAnswer, SearchLimits
from ppsolve.solver.exact.search import SharedIncumbent
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.small import at, op, small

PROBLEM = small([op("a", 2, "r"), op("b", 3, "r"), op("c", 4, "s")])
Work = Callable[[cp_model.CpModel, Any, Any], int]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let searches that hear nothing end with the test, and count none of other tests."""
    event, abandoned = threading.Event(), list[search.SolverRun]()
    monkeypatch.setattr(search, "_ABANDONED", abandoned)
    yield event
    event.set()
    for run in abandoned:
        run.wait(5.0)
    abandoned.clear()


def deaf(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    """Put `work` in the place of CP-SAT's search, which then hears no request to stop."""
    monkeypatch.setattr(
        cp_model.CpSolver,
        "solve",
        lambda self, model, callback: work(model, self, callback),
    )
    monkeypatch.setattr(search, "WAIT", replace(search.WAIT, poll=0.001))
    monkeypatch.setattr(search, "WAIT", replace(search.WAIT, grace=0.0))


def search_for(limits: SearchLimits, **given: Any) -> ExactAnswer:
    return solve(
        ImpliedOrder(PROBLEM), incumbent=None, limits=limits, **{"lower": 3, **given}
    )


def test_a_search_that_hears_nothing_is_given_up_on(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    deaf(monkeypatch, lambda *_: release.wait(30) and 0)
    found = search_for(SearchLimits(seconds=0.2))
    assert not release.is_set()
    assert len(search._ABANDONED) == 1
    assert (found.schedule, found.bound, found.infeasible) == (None, 3, False)
    assert found.stop_reason is StopReason.TIME


@pytest.mark.parametrize(
    ("value", "bound", "gap", "reason"),
    [
        (7, 4, 0.0, StopReason.TIME),
        (7, 4, 0.5, StopReason.GAP),
        (5, 5, 0.0, StopReason.PROVED),
    ],
)
def test_what_it_told_before_is_the_answer(
    value: int,
    bound: int,
    gap: float,
    reason: StopReason,
    monkeypatch: pytest.MonkeyPatch,
    release: threading.Event,
) -> None:
    def work(model: cp_model.CpModel, solver: Any, callback: Any) -> int:
        callback._found.note_solution([0, value - 3, 0, value], value)
        solver.best_bound_callback(float(bound))
        release.wait(30)
        return 0

    deaf(monkeypatch, work)
    board = Board()
    found = search_for(SearchLimits(seconds=0.5, gap=gap), board=board)
    assert not release.is_set()
    assert found.schedule is not None
    assert found.schedule.start.tolist() == [0, value - 3, 0]
    assert (found.bound, found.stop_reason, board.value) == (bound, reason, value)


def test_nobody_is_told_after_the_end(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    later: list[Any] = []

    def work(model: cp_model.CpModel, solver: Any, callback: Any) -> int:
        later.append((callback._found, solver))
        release.wait(30)
        return 0

    deaf(monkeypatch, work)
    board, told = Board(), list[str]()
    board.subscribe(lambda event, by: told.append(event))
    search_for(SearchLimits(seconds=0.5), board=board)
    heard, solver = later[0]
    heard.note_solution([0, 2, 0, 5], 5)
    solver.best_bound_callback(5.0)
    assert told == []


def test_an_interrupt_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    deaf(monkeypatch, lambda *_: release.wait(30) and 0)

    def pressed(found: SharedIncumbent) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SharedIncumbent, "take_incumbent", pressed)
    found = search_for(SearchLimits(seconds=None))
    assert not release.is_set()
    assert found.stop_reason is StopReason.INTERRUPTED


def test_the_clock_of_the_call_ends_the_search(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    clock = Clock()

    def work(*_: Any) -> int:
        clock.stop()
        release.wait(30)
        return 0

    deaf(monkeypatch, work)
    found = search_for(SearchLimits(seconds=None, clock=clock))
    assert not release.is_set()
    assert found.stop_reason is StopReason.TIME


def test_without_a_wall_limit_the_search_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    polls: list[float] = []
    wait = search.SolverRun.wait

    def counted(self: search.SolverRun, seconds: float) -> bool:
        polls.append(seconds)
        return wait(self, seconds)

    monkeypatch.setattr(search.SolverRun, "wait", counted)
    found = search_for(SearchLimits(seconds=None, deterministic=10.0))
    assert (found.bound, found.stop_reason) == (5, StopReason.PROVED)
    assert polls


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5])
def test_building_ends_with_the_clock(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Clock] = []

    def ask(clock: Clock) -> None:
        asked.append(clock)
        if len(asked) > after:
            raise models.OutOfTimeError

    monkeypatch.setattr(models, "_ask", ask)
    found = search_for(SearchLimits(seconds=9.0))
    assert len(asked) == after + 1
    assert (found.schedule, found.bound, found.infeasible) == (None, 3, False)
    assert found.stop_reason is StopReason.TIME


def test_nothing_is_built_that_the_bound_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(models.CpsatModel, "build")
    found = solve(
        ImpliedOrder(PROBLEM),
        lower=5,
        incumbent=at(PROBLEM, 0, 2, 0),
        limits=SearchLimits(),
    )
    assert found.schedule is not None
    assert (found.schedule.value, found.bound) == (5, 5)
    assert found.stop_reason is StopReason.PROVED


def test_what_the_search_raises_is_raised_to_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: Any) -> int:
        raise MemoryError("no room")

    deaf(monkeypatch, work)
    with pytest.raises(MemoryError, match="no room"):
        search_for(SearchLimits(seconds=9.0))


@pytest.mark.processes
@pytest.mark.parametrize("code", [0, 4])
def test_a_search_that_never_ends_does_not_keep_the_process(code: int) -> None:
    script = f"""
import sys, threading
from ppsolve.solver.exact import search
class Stuck(search.SolverRun):
    def __init__(self): pass
    def stop(self, grace): return False
Stuck().abandon()
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("said")
search.await_abandoned({code}, patience=0.0)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (code, "said", "")

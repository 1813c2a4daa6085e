"""Schedules from elsewhere: they end the search where they meet the bound or the gap."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ortools.sat.python import cp_model

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board, Incumbent
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact import search
from ppsolve.solver.exact.question import EXACT, ExactAnswer, SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.small import at, op, small

PROBLEM = small([op("a", 2, "r"), op("b", 3, "r"), op("c", 4, "s")])


class FakeSearch:
    """A search that finds the solutions that it is told, and goes on until it is stopped."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, solutions: list[tuple[list[int], int]]
    ):
        self.starts = 0
        self._stopped = threading.Event()
        fake = self

        def work(solver: Any, model: Any, callback: Any) -> int:
            fake.starts += 1
            for solution, value in solutions:
                callback._found.note_solution(solution, value)
            fake._stopped.wait(30)
            return int(cp_model.UNKNOWN)

        monkeypatch.setattr(cp_model.CpSolver, "solve", work)
        monkeypatch.setattr(
            cp_model.CpSolver, "stop_search", lambda _: self._stopped.set()
        )
        monkeypatch.setattr(cp_model.CpSolver, "deterministic_time", 1.0)
        empty = type("Response", (), {"solution": (), "inner_objective_lower_bound": 0})
        monkeypatch.setattr(cp_model.CpSolver, "response_proto", empty)
        monkeypatch.setattr(search, "WAIT", replace(search.WAIT, poll=0.001))


class FedBoard(Board):
    """A board whose incumbent is whatever a function gives."""

    def __init__(self, feed: Callable[[], Schedule | None]) -> None:
        self._feed = feed
        super().__init__()

    def __getattribute__(self, name: str) -> Any:
        if name != "incumbent":
            return super().__getattribute__(name)
        fed = self._feed()
        return None if fed is None else Incumbent(fed.value, "elsewhere", fed)


def search_for(feed: Callable[[], Schedule | None], **given: Any) -> ExactAnswer:
    options = {
        "lower": 3,
        "incumbent": None,
        "limits": SearchLimits(seconds=60),
        **given,
    }
    return solve(ImpliedOrder(PROBLEM), board=FedBoard(feed), **options)


def test_a_fed_schedule_that_meets_the_bound_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSearch(monkeypatch, [([0, 4, 0, 7], 7)])
    found = search_for(lambda: at(PROBLEM, 0, 2, 0), lower=5)
    assert found.schedule is not None
    assert (found.schedule.value, found.bound, found.stop_reason) == (
        5,
        5,
        StopReason.PROVED,
    )
    assert fake.starts == 1


def test_a_fed_schedule_within_the_gap_ends_it_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeSearch(monkeypatch, [([0, 4, 0, 7], 7)])
    limits = SearchLimits(seconds=60, gap=0.5)
    found = search_for(lambda: at(PROBLEM, 0, 2, 0), limits=limits)
    assert found.schedule is not None
    assert (found.schedule.value, found.bound, found.stop_reason) == (
        5,
        3,
        StopReason.GAP,
    )


def test_a_better_fed_schedule_is_kept_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSearch(monkeypatch, [([0, 5, 0, 8], 8)])
    clock = Clock()
    asked: list[int] = []

    def feed() -> Schedule:
        asked.append(1)
        if len(asked) == 20:
            clock.stop()
        return at(PROBLEM, 3, 0, 0)

    found = search_for(feed, limits=SearchLimits(seconds=60, clock=clock))
    assert fake.starts == 1
    assert found.schedule is not None
    assert (found.schedule.value, found.stop_reason) == (5, StopReason.TIME)


def test_what_is_no_better_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSearch(monkeypatch, [([0, 2, 0, 5], 5)])
    clock = Clock()

    def feed() -> Schedule:
        if fake.starts:
            clock.stop()
        return at(PROBLEM, 4, 0, 0)

    found = search_for(feed, limits=SearchLimits(seconds=60, clock=clock))
    assert found.schedule is not None
    assert found.schedule.start.tolist() == [0, 2, 0]


def test_every_better_schedule_of_the_search_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeSearch(monkeypatch, [([0, 5, 0, 8], 8), ([0, 4, 0, 7], 7), ([5, 0, 0, 7], 7)])
    told: list[Schedule] = []
    clock, board = Clock(), Board()

    def listen(event: str, by: str) -> None:
        assert (event, by) == ("incumbent", EXACT)
        assert board.schedule is not None
        told.append(board.schedule)
        if len(told) == 2:
            clock.stop()

    board.subscribe(listen)
    limits = SearchLimits(seconds=60, clock=clock)
    solve(ImpliedOrder(PROBLEM), lower=3, limits=limits, board=board)
    assert [schedule.value for schedule in told] == [8, 7]
    assert all(check_schedule(PROBLEM, schedule) == [] for schedule in told)


def test_alike_microbatches_of_a_fed_schedule_are_put_in_order() -> None:
    problem = small([op("a", 2, "r"), op("b", 2, "r")], families=[[["a"], ["b"]]])
    found = solve(
        ImpliedOrder(problem),
        lower=4,
        incumbent=None,
        limits=SearchLimits(seconds=20),
        board=FedBoard(lambda: at(problem, 7, 5)),
    )
    assert found.schedule is not None
    assert (found.schedule.start.tolist(), found.bound) == ([0, 2], 4)

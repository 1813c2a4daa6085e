"""Schedules from elsewhere: they end the search where they meet the bound, and start it again."""

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
from tests.exact.models import model_of
from tests.small import at, op, small

PROBLEM = small([op("a", 2, "r"), op("b", 3, "r"), op("c", 4, "s")])


class FakeSearch:
    """Searches that do as they are told, one list of told solutions for each start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *starts: list[tuple[list[int], int]]):
        self.starts = list(starts)
        self.hints: list[list[int]] = []
        self.uppers: list[int] = []
        self._stopped = threading.Event()
        fake = self

        def work(solver: Any, model: Any, callback: Any) -> int:
            fake._stopped.clear()
            fake.hints.append(list(model.proto.solution_hint.values))
            fake.uppers.append(model.proto.variables[3].domain[1])
            for solution, value in fake.starts.pop(0):
                callback._found.note_solution(solution, value)
            fake._stopped.wait(30)
            return int(cp_model.UNKNOWN)

        monkeypatch.setattr(cp_model.CpSolver, "solve", work)
        monkeypatch.setattr(cp_model.CpSolver, "stop_search", lambda _: self._stopped.set())
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
    options = {"lower": 3, "incumbent": None, "limits": SearchLimits(seconds=60), **given}
    return solve(ImpliedOrder(PROBLEM), board=FedBoard(feed), **options)


def test_a_fed_schedule_that_meets_the_bound_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSearch(monkeypatch, [([0, 4, 0, 7], 7)])
    found = search_for(lambda: at(PROBLEM, 0, 2, 0), lower=5)
    assert found.schedule is not None
    assert (found.schedule.value, found.bound, found.stop_reason) == (5, 5, StopReason.PROVED)
    assert len(fake.hints) == 1


def test_a_fed_schedule_within_the_gap_ends_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSearch(monkeypatch, [([0, 4, 0, 7], 7)])
    limits = SearchLimits(seconds=60, gap=0.5)
    found = search_for(lambda: at(PROBLEM, 0, 2, 0), limits=limits)
    assert found.schedule is not None
    assert (found.schedule.value, found.bound, found.stop_reason) == (5, 3, StopReason.GAP)


def test_the_search_starts_again_from_a_fed_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WAIT", replace(search.WAIT, first_calm=0.0))
    fake = FakeSearch(monkeypatch, [([0, 5, 0, 8], 8)], [([0, 3, 0, 6], 6)], [([0, 2, 0, 5], 5)])
    fed = [at(PROBLEM, 4, 0, 0), at(PROBLEM, 3, 0, 0), at(PROBLEM, 0, 2, 0)]
    clock = Clock()

    def feed() -> Schedule | None:
        """Give what is better than the latest start each time, and end after the third."""
        starts = len(fake.hints)
        if starts == 3:
            clock.stop()
        return fed[starts - 1] if starts else None

    limits = SearchLimits(seconds=60, deterministic=9.0, clock=clock)
    incumbent = at(PROBLEM, 9, 0, 0)
    found = search_for(feed, incumbent=incumbent, limits=limits)
    assert fake.uppers == [11, 6, 5]
    assert fake.hints[1] == [4, 0, 0, 6]
    assert found.schedule is not None
    assert (found.schedule.value, found.deterministic_time) == (5, 3.0)


def test_calm_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WAIT", replace(search.WAIT, first_calm=1e6))
    fake = FakeSearch(monkeypatch, [([0, 5, 0, 8], 8)])
    clock = Clock()
    asked: list[int] = []

    def feed() -> Schedule:
        asked.append(1)
        if len(asked) == 20:
            clock.stop()
        return at(PROBLEM, 3, 0, 0)

    found = search_for(feed, limits=SearchLimits(seconds=60, clock=clock))
    assert len(fake.hints) == 1
    assert found.schedule is not None
    assert (found.schedule.value, found.stop_reason) == (5, StopReason.TIME)


def test_what_is_no_better_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WAIT", replace(search.WAIT, first_calm=0.0))
    fake = FakeSearch(monkeypatch, [([0, 2, 0, 5], 5)])
    clock = Clock()

    def feed() -> Schedule:
        if fake.hints:
            clock.stop()
        return at(PROBLEM, 4, 0, 0)

    found = search_for(feed, limits=SearchLimits(seconds=60, clock=clock))
    assert found.schedule is not None
    assert found.schedule.start.tolist() == [0, 2, 0]


def test_every_better_schedule_of_the_search_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("objective", ["makespan", "device_span"])
def test_a_tightened_model_keeps_every_schedule_as_good(objective: str) -> None:
    ops = [op("f0", 2, "r"), op("f1", 2, "r"), op("g0", 3, "s"), op("g1", 3, "s")]
    edges = [("f0", "g0"), ("f1", "g1")]
    families = [[["f0", "g0"], ["f1", "g1"]]]
    problem = small(ops, edges, families=families, objective=objective)
    worse, better = at(problem, 0, 5, 4, 9), at(problem, 0, 2, 2, 5)
    model = model_of(problem, hint=worse, window_work=True)
    model.tighten(3, better)
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(model.variables.model) == cp_model.OPTIMAL
    assert round(solver.objective_value) == better.value
    model.tighten(3, better)
    free = cp_model.CpSolver()
    assert free.solve(model.variables.model) == cp_model.OPTIMAL
    assert round(free.objective_value) == better.value


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

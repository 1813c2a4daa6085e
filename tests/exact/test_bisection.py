"""Questions about targets: what they raise, lower and never claim."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board, Incumbent
from ppsolve.solver.exact.exact import Bisection
from ppsolve.solver.exact.params import BisectionParams
from ppsolve.solver.exact.question import Company, ExactAnswer, Question, SearchLimits
from tests.small import op, small

LIMITS = SearchLimits(seconds=None, deterministic=100.0, workers=2)


class Oracle:
    """A search that knows the optimum of one op that ends no earlier than it."""

    def __init__(
        self, optimum: int, *, hard: range = range(0), is_exact: bool = True
    ) -> None:
        self.problem = small([op("a", 1)])
        self.optimum, self.hard, self.is_exact = optimum, hard, is_exact
        self.asked: list[tuple[int | None, SearchLimits]] = []

    def schedule(self, value: int) -> Schedule:
        return Schedule(self.problem, np.array([value - 1], dtype=np.int64))

    def __call__(self, question: Question, limits: SearchLimits) -> ExactAnswer:
        target, lower, known = question.upper, question.lower, question.known
        self.asked.append((target, limits))
        stop, exact = StopReason.DETERMINISTIC, self.is_exact
        if target is None or target in self.hard:
            return ExactAnswer(known, lower, False, stop, exact, 1.0)
        if target < self.optimum:
            return ExactAnswer(None, None, True, StopReason.INFEASIBLE, exact, 1.0)
        return ExactAnswer(
            self.schedule(target), lower, False, StopReason.GAP, exact, 1.0
        )


def closed(oracle: Oracle, lower: int, value: int, **given: Any) -> Bisection:
    limits = given.pop("limits", LIMITS)
    board = given.pop("board", None) or Board.beginning(oracle.schedule(value), lower)
    company, params = (
        given.get("company", Company.NEW),
        given.get("params", BisectionParams()),
    )
    bisection = Bisection(oracle, board, limits, company, params)
    bisection.run()
    return bisection


@pytest.mark.parametrize("optimum", [10, 11, 57, 99, 100])
def test_halving_meets_the_optimum_from_both_sides(optimum: int) -> None:
    oracle = Oracle(optimum)
    bisection = closed(oracle, 10, 100)
    assert (bisection.lower, bisection.schedule.value) == (optimum, optimum)
    assert bisection.answer().stop_reason is StopReason.PROVED
    assert len([target for target, _ in oracle.asked if target is not None]) <= 1 + 7


def test_the_bound_is_asked_first_by_one_worker_of_two() -> None:
    oracle = Oracle(10)
    closed(oracle, 10, 100)
    [(target, limits)] = oracle.asked
    assert (target, limits.workers, limits.gap, limits.dynamic_orders) == (
        10,
        1,
        1.0,
        True,
    )


def test_beside_another_search_anything_better_is_asked_for_first() -> None:
    oracle = Oracle(100)
    bisection = closed(oracle, 10, 100, company=Company.SHARED)
    [(target, limits)] = oracle.asked
    # To the end: a first better schedule is not enough.
    assert (target, limits.gap) == (99, 0.0)
    assert (bisection.lower, bisection.is_closed) == (100, True)


def test_after_searches_the_bound_is_asked_for_first_then_anything_better() -> None:
    oracle = Oracle(1000)
    bisection = closed(oracle, 990, 1000, company=Company.SEARCHED)
    assert [(target, limits.gap) for target, limits in oracle.asked] == [
        (990, 1.0),
        (999, 0.0),
    ]
    assert (bisection.lower, bisection.is_closed) == (1000, True)
    wide = Oracle(1000)
    closed(wide, 900, 1000, company=Company.SEARCHED)
    assert [target for target, _ in wide.asked] == [999]


def test_a_schedule_that_nobody_searched_for_is_halved() -> None:
    oracle = Oracle(100)
    closed(oracle, 10, 100)
    assert [target for target, _ in oracle.asked][:4] == [10, None, 55, 77]


def test_anything_better_is_asked_for_by_every_round_with_twice_the_effort() -> None:
    oracle = Oracle(50, hard=range(101))
    closed(oracle, 10, 100, company=Company.SEARCHED)
    asked = [limits.deterministic for target, limits in oracle.asked if target == 99]
    assert asked[:3] == [4.0, 8.0, 16.0]


def test_schedules_from_elsewhere_are_taken_between_questions() -> None:
    oracle = Oracle(50)
    board = Board.beginning(oracle.schedule(100), 10)
    search = Bisection(oracle, board, LIMITS, Company.SHARED, BisectionParams())
    board.incumbent = Incumbent(50, "elsewhere", oracle.schedule(50))
    search.run()
    bisection = search
    assert oracle.asked[0][0] == 49
    assert (bisection.lower, bisection.schedule.value) == (50, 50)


def test_many_workers_are_all_asked() -> None:
    oracle = Oracle(10)
    closed(
        oracle, 10, 100, limits=SearchLimits(seconds=None, deterministic=9.0, workers=8)
    )
    assert oracle.asked[0][1].workers == 8


def test_what_is_not_answered_is_neither_refuted_nor_found() -> None:
    bisection = closed(Oracle(50, hard=range(40, 60)), 10, 100)
    assert 38 <= bisection.lower <= 40
    assert 60 <= bisection.schedule.value < 100
    assert not bisection.is_closed


def test_a_round_without_an_answer_doubles_the_effort_and_minimises() -> None:
    oracle = Oracle(50, hard=range(101))
    closed(oracle, 10, 100)
    minimised = [
        limits.deterministic for target, limits in oracle.asked if target is None
    ]
    assert minimised[:3] == [4.0, 8.0, 16.0]


def test_what_minimising_finds_is_kept() -> None:
    oracle = Oracle(50, hard=range(101))

    def search(question: Question, limits: SearchLimits) -> ExactAnswer:
        answer = oracle(question, limits)
        found = oracle.schedule(60) if question.upper is None else answer.schedule
        return replace(answer, schedule=found, bound=None)

    board = Board.beginning(oracle.schedule(100))
    bisection = Bisection(search, board, LIMITS, Company.NEW, BisectionParams())
    bisection.run()
    assert (bisection.lower, bisection.schedule.value) == (0, 60)


def test_no_question_takes_more_than_what_is_left() -> None:
    oracle = Oracle(50, hard=range(101))
    closed(oracle, 10, 100, limits=replace(LIMITS, deterministic=1.5))
    taken = [limits.deterministic for _, limits in oracle.asked]
    assert taken and all(units is not None and 0 < units <= 1.5 for units in taken)


def test_a_part_of_the_deterministic_time_is_left() -> None:
    bisection = closed(Oracle(50, hard=range(101)), 10, 100)
    assert bisection.units == 80.0
    assert bisection.left.deterministic == 20.0


def test_a_gap_that_is_asked_for_ends_the_questions() -> None:
    limits = SearchLimits(seconds=None, deterministic=100.0, gap=0.2)
    bisection = closed(Oracle(50), 10, 100, limits=limits)
    assert bisection.lower <= 50 <= bisection.schedule.value <= 1.25 * bisection.lower
    assert bisection.answer().stop_reason is StopReason.GAP


def test_schedules_of_rounded_memory_are_not_taken_but_refuted_targets_are() -> None:
    oracle = Oracle(50, is_exact=False)
    bisection = closed(oracle, 50, 100)
    assert (bisection.lower, bisection.schedule.value) == (50, 100)
    assert len(oracle.asked) == 1
    assert closed(Oracle(100, is_exact=False), 10, 100).lower == 11


def test_bounds_are_told_as_they_rise() -> None:
    oracle, told = Oracle(57), list[int]()
    board = Board.beginning(oracle.schedule(100), 10)
    board.subscribe(lambda event, by: told.append(board.bound.value))
    Bisection(oracle, board, LIMITS, Company.NEW, BisectionParams()).run()
    assert told == sorted(set(told))
    assert told[-1] == 57


def test_other_objectives_than_times_are_not_asked_about() -> None:
    oracle = Oracle(50)
    oracle.problem = replace(oracle.problem, objective=Objective.COMPLETION)
    board = Board()
    board.incumbent = Incumbent(100, "given", oracle.schedule(100))
    closed(oracle, 10, 100, board=board)
    assert not oracle.asked


class TestTwoWorkers:
    """Halves are asked for on a thread of their own."""

    limits = SearchLimits(seconds=60.0, workers=2)

    @pytest.mark.parametrize("optimum", [10, 11, 57, 99, 100])
    def test_they_meet_the_optimum(self, optimum: int) -> None:
        oracle = Oracle(optimum)
        bisection = closed(
            oracle, 10, 100, limits=self.limits, company=Company.SEARCHED
        )
        assert (bisection.lower, bisection.schedule.value) == (optimum, optimum)
        assert bisection.left.workers == 2
        assert {limits.workers for _, limits in oracle.asked} == {1}

    @pytest.mark.parametrize("blocked", ["halves", threading.main_thread().name])
    def test_a_question_ends_when_the_other_thread_has_closed_the_gap(
        self, blocked: str
    ) -> None:
        overdue: list[float] = []

        class Blocked(Oracle):
            def __call__(self, question: Question, limits: SearchLimits) -> ExactAnswer:
                if threading.current_thread().name != blocked:
                    return super().__call__(question, limits)
                clock = limits.start()
                while not clock.is_over:
                    time.sleep(0.001)
                overdue.append(clock.overdue)
                return ExactAnswer(None, 0, False, StopReason.TIME, True, 0.0)

        bisection = closed(
            Blocked(100), 10, 100, limits=self.limits, company=Company.SEARCHED
        )
        assert bisection.is_closed
        assert not any(overdue)

    def test_of_a_wide_gap_the_bound_is_not_asked_for(self) -> None:
        wide = Oracle(57)
        closed(wide, 10, 100, limits=self.limits, company=Company.SEARCHED)
        assert 10 not in [target for target, _ in wide.asked]
        narrow = Oracle(100, hard=range(99, 100))
        closed(
            narrow,
            99,
            100,
            limits=replace(self.limits, seconds=0.5),
            company=Company.SEARCHED,
        )
        assert 99 in [target for target, _ in narrow.asked]

    def test_what_fails_on_the_other_thread_ends_this_one_and_is_raised(self) -> None:
        overdue: list[float] = []

        class Broken(Oracle):
            def __call__(self, question: Question, limits: SearchLimits) -> ExactAnswer:
                if threading.current_thread().name == "halves":
                    raise ArithmeticError
                clock = limits.start()
                while not clock.is_over:
                    time.sleep(0.001)
                overdue.append(clock.overdue)
                return ExactAnswer(None, 0, False, StopReason.TIME, True, 0.0)

        with pytest.raises(ArithmeticError):
            closed(Broken(100), 10, 100, limits=self.limits, company=Company.SEARCHED)
        assert not any(overdue)

    def test_of_large_problems_all_is_asked_on_one_thread(self) -> None:
        params = BisectionParams(paired_ops=0)
        threads = set[str]()

        class Noting(Oracle):
            def __call__(self, question: Question, limits: SearchLimits) -> ExactAnswer:
                threads.add(threading.current_thread().name)
                return super().__call__(question, limits)

        assert closed(
            Noting(57),
            10,
            100,
            limits=self.limits,
            company=Company.SEARCHED,
            params=params,
        ).is_closed
        assert threads == {threading.current_thread().name}

    @pytest.mark.parametrize(
        ("limits", "given"),
        [
            (replace(limits, workers=3), {"company": Company.SEARCHED}),
            (replace(limits, deterministic=9.0), {"company": Company.SEARCHED}),
            (limits, {"company": Company.NEW}),
            (limits, {"company": Company.SHARED}),
        ],
    )
    def test_otherwise_all_is_asked_on_one_thread(
        self, limits: SearchLimits, given: dict[str, Any]
    ) -> None:
        class Single(Oracle):
            def __call__(self, question: Question, limits: SearchLimits) -> ExactAnswer:
                assert threading.current_thread().name != "halves"
                return super().__call__(question, limits)

        assert closed(Single(57), 10, 100, limits=limits, **given).is_closed

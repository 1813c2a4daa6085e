"""The board: what it keeps, refuses and tells."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board, Incumbent, WrongScheduleError
from tests.small import at, op, small

PROBLEM = small([op("a", 2, "r"), op("b", 3, "r")])


def test_only_better_schedules_are_kept_and_told() -> None:
    board, told = Board(), list[tuple[str, str, int | None]]()
    board.subscribe(lambda event, by: told.append((event, by, board.value)))
    assert board.propose(at(PROBLEM, 4, 0), "one")
    assert not board.propose(at(PROBLEM, 0, 4), "other")
    assert board.propose(at(PROBLEM, 10, 12), "third")
    assert told == [("incumbent", "one", 6), ("incumbent", "third", 5)]
    assert board.schedule is not None
    assert board.schedule.start.tolist() == [0, 2]


def test_a_tie_takes_the_place_but_not_the_name() -> None:
    board = Board()
    board.propose(at(PROBLEM, 0, 2), "one")
    assert not board.propose(at(PROBLEM, 3, 0), "other")
    assert board.propose(at(PROBLEM, 3, 0), "other", ties=True)
    assert board.incumbent is not None
    assert (board.incumbent.by, board.incumbent.schedule.start.tolist()) == (
        "one",
        [3, 0],
    )
    assert not board.propose(at(PROBLEM, 0, 4), "worse", ties=True)


def test_what_breaks_a_rule_is_an_error_that_the_run_sees() -> None:
    board = Board()
    with pytest.raises(WrongScheduleError, match="wrong: "):
        board.propose(at(PROBLEM, 0, 1), "wrong")
    assert isinstance(board.failure, WrongScheduleError)
    assert board.value is None


def test_what_is_no_better_is_not_checked() -> None:
    board = Board()
    board.propose(at(PROBLEM, 0, 2), "one")
    assert not board.propose(Schedule(PROBLEM, np.array([0, 9])), "late")


def test_a_schedule_below_the_bound_is_an_error() -> None:
    board = Board()
    board.raise_bound(6, "false")
    with pytest.raises(
        WrongScheduleError, match="one found 5 below the bound 6 of false"
    ):
        board.propose(at(PROBLEM, 0, 2), "one")


def test_a_schedule_below_a_target_is_kept() -> None:
    board = Board.with_target(at(PROBLEM, 10, 0), 6)
    assert board.propose(at(PROBLEM, 0, 2), "one")
    assert (board.value, board.is_closed) == (5, True)


def test_the_best_bound_of_each_rule_is_listed_as_they_come() -> None:
    board = Board()
    raised = [
        board.raise_bound(*each) for each in ((3, "a"), (2, "b"), (4, "b"), (1, "a"))
    ]
    assert raised == [True, False, True, False]
    assert [(bound.name, bound.value) for bound in board.bounds] == [("a", 3), ("b", 4)]
    assert (board.bound.name, board.bound.value) == ("b", 4)
    board.retract(frozenset({"b"}))
    assert (board.bound.name, board.bound.value) == ("a", 3)


def test_a_gap_is_good_enough_where_it_was_asked_for() -> None:
    board = Board(gap=0.2)
    board.raise_bound(4, "a")
    assert not board.is_good_enough
    board.propose(at(PROBLEM, 0, 2), "one")
    assert (board.is_good_enough, board.is_closed) == (True, False)
    board.gap = 0.19
    assert not board.is_good_enough
    board.raise_bound(5, "b")
    assert board.is_closed


def test_nothing_is_kept_or_told_once_it_is_closed() -> None:
    board, told = Board(), list[str]()
    board.subscribe(lambda event, by: told.append(by))
    board.close()
    assert not board.propose(at(PROBLEM, 0, 2), "one")
    assert not board.raise_bound(3, "a")
    assert (board.value, board.bound.value, told) == (None, 0, [])


def test_a_kind_decides_what_is_kept() -> None:
    def even(
        schedule: Schedule, by: str, best: int | None, order: list[int] | None
    ) -> Incumbent | None:
        return (
            None
            if schedule.value % 2
            else Incumbent(schedule.value, by, schedule, order)
        )

    board = Board(even)
    assert not board.propose(at(PROBLEM, 0, 2), "odd")
    assert board.propose(at(PROBLEM, 0, 3), "even", order=[1, 0])
    assert board.incumbent is not None
    assert board.incumbent.order == [1, 0]


def test_threads_keep_the_best_of_all() -> None:
    long = small([op("a", 1, "r"), op("b", 1, "s")])
    board = Board()
    starts = np.random.default_rng(1).permutation(200).tolist()
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda start: board.propose(at(long, 0, start), str(start)), starts
            )
        )
        list(pool.map(lambda bound: board.raise_bound(-bound, str(bound)), starts))
    assert (board.value, board.bound.value) == (1, 0)

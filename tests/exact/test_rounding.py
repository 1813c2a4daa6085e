"""Memory amounts without a small exact scale: the bound from below, the schedule from above."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact import exact, memory
from ppsolve.solver.exact.params import AmountParams
from ppsolve.solver.exact.question import ExactAnswer, Question, SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve_exactly
from tests.small import at, holding, op, small


@pytest.fixture(autouse=True)
def coarse_amounts() -> Iterator[None]:
    """Leave 6 bits for amounts and never call a rounding exact."""
    with patch.multiple(
        memory, AMOUNTS=AmountParams(2**6, 2**6), _same_sets=lambda *_: False
    ):
        yield


def answer(problem: Problem, **options: Any) -> ExactAnswer:
    given = {
        "lower": 0,
        "incumbent": None,
        "limits": SearchLimits(seconds=20),
        **options,
    }
    return solve_exactly(ImpliedOrder(problem), **given)


def alike(count: int, amount: float, *more: dict[str, Any]) -> Problem:
    return small(
        [*(holding(f"op{k}", 1, amount) for k in range(count)), *more], capacity=1
    )


def test_pairs_that_only_seem_to_fit_are_kept_apart() -> None:
    # 0.504 x 64 is 32.3: rounded down two of them fill 64, rounded up one does not fit beside
    # another. The bound is that of the first model, the schedule that of the second.
    found = answer(alike(6, 0.504))
    assert found.schedule is not None
    assert check_schedule(found.schedule.problem, found.schedule) == []
    assert (found.bound, found.schedule.value) == (3, 6)
    assert found.stop_reason is StopReason.ROUNDING
    assert not found.memory_is_exact


def test_first_schedule_is_the_answer_where_it_is_valid() -> None:
    found = answer(alike(6, 0.499))
    assert found.schedule is not None
    assert (found.bound, found.schedule.value) == (3, 3)
    assert found.stop_reason is StopReason.PROVED


def test_nothing_found_with_amounts_rounded_up_refutes_nothing() -> None:
    # What x and y take is held together and fills the pool exactly; rounded up it does not fit.
    # Rounded down, two of the three others seem to run at once: a schedule that is not valid.
    x = op("x", 1, acquire={"m": 0.301})
    y = op("y", 1, acquire={"m": 0.699}, release_at_end={"m": 1.0})
    problem = small(
        [x, y, *(holding(f"op{k}", 1, 0.504) for k in range(3))],
        [("x", "y")],
        capacity=1,
    )
    found = answer(problem)
    assert found.schedule is None
    assert not found.infeasible
    assert found.bound == 3
    assert found.stop_reason is StopReason.ROUNDING


def test_what_does_not_fit_rounded_down_does_not_fit() -> None:
    x, y = op("x", 0, acquire={"m": 0.6}), op("y", 0, acquire={"m": 0.6})
    found = answer(small([x, y], capacity=1))
    assert found.infeasible
    assert found.stop_reason is StopReason.INFEASIBLE


def test_one_pool_of_rounded_amounts_is_enough_to_round() -> None:
    # The second pool is exact; the first one is not, and its schedule has to be checked.
    ops = [holding(f"op{k}", 1, 0.504) for k in range(4)]
    for each in ops:
        each["acquire"] = {**each["acquire"], "n": 1}
        each["release_at_end"] = {**each["release_at_end"], "n": 1}
    pools = [{"name": "m", "capacity": 1}, {"name": "n", "capacity": 9}]
    with patch.object(memory, "_same_sets", lambda counts, *_: 1 in counts):
        found = answer(small(ops, pools=pools))
    assert found.schedule is not None
    assert (found.bound, found.schedule.value) == (2, 4)
    assert found.stop_reason is StopReason.ROUNDING


def test_second_search_has_the_time_that_is_left_and_the_first_bound() -> None:
    calls: list[tuple[int, SearchLimits, str]] = []
    solve = exact.solve

    def told(
        implied: ImpliedOrder, question: Question, limits: SearchLimits, board: Board
    ) -> Any:
        calls.append((question.lower, limits, question.rounding))
        return solve(implied, question, limits, board)

    limits = SearchLimits(seconds=20.0, deterministic=50.0)
    with patch.object(exact, "solve", told):
        answer(alike(6, 0.504), limits=limits)
    (lower, first, down), (raised, second, up) = calls
    assert (lower, first, down) == (0, limits, "down")
    assert (raised, up) == (3, "up")
    assert second.seconds is not None
    assert second.seconds < 20.0
    assert second.deterministic is not None
    assert second.deterministic < 50.0


def test_both_searches_know_the_best_schedule_and_only_the_first_raises_the_bound() -> (
    None
):
    given: list[Any] = []
    solve = exact.solve

    def told(
        implied: ImpliedOrder, question: Question, limits: SearchLimits, board: Board
    ) -> Any:
        if question.upper is None:
            given.append(question.known)
        return solve(implied, question, limits, board)

    problem = alike(6, 0.504)
    known = at(problem, *range(6))
    board = Board.beginning(known)
    with patch.object(exact, "solve", told):
        answer(problem, incumbent=known, board=board)
    assert given == [known, known]
    # The second search proves 6 with amounts rounded up, which is no bound of the problem.
    assert (board.value, board.bound.value) == (6, 3)


def test_second_search_that_runs_out_of_time_says_so() -> None:
    solve = exact.solve

    def short(
        implied: ImpliedOrder, question: Question, limits: SearchLimits, board: Board
    ) -> Any:
        if question.rounding == "up":
            limits = SearchLimits(seconds=0.0)
        return solve(implied, question, limits, board)

    with patch.object(exact, "solve", short):
        found = answer(alike(6, 0.504))
    assert found.schedule is None
    assert not found.infeasible
    assert found.bound == 3
    assert found.stop_reason is StopReason.TIME

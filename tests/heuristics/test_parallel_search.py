"""Searches on another thread that share a board."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.parallel_search import (
    ParallelSearch,
    Turns,
    order_turns,
    sweep_turns,
)
from ppsolve.solver.heuristics.params import HeuristicParams, TurnParams
from ppsolve.solver.heuristics.sweep import list_sweep

PROBLEM = lower(
    PipelineInstance(
        num_devices=3,
        num_microbatches=6,
        times={
            "forward": [3, 5, 4],
            "backward_input": [4, 3, 5],
            "backward_weight": [2, 4, 3],
        },
        p2p={"latency": 1},
        memory={"capacity": 3, "activation": 1, "released_by_backward_weight": 0.43},
    )
)


def test_it_proposes_its_best_schedule() -> None:
    best, board = list_sweep(PROBLEM), Board()
    with ParallelSearch(
        [sweep_turns(PROBLEM, board, HeuristicParams())], board, Clock(60.0)
    ).at_work():
        while board.value is None or board.value > best.value:
            time.sleep(0.01)
    assert board.incumbent is not None
    assert board.incumbent.by == "list-sweep"
    assert check_schedule(PROBLEM, board.incumbent.schedule) == []


def test_searches_take_turns_from_the_best_until_none_finds_anything() -> None:
    starts = list_sweep(PROBLEM).start
    steps = [Schedule(PROBLEM, starts * factor) for factor in (4, 3, 2)]
    given: list[tuple[str, int | None]] = []
    board = Board()

    def finder(name: str, finds: list[Schedule]) -> Turns:
        def search(clock: Clock) -> None:
            given.append((name, board.value))
            if finds:
                board.propose(finds.pop(0), name)

        return search

    searches = [finder("one", [steps[0], steps[2]]), finder("other", [steps[1]])]
    with ParallelSearch(searches, board, Clock(60.0)).at_work():
        while len(given) < 5:
            time.sleep(0.01)
        time.sleep(0.05)
    first, second, third = (step.value for step in steps)
    assert given == [
        ("one", None),
        ("other", first),
        ("one", second),
        ("other", third),
        ("one", third),
    ]
    assert board.incumbent is not None
    assert (board.incumbent.by, board.value) == ("one", third)


def test_turns_have_a_share_of_what_is_left_but_not_too_little() -> None:
    turns: list[float] = []
    params = TurnParams(share=0.25, least_seconds=2.0)
    for seconds in (100.0, 4.0):
        searches = [lambda clock: turns.append(clock.left)] * 2
        with ParallelSearch(searches, Board(), Clock(seconds), params).at_work():
            time.sleep(0.1)
    assert turns == pytest.approx([25.0, 25.0, 2.0, 2.0], abs=0.2)


def test_what_fails_on_the_other_thread_is_raised() -> None:
    def fails(clock: Clock) -> None:
        raise ArithmeticError

    with (
        pytest.raises(ArithmeticError),
        ParallelSearch([fails], Board(), Clock(60.0)).at_work(),
    ):
        time.sleep(0.1)


def test_a_search_over_orders_goes_on_from_the_best_schedule() -> None:
    worse, best = list_tail(PROBLEM).normalised(), list_sweep(PROBLEM)
    board = Board.beginning(worse, best.value)
    search = order_turns(worse, board, HeuristicParams())
    search(Clock(60.0))
    assert board.value is not None
    assert board.value < worse.value
    known = board.incumbent
    search(Clock(0.0))
    assert board.incumbent is known


def test_a_sweep_takes_a_better_schedule() -> None:
    best = list_sweep(PROBLEM)
    board = Board.beginning(Schedule(PROBLEM, best.start * 2), best.value)
    clock = Clock(60.0)
    assert (
        list_sweep(PROBLEM, Effort(clock, uses_all=True, board=board)).value
        == best.value
    )
    assert not clock.is_over


LINGERS = """
import time
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.parallel_search import ParallelSearch

def search(clock):
    while not clock.is_over:
        time.sleep(0.01)
    time.sleep(0.3)
    print("ended")

with ParallelSearch([search], Board(), Clock()).at_work():
    pass
"""


def test_a_process_waits_for_a_search_that_was_told_to_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINGERS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "ended\n"

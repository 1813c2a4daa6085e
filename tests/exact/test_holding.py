"""Windows in which full devices keep their place, and others are asked to be left sooner."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.board import Board
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.exact.subproblem import FixedOrderGraph, Subproblem, hold_full
from ppsolve.solver.exact.window_lns import WindowLNS
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.exact.test_window_lns import CASES, best_of, windows_of
from tests.small import at, op, small


def one_full_device() -> Subproblem:
    """Return all of a schedule of 8 ticks: r works throughout, s sends c too late."""
    ops = [
        op("a", 4, "r"),
        op("b", 4, "r"),
        op("c", 1, "s"),
        op("d", 1, "s"),
        op("e", 1, "t"),
    ]
    problem = small(ops, [("c", "e", 5)])
    return FixedOrderGraph(ImpliedOrder(problem), at(problem, 0, 4, 1, 0, 7)).part(0, 5)


def test_a_full_device_has_deadlines_and_the_others_have_the_objective() -> None:
    part = one_full_device()
    held = hold_full(part, 7)
    assert held is not None
    assert {
        op: window.tolist() for op, window in held.part.problem.windows.items()
    } == {
        0: [[0, 4]],
        1: [[0, 4]],
    }
    best = best_of(held.part)
    assert best.value == held.value - 1
    assert part.put_back(best).start.tolist()[2:] == [0, 1, 6]
    assert part.put_back(best).value == part.known.value == 8


def test_nothing_is_asked_where_no_device_is_full_or_none_is_left_late() -> None:
    part = one_full_device()
    assert hold_full(part, 8) is None
    ops = [op("a", 4, "r"), op("b", 4, "r"), op("c", 1, "s")]
    early = small(ops)
    assert (
        hold_full(
            FixedOrderGraph(ImpliedOrder(early), at(early, 0, 4, 0)).part(0, 3), 6
        )
        is None
    )


@pytest.mark.parametrize("case", CASES[::3])
def test_what_a_held_window_finds_is_no_longer(case: tuple[Problem, Schedule]) -> None:
    whole = FixedOrderGraph(ImpliedOrder(case[0]), case[1])
    for part in windows_of(whole):
        held = hold_full(part, part.known.value * 4 // 5)
        if held is None:
            continue
        start = [*held.part.known.start[:-1], held.value]
        assert (
            check_schedule(
                held.part.problem, Schedule(held.part.problem, np.array(start))
            )
            == []
        )
        best = best_of(held.part)
        assert best.value <= held.value
        again = part.put_back(best)
        assert check_schedule(case[0], again) == []
        assert again.value <= whole.schedule.value


def test_some_random_windows_are_held() -> None:
    wholes = [
        FixedOrderGraph(ImpliedOrder(problem), schedule)
        for problem, schedule in CASES[::3]
    ]
    parts = [part for whole in wholes for part in windows_of(whole)]
    held = [hold_full(part, part.known.value * 4 // 5) for part in parts]
    assert sum(each is not None for each in held) >= 20


def test_a_search_shortens_paths_that_are_not_the_longest() -> None:
    instance = {
        "kind": "pipeline",
        "num_devices": 8,
        "num_microbatches": 16,
        "placement": "vshape",
        "times": {"forward": 29, "backward_input": 28, "backward_weight": 19},
        "p2p": {"latency": 3},
        "memory": {"capacity": 11, "activation": 1, "released_by_backward_weight": 0.4},
        "objective": "device_span",
    }
    problem = lower(parse_instance(instance))
    assert isinstance(problem, Problem)
    told: list[int] = []
    implied = ImpliedOrder(problem)
    bound = best_bound(lower_bounds(implied)).value
    limits = SearchLimits(seconds=None, deterministic=0.2)
    board = Board.beginning(list_sweep(problem), bound)
    board.subscribe(lambda event, by: told.append(board.value or 0))
    search = WindowLNS(implied, board, limits)
    assert check_schedule(problem, search.run()) == []
    assert told == sorted(set(told), reverse=True)
    assert search.counts.better > len(told) > 0

"""Iterations of a refresh: of coupled devices, of a greedy that needs fewer than it tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ppsolve.models.kinds.kfac.pattern import Member
from ppsolve.solver.board import Board
from ppsolve.solver.kinds.kfac.causal import Starts, _fewest_iterations, _used
from ppsolve.solver.kinds.kfac.heuristics import CAUSAL
from ppsolve.solver.kinds.kfac.requirements import iterations_until_steady
from tests.kinds.kfac.cases import Timeline, pattern_of
from tests.kinds.kfac.test_sizes import narrow, task_of

LINE: Timeline = {
    "call_forward": [(0, 10)],
    "call_backward": [(20, 30)],
    "cov_kron_A:m": [(0, 5)],
    "sync_kron_A:m": [(5, 10)],
}


def coupled() -> Any:
    """Two devices with 5 + 5 of work in a hole of 10 until they have met; one has 10 more then."""
    longer = LINE | {"inv_kron_A:m": [(0, 10)]}
    task = task_of(longer, LINE, sync_groups=[[0, 1]], margin_ratio=0)
    task.find_bounds()
    return task


def test_coupled_devices_take_the_iterations_of_the_one_that_takes_most() -> None:
    task = coupled()
    task.run_heuristic(CAUSAL)
    outcome = task.outcomes[CAUSAL.name]
    assert [plan.iterations for plan in outcome.plans] == [2, 1]
    assert (task.board.value, task.best_by) == (2, "pipefisher-causal")


def test_holes_repeat_once_ops_of_clocks_that_run_ahead_are_over() -> None:
    pattern = pattern_of(narrow(1), narrow(1, skew=-131))
    assert pattern.period == 65
    # The first op runs 131 ticks, three periods at most, before the first iteration.
    assert iterations_until_steady(pattern) == 3 + 1


def test_one_iteration_more_than_the_longest_plan_without_memory_is_enough() -> None:
    assert coupled().most_iterations([0, 1]) == 2 + 1


def test_the_bound_of_a_rule_is_that_of_the_device_that_takes_most() -> None:
    task = task_of(narrow(1), narrow(1))
    task.find_bounds()
    task.results = [replace(result, by="work") for result in task.results]
    task.results = [
        replace(task.results[0], lower=5),
        replace(task.results[1], lower=4),
    ]
    task.board = Board()
    task.report()
    assert [
        (bound.name, bound.value) for bound in (*task.bounds, task.board.bound)
    ] == [("work", 5)] * 2


def test_one_iteration_fewer_is_tried_as_long_as_all_work_fits() -> None:
    # All work fits into 3 iterations or more, and then takes all that there are; 1, 2, 4 are tried.
    pattern, tried = pattern_of(narrow(2)), []

    def generate(iterations: int) -> tuple[Starts, Member | None]:
        tried.append(iterations)
        last = (iterations - 1) * pattern.period
        return {(0, 0, 0): last}, None if iterations >= 3 else (0, 0)

    starts, iterations = _fewest_iterations(pattern, [0], generate)
    assert (starts, iterations) == ({(0, 0, 0): 2 * pattern.period}, 3)
    assert tried == [1, 2, 4, 3]


def test_work_takes_the_iterations_that_it_ends_and_starts_in() -> None:
    pattern = pattern_of(narrow(1) | {"inv_kron_A:m": [(0, 0)]})
    period = pattern.period
    # Parts of the curvature take 3, the second inversion nothing.
    for index, start, expected in (
        (0, 0, 1),
        (0, period - 3, 1),
        (0, period - 2, 2),
        (2, period - 1, 1),
        (2, period, 2),
    ):
        assert _used(pattern, {(0, index, 0): start}) == expected
    assert _used(pattern, {}) == 1

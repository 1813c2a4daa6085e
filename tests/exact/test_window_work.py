"""The work of holes: what fits exactly fits, and one tick more does not."""

from __future__ import annotations

import numpy as np
import pytest
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import Problem
from ppsolve.solver.exact.question import SearchLimits
from ppsolve.solver.exact.variables import Variables
from ppsolve.solver.exact.window_work import add_window_work, holes_of
from ppsolve.solver.exact.windows import start_windows
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.asking import solve
from tests.exact.models import change_model
from tests.small import at, op, small


def holed(lengths: list[int], *holes: tuple[int, int]) -> Problem:
    """Ops of one resource that run within holes, given by start and end."""
    ops = [op(f"o{k}", length, "r") for k, length in enumerate(lengths)]
    windows = {
        f"o{k}": [[low, high - length] for low, high in holes if high - low >= length]
        for k, length in enumerate(lengths)
    }
    return small(ops, windows=windows)


def work_alone(problem: Problem, limit: int | None = None) -> bool:
    """Whether the work of holes by itself, no-overlap left out, leaves a solution."""
    implied = ImpliedOrder(problem)
    windows = start_windows(implied, limit)
    variables = Variables(cp_model.CpModel(), implied, windows, 0, windows.horizon)
    add_window_work(variables)
    return bool(cp_model.CpSolver().solve(variables.model) != cp_model.INFEASIBLE)


@pytest.mark.parametrize("window_work", [False, True])
@pytest.mark.parametrize(
    ("lengths", "holes", "expected"),
    [
        ([2, 2], [(3, 7)], 7),
        ([2, 2], [(3, 6)], None),
        ([2, 2], [(3, 6), (9, 11)], 11),
        ([3, 2, 2, 1], [(0, 4), (10, 14)], 14),
        ([3, 3, 2], [(0, 4), (10, 14)], None),
    ],
)
def test_ops_fill_holes_exactly(
    lengths: list[int], holes: list[tuple[int, int]], expected: int | None, window_work: bool
) -> None:
    problem = holed(lengths, *holes)
    limits = SearchLimits(seconds=20)
    found = solve(
        ImpliedOrder(problem), lower=0, incumbent=None, limits=limits, window_work=window_work
    )
    assert found.infeasible == (expected is None)
    assert (found.bound if found.schedule else None) == expected


def test_work_of_a_hole_is_counted_to_the_tick() -> None:
    assert work_alone(holed([2, 2], (3, 7)))
    assert not work_alone(holed([2, 2], (3, 6)))
    assert work_alone(holed([2, 2], (3, 6), (8, 10)))


def test_work_counts_in_the_hole_that_begins_with_its_window() -> None:
    # o0 and o1 (2 each) share the hole 3-6; what o2 does from 0 to 2 is no work of that one.
    windows = {"o0": [[3, 4]], "o1": [[3, 4]], "o2": [[0, 0]]}
    ops = [op(f"o{k}", 2, "r") for k in range(3)]
    assert not work_alone(small(ops, windows=windows))
    windows["o1"] = [[3, 5]]
    assert work_alone(small(ops, windows=windows))


def test_touching_windows_are_one_hole() -> None:
    # o0 may run in 0-4 and o1 in 3-6: together a hole of six ticks, of which they take five.
    problem = small([op("o0", 2, "r"), op("o1", 3, "r")], windows={"o0": [[0, 2]], "o1": [[3, 3]]})
    choices = {op: allowed for op, allowed in problem.windows.items()}
    starts, ends = holes_of(problem, [0, 1], choices)
    assert (starts.tolist(), ends.tolist()) == ([0], [6])
    apart = {0: np.array([[0, 2]]), 1: np.array([[4, 4]])}
    starts, ends = holes_of(problem, [0, 1], apart)
    assert (starts.tolist(), ends.tolist()) == ([0, 4], [4, 7])


def test_a_hole_is_as_long_as_what_connects_it() -> None:
    # 0-4, 3-9 and 5-7: the third one lies inside of the second one, not behind the first one.
    problem = small([op("o0", 2, "r"), op("o1", 3, "r"), op("o2", 1, "r")])
    choices = {0: np.array([[0, 2]]), 1: np.array([[3, 6]]), 2: np.array([[5, 6]])}
    starts, ends = holes_of(problem, [0, 1, 2], choices)
    assert (starts.tolist(), ends.tolist()) == ([0], [9])
    # 0-10 begins first and ends last.
    around = {0: np.array([[0, 8]]), 1: np.array([[2, 2]]), 2: np.array([[12, 12]])}
    starts, ends = holes_of(problem, [0, 1, 2], around)
    assert (starts.tolist(), ends.tolist()) == ([0, 12], [10, 13])


def test_ops_without_length_or_windows_are_left_out() -> None:
    ops = [op("zero", 0, "r"), op("o0", 2, "r"), op("free", 9, "r")]
    problem = small(ops, windows={"zero": [[0, 1]], "o0": [[0, 1]]})
    assert work_alone(problem)


def test_hinted_windows_are_those_of_the_schedule() -> None:
    problem = holed([2], (0, 3), (5, 8))
    implied = ImpliedOrder(problem)
    for start, chosen in ((0, [1, 0]), (1, [1, 0]), (5, [0, 1]), (6, [0, 1])):
        variables = Variables(cp_model.CpModel(), implied, start_windows(implied, 8), 0, 8)
        add_window_work(variables, at(problem, start))
        assert list(variables.model.proto.solution_hint.values) == chosen


def test_too_many_choices_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    change_model(monkeypatch, window_literals=1)
    assert work_alone(holed([2, 2], (3, 6)))

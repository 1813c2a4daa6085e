"""Lists of ops of which neighbours run as one: cases by hand, and the same compiled or not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.options import OpenProblem, Option
from ppsolve.models.kinds.pipeline.fused import fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.params import OrderSearchBudget
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kinds.pipeline.options.search import FusedOrderSearch
from tests.small import holding, op, small


def timed(problem: OpenProblem, *order: int) -> dict[str, int]:
    """Return the starts of a list by the names of ops."""
    search = FusedOrderSearch(problem, Board.beginning(), 1)
    found = search.schedule(np.array(order, dtype=np.int64))
    assert check_schedule(found.problem, found) == []
    names = found.problem.op_names(range(found.problem.num_ops))
    return dict(zip(names, found.start.tolist(), strict=True))


def two(
    ticks: int, *edges: tuple[str, str], capacity: int = 9, extra: int = 0
) -> OpenProblem:
    """Return a of 4 and b of 5 ticks on r, which run as one in some ticks, and x of 3 on s."""
    ops = [holding("a", 4, 2, "r"), holding("b", 5, 3, "r"), op("x", 3, "s")]
    base = small(ops, edges, capacity=capacity)
    extras = ((0, Fraction(extra)),) if extra else ()
    return OpenProblem(base, (Option((0, 1), ticks, (0,), "a+b", "a+b", extras),))


def test_neighbours_run_as_one_where_both_end_sooner() -> None:
    assert timed(two(8), 0, 1, 2) == {"a+b": 0, "x": 0}
    assert timed(two(9), 0, 1, 2) == {"a": 0, "b": 4, "x": 0}, "no sooner"
    assert timed(two(8), 1, 0, 2) == {"a+b": 0, "x": 0}, "in either order"


def test_a_pair_starts_when_all_is_there() -> None:
    assert timed(two(5, ("x", "b")), 0, 2, 1) == {"a+b": 3, "x": 0}, (
        "ends at 8, not at 9"
    )
    assert timed(two(6, ("x", "b")), 0, 2, 1) == {"a": 0, "b": 4, "x": 0}


def test_an_op_that_was_waited_for_stays_alone() -> None:
    """x was timed by the end of a, before b came."""
    assert timed(two(5, ("a", "x")), 0, 2, 1) == {"a": 0, "b": 4, "x": 4}
    assert timed(two(5, ("a", "x")), 0, 1, 2) == {"a+b": 0, "x": 5}


def test_pairs_hold_what_both_hold_and_more() -> None:
    assert timed(two(6, capacity=5), 0, 1, 2) == {"a+b": 0, "x": 0}
    assert timed(two(6, capacity=4), 0, 1, 2) == {"a": 0, "b": 4, "x": 0}
    assert timed(two(6, capacity=5, extra=1), 0, 1, 2) == {"a": 0, "b": 4, "x": 0}


def test_a_third_op_is_covered_too() -> None:
    base = small([op("a", 4, "r"), op("b", 5, "r"), op("w", 2, "r")], [("b", "w")])
    problem = OpenProblem(base, (Option((0, 1, 2), 7, (0,), "a+b+w", "a+b+w"),))
    assert timed(problem, 0, 1, 2) == {"a+b+w": 0}


PIPELINE: dict[str, Any] = {
    "num_devices": 2,
    "num_microbatches": 4,
    "placement": "vshape",
    "times": {"forward": 85, "backward_input": 90, "backward_weight": 69},
    "p2p": {"latency": 2},
    "memory": {"capacity": 7, "activation": 1},
    "overlap": {"time": 129, "memory": 1},
}


@pytest.mark.parametrize("with_weight", [True, False])
def test_searches_find_the_same_compiled_or_not(
    monkeypatch: pytest.MonkeyPatch, with_weight: bool
) -> None:
    overlap = {"time": 129, "memory": 1, "with_weight": with_weight}
    problem = fused_problem(PipelineInstance.parse({**PIPELINE, "overlap": overlap}))
    values = {}
    for mode in ("never", "checked"):
        monkeypatch.setenv("PPSOLVE_COMPILE", mode)
        monkeypatch.setitem(compilation._state, "compiled", mode == "checked")
        board = Board.beginning()
        search = FusedOrderSearch(problem, board, 7)
        order = np.lexsort((search._level, problem.base.microbatch))
        search.run(search.schedule(order), Clock(None), 2000, OrderSearchBudget())
        assert board.schedule is not None
        values[mode] = (
            board.schedule.start.tolist(),
            board.schedule.problem.chosen("fused").tolist(),
        )
    assert values["never"] == values["checked"]
    assert values["never"][1], "something is fused"

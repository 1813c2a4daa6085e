"""Order search: the best orders of small problems, and schedules that keep every rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.order_search import obstacle, order_search
from ppsolve.solver.kernels import compilation
from tests.small import op, small

# Fisher and Thompson's job shop of 6 jobs on 6 machines (1963): (machine, duration) of each op.
# Its optimum, 55, was proved long ago (OR-Library, ft06).
FT06 = (
    ((2, 1), (0, 3), (1, 6), (3, 7), (5, 3), (4, 6)),
    ((1, 8), (2, 5), (4, 10), (5, 10), (0, 10), (3, 4)),
    ((2, 5), (3, 4), (5, 8), (0, 9), (1, 1), (4, 7)),
    ((1, 5), (0, 5), (2, 5), (3, 3), (4, 8), (5, 9)),
    ((2, 9), (1, 3), (4, 5), (5, 4), (0, 3), (3, 1)),
    ((1, 3), (3, 3), (5, 9), (0, 10), (4, 4), (2, 1)),
)

UNEQUAL = {
    "num_devices": 3,
    "num_microbatches": 4,
    "times": {
        "forward": [[1, 7, 2, 4]] * 3,
        "backward_input": [[1, 7, 2, 4]] * 3,
        "backward_weight": [[1, 5, 2, 3]] * 3,
    },
    "p2p": {"latency": 1},
    "memory": {"capacity": 3, "activation": 1, "released_by_backward_weight": 0.5},
}


def job_shop() -> Problem:
    jobs = range(len(FT06))
    ops = [
        op(f"{job}.{step}", length, f"m{machine}")
        for job in jobs
        for step, (machine, length) in enumerate(FT06[job])
    ]
    edges = [
        (f"{job}.{step}", f"{job}.{step + 1}") for job in jobs for step in range(5)
    ]
    return small(ops, edges)


def in_any_order(problem: Problem) -> Schedule:
    """Return a poor schedule: one op after the other."""
    order = list_tail(problem).start.argsort(kind="stable")
    start = problem.duration.copy()
    start[order] = problem.duration[order].cumsum() - problem.duration[order]
    return Schedule(problem, start)


def test_the_optimum_of_a_classic_job_shop_is_found_from_one_op_at_a_time() -> None:
    problem = job_shop()
    found = order_search(
        in_any_order(problem), Effort(board=Board.beginning(bound=55)), steps=20_000
    )
    assert found.makespan == 55
    assert check_schedule(problem, found) == []


def test_unequal_microbatches_keep_memory_and_become_shorter() -> None:
    problem = lower(PipelineInstance(**UNEQUAL))
    known = list_tail(problem).normalised()
    told: list[Schedule] = []
    board = Board.beginning(known)
    board.subscribe(lambda *_: told.append(board.schedule or known))
    found = order_search(known, Effort(board=board), steps=5_000)
    assert all(check_schedule(problem, schedule) == [] for schedule in told)
    assert found.start.tolist() == told[-1].start.tolist()
    assert [one.makespan for one in told] == sorted(
        {one.makespan for one in told}, reverse=True
    )
    assert found.makespan < known.makespan


def test_compiled_or_not_the_same_schedule_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = lower(PipelineInstance(**UNEQUAL))
    found = []
    for compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", compiled)
        known = list_tail(problem).normalised()
        found.append(order_search(known, steps=2_000, seed=3).start.tolist())
    assert found[0] == found[1]


def test_the_bound_ends_the_search_and_other_seeds_go_other_ways() -> None:
    problem = job_shop()
    known = in_any_order(problem)
    assert (
        order_search(
            known, Effort(board=Board.beginning(bound=known.makespan)), steps=100
        )
        is known
    )
    ways = {
        tuple(order_search(known, steps=100, seed=seed).start.tolist())
        for seed in (1, 2)
    }
    assert len(ways) == 2


def test_what_orders_do_not_decide_is_named() -> None:
    two = small([op("a", 1, "r", "s"), op("b", 1, "r")])
    assert obstacle(two) == "needs ops that occupy one resource each"
    released = small([op("a", 1, "r")], windows={"a": [[3, 4]]})
    assert "given starts" in str(obstacle(released))
    holder = {"acquire": {"m": 1}, "release_at_end": {"m": 1}}
    shared = small([op("a", 1, "r", **holder), op("b", 1, "s", **holder)], capacity=1)
    assert "one resource" in str(obstacle(shared))
    assert obstacle(job_shop()) is None


def test_an_op_that_waits_for_one_microbatch_alone_never_comes_before_it() -> None:
    problem = lower(PipelineInstance(**UNEQUAL, optimizer=2))
    owner = problem.microbatch
    kept = (owner[problem.after] != FREE) | (owner[problem.before] == 1)
    assert not kept.all()
    tables = (problem.before[kept], problem.after[kept], problem.lag[kept])
    loose = replace(
        problem, **dict(zip(("before", "after", "lag"), tables, strict=True))
    )
    known = list_tail(loose).normalised()
    found = order_search(known, steps=3_000)
    assert found.makespan < known.makespan
    assert check_schedule(loose, found) == []

"""A problem as PyJobShop takes it, index order and the precedences of memory handed to it.

PyJobShop has no resource that is taken at the start of one task and given back at the end of
another one. Where the memory precedences are not exactly the capacity, it solves a relaxation: its
proof counts only if our checker accepts its schedule; its bound holds.
"""

from __future__ import annotations

import time

from peers.answer import PeerAnswer
from pyjobshop import Model

from ppsolve.models.core.problem import Problem
from ppsolve.solver.structure.implied import ImpliedOrder


def solve_with_pyjobshop(
    problem: Problem, *, seconds: float, workers: int
) -> PeerAnswer:
    """Solve a problem of ops that each occupy at most one resource.

    Parameters
    ----------
    problem : Problem
        Objective makespan, without pins, releases and windows.
    seconds : float
        Time limit of the search.
    workers : int
        Search threads.

    Returns
    -------
    PeerAnswer
        Optimal only where the schedule is valid.
    """
    began = time.monotonic()
    model = build(problem)
    result = model.solve(time_limit=seconds, display=False, num_workers=workers)
    took = time.monotonic() - began
    starts = [int(task.start) for task in result.best.tasks] or None
    return PeerAnswer.of(problem, starts, int(result.lower_bound), took=took)


def build(problem: Problem) -> Model:
    """Return PyJobShop's model: one task with one mode for each op."""
    implied, model = ImpliedOrder(problem), Model()
    machines = [model.add_machine() for _ in problem.ops_by_resource]
    tasks = [model.add_task() for _ in range(problem.num_ops)]
    used: list[list[int]] = [[] for _ in tasks]
    for resource, ops in enumerate(problem.ops_by_resource):
        for op in ops.tolist():
            used[op].append(resource)
    for task, resources, duration in zip(
        tasks, used, problem.duration.tolist(), strict=True
    ):
        model.add_mode(task, [machines[resource] for resource in resources], duration)
    own = (problem.before, problem.after, problem.lag)
    for edges in (own, implied.index_edges, implied.memory_edges):
        for before, after, lag in zip(
            *(column.tolist() for column in edges), strict=True
        ):
            model.add_end_before_start(tasks[before], tasks[after], lag)
    return model

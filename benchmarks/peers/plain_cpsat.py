"""A plain CP-SAT model of a problem: no implied order, no bounds, memory as reservoirs.

Written from the rules of a problem alone: what anyone would write first. Tests compare optima with
it, benchmarks the time that a proof takes.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

from ortools.sat.python import cp_model
from peers.answer import PeerAnswer

from ppsolve.models.core.problem import FREE, Objective, Pool, Problem


def solve_plainly(problem: Problem, *, seconds: float, workers: int) -> PeerAnswer:
    """Solve a problem by the plain model.

    Parameters
    ----------
    problem : Problem
        Any problem without windows and points.
    seconds : float
        Time limit of the search.
    workers : int
        Search threads.

    Returns
    -------
    PeerAnswer
        What CP-SAT found, checked.
    """
    began = time.monotonic()
    model, start = build(problem)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    status = solver.solve(model)
    took = time.monotonic() - began
    if status == cp_model.INFEASIBLE:
        return PeerAnswer("INFEASIBLE", None, None, took)
    found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
    bound = int(solver.response_proto.inner_objective_lower_bound)
    starts = [solver.value(variable) for variable in start] if found else None
    return PeerAnswer.of(problem, starts, max(0, bound), took=took)


def build(problem: Problem) -> tuple[cp_model.CpModel, list[Any]]:
    """Return the model and the start of each op in ticks."""
    model = cp_model.CpModel()
    fixed = int(max(problem.release.max(), problem.pinned.max(), 0))
    horizon = fixed + int(problem.duration.sum() + problem.lag.sum())
    if problem.objective is Objective.DEVICE_SPAN:
        horizon *= 2
    start = [model.new_int_var(int(low), horizon, "") for low in problem.release]
    end = [s + int(d) for s, d in zip(start, problem.duration, strict=True)]
    for op, pin in enumerate(problem.pinned.tolist()):
        if pin != FREE:
            model.add(start[op] == pin)
    for a, b, lag in zip(problem.before, problem.after, problem.lag, strict=True):
        model.add(start[b] >= end[a] + int(lag))
    for ops in problem.ops_by_resource:
        model.add_no_overlap(
            model.new_fixed_size_interval_var(start[op], int(problem.duration[op]), "")
            for op in ops
            if problem.duration[op] > 0
        )
    for pool in problem.pools:
        _add_reservoir(model, pool, start, end)
    _minimise(model, problem, horizon, start, end)
    return model, start


def _add_reservoir(
    model: cp_model.CpModel, pool: Pool, start: list[Any], end: list[Any]
) -> None:
    unit = math.lcm(
        *(amount.denominator for amount in pool.amounts), pool.initial.denominator
    )
    room = math.floor((pool.limit - pool.initial) * unit)
    amounts = [int(Fraction(amount) * unit) for amount in pool.amounts]
    times = [start[op] for op in pool.acquire_op] + [end[op] for op in pool.release_op]
    changes = [amounts[i] for i in pool.acquire_amount]
    changes += [-amounts[i] for i in pool.release_amount]
    if times:
        model.add_reservoir_constraint(times, changes, -(10**15), room)
    elif room < 0:
        model.add_bool_or([])


def _minimise(
    model: cp_model.CpModel,
    problem: Problem,
    horizon: int,
    start: list[Any],
    end: list[Any],
) -> None:
    objective = model.new_int_var(0, 2 * horizon + 1, "")
    if problem.objective is Objective.MAKESPAN:
        for moment in end:
            model.add(objective >= moment)
    else:
        for resource in problem.span_resources:
            first = model.new_int_var(0, horizon, "")
            for op in problem.ops_by_resource[int(resource)]:
                model.add(first <= start[op])
                model.add(end[op] - first <= objective)
    model.minimize(objective)

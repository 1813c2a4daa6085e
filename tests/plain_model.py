"""A plain CP-SAT model of a problem: no implied order, no bounds, memory as reservoirs.

Written from the rules of a problem alone, to be compared with the solver's own model.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ortools.sat.python import cp_model

from ppsolve.models.core.problem import FREE, Objective, Pool, Problem

UNITS = 10.0
"""Deterministic time of one solve: the same on any machine, however busy. About 25 s of work."""


def plain_optimum(problem: Problem) -> int | None:
    """Return the optimum in ticks, None if there is no schedule.

    Raises
    ------
    TimeoutError
        Nothing was proved within `UNITS`.
    """
    known = plain_range(problem)
    if known is None:
        return None
    if known[0] < known[1]:
        raise TimeoutError(f"the plain model only says {known[0]} to {known[1]}")
    return known[1]


def plain_range(problem: Problem) -> tuple[int, int] | None:
    """Return what the optimum in ticks is at least and at most, None if there is no schedule.

    Raises
    ------
    TimeoutError
        No schedule was found within `UNITS`, nor that there is none.
    """
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
        _reservoir(model, pool, start, end)
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
    return _solve(model)


def _reservoir(model: cp_model.CpModel, pool: Pool, start: list, end: list) -> None:
    unit = math.lcm(*(amount.denominator for amount in pool.amounts), pool.initial.denominator)
    room = math.floor((pool.limit - pool.initial) * unit)
    amounts = [int(Fraction(amount) * unit) for amount in pool.amounts]
    times = [start[op] for op in pool.acquire_op] + [end[op] for op in pool.release_op]
    changes = [amounts[i] for i in pool.acquire_amount]
    changes += [-amounts[i] for i in pool.release_amount]
    if times:
        model.add_reservoir_constraint(times, changes, -(10**15), room)
    elif room < 0:
        model.add_bool_or([])


def _solve(model: cp_model.CpModel) -> tuple[int, int] | None:
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = UNITS
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        raise TimeoutError("the plain model was not solved in time")
    return int(solver.response_proto.inner_objective_lower_bound), round(solver.objective_value)

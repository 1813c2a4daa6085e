"""Optima by the plain CP-SAT model of `benchmarks/peers/plain_cpsat.py`."""

from __future__ import annotations

from ortools.sat.python import cp_model
from peers.plain_cpsat import build

from ppsolve.models.core.problem import Problem

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
    model, _ = build(problem)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = UNITS
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        raise TimeoutError("the plain model was not solved in time")
    return int(solver.response_proto.inner_objective_lower_bound), round(
        solver.objective_value
    )

"""List scheduling as named heuristics, one rule each.

Each takes a problem and returns a valid schedule of it; where device spans are minimised, whoever
calls makes them smaller (`ppsolve.solver.heuristics.spans`).
"""

from __future__ import annotations

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.parallel import PriorityRule, generate_parallel
from ppsolve.solver.heuristics.priorities import (
    backward_first,
    fillers,
    longest_tail,
    most_work,
)
from ppsolve.solver.heuristics.serial import generate_serial
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.timing import time_orders

_MAX_OPS_SERIAL = 50_000
"""Pipelines of this size (32 devices x 512 micro-batches) take 1 to 2 s. Where every op walks
through all gaps of its resource, time grows with the square of the ops, so larger ones are
refused."""


def list_tail(problem: Problem) -> Schedule:
    """Schedule the longest tail (critical path) first; weight gradients fill idle time."""
    rank = longest_tail(problem)
    found = _parallel(problem, PriorityRule(rank, fillers(problem), 1.0, 1.0, frees_memory=True))
    return settled(found)


def list_work(problem: Problem) -> Schedule:
    """Schedule the micro-batch with most work left first; weight gradients fill idle time."""
    return _parallel(problem, PriorityRule(most_work(problem), fillers(problem)))


def list_backward_first(problem: Problem) -> Schedule:
    """Schedule backwards before forwards; weight gradients fill idle time."""
    return _parallel(problem, PriorityRule(backward_first(problem), fillers(problem)))


def list_serial(problem: Problem) -> Schedule:
    """Place ops one by one, longest tail first; weight gradients go into the gaps of the others.

    Raises
    ------
    NotApplicableError
        The problem has too many ops.
    """
    if problem.num_ops > _MAX_OPS_SERIAL:
        raise NotApplicableError(
            f"needs at most {_MAX_OPS_SERIAL} ops (serial generation), got {problem.num_ops}"
        )
    return generate_serial(problem, longest_tail(problem), index_order(problem))


def settled(schedule: Schedule) -> Schedule:
    """Return a schedule with each op as early as its orders allow, where memory allows that too.

    Parameters
    ----------
    schedule : Schedule
        A valid schedule; of a problem whose device spans count ops may have to start late.

    Returns
    -------
    Schedule
        A valid schedule, no longer than the given one.
    """
    if schedule.problem.objective is not Objective.MAKESPAN:
        return schedule
    early = time_orders(schedule.problem, schedule.resource_orders(), schedule.waits)
    return schedule if check_schedule(schedule.problem, early) else early


def _parallel(problem: Problem, rule: PriorityRule) -> Schedule:
    return generate_parallel(problem, rule, index_order(problem))

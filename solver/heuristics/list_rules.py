"""List scheduling as named heuristics, one rule each."""

from __future__ import annotations

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.parallel import Rule, generate_parallel
from ppsolve.solver.heuristics.priorities import (
    backward_first,
    fillers,
    longest_tail,
    most_work,
)
from ppsolve.solver.heuristics.serial import generate_serial
from ppsolve.solver.heuristics.spans import compact_spans
from ppsolve.solver.structure.implied import index_order

_MAX_OPS_SERIAL = 50_000
"""Pipelines of this size (32 devices x 512 micro-batches) take 1 to 2 s. Where every op walks
through all gaps of its resource, time grows with the square of the ops, so larger ones are
refused."""

_COMPACTION_SHARE = 0.5
"""Share of the time that is left for smaller spans; then the schedule must be checked and kept."""


def list_tail(problem: Problem, clock: Clock | None = None) -> Schedule:
    """Schedule the longest tail (critical path) first; weight gradients fill idle time.

    Parameters
    ----------
    problem : Problem
        What is scheduled.
    clock : Clock, optional
        Where device spans count: time for making them smaller.

    Returns
    -------
    Schedule
        Valid.
    """
    rank = longest_tail(problem)
    return _parallel(problem, Rule(rank, fillers(problem), 1.0, 1.0, frees_memory=True), clock)


def list_work(problem: Problem, clock: Clock | None = None) -> Schedule:
    """Schedule the micro-batch with most work left first; weight gradients fill idle time.

    Parameters
    ----------
    problem : Problem
        What is scheduled.
    clock : Clock, optional
        Where device spans count: time for making them smaller.

    Returns
    -------
    Schedule
        Valid.
    """
    return _parallel(problem, Rule(most_work(problem), fillers(problem)), clock)


def list_backward_first(problem: Problem, clock: Clock | None = None) -> Schedule:
    """Schedule backwards before forwards; weight gradients fill idle time.

    Parameters
    ----------
    problem : Problem
        What is scheduled.
    clock : Clock, optional
        Where device spans count: time for making them smaller.

    Returns
    -------
    Schedule
        Valid.
    """
    return _parallel(problem, Rule(backward_first(problem), fillers(problem)), clock)


def list_serial(problem: Problem, clock: Clock | None = None) -> Schedule:
    """Place ops one by one, longest tail first; weight gradients go into the gaps of the others.

    Parameters
    ----------
    problem : Problem
        What is scheduled.
    clock : Clock, optional
        Where device spans count: time for making them smaller.

    Returns
    -------
    Schedule
        Valid.

    Raises
    ------
    NotApplicableError
        The problem has too many ops.
    """
    if problem.num_ops > _MAX_OPS_SERIAL:
        raise NotApplicableError(
            f"needs at most {_MAX_OPS_SERIAL} ops (serial generation), got {problem.num_ops}"
        )
    return _finished(generate_serial(problem, longest_tail(problem), index_order(problem)), clock)


def _parallel(problem: Problem, rule: Rule, clock: Clock | None) -> Schedule:
    return _finished(generate_parallel(problem, rule, index_order(problem)), clock)


def _finished(schedule: Schedule, clock: Clock | None) -> Schedule:
    if schedule.problem.objective is not Objective.DEVICE_SPAN:
        return schedule
    return compact_spans(schedule, None if clock is None else clock.share(_COMPACTION_SHARE))

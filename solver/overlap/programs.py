"""Heuristics of overlap instances as plans: a program order and the schedule it runs as."""

from __future__ import annotations

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError, InputError
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap
from ppsolve.solver.heuristics.heuristic import Proposal
from ppsolve.solver.overlap.latest_launch import latest_safe_launch
from ppsolve.solver.overlap.passes import OVERLAP_PASSES
from ppsolve.solver.overlap.realise import crowded_group, realised, run_order
from ppsolve.solver.overlap.replay import is_valid_order, replay
from ppsolve.solver.overlap.two_streams import LIST_RULES, list_overlap

TWO_STREAM = "two-stream-"
LATEST_LAUNCH = "latest-launch"


def plan_of_rule(name: str, instance: OverlapInstance, problem: Problem) -> Proposal:
    """Run a pass or a list rule on a program.

    Parameters
    ----------
    name : str
        Name of a heuristic of programs.
    instance : OverlapInstance
        The program.
    problem : Problem
        Its problem.

    Returns
    -------
    Proposal
        The order, and the schedule that it runs as.

    Raises
    ------
    HeuristicFailedError
        The pass fails on the program, as its original does.
    """
    lowered = LoweredOverlap.of(instance, problem)
    order = _passed(name, instance) if name in OVERLAP_PASSES else _listed(name, instance, problem)
    return _run(instance, lowered, order)


def plan_of_order(instance: OverlapInstance, problem: Problem, order: list[int]) -> Proposal:
    """Run a program order.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    problem : Problem
        Its problem.
    order : list of int
        The place in the program of every node, in the new order.

    Returns
    -------
    Proposal
        The order, and the schedule that it runs as.

    Raises
    ------
    InputError
        A node comes before what it needs.
    """
    if not is_valid_order(instance, order):
        raise InputError(
            "expected every node after what it depends on and, where collectives are frozen, after "
            "those before it"
        )
    return _run(instance, LoweredOverlap.of(instance, problem), order)


def _run(instance: OverlapInstance, lowered: LoweredOverlap, order: list[int]) -> Proposal:
    schedule, timed = run_order(instance, lowered, order)
    return Proposal(schedule, order=order, broken=crowded_group(instance, timed))


def _passed(name: str, instance: OverlapInstance) -> list[int]:
    result = OVERLAP_PASSES[name](instance)
    if result.order is None:
        done = f" (completed: {', '.join(result.completed)})" if result.completed else ""
        raise HeuristicFailedError(f"{result.error}{done}")
    return list(result.order)


def _listed(name: str, instance: OverlapInstance, problem: Problem) -> list[int]:
    durations = problem.duration[: len(instance.nodes)].tolist()
    if name != LATEST_LAUNCH:
        return list_overlap(instance, durations, name.removeprefix(TWO_STREAM))
    orders = [list_overlap(instance, durations, rule) for rule in LIST_RULES]
    best = min(orders, key=lambda order: replay(instance, order, durations).makespan)
    return latest_safe_launch(instance, durations, best)


def plan_of_schedule(instance: OverlapInstance, schedule: Schedule) -> Proposal:
    """Turn a schedule into a program order and the schedule that it runs as.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    schedule : Schedule
        A schedule of its problem.

    Returns
    -------
    Proposal
        The order and its replay.

    Raises
    ------
    HeuristicFailedError
        No program order that was tried keeps the cap on bytes.
    """
    lowered = LoweredOverlap.of(instance, schedule.problem)
    found = realised(instance, lowered, schedule)
    if found is None:
        raise HeuristicFailedError("no program order of its schedule keeps the caps")
    return Proposal(found[1], order=found[0])

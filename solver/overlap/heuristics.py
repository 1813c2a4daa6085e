"""The heuristics of programs: Inductor's passes, and list scheduling on both streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError, InputError
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap
from ppsolve.solver.heuristics.heuristic import OURS, Heuristic, Proposal, Request
from ppsolve.solver.overlap.passes import PASSES, STABLE, run_passes
from ppsolve.solver.overlap.realise import crowded_group, realised, run_order
from ppsolve.solver.overlap.replay import is_valid_order, replay
from ppsolve.solver.overlap.two_streams import (
    FIT,
    LIST_RULES,
    URGENCIES,
    latest_safe_launch,
    list_overlap,
)

A_PROGRAM = "a program of kernels and collectives (kind overlap)"
INDUCTOR = "PyTorch Inductor: torch/_inductor/comms.py"
TWO_STREAM = "two-stream-"


def _propose(make: Callable[[Request], list[int]], request: Request) -> Proposal:
    lowered = LoweredOverlap.of(request.instance, request.problem)
    return _run(request.instance, lowered, make(request))


def _passed(name: str, request: Request) -> list[int]:
    result = run_passes(request.instance, name)
    if result.order is None:
        done = f" (completed: {', '.join(result.completed)})" if result.completed else ""
        raise HeuristicFailedError(f"{result.error}{done}")
    return result.order


def _durations(request: Request) -> list[int]:
    durations: list[int] = request.problem.duration[: len(request.instance.nodes)].tolist()
    return durations


def _listed(rule: str, request: Request) -> list[int]:
    return list_overlap(request.instance, _durations(request), rule)


def _launched_late(request: Request) -> list[int]:
    instance, durations = request.instance, _durations(request)
    orders = [list_overlap(instance, durations, rule) for rule in LIST_RULES]
    best = min(orders, key=lambda order: replay(instance, order, durations).makespan)
    return latest_safe_launch(instance, durations, best)


OVERLAP_HEURISTICS = (
    *(
        Heuristic(
            name + suffix,
            summary + note,
            partial(_propose, partial(_passed, name + suffix)),
            A_PROGRAM,
            source=OURS if name == "original" else INDUCTOR,
        )
        for suffix, note in (("", ""), (STABLE, "; ties by program order"))
        for name, (summary, _) in PASSES.items()
        if (name, suffix) != ("original", STABLE)
    ),
    *(
        Heuristic(
            TWO_STREAM + name + suffix,
            f"list scheduling on both streams, {summary}{note}",
            partial(_propose, partial(_listed, name + suffix)),
            A_PROGRAM,
        )
        for suffix, note in (("", ""), (FIT, "; kernels that fit behind a collective"))
        for name, (summary, _) in URGENCIES.items()
    ),
    Heuristic(
        "latest-launch",
        "the best two-stream list, each collective launched as late as it stays hidden",
        partial(_propose, _launched_late),
        A_PROGRAM,
    ),
)
"""In the order of reports."""


def plan_of_order(instance: OverlapInstance, problem: Problem, order: list[int]) -> Proposal:
    """Run a program order.

    Parameters
    ----------
    instance, problem
        The program and its problem.
    order : list of int
        Place in the program of every node; an `InputError` says that one comes before what it
        needs.

    Returns
    -------
    Proposal
        The order and its schedule.
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


def plan_of_schedule(instance: OverlapInstance, schedule: Schedule) -> Proposal:
    """Turn a schedule into a program order and the schedule of that order.

    A `HeuristicFailedError` says that no program order that was tried keeps the caps.

    Parameters
    ----------
    instance, schedule
        The program, and a schedule of its problem.

    Returns
    -------
    Proposal
        The order and its schedule.
    """
    found = realised(instance, LoweredOverlap.of(instance, schedule.problem), schedule)
    if found is None:
        raise HeuristicFailedError("no program order of its schedule keeps the caps")
    return Proposal(found[1], order=found[0])

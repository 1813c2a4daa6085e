"""The heuristics of programs: Inductor's passes, and list scheduling by rules of programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError, InputError
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap
from ppsolve.solver.heuristics.heuristic import OURS, Heuristic, Proposal, Request
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    fillers,
    generate_parallel,
    ranked,
    tails,
)
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram
from ppsolve.solver.kinds.overlap.passes import MOVING, PASSES, STABLE, run_passes
from ppsolve.solver.kinds.overlap.realise import broken_cap, realised, run_order
from ppsolve.solver.kinds.overlap.replay import is_valid_order
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order

A_PROGRAM = "a program of kernels and collectives (kind overlap)"
INDUCTOR = "PyTorch Inductor: torch/_inductor/comms.py"
SOURCES = {
    "original": OURS,
    "simple-overlap": f"{INDUCTOR} (2.14)",
    "overlap-scheduler": "PyTorch Inductor: torch/_inductor/fx_passes/overlap_scheduling.py (2.13)",
} | dict.fromkeys(MOVING, f"{INDUCTOR} (2.13)")


def _passed(name: str, request: Request) -> Proposal:
    result = run_passes(request.instance, name)
    if result.order is None:
        done = (
            f" (completed: {', '.join(result.completed)})" if result.completed else ""
        )
        raise HeuristicFailedError(f"{result.error}{done}")
    lowered = LoweredOverlap.of(request.instance, request.problem)
    return _run(request.instance, lowered, result.order)


def _communication(instance: OverlapInstance, problem: Problem) -> IntArray:
    is_comm = problem.kind_mask(NodeKind.COMM.value)
    return -Dag.of(problem).tails(np.where(is_comm, problem.duration, 0))


def _next_collective(instance: OverlapInstance, problem: Problem) -> IntArray:
    chained = instance.collective_order == "frozen"
    first = OverlapProgram.of(instance, chained=chained).first_collective()
    # Points of launches and releases take no time: they go first.
    return np.array([*first, *[-1] * (problem.num_ops - len(first))], dtype=np.int64)


LIST_RULES: dict[str, tuple[str, Callable[[OverlapInstance, Problem], IntArray]]] = {
    "communication": ("most communication on a path below first", _communication),
    "next-collective": ("what the earliest collective needs first", _next_collective),
}
"""Summary of each rule, and its key of each op; the smallest goes first, then the longest tail."""


def _listed(rule: str, request: Request) -> Proposal:
    instance, problem = request.instance, request.problem
    rank = ranked(LIST_RULES[rule][1](instance, problem), -tails(problem))
    rules = PriorityRule(rank, fillers(problem))
    return plan_of_schedule(
        instance, generate_parallel(problem, rules, index_order(problem))
    )


OVERLAP_HEURISTICS = (
    *(
        Heuristic(
            name + suffix,
            summary + note,
            partial(_passed, name + suffix),
            A_PROGRAM,
            source=SOURCES.get(name, INDUCTOR),
        )
        for suffix, note in (("", ""), (STABLE, "; ties by program order"))
        for name, (summary, _) in PASSES.items()
        if not (suffix and name in SOURCES)
    ),
    *(
        Heuristic(
            f"two-stream-{rule}",
            f"list scheduling, {summary}",
            partial(_listed, rule),
            A_PROGRAM,
        )
        for rule, (summary, _) in LIST_RULES.items()
    ),
)
"""In the order of reports."""


def plan_of_order(
    instance: OverlapInstance, problem: Problem, order: list[int]
) -> Proposal:
    """Run a program order; an `InputError` says that a node comes before what it needs."""
    if not is_valid_order(instance, order):
        raise InputError(
            "expected every node after what it depends on and, where collectives are frozen, after "
            "those before it"
        )
    return _run(instance, LoweredOverlap.of(instance, problem), order)


def _run(
    instance: OverlapInstance, lowered: LoweredOverlap, order: list[int]
) -> Proposal:
    schedule, timed = run_order(instance, lowered, order)
    return Proposal(schedule, order=order, broken=broken_cap(instance, order, timed))


def plan_of_schedule(instance: OverlapInstance, schedule: Schedule) -> Proposal:
    """Turn a schedule into a program order and the schedule of that order.

    A `HeuristicFailedError` says that no program order that was tried keeps the caps.
    """
    realisation = realised(
        instance, LoweredOverlap.of(instance, schedule.problem), schedule
    )
    if realisation is None:
        raise HeuristicFailedError("no program order of its schedule keeps the caps")
    return Proposal(realisation[1], order=realisation[0])

"""All heuristics by name, in the order in which they are run and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import did_you_mean
from ppsolve.models.documents.errors import (
    DeadlockError,
    HeuristicFailedError,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics import list_rules
from ppsolve.solver.heuristics.heuristic import (
    Family,
    Heuristic,
    HeuristicFunction,
    HeuristicOutcome,
    Proposal,
    Request,
)
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.pipeline.collectives import orders_if_whole, with_collectives
from ppsolve.solver.pipeline.published import PUBLISHED


def _list(generate: Callable[[Problem], Schedule]) -> HeuristicFunction:
    def plan(request: Request) -> Proposal:
        schedule = generate(request.problem).normalised()
        if isinstance(request.instance, OverlapInstance):
            from ppsolve.solver.overlap.programs import plan_of_schedule

            return plan_of_schedule(request.instance, schedule)
        is_pipeline = isinstance(request.instance, PipelineInstance)
        return Proposal(schedule, orders_if_whole(schedule) if is_pipeline else None)

    return plan


def _overlap(name: str) -> HeuristicFunction:
    def plan(request: Request) -> Proposal:
        from ppsolve.solver.overlap.programs import plan_of_rule

        assert isinstance(request.instance, OverlapInstance)
        return plan_of_rule(name, request.instance, request.problem)

    return plan


def _pinned(pattern: str) -> HeuristicFunction:
    """Wrap a published schedule that is pinned and repeated, K-FAC work placed around it."""

    def plan(request: Request) -> Proposal:
        from ppsolve.solver.kfac.placed_around import schedule_around

        assert isinstance(request.instance, KfacInstance)
        return Proposal(schedule_around(request.instance, request.problem, pattern), None)

    return plan


def _refresh(request: Request) -> Proposal:
    raise NotApplicableError(f"needs {Family.REFRESH.value}")


_PINNED = tuple(
    Heuristic(
        f"pinned-{published.name}",
        f"the pipeline as {published.name} runs it, K-FAC work greedily around it",
        _pinned(published.name),
        Family.CYCLE,
    )
    for published in PUBLISHED
)

_REFRESH = (
    Heuristic("pipefisher", "PipeFisher's greedy, its quirks included", _refresh, Family.REFRESH),
    Heuristic(
        "pipefisher-causal",
        "PipeFisher's greedy repaired: causal, per module, in its own pipe",
        _refresh,
        Family.REFRESH,
    ),
    Heuristic(
        "shortest-first",
        "repaired greedy, the shortest curvature first: saved tensors are given back soon",
        _refresh,
        Family.REFRESH,
    ),
    Heuristic(
        "freshest-first",
        "repaired greedy, factor after factor: inverses are ready soon",
        _refresh,
        Family.REFRESH,
    ),
)

_PASSES = {
    "original": "the program as it is",
    "sink-waits": "Inductor's sink_waits: each wait down to its first user",
    "raise-comms": "Inductor's raise_comms: each collective up to its last dependency",
    "reorder-compute": "Inductor's reorder_compute_for_overlap: kernels behind collectives",
    "inductor-default": "reorder-compute, sink-waits, raise-comms",
    "inductor-tests": "sink-waits, raise-comms, reorder-compute",
    "inductor-list-sink": "Inductor's list scheduling, waits last",
    "inductor-list-raise": "Inductor's list scheduling, collectives first",
    "inductor-list-reorder": "Inductor's list scheduling, both, kernels behind collectives",
}

_OVERLAP = tuple(
    Heuristic(name + suffix, summary + note, _overlap(name + suffix), Family.OVERLAP)
    for suffix, note in (("", ""), ("-stable", "; ties by program order"))
    for name, summary in _PASSES.items()
    if (name, suffix) != ("original", "-stable")
)

_TWO_STREAM = {
    "two-stream-tail": "longest path below first",
    "two-stream-communication": "most communication on a path below first",
    "two-stream-next-collective": "what the earliest collective needs first",
    "two-stream-program": "program order first",
}

_STREAMS = (
    *(
        Heuristic(
            name + suffix,
            f"list scheduling on both streams, {summary}{note}",
            _overlap(name + suffix),
            Family.OVERLAP,
        )
        for suffix, note in (("", ""), ("-fit", "; kernels that fit behind a collective"))
        for name, summary in _TWO_STREAM.items()
    ),
    Heuristic(
        "latest-launch",
        "the best two-stream list, each collective launched as late as it stays hidden",
        _overlap("latest-launch"),
        Family.OVERLAP,
    ),
)

_LISTS = (
    Heuristic("list-tail", "list scheduling, longest tail first", _list(list_rules.list_tail)),
    Heuristic("list-work", "list scheduling, most work left first", _list(list_rules.list_work)),
    Heuristic(
        "list-backward-first",
        "list scheduling, backward before forward before weight gradient",
        _list(list_rules.list_backward_first),
    ),
    Heuristic(
        "list-serial",
        "serial generation by longest tail, each op into the first gap",
        _list(list_rules.list_serial),
    ),
    Heuristic(
        "list-sweep",
        "best of many list rules, justified and shaken",
        _list(list_sweep),
        is_search=True,
    ),
)

HEURISTICS: dict[str, Heuristic] = {
    heuristic.name: heuristic
    for heuristic in (
        *map(with_collectives, PUBLISHED),
        *_PINNED,
        *_REFRESH,
        *_OVERLAP,
        *_STREAMS,
        *_LISTS,
    )
}
"""Every heuristic by name, in the order of reports."""


def heuristics_for(instance: Instance) -> Iterator[str]:
    """Yield the heuristics worth a line in a report on `instance`.

    K-FAC heuristics are left out elsewhere, and pipeline schedules where K-FAC work is scheduled.
    """
    family = Family.of(instance)
    shown = {Family.ANY, family}
    if family is Family.ANY:
        shown.add(Family.PIPELINE)
    return (name for name, heuristic in HEURISTICS.items() if heuristic.family in shown)


def quick_heuristics(instance: Instance) -> list[str]:
    """Return the names of those of `heuristics_for` that do not search."""
    return [name for name in heuristics_for(instance) if not HEURISTICS[name].is_search]


def find_heuristic(name: str) -> Heuristic:
    """Return the heuristic called `name`.

    Raises
    ------
    InputError
        There is none; names the nearest.
    """
    if name not in HEURISTICS:
        raise InputError(f'unknown heuristic "{name}"' + did_you_mean(name, HEURISTICS))
    return HEURISTICS[name]


def run_heuristic(
    name: str, instance: Instance, problem: Problem, group_size: int | None = None
) -> HeuristicOutcome:
    """Run one heuristic and check its schedule.

    Parameters
    ----------
    name : str
        Name of the heuristic.
    instance : Instance
        The instance.
    problem : Problem
        The lowered instance.
    group_size : int, optional
        Micro-batches per group of ``interleaved-1f1b``; PyTorch's choice by default.

    Raises
    ------
    InputError
        Unknown name, or a group size below 1.
    """
    heuristic = find_heuristic(name)
    obstacle = heuristic.obstacle(instance)
    if obstacle is not None:
        return HeuristicOutcome(name, HeuristicStatus.NOT_APPLICABLE, reason=obstacle)
    try:
        plan = heuristic.plan(Request(instance, problem, group_size))
    except NotApplicableError as error:
        return HeuristicOutcome(name, HeuristicStatus.NOT_APPLICABLE, reason=str(error))
    except (DeadlockError, MemoryDeadlockError, HeuristicFailedError) as error:
        return HeuristicOutcome(name, HeuristicStatus.FAILED, reason=str(error))
    violations = check_schedule(problem, plan.schedule)
    reason = str(violations[0]) if violations else plan.broken
    status = HeuristicStatus.FEASIBLE if reason is None else HeuristicStatus.INFEASIBLE
    return HeuristicOutcome(name, status, plan.schedule, reason, plan.orders, plan.order)

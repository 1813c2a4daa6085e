"""All heuristics by name, in the order in which they are run and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ppsolve.models.base import did_you_mean
from ppsolve.models.errors import (
    DeadlockError,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.instances import Instance
from ppsolve.models.kfac import KfacInstance
from ppsolve.models.pipeline import PipelineInstance
from ppsolve.models.problem import Problem
from ppsolve.models.result import HeuristicStatus
from ppsolve.models.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics import list_rules
from ppsolve.solver.heuristics.actions import orders_of
from ppsolve.solver.heuristics.heuristic import (
    Family,
    Heuristic,
    Outcome,
    Plan,
    PlanFunction,
    Request,
)
from ppsolve.solver.heuristics.published import PUBLISHED
from ppsolve.solver.heuristics.sweep import list_sweep


def _list(generate: Callable[[Problem], Schedule]) -> PlanFunction:
    def plan(request: Request) -> Plan:
        schedule = generate(request.problem).normalised()
        is_pipeline = isinstance(request.instance, PipelineInstance)
        return Plan(schedule, orders_of(schedule) if is_pipeline else None)

    return plan


def _pinned(pattern: str) -> PlanFunction:
    """Wrap a published schedule that is pinned and repeated, K-FAC work placed around it."""

    def plan(request: Request) -> Plan:
        from ppsolve.solver.kfac.around import schedule_around

        assert isinstance(request.instance, KfacInstance)
        return Plan(schedule_around(request.instance, request.problem, pattern), None)

    return plan


def _refresh(request: Request) -> Plan:
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
    heuristic.name: heuristic for heuristic in (*PUBLISHED, *_PINNED, *_REFRESH, *_LISTS)
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
) -> Outcome:
    """Run one heuristic and check its schedule.

    Parameters
    ----------
    name : str
        Name of the heuristic.
    instance : PipelineInstance or GraphInstance
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
        return Outcome(name, HeuristicStatus.NOT_APPLICABLE, reason=obstacle)
    try:
        plan = heuristic.plan(Request(instance, problem, group_size))
    except NotApplicableError as error:
        return Outcome(name, HeuristicStatus.NOT_APPLICABLE, reason=str(error))
    except (DeadlockError, MemoryDeadlockError) as error:
        return Outcome(name, HeuristicStatus.FAILED, reason=str(error))
    violations = check_schedule(problem, plan.schedule)
    status = HeuristicStatus.INFEASIBLE if violations else HeuristicStatus.FEASIBLE
    reason = str(violations[0]) if violations else None
    return Outcome(name, status, plan.schedule, reason, plan.orders)

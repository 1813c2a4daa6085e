"""Turning schedules and outcomes into the entries that results carry."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.result import (
    HeuristicEntry,
    ScheduleDocument,
    Versions,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.instances import Instance

if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import HeuristicOutcome


@cache
def versions() -> Versions:
    """Return the versions of the package, OR-tools and Python that run here."""
    return Versions(
        ppsolve=version("ppsolve"),
        ortools=version("ortools"),
        python=platform.python_version(),
    )


def relative_gap(value: int, reference: int, base: int) -> float:
    """Return (value - reference) / base, 0 where both are equal.

    With a base of 0, unequal values are infinitely far apart.
    """
    return (
        0.0
        if value == reference
        else (value - reference) / base
        if base
        else float("inf")
    )


def figures(schedule: Schedule) -> dict[str, Any]:
    """Return value, makespan, device span, bubble ratio and peak memory by pool name."""
    problem, metrics = schedule.problem, measure(schedule)
    time = problem.scale.time
    peaks = zip(problem.pools, metrics.peak_memory, strict=True)
    return {
        "value": time(schedule.value),
        "makespan": time(schedule.makespan),
        "device_span": time(schedule.device_span),
        "bubble_ratio": metrics.bubble_of(problem.objective),
        "peak_memory": {pool.name: float(peak) for pool, peak in peaks} or None,
    }


def heuristic_entry(outcome: HeuristicOutcome) -> HeuristicEntry:
    """Return the entry of one heuristic with its schedule, figures in the unit of that, no gap."""
    schedule = outcome.schedule
    values: dict[str, Any] = {} if schedule is None else figures(schedule)
    return HeuristicEntry(
        name=outcome.name,
        status=outcome.status,
        reason=outcome.reason,
        broken=outcome.broken,
        pattern=outcome.pattern,
        schedule=None if schedule is None else ScheduleDocument.of(schedule),
        **values | {"orders": outcome.orders},
    )


def is_lost(
    kind: Any, instance: Instance, problem: Problem, outcome: HeuristicOutcome
) -> bool:
    """Whether neither the orders of a schedule nor another run of what found it give it again.

    An entry has to hold such a schedule itself. Searches also order transfers, and ops of no
    micro-batch.
    """
    schedule, orders = outcome.schedule, outcome.orders
    if schedule is None or orders is None:
        return False
    heuristics = kind.heuristics_of(instance)
    if not any(
        heuristic.is_search
        for heuristic in heuristics
        if heuristic.name == outcome.name
    ):
        return False
    if np.all(problem.is_compute & (problem.microbatch != FREE)):
        return False
    try:
        followed: Schedule = kind.follow(instance, problem, orders).schedule
    except (InputError, DeadlockError):
        return True
    return not np.array_equal(followed.normalised().start, schedule.normalised().start)

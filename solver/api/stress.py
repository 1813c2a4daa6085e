"""How schedules of a result hold when ops do not take what was planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    ScheduleDocument,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.models.studies.stress import StressReport
from ppsolve.solver.api.kinds import kind_of, owner_in, schedule_in, schedule_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.stress.replay import (
    ALL_KINDS,
    FixedOrders,
    Jitter,
    stressed,
)

RUNS = 10_000
"""Runs by default: the 99th percentile then rests on 100 of them."""


def stress(
    result: Result | HeuristicEntry | ScheduleDocument | Mapping[str, Any],
    jitter: float | Mapping[str, float],
    *,
    slow: Mapping[int, float] | None = None,
    runs: int = RUNS,
    seed: int = 0,
    instance: Instance | None = None,
    source: str | None = None,
) -> StressReport:
    """Replay the best schedule of a result and its heuristics with random durations.

    Orders stay the same, and every op starts as early as its order allows. All schedules get the
    same durations.

    Parameters
    ----------
    result : Result, HeuristicEntry, ScheduleDocument or dict
        A result, an entry or a bare schedule, or parsed JSON of one.
    jitter : float or mapping of str to float
        Coefficient of variation of all ops, or by kind (``F``, ``I``, ``P2P``, …; ``*`` for
        others).
    slow : mapping of int to float, optional
        Factor on all compute ops of a device.
    runs, seed : int
        Number of runs, and seed of their durations.
    instance : Instance, optional
        The instance of a document that carries none.
    source : str, optional
        How errors name the result.

    Returns
    -------
    StressReport
        The best schedule first, then each feasible heuristic of a result that runs the same ops in
        the same planned times: not with other memory modes or blocks, nor another assignment of
        micro-batches to replicas. Times in the instance's unit.

    Raises
    ------
    InputError
        The result is wrong, or has no valid schedule or no instance, ops are pinned, or an option
        is out of range.
    """
    data = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
    by_kind = jitter if isinstance(jitter, Mapping) else {ALL_KINDS: jitter}
    return stressed(
        _contenders(data, source, instance), Jitter(by_kind, slow or {}), runs, seed
    )


def _contenders(
    data: Any, source: str | None, otherwise: Instance | None
) -> dict[str, FixedOrders]:
    instance, schedule = schedule_in(data, source, otherwise=otherwise)
    owner = owner_in(data, source)
    broken = check_schedule(schedule.problem, schedule)
    if broken:
        raise InputError(
            f"it breaks a rule: {broken[0]}",
            source=source,
            field="schedule",
            code=ErrorCode.SCHEDULE,
        )
    entries = (
        owner.heuristics if isinstance(owner, Result) else [owner] if owner else []
    )
    schedules = {_name(owner): schedule.normalised()}
    kind = kind_of(instance)
    for index, entry in enumerate(entries):
        if entry.status is HeuristicStatus.FEASIBLE and entry.orders is not None:
            field = f"heuristics[{index}].orders"
            problem = kind.lower(instance, document=entry.model_dump(mode="json"))
            candidate = _schedule_of(entry, instance, problem, source, field)
            if not _is_of_same_ops(candidate.problem, schedule.problem):
                continue
            candidate = _renumbered(candidate, schedule.problem)
            if np.array_equal(
                schedules.setdefault(entry.name, candidate).start, candidate.start
            ):
                # The one of the document, but with what its ops wait for besides.
                schedules[entry.name] = candidate
    return {name: FixedOrders.of(contender) for name, contender in schedules.items()}


def _name(owner: Result | HeuristicEntry | None) -> str:
    name = owner.name if isinstance(owner, HeuristicEntry) else owner and owner.best_by
    return name or "best"


def _is_of_same_ops(problem: Problem, reference: Problem) -> bool:
    """Whether two problems have the same ops, and plan the same time for each.

    Memory modes, blocks and assignments give an instance other ops, or ops that take longer.
    """
    if problem.num_ops != reference.num_ops:
        return False
    rows, reference_rows = _by_label(problem), _by_label(reference)
    first, second = _labels(problem)[:, rows], _labels(reference)[:, reference_rows]
    is_same = np.array_equal(first, second) and (problem.kinds, problem.scale) == (
        reference.kinds,
        reference.scale,
    )
    return is_same and np.array_equal(
        problem.duration[rows], reference.duration[reference_rows]
    )


def _labels(problem: Problem) -> IntArray:
    return np.stack([problem.kind, problem.stage, problem.microbatch, problem.device])


def _by_label(problem: Problem) -> IntArray:
    order: IntArray = np.lexsort(_labels(problem))
    return order


def _renumbered(schedule: Schedule, problem: Problem) -> Schedule:
    number = np.empty(problem.num_ops, dtype=np.int64)
    number[_by_label(schedule.problem)] = _by_label(problem)
    start, waits = np.empty_like(schedule.start), schedule.waits
    start[number] = schedule.start
    if waits is not None:
        waits = number[waits[0]], number[waits[1]], waits[2]
    return Schedule(problem, start, waits)


def _schedule_of(
    entry: HeuristicEntry,
    instance: Instance,
    problem: Problem,
    source: str | None,
    field: str,
) -> Schedule:
    try:
        schedule = schedule_of(entry, instance, problem)
    except (InputError, DeadlockError) as error:
        text = error.message if isinstance(error, InputError) else str(error)
        raise InputError(text, source=source, field=field) from None
    if schedule is None:
        raise InputError(
            "not a whole schedule", source=source, field=field, code=ErrorCode.SCHEDULE
        )
    return schedule.normalised()

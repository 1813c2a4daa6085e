"""The bound of a result, proved again from its instance alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

from ppsolve.models.core.claims import figure
from ppsolve.models.core.result import Figure, Status, StopReason
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.exact.question import EXACT, SearchLimits
from ppsolve.solver.run.options import default_workers
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.structure.holds import MemoryInfeasible


@dataclass(frozen=True)
class BoundCheck:
    """Outcome of a second proof; figures in the unit of the result's values."""

    claimed: (
        Figure | None
    )  # the bound; None where the result says that there is no schedule
    proved_by: str | None  # what proved it again; None where it is wrong
    better: Figure | None = None  # value of a schedule that contradicts it


def check_bound(
    instance: Instance, data: dict[str, Any], *, exact: bool = False
) -> BoundCheck:
    """Prove the bound of a result again, or find a schedule below it, as long as it takes.

    Analytic bounds come first, then CP-SAT with its defaults and with those of questions in turn,
    each time for twice as long.

    An `InputError` says that the plain data of the result has no bound, or is not of one problem.
    """
    claimed = figure(data, "bound")
    is_refuted = data.get("status") == Status.INFEASIBLE
    if claimed is None and not is_refuted:
        raise InputError(
            "expected a result with a bound", field="bound", code=ErrorCode.MISSING
        )
    task = kind_of(instance).claimed_task(instance, data, exact=exact)
    if not isinstance(task, ScheduleTask):
        raise InputError(
            f"bounds of {task.kind.schedules_of} cannot be proved again",
            field="bound",
            code=ErrorCode.UNSUPPORTED,
        )
    ticks = None if claimed is None else _ticks(claimed / task.scale.tick)
    claim = None if ticks is None else task.shown(ticks)
    try:
        task.find_bounds()
    except MemoryInfeasible:
        return BoundCheck(claim, "memory")
    if ticks is not None and task.board.bound.value >= ticks:
        return BoundCheck(claim, task.board.bound.name)
    if task.board.value is not None and (ticks is None or task.board.value < ticks):
        return BoundCheck(claim, None, task.shown(task.board.value))
    return _search(task, ticks, claim)


def _search(task: ScheduleTask, ticks: int | None, claim: Figure | None) -> BoundCheck:
    analytic = task.board.bound.value
    for round_ in count():
        limits = SearchLimits(
            seconds=None,
            deterministic=2.0 ** (round_ // 2),
            workers=default_workers(),
            seed=1,  # not the default seed of the run that is checked
            is_plain=round_ % 2 == 0,
            dynamic_orders=True,
        )
        answer = task.search_below(analytic, ticks, limits)
        if answer.infeasible and task.unproved is not None:
            text = f"cannot be proved again above {task.shown(analytic)}, as {task.unproved}"
            raise InputError(text, field="bound", code=ErrorCode.UNSUPPORTED)
        if answer.infeasible:
            return BoundCheck(claim, EXACT)
        if answer.schedule is not None:
            return BoundCheck(claim, None, task.shown(answer.schedule.value))
        if answer.stop_reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        if answer.stop_reason in {StopReason.GAP, StopReason.PROVED}:
            raise InputError(
                "cannot be proved again: CP-SAT rounds memory down or leaves choices open, "
                "and its schedule does not fit",
                field="bound",
                code=ErrorCode.UNSUPPORTED,
            )
    raise AssertionError("rounds never end")


def _ticks(bound: Fraction) -> int:
    nearest, slack = round(bound), max(abs(bound), Fraction(10**9)) / 10**15
    return nearest if abs(bound - nearest) <= slack else math.ceil(bound)

"""The schedules that a page shows, read from results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import validated
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of, schedule_in, schedule_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.views.drawings import bound_of, drawing_of
from ppsolve.solver.views.page.columns import Columns, columns_of
from ppsolve.solver.views.page.idle import Idle, OpCauses, causes_of, idle_of
from ppsolve.solver.views.time_units import in_unit, ratio_of_units, readable_unit


@dataclass(frozen=True)
class PageSchedule:
    """One schedule of a page."""

    by: str  # what made it, e.g. `cp-sat` or `zb-h1`
    instance: Instance  # what it schedules
    result: Result  # the result that it is from
    schedule: Schedule  # starts in ticks
    entry: HeuristicEntry | None = (
        None  # the heuristic that made it; None for the best schedule
    )

    @property
    def shape(self) -> str:
        """Name and size of what it schedules."""
        return drawing_of(self.instance.kind).title(self.instance)

    @cached_property
    def title(self) -> str:
        """What the page calls it."""
        is_valid = not check_schedule(self.schedule.problem, self.schedule)
        return f"{self.instance.name}, {self.by}{'' if is_valid else ' (infeasible)'}"

    @cached_property
    def causes(self) -> OpCauses:
        """What its ops waited for."""
        return causes_of(self.schedule)

    @cached_property
    def idle(self) -> list[Idle]:
        """Idle time of every compute stream."""
        runtime = getattr(self.result, "runtime", None)
        waits = getattr(runtime, "waits", None) is not None
        return idle_of(self.schedule, self.causes, is_waited_for=waits)

    @property
    def length(self) -> float:
        """Its makespan, in the result's unit."""
        return self.time(self.schedule.makespan)

    def time(self, ticks: int) -> float:
        """Return ticks in the result's unit, which may not be the instance's."""
        scale = self.schedule.problem.scale
        return scale.time(ticks) * ratio_of_units(scale.unit, self.result.time_unit)

    @property
    def gap(self) -> float | None:
        """Its distance to the bound as a share of the makespan."""
        if self.bound is None or not self.length:
            return None
        return (self.length - self.bound) / self.length

    @property
    def bound(self) -> float | None:
        """The proven bound where it is one of the makespan, in the result's unit."""
        return bound_of(self.result, Objective.MAKESPAN)

    def columns(self) -> Columns:
        """Return all that the page's script needs to draw it; bounds in the result's unit."""
        scale = self.schedule.problem.scale
        factor = ratio_of_units(scale.unit, self.result.time_unit)
        drawing = drawing_of(self.instance.kind)
        kinds = drawing.kinds_of_ops(self.instance, self.schedule.problem)
        curves = drawing.curves(self.entry or self.result, self.schedule)
        return {
            "tick": float(scale.tick) * factor,
            "bound": self.bound,
            "spanBound": bound_of(self.result, Objective.DEVICE_SPAN),
            "period": factor * (drawing.period(self.instance) or 0),
            **columns_of(self.schedule, self.causes, curves, kinds),
        }


def in_one_unit(schedules: Sequence[PageSchedule]) -> list[PageSchedule]:
    """Return schedules whose results tell their times in one unit, in which they have few digits.

    Units that no factor leads to raise an `InputError`.
    """
    first = schedules[0].result.time_unit if schedules else ""
    lengths = [
        schedule.length * ratio_of_units(schedule.result.time_unit, first)
        for schedule in schedules
    ]
    unit = readable_unit(first, max(lengths, default=0.0))
    converted = [
        replace(
            schedule, result=in_unit(schedule.result, schedule.result.time_unit, unit)
        )
        for schedule in schedules
    ]
    for schedule in converted:
        if (own_unit := schedule.result.time_unit) != unit:
            text = (
                f'expected times in "{first}" as in the first result, got "{own_unit}"'
            )
            raise InputError(
                text,
                source=schedule.instance.name,
                field="time_unit",
                code=ErrorCode.CONFLICT,
            )
    return converted


def read_shown(
    data: Any, source: str, heuristics: Sequence[str] = ()
) -> list[PageSchedule]:
    """Read the best schedule of a result, and those of its heuristics that are named.

    `data` is the parsed JSON of a result that carries its instance. An `InputError` says that there
    is no instance, no whole schedule, or no schedule of a heuristic that is named.
    """
    instance, schedule = schedule_in(data, source)
    model = kind_of(instance).documents(data.get("value_unit"))[0]
    result = validated(model, data, source)
    _refuse_broken(schedule, "the schedule", source, "schedule")
    best = PageSchedule(result.best_by or "best", instance, result, schedule)
    return [best, *(_heuristic(best, name, source) for name in heuristics)]


def _heuristic(best: PageSchedule, name: str, source: str) -> PageSchedule:
    entries = {entry.name: entry for entry in best.result.heuristics}
    if name not in entries:
        raise InputError.unknown(
            "the result has no heuristic",
            name,
            entries,
            source=source,
            field="--heuristic",
        )
    entry = entries[name]
    schedule = None
    if entry.orders is not None:
        schedule = schedule_of(
            entry, best.instance, kind_of(best.instance).lower(best.instance)
        )
    schedule = schedule or _rerun(best.instance, name)
    if schedule is None:
        message = f"{name} has no schedule: {entry.reason or entry.status.value}"
        raise InputError(
            message, source=source, field="--heuristic", code=ErrorCode.MISSING
        )
    _refuse_broken(schedule, f"the schedule of {name}", source, "--heuristic")
    return PageSchedule(name, best.instance, best.result, schedule, entry)


def _refuse_broken(schedule: Schedule, subject: str, source: str, field: str) -> None:
    """Refuse schedules of which nothing can be traced; too much memory can still be shown."""
    broken = [
        v for v in check_schedule(schedule.problem, schedule) if v.rule != "memory"
    ]
    if broken:
        message = (
            f"{subject} breaks a rule: {broken[0]} (`ppsolve check` lists everything)"
        )
        raise InputError(message, source=source, field=field, code=ErrorCode.SCHEDULE)


def _rerun(instance: Instance, name: str) -> Schedule | None:
    """Run a heuristic whose orders the result does not hold."""
    kind = kind_of(instance)
    heuristic = next((h for h in kind.heuristics_of(instance) if h.name == name), None)
    if heuristic is None:
        return None
    entry = kind.simulate(heuristic, instance)
    if entry.schedule is None:
        return None
    document = entry.model_dump(mode="json")
    problem = kind.lower(instance, document=document)
    return kind.read(instance, problem, document)[0]

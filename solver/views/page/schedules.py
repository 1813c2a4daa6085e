"""The schedules that a page shows, read from results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import Figure, HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.base import did_you_mean, validated
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of, schedule_in, schedule_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.views.drawings import bound_of, drawing_of
from ppsolve.solver.views.figures import figure
from ppsolve.solver.views.page.columns import Columns, columns_of
from ppsolve.solver.views.page.idle import Idle, OpCauses, causes_of, idle_of

COUNTS = frozenset(
    {"value", "bound"}
)  # times only where the result counts its value in them
MOST = 1e6  # of more than six digits people count the digits


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


def ratio_of_units(unit: str, target: str) -> float:
    """Return the factor from one time unit to another; 1 where it is the same or unknown."""
    rates = UNITS_PER_SECOND
    if unit == target or unit not in rates or target not in rates:
        return 1.0
    return rates[target] / rates[unit]


def readable_unit(unit: str, longest: float) -> str:
    """Return the unit, or the next larger one in which the longest time has at most six digits."""
    units = list(UNITS_PER_SECOND)
    larger = units[units.index(unit) :] if unit in units else []
    return next((u for u in larger if longest * ratio_of_units(unit, u) < MOST), unit)


def in_unit(result: Result, unit: str) -> Result:
    """Return a result with its times in another unit, its schedule as it is.

    Times in its reasons are told in it too. Where no factor leads to the unit it is the result
    itself.
    """
    old_unit, factor = result.time_unit, ratio_of_units(result.time_unit, unit)

    def told(value: Any, name: str, is_time: bool = False) -> Any:
        if isinstance(value, tuple):
            return tuple(told(element, name) for element in value)
        if isinstance(value, BaseModel) and name != "schedule":
            times = _times_of(type(value)) - (
                frozenset() if name == "tie_break" else counts
            )
            return value.model_copy(
                update={k: told(v, k, k in times) for k, v in value}
            )
        if isinstance(value, dict) and is_time:
            return {key: told(entry, name, True) for key, entry in value.items()}
        if is_time and value is not None:
            is_list = isinstance(value, list)
            return (
                [element * factor for element in value] if is_list else value * factor
            )
        if name == "reason" and value:
            return re.sub(rf"\b([0-9.]+) {old_unit}\b", time, value)
        return unit if name.endswith("_unit") and value == old_unit else value

    def time(match: re.Match[str]) -> str:
        return f"{figure(float(match[1]) * factor)} {unit}"

    counts = frozenset() if result.value_unit in {None, old_unit} else COUNTS
    return result if factor == 1.0 else cast("Result", told(result, ""))


@cache
def _times_of(document: type[BaseModel]) -> frozenset[str]:
    hints = get_type_hints(document, include_extras=True)
    return frozenset(name for name, kind in hints.items() if _is_time(kind))


def _is_time(kind: Any) -> bool:
    # Curves are drawn in the instance's unit: pairs of a time and an amount stay.
    return kind == Figure or (
        get_origin(kind) is not tuple and any(map(_is_time, get_args(kind)))
    )


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
        replace(schedule, result=in_unit(schedule.result, unit))
        for schedule in schedules
    ]
    for schedule in converted:
        if (own_unit := schedule.result.time_unit) != unit:
            text = (
                f'expected times in "{first}" as in the first result, got "{own_unit}"'
            )
            raise InputError(text, source=schedule.instance.name, field="time_unit")
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
        hint = did_you_mean(name[:40], entries)
        message = f'the result has no heuristic "{name[:40]}"{hint}'
        raise InputError(message, source=source, field="--heuristic")
    entry = entries[name]
    schedule = None
    if entry.orders is not None:
        schedule = schedule_of(
            entry, best.instance, kind_of(best.instance).lower(best.instance)
        )
    schedule = schedule or _rerun(best.instance, name)
    if schedule is None:
        message = f"{name} has no schedule: {entry.reason or entry.status.value}"
        raise InputError(message, source=source, field="--heuristic")
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
        raise InputError(message, source=source, field=field)


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

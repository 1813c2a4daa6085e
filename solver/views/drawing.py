"""How instances, schedules and results of a kind are drawn; the default suits any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, Status
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.units import memory_unit, readable_amounts
from ppsolve.models.instances import Instance
from ppsolve.solver.views.chart import AmountCurve, pool_curves
from ppsolve.solver.views.figures import (
    ABSENT,
    figure,
    figures,
    percent,
    ratio,
    seconds,
    shorten,
)
from ppsolve.solver.views.schedule_view import (
    ScheduleReport,
    ScheduleView,
    peak_text,
    report_of_schedule,
)
from ppsolve.solver.views.tables import (
    FactList,
    Field,
    FittingTable,
    TableColumn,
    indented,
)
from ppsolve.solver.views.time_units import readable_times
from ppsolve.solver.views.wording import (
    ENTRY_STYLE,
    bubble_name,
    spaced,
    unit_of,
    with_unit,
)

Facts = Iterator[tuple[str, str]]  # names and values with their units, a line each


LONGEST_STATUS = 100  # letters of a heuristic's outcome, unless all is asked for


class Drawing:
    """How a kind is drawn: facts and tables of its documents, and views of its schedules."""

    def summary(self, result: Result) -> str:
        """Return the figures that a summary names beside value, bound and gap."""
        return ""

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield the figures of a result; the instance gives caps that it does not repeat."""
        measure = ("device span", result.device_span)
        if result.objective is Objective.DEVICE_SPAN:
            measure = ("makespan", result.makespan)
        yield from reached(result, measure)
        if result.bubble_ratio is not None:
            over = result.bubble_over_compute
            extra = f"  ({ratio(over)} of compute)" if over is not None else ""
            yield bubble_name(result), ratio(result.bubble_ratio) + extra

    def proof(self, result: Result) -> str:
        """Return the claim about a schedule that is as short as its bound."""
        return "proved optimal"

    def took(self, result: Result) -> str:
        """Return the time of the search in words."""
        return seconds(result.wall_seconds)

    def parts(
        self, source: Result | HeuristicEntry, unit: str
    ) -> Iterator[RenderableType]:
        """Yield tables of the parts of a result or one heuristic, such as its devices."""
        yield from ()

    def heuristics(
        self, entries: Sequence[HeuristicEntry], result: Result, *, verbose: bool
    ) -> Iterator[RenderableType]:
        """Yield the table of heuristics, then notes on it."""
        visible = [
            e
            for e in entries
            if verbose or e.status is not HeuristicStatus.NOT_APPLICABLE
        ]
        if visible:
            status = [self.status(e, result, verbose=verbose) for e in visible]
            if not verbose:
                status = [shorten(text, LONGEST_STATUS) for text in status]
            table = FittingTable(
                TableColumn(
                    "heuristic", [entry.name for entry in visible], is_text=True
                ),
                TableColumn(
                    spaced(result.objective), figures(*(e.value for e in visible))
                ),
                *distances(visible, result, "infeasible" if verbose else ABSENT),
                *(
                    field.column(visible)
                    for field in self.fields(result, verbose=verbose)
                ),
                TableColumn(
                    "status",
                    status,
                    is_text=True,
                    wraps=True,
                    wrap_at=24 if verbose else 36,
                ),
                styles=[ENTRY_STYLE[entry.status] for entry in visible],
                caption="Heuristics",
            )
            yield indented(table)
        hidden = [e.name for e in entries if e not in visible]
        if hidden:
            text = f"not applicable: {', '.join(hidden)} (--verbose says why)"
            yield indented(Text(text, "dim"))

    def fields(self, result: Result, *, verbose: bool) -> Sequence[Field[Any]]:
        """Return further columns of the table of heuristics."""
        return (Field("bubble", lambda entry: entry.bubble_ratio, 1, ratio),)

    def status(self, entry: HeuristicEntry, result: Result, *, verbose: bool) -> str:
        """Return the outcome of a heuristic: its status, its pattern, and a reason if it has one.

        The entry is compared with the result; `verbose` gives the whole reason.
        """
        word = spaced(entry.status)
        if entry.status is HeuristicStatus.FEASIBLE and entry.value == result.value:
            word = "optimal" if result.status is Status.OPTIMAL else "best"
        pattern = f" under {entry.pattern}" if entry.pattern else ""
        reason = self.reason(entry, verbose=verbose)
        return f"{word}{pattern}" + (f": {reason}" if reason else "")

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the notes below the table of heuristics."""
        yield from ()

    def curves(
        self, source: Result | HeuristicEntry, schedule: Schedule
    ) -> list[AmountCurve]:
        """Return the amounts over time that are drawn below a schedule, times in ticks."""
        return pool_curves(schedule)

    def kinds_of_ops(self, instance: Instance, problem: Problem) -> list[str]:
        """Return for each op the kind as which a page draws it."""
        return [problem.kinds[kind] for kind in problem.kind.tolist()]

    def period(self, instance: Instance) -> float | None:
        """Return the time after which a schedule repeats, in the instance's unit, if it does."""
        return None

    def reason(self, entry: HeuristicEntry, *, verbose: bool = True) -> str:
        """Return in plain words why a heuristic has no valid schedule; all of it if `verbose`."""
        short = None if verbose or entry.broken is None else entry.broken.short
        return short or entry.reason or ""

    def entry_facts(
        self, entry: HeuristicEntry, instance: Instance, unit: str
    ) -> Facts:
        """Yield the figures of one heuristic in a unit of time; the instance gives caps."""
        texts = {"pattern": entry.pattern, "reason": self.reason(entry)}
        yield from ((name, text) for name, text in texts.items() if text)
        times = figures(entry.makespan, entry.device_span)
        for name, text in zip(("makespan", "device span"), times, strict=True):
            if text != ABSENT:
                yield name, f"{text} {unit}"
        if entry.bubble_ratio is not None:
            yield bubble_name(entry), ratio(entry.bubble_ratio)
        peaks = entry.peak_memory or {}
        for pool, peak in peaks.items():
            yield f"peak, {pool}", peak_text(peak, unit=memory_unit(instance))

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return an instance in short, with a hint at further commands."""
        return described(instance, [*self.shape(instance), *sizes(problem)])

    def title(self, instance: Instance) -> str:
        """Return the name of an instance and its size, for headings."""
        return instance.name

    def shape(self, instance: Instance) -> Facts:
        """Yield facts of an instance that are known before it is lowered."""
        yield from ()

    def view(self, view: ScheduleView) -> ScheduleReport:
        """Return the chart and the figures of a schedule, with or without its instance."""
        return report_of_schedule(view)

    def warning(self, view: ScheduleView) -> str | None:
        """Return a warning if a result of a known instance contradicts its schedule."""
        return None


def distances(
    entries: Sequence[HeuristicEntry], result: Result, broken: str
) -> list[TableColumn]:
    """Return the distances of heuristics over the best schedule and, where open, to the bound.

    "Over best" is (value - best) / best, "gap" (value - bound) / value as that of the result.
    Infeasible ones have the word `broken` instead. "Gap" is missing where the best is proved
    optimal.
    """
    over = [
        broken if e.status is HeuristicStatus.INFEASIBLE else percent(e.gap)
        for e in entries
    ]
    columns = [TableColumn("over\nbest", over)]
    if result.bound is not None and result.status is not Status.OPTIMAL:
        gaps = [percent(_gap(entry, result.bound)) for entry in entries]
        columns.append(TableColumn("gap", gaps))
    return columns


def _gap(entry: HeuristicEntry, bound: float) -> float | None:
    if entry.status is not HeuristicStatus.FEASIBLE or entry.value is None:
        return None
    # Rounded figures never make it negative.
    return max(0.0, (entry.value - bound) / entry.value) if entry.value else 0.0


def reached(result: Result, *measures: tuple[str, float | None]) -> Facts:
    """Yield value, bound and gap of a result.

    `measures` are other times of the schedule and their names, which follow the value.
    """
    name, unit = spaced(result.objective), unit_of(result)
    value, bound, *times = figures(
        result.value, result.bound, *(time for _, time in measures)
    )
    if result.value is not None:
        yield name, (value if name == unit else f"{value} {unit}") + _by(result.best_by)
        for (label, _), text in zip(measures, times, strict=True):
            yield label, f"{text} {unit}"
    if result.bound is not None:
        twice = ", proved twice" if result.bound_verified else ""
        yield "lower bound", with_unit(bound, unit) + _by(result.bound_by) + twice
    if result.gap is not None:
        yield "gap", percent(result.gap)


def _by(name: str | None) -> str:
    return f"  by {name}" if name else ""


def described(
    instance: Instance,
    rows: Sequence[tuple[str, str]],
    summary: str | None = None,
    devices: RenderableType | None = None,
) -> RenderableType:
    """Return an instance in short: title, facts, table and a hint at further commands.

    `summary` says what the instance is; otherwise its kind is named.
    """
    title = Text(f"{instance.name}: {summary or f'a {instance.kind} instance'}", "bold")
    below = [] if devices is None else [Text(), devices, Text()]
    hint = Text("add a RESULT or --heuristic NAME to draw a schedule", "dim")
    return Group(title, FactList(rows), *below, hint)


def sizes(problem: Problem) -> Facts:
    """Yield the sizes of a problem."""
    unit = problem.scale.unit
    yield "objective", spaced(problem.objective)
    yield "ops", figure(problem.num_ops)
    yield "precedences", figure(len(problem.before))
    ops = (
        problem.ops_by_resource[resource]
        for resource in problem.span_resources.tolist()
    )
    work = [int(problem.duration[indices].sum()) for indices in ops]
    if work:
        extremes = map(problem.scale.time, sorted({min(work), max(work)}))
        limits, shown = readable_times(unit, *extremes)
        yield "work per device", f"{' to '.join(limits)} {shown}"
    if problem.num_ops:
        longest = problem.scale.time(int(np.max(problem.duration)))
        (length,), shown = readable_times(unit, longest)
        yield "longest op", f"{length} {shown}"
    if problem.pools:
        names = dict.fromkeys(
            pool.name for pool in (problem.pools[0], problem.pools[-1])
        )
        amounts = sorted({pool.capacity for pool in problem.pools})
        limits, shown = readable_amounts(
            (amounts[0], amounts[-1]), problem.pools[0].unit
        )
        capacity = with_unit(" to ".join(dict.fromkeys(limits)), shown)
        yield f"memory, {' to '.join(names)}", f"capacity {capacity}"

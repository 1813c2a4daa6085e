"""How K-FAC work is drawn: cycles like pipelines, refreshes by device and iteration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import cast

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    ScheduleDocument,
    ScheduledOp,
    Status,
)
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.kfac.instance import FREE_PIPELINE, KfacInstance, TieBreak
from ppsolve.models.kinds.kfac.pattern import DevicePattern, RefreshPattern
from ppsolve.models.kinds.kfac.result import (
    RefreshEntry,
    RefreshFigures,
    RefreshResult,
    TieBreakEntry,
    broken_rules,
)
from ppsolve.solver.kinds.kfac.kind import is_refresh
from ppsolve.solver.kinds.kfac.pattern import pattern_of
from ppsolve.solver.views.chart import SYNC_KINDS, Chart, chart_rows, kinds_of
from ppsolve.solver.views.drawing import Drawing, Facts, described, reached, sizes
from ppsolve.solver.views.figures import ABSENT, counted, figure, figures, ratio
from ppsolve.solver.views.pipeline import pipeline_shape, size_in_words
from ppsolve.solver.views.schedule_view import (
    HIDDEN,
    ScheduleReport,
    ScheduleView,
    busy_table,
)
from ppsolve.solver.views.tables import (
    Field,
    FittingTable,
    TableColumn,
    each,
    indented,
    table_of,
)
from ppsolve.solver.views.time_units import (
    in_readable_unit,
    ratio_of_units,
    readable_times,
    readable_unit,
)
from ppsolve.solver.views.wording import ITERATIONS, with_unit


def report_of_refresh(view: ScheduleView, period: float) -> ScheduleReport:
    """Return the report on a refresh, its iterations, each one `period` long, side by side."""
    source, links, unit = view.source, view.frame.links, view.unit
    counts = _iterations(view.document)
    iterations = max(counts.values(), default=1)
    rows = chart_rows(view.document, view.problem, links=True)
    devices = [row for row in rows if row.is_device]
    for row in devices:
        row.end = period if row.device is None else counts.get(row.device, 1) * period
    hidden = set(kinds_of(rows)) - set(kinds_of(devices))
    chart = Chart(
        rows if links else devices,
        max(iterations * period, view.end),
        view.unit,
        view.frame.window,
        iterations=[number * period for number in range(iterations)],
        small_letters="the second pipe",
    )
    refresh = (
        source if isinstance(source, RefreshResult | RefreshEntry) else RefreshFigures()
    )
    if isinstance(refresh, RefreshResult | RefreshEntry):
        refresh, unit = in_readable_unit(refresh, unit)
    return ScheduleReport(
        view.title,
        chart,
        list(_facts(view, iterations, period)),
        device_table(refresh, unit)
        if refresh.iterations_of
        else busy_table(devices, chart.end, view.unit),
        [HIDDEN] if not links and set(SYNC_KINDS) & hidden else [],
    )


def _iterations(document: ScheduleDocument) -> dict[int, int]:
    """Return the number of iterations of the pipeline on each device."""
    counts: dict[int, int] = {}
    for op in document.ops:
        number = iteration_of(op)
        if op.device is not None and number is not None:
            counts[op.device] = max(counts.get(op.device, 1), number + 1)
    return counts


def iteration_of(op: ScheduledOp) -> int | None:
    """Return the iteration of an op of the pipeline; None for K-FAC work."""
    _, separator, number = op.id.rpartition("@")
    return int(number) if separator and number.isdecimal() else None


def _facts(
    view: ScheduleView, iterations: int, period: float
) -> Iterator[tuple[str, str]]:
    yield ITERATIONS, figure(iterations)
    (length,), unit = readable_times(view.unit, period)
    yield "iteration", f"{length} {unit}"
    work = [op.end for op in view.document.ops if iteration_of(op) is None]
    if work:
        last = with_unit(figure(math.floor(100 * max(work) / period) / 100), ITERATIONS)
        (end,), unit = readable_times(view.unit, max(work))
        yield "K-FAC work", f"done at {end} {unit}, after {last}"


def device_table(refresh: RefreshFigures, unit: str) -> RenderableType:
    """Return the table of devices of a result or a heuristic; unknown figures have no column."""
    proved = refresh if isinstance(refresh, RefreshResult) else None
    bounds = proved and proved.bound_of
    devices = range(len(refresh.iterations_of or bounds or ()))
    proofs = (proved and proved.bounds_by) or [""] * len(devices)
    proved_by = None if bounds is None else list(map("{} {}".format, bounds, proofs))
    broken = refresh.breaks_of if isinstance(refresh, RefreshEntry) else None
    breaks = each(broken, lambda rules: broken_rules(rules) or ABSENT)
    ages = each(
        refresh.oldest_of, lambda age: ABSENT if age is None else f"{figure(age)} it."
    )
    table = FittingTable(
        TableColumn("device", each(devices, str)),
        TableColumn(ITERATIONS, each(refresh.iterations_of, figure)),
        TableColumn("bound by", proved_by, is_text=True),
        TableColumn("usage", each(refresh.usage_of, "{:.2f} %".format)),
        TableColumn(
            f"bubbles\nleft ({unit})", each(refresh.bubbles_of, figure), expendable=1
        ),
        TableColumn("peak\nsaved", each(refresh.peak_saved_of, figure), expendable=3),
        TableColumn("oldest\ninverse", ages, expendable=2),
        TableColumn("breaks", breaks, is_text=True, wraps=True),
    )
    return indented(table)


def _refresh(
    instance: KfacInstance, pattern: RefreshPattern
) -> Iterator[tuple[str, str]]:
    time, unit = pattern.scale.time, pattern.scale.unit
    measured = instance.timelines is not None
    yield (
        "pipeline",
        "measured timelines" if measured else f"described, run as {instance.pattern}",
    )
    yield "devices", str(len(pattern.devices))
    yield "micro-batches", _range(_microbatches(device) for device in pattern.devices)
    (period,), shown = readable_times(unit, time(pattern.period))
    yield "iteration", f"{period} {shown}"
    yield (
        "modules",
        f"{_range(_modules(device) for device in pattern.devices)} per device",
    )
    yield "margin", _margin(instance)
    yield "replicas", _replicas(pattern)
    interval = instance.refresh_interval
    limit = "without a limit" if interval is None else f"at most {interval}"
    yield "objective", f"fewest iterations, {limit}"
    if instance.tie_break is not TieBreak.NONE:
        yield "then", f"least {instance.tie_break.value}"
    if pattern.capacities:
        yield "saved tensors", f"capacity {_range(map(float, pattern.capacities))}"


def _margin(instance: KfacInstance) -> str:
    return f"{100 * float(instance.margin_ratio):.4g} % of an op's length stays free after it"


def _microbatches(device: DevicePattern) -> int:
    return sum(op.kind == "forward" for op in device.ops)


def _modules(device: DevicePattern) -> int:
    return len({work.label.module for work in device.work})


def _range(values: Iterable[float]) -> str:
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"


def _replicas(pattern: RefreshPattern) -> str:
    groups = {work.participants for device in pattern.devices for work in device.work}
    shared = sorted(group for group in groups if len(group) > 1)
    if not shared:
        return "none, every device syncs alone"
    named = (" and ".join(map(str, group)) for group in shared)
    return f"syncs meet on devices {'; '.join(named)}"


def _devices(pattern: RefreshPattern) -> RenderableType:
    period = pattern.period
    unit = readable_unit(pattern.scale.unit, pattern.scale.time(period))
    factor = ratio_of_units(pattern.scale.unit, unit)

    def time(ticks: int) -> float:
        return pattern.scale.time(ticks) * factor

    fields: tuple[Field[DevicePattern], ...] = (
        Field("device", lambda device: device.device, 0, str),
        Field(f"pipeline\n({unit})", lambda device: time(_pipeline(device)), 1, figure),
        Field(
            f"bubbles\n({unit})",
            lambda device: time(period - _pipeline(device)),
            0,
            figure,
        ),
        Field(
            f"K-FAC work\n({unit})",
            lambda device: time(pattern.work_in_holes(device.device)),
            0,
            figure,
        ),
        Field(
            "work per\nbubbles",
            lambda device: _share(device, pattern),
            0,
            "{:.2f}".format,
        ),
        Field("modules", _modules, 2, str),
        Field("forwards", _microbatches, 3, str),
    )
    return indented(table_of(pattern.devices, *fields))


def _pipeline(device: DevicePattern) -> int:
    return sum(op.end - op.start for op in device.ops)


def _share(device: DevicePattern, pattern: RefreshPattern) -> float | None:
    bubbles = pattern.period - _pipeline(device)
    return pattern.work_in_holes(device.device) / bubbles if bubbles > 0 else None


def _cycle_facts(instance: KfacInstance) -> Iterator[tuple[str, str]]:
    free = instance.pattern == FREE_PIPELINE
    yield "pattern", "free" if free else f"pinned as {instance.pattern} runs it"
    yield "refresh cycle", with_unit(str(instance.cycle_length), ITERATIONS)
    yield "modules", figure(len(instance.modules or ()))
    if instance.max_age is not None:
        age = with_unit(str(instance.max_age), ITERATIONS)
        yield "inverses", f"used at most {age} after their curvature"
    named = sorted(
        {module.replicas for module in instance.modules or () if module.replicas}
    )
    if named:
        yield (
            "replicas",
            "; ".join("devices " + " and ".join(map(str, group)) for group in named),
        )
    if not free:
        yield "margin", _margin(instance)


_TIE_BREAKS = {
    TieBreak.STALENESS: "total completion time of inversions",
    TieBreak.USAGE: "total completion time of all K-FAC work",
    TieBreak.NONE: "nothing",
}


class KfacDrawing(Drawing):
    """A refresh has its own tables and views; a cycle is drawn as any schedule is."""

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield the figures of a result."""
        if not isinstance(result, RefreshResult):
            yield from super().facts(result, instance)
            return
        yield from reached(result)
        if result.bubble_ratio is not None:
            yield "bubble ratio", ratio(result.bubble_ratio)
        if result.tie_break is not None:
            yield _tie_break(result.tie_break, result.time_unit)

    def title(self, instance: Instance) -> str:
        """Return the name of an instance, its kind of work and the size of its pipeline."""
        kfac = cast("KfacInstance", instance)
        size = f"{counted(len(kfac.timelines or ()), 'device')} as measured"
        return f"{kfac.name}: K-FAC, {size_in_words(kfac.pipeline) if kfac.pipeline else size}"

    def period(self, instance: Instance) -> float | None:
        """Return the length of an iteration of a refresh, in the instance's unit."""
        kfac = cast("KfacInstance", instance)
        if not is_refresh(kfac):
            return None
        pattern = pattern_of(kfac)
        return float(pattern.scale.time(pattern.period))

    def parts(
        self, source: Result | HeuristicEntry, unit: str
    ) -> Iterator[RenderableType]:
        """Yield the table of devices of a refresh."""
        bounds = source.bound_of if isinstance(source, RefreshResult) else None
        if isinstance(source, RefreshResult | RefreshEntry) and (
            source.iterations_of or bounds
        ):
            yield device_table(source, unit)

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the rules that heuristics of a refresh break."""
        if isinstance(result, RefreshResult):
            for entry in result.heuristics:
                yield from _claims(entry, result)

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return the pipeline of an instance, its bubbles, and the work to hide in them."""
        kfac = cast("KfacInstance", instance)
        if is_refresh(kfac):
            pattern = pattern_of(kfac)
            return described(
                kfac,
                list(_refresh(kfac, pattern)),
                "a kfac instance, refresh around a pinned pipeline",
                _devices(pattern),
            )
        assert kfac.pipeline is not None
        rows = [*pipeline_shape(kfac.pipeline), *_cycle_facts(kfac), *sizes(problem)]
        return described(kfac, rows)

    def view(self, view: ScheduleView) -> ScheduleReport:
        """Return the iterations of a refresh, or the chart of a cycle."""
        period = None if view.instance is None else self.period(view.instance)
        return super().view(view) if period is None else report_of_refresh(view, period)


def _tie_break(tie: TieBreakEntry, unit: str) -> tuple[str, str]:
    value, bound = figures(tie.value, tie.bound)
    proof = "proven least" if value == bound else f"at least {bound} {unit}"
    return tie.name.value, f"{value} {unit}, {proof} ({_TIE_BREAKS[tie.name]})"


def impossible_devices(entry: RefreshEntry, result: RefreshResult) -> list[int]:
    """Return the devices on which a heuristic claims less than the result proves to be possible."""
    if entry.status is not HeuristicStatus.INFEASIBLE:
        return []
    pairs = zip(entry.iterations_of or (), result.bound_of or (), strict=False)
    return [device for device, (count, bound) in enumerate(pairs) if count < bound]


def _claims(entry: RefreshEntry, result: RefreshResult) -> Iterator[RenderableType]:
    if not entry.breaks:
        return
    yield Text()
    yield Text(f"{entry.name} breaks rules: {broken_rules(entry.breaks)}", "yellow")
    if result.status is Status.INFEASIBLE:
        claimed = with_unit(figure(entry.value), ITERATIONS)
        yield Text(
            f"  {claimed} claimed, impossible: there is no valid schedule", "bold red"
        )
    bounds = result.bound_of or []
    devices = impossible_devices(entry, result)
    if devices:
        minima = ", ".join(
            f"device {device} (at least {bounds[device]})" for device in devices
        )
        text = f"  and claims fewer iterations than any valid schedule has: {minima}"
        yield Text(text, "bold red")

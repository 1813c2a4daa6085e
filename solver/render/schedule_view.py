"""A schedule on the terminal: its chart, its figures, its devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.lowering import ALLREDUCE_KIND
from ppsolve.solver.render.figures import ABSENT, figure, figures, ratio
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.rows import COLLECTIVE_LETTERS, SYNC_KINDS, Row, chart_rows
from ppsolve.solver.render.tables import Column, FittingTable, facts, indented

Window = tuple[float, float | None]


@dataclass(frozen=True)
class Peak:
    """Highest use of a memory pool, and its capacity where the instance is known."""

    used: float
    capacity: float | None = None

    def __str__(self) -> str:
        """Return ``7 of 8``."""
        if self.capacity is None:
            return figure(self.used)
        return " of ".join(figures(self.used, self.capacity))


@dataclass(frozen=True)
class ScheduleView:
    """All that is shown of one schedule; printing it draws it.

    Parameters
    ----------
    title : str
        First line.
    document : ScheduleDocument
        The schedule.
    problem : Problem or None
        Names the resources; without it ops are grouped by their labels.
    ratios : dict of str to float
        Bubble ratios by name, where known.
    peaks : dict of str to Peak
        Peak memory by pool name, where known.
    links : bool
        Also draw links and communication streams.
    window : (float, float or None)
        Part of the time axis to draw; ``None`` is its end.
    """

    title: str
    document: ScheduleDocument
    problem: Problem | None = None
    ratios: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, Peak] = field(default_factory=dict)
    links: bool = False
    window: Window = (0, None)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield title, chart, figures and the table of devices."""
        rows = chart_rows(self.document, self.problem, links=self.links)
        devices = [row for row in rows if row.is_device]
        makespan = float(max((op.end for op in self.document.ops), default=0))
        yield Text(self.title, "bold", overflow="fold")
        yield Gantt(rows, makespan, self.document.time_unit, self.window)
        kinds = {op.kind for op in self.document.ops}
        if not self.links and kinds & COLLECTIVE_LETTERS.keys():
            is_one = kinds & COLLECTIVE_LETTERS.keys() == {ALLREDUCE_KIND}
            what = "all-reduce is not drawn; --links draws it"
            text = what if is_one else "collectives are not drawn; --links draws them"
            yield Text(f" {text}", "dim", overflow="fold")
        if not self.links and kinds & set(SYNC_KINDS):
            yield Text(" syncs are not drawn; --links draws them", "dim", overflow="fold")
        yield Text()
        yield facts(self._figures(devices, makespan))
        yield Text()
        yield busy_table(devices, makespan, self.peaks)

    def _figures(self, devices: list[Row], makespan: float) -> Iterator[tuple[str, str]]:
        unit = self.document.time_unit
        yield "makespan", f"{figure(makespan)} {unit}"
        yield "device span", f"{figure(max((_span(row) for row in devices), default=0))} {unit}"
        for name, value in self.ratios.items():
            yield name, ratio(value)


def busy_table(
    rows: list[Row], makespan: float, peaks: Mapping[str, Peak] | None = None, head: str = "device"
) -> RenderableType:
    """Return the table of how long each row of a chart is busy, with peak memory if given."""
    table = FittingTable(
        Column(head, is_text=True),
        Column("busy"),
        Column("idle"),
        Column("busy %", expendable=3),
        Column("first start", expendable=1),
        Column("last end", expendable=2),
        *([Column("peak memory")] if peaks else []),
    )
    for row in rows:
        table.add_row(
            row.name,
            figure(row.busy),
            figure(makespan - row.busy),
            f"{row.busy / makespan:.1%}" if makespan else ABSENT,
            figure(_first(row)),
            figure(_last(row)),
            *([str(peaks.get(row.name, ABSENT))] if peaks else []),
        )
    return indented(table)


def _first(row: Row) -> float | None:
    return min((bar.start for bar in row.bars), default=None)


def _last(row: Row) -> float | None:
    return max((bar.end for bar in row.bars), default=None)


def _span(row: Row) -> float:
    return (_last(row) or 0) - (_first(row) or 0)


def view_of_schedule(
    title: str,
    schedule: Schedule,
    *,
    links: bool = False,
    window: Window = (0, None),
) -> ScheduleView:
    """Return the view of a schedule whose problem is known: all figures and capacities."""
    metrics, pools = measure(schedule), schedule.problem.pools
    return ScheduleView(
        title,
        ScheduleDocument.of(schedule),
        schedule.problem,
        ratios={
            "bubble ratio": metrics.bubble_ratio,
            "bubble ratio of device span": metrics.span_bubble_ratio,
            "bubble over compute": metrics.bubble_over_compute,
        },
        peaks={
            pool.name: Peak(float(peak), float(pool.capacity))
            for pool, peak in zip(pools, metrics.peak_memory, strict=True)
        },
        links=links,
        window=window,
    )


def view_of_document(
    title: str,
    document: ScheduleDocument,
    source: Result | HeuristicEntry | None = None,
    *,
    links: bool = False,
    window: Window = (0, None),
) -> ScheduleView:
    """Return the view of a schedule without its instance: what its file says, no capacities."""
    ratios, peaks = {}, {}
    if source is not None and source.bubble_ratio is not None:
        ratios["bubble ratio"] = source.bubble_ratio
    if source is not None and source.peak_memory:
        peaks = {name: Peak(used) for name, used in source.peak_memory.items()}
    return ScheduleView(title, document, ratios=ratios, peaks=peaks, links=links, window=window)

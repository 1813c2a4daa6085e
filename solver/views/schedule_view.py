"""A schedule on the terminal: its chart, its figures, its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.units import readable_amounts
from ppsolve.models.instances import Instance
from ppsolve.solver.views.chart import SYNC_KINDS, Chart, Row, chart_rows
from ppsolve.solver.views.colours import COLLECTIVES
from ppsolve.solver.views.figures import figure, figures, ratio
from ppsolve.solver.views.tables import FactList, Field, indented, table_of
from ppsolve.solver.views.time_units import (
    ratio_of_units,
    readable_times,
    readable_unit,
)
from ppsolve.solver.views.wording import bubble_name, with_unit

Window = tuple[float, float | None]


@dataclass(frozen=True)
class ViewOptions:
    """What of a schedule is drawn."""

    links: bool = False  # also draw links and comm streams
    window: Window = (
        0,
        None,
    )  # part of the time axis, in the schedule's unit; `None` is its end


@dataclass(frozen=True)
class ScheduleView:
    """A schedule that is drawn, and what is known of it."""

    title: str  # first line
    document: ScheduleDocument  # its ops with their times
    source: Result | HeuristicEntry | None  # what it is from
    frame: ViewOptions  # what of it is drawn
    instance: Instance | None = None  # what it schedules
    # The schedule of the instance's problem; with the instance only.
    schedule: Schedule | None = None

    @property
    def problem(self) -> Problem | None:
        """The instance's problem, which names the resources."""
        return self.schedule.problem if self.schedule else None

    @property
    def unit(self) -> str:
        """Unit of all times."""
        return self.document.time_unit

    @property
    def end(self) -> float:
        """End of the last op."""
        return float(max((op.end for op in self.document.ops), default=0))


@dataclass(frozen=True)
class ScheduleReport:
    """A schedule as it is shown: its chart, and on terminals its figures and a table."""

    title: str
    chart: Chart
    facts: Sequence[tuple[str, str]]
    table: RenderableType
    notes: Sequence[str] = ()  # what `--links` would also draw

    def __rich__(self) -> RenderableType:
        """Return all of it, one below the other."""
        notes = (Text(f" {note}", "dim", overflow="fold") for note in self.notes)
        title = Text(self.title, "bold", overflow="fold")
        return Group(
            title, self.chart, *notes, Text(), FactList(self.facts), Text(), self.table
        )


COLLECTIVE_KINDS = {*COLLECTIVES, *SYNC_KINDS}
HIDDEN = "collectives are not drawn; --links draws them"


def report_of_schedule(view: ScheduleView) -> ScheduleReport:
    """Return the report on a schedule of any kind."""
    rows = chart_rows(view.document, view.problem, links=view.frame.links)
    devices = [row for row in rows if row.is_device]
    is_hidden = any(op.kind in COLLECTIVE_KINDS for op in view.document.ops)
    ratios, peaks = _known(view)
    span = max(map(_span, devices), default=0)
    texts, unit = readable_times(view.unit, view.end, span)
    lengths = {
        name: f"{text} {unit}"
        for name, text in zip(("makespan", "device span"), texts, strict=True)
    }
    return ScheduleReport(
        view.title,
        Chart(rows, view.end, view.unit, view.frame.window),
        list((lengths | ratios).items()),
        busy_table(devices, view.end, view.unit, peaks),
        [HIDDEN] if is_hidden and not view.frame.links else [],
    )


def _known(view: ScheduleView) -> tuple[dict[str, str], dict[str, str]]:
    source = view.source
    if view.schedule is not None:
        metrics, pools = measure(view.schedule), view.schedule.problem.pools
        ratios: dict[str, float | None] = {
            "bubble ratio": metrics.bubble_ratio,
            "bubble ratio of device span": metrics.span_bubble_ratio,
            "bubble over compute": metrics.bubble_over_compute,
        }
        pairs = zip(pools, metrics.peak_memory, strict=True)
        peaks = {
            pool.name: peak_text(float(p), float(pool.capacity), pool.unit)
            for pool, p in pairs
        }
    else:
        ratios = {} if source is None else {bubble_name(source): source.bubble_ratio}
        used = (source.peak_memory if source else None) or {}
        peaks = {name: peak_text(amount) for name, amount in used.items()}
    return {
        name: ratio(value) for name, value in ratios.items() if value is not None
    }, peaks


def peak_text(used: float, capacity: float | None = None, unit: str = "") -> str:
    """Return the highest use of a memory pool, with its capacity where known: ``7 of 8 GB``."""
    amounts = (used,) if capacity is None else (used, capacity)
    texts, shown = readable_amounts(tuple(map(Fraction, amounts)), unit)
    if shown == unit:
        texts = figures(*amounts)
    return with_unit(" of ".join(texts), shown)


def busy_table(
    rows: Sequence[Row],
    makespan: float,
    unit: str,
    peaks: Mapping[str, str] | None = None,
    head: str = "device",
) -> RenderableType:
    """Return the table of busy and idle times of the rows of a chart.

    Times are in the unit that suits the makespan. Idle time is the rest of the makespan; `peaks`
    of memory are by the names of rows.
    """
    factor = ratio_of_units(unit, readable_unit(unit, makespan))

    def scaled(time: float | None) -> str:
        return figure(time if time is None or factor == 1.0 else time * factor)

    fields: tuple[Field[Row], ...] = (
        Field(head, lambda row: row.name),
        Field("busy", lambda row: row.busy, 0, scaled),
        Field("idle", lambda row: makespan - row.busy, 0, scaled),
        Field(
            "busy %",
            lambda row: row.busy / makespan if makespan else None,
            3,
            "{:.1%}".format,
        ),
        Field("first start", _first, 1, scaled),
        Field("last end", _last, 2, scaled),
        Field("peak memory", lambda row: (peaks or {}).get(row.name), 0, str),
    )
    return indented(table_of(rows, *(fields if peaks else fields[:-1])))


def _first(row: Row) -> float | None:
    return min((bar.start for bar in row.bars), default=None)


def _last(row: Row) -> float | None:
    return max((bar.end for bar in row.bars), default=None)


def _span(row: Row) -> float:
    return (_last(row) or 0) - (_first(row) or 0)

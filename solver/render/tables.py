"""Tables on the terminal: one result, one heuristic, one schedule's figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ppsolve.models.instances import Instance
from ppsolve.models.problem import Objective
from ppsolve.models.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    Status,
)
from ppsolve.solver.render.figures import (
    ABSENT,
    figure,
    figures,
    percent,
    ratio,
    seconds,
    shorten,
)

_STATUS_STYLE = {
    Status.OPTIMAL: "bold green",
    Status.FEASIBLE: "bold yellow",
    Status.INFEASIBLE: "bold red",
    Status.UNKNOWN: "bold red",
}
_ENTRY_STYLE = {
    HeuristicStatus.FEASIBLE: "",
    HeuristicStatus.INFEASIBLE: "yellow",
    HeuristicStatus.FAILED: "red",
    HeuristicStatus.NOT_APPLICABLE: "dim",
}
_RANK = list(_ENTRY_STYLE)
COLUMN_GAP = 3
MIN_WRAPPED, MIN_CUT = 24, 36
"""Columns that wrap or are cut ask for this much room before others are left out."""

_MEMORY = re.compile(r"memory: (?P<excess>.+ holds \S+ of \S+) at .+ \(too much from .+")
_LONG_NUMBER = r"(?<![\w.,])\d{4,}(?=(?:\.\d+)? "

_OBJECTIVE_WORDS = {Objective.MAKESPAN: "makespan", Objective.DEVICE_SPAN: "device span"}


@dataclass(frozen=True)
class Column:
    """A column of a `FittingTable`.

    Parameters
    ----------
    header : str
        Its name.
    is_text : bool
        Left-aligned; numbers are right-aligned.
    wraps : bool
        Long cells are continued on the next line instead of widening the table.
    is_cut : bool
        Long cells are cut to what the other columns leave; for one column of a table.
    expendable : int
        Columns with the largest number are left out first where space is short; 0 stays.
    """

    header: str
    is_text: bool = False
    wraps: bool = False
    is_cut: bool = False
    expendable: int = 0


class FittingTable:
    """A table that leaves out its most expendable columns where the terminal is narrow."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add one cell for each column."""
        self._rows.append((cells, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with the columns that fit."""
        shown = list(range(len(self._columns)))
        while self._width(shown) > options.max_width:
            last = max(shown, key=lambda number: self._columns[number].expendable)
            if not self._columns[last].expendable:
                break
            shown.remove(last)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for number in shown:
            column = self._columns[number]
            table.add_column(
                column.header,
                justify="left" if column.is_text else "right",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
            )
        spare = options.max_width - self._width(shown)
        for cells, style in self._rows:
            table.add_row(*(self._cut(cells[n], n, spare) for n in shown), style=style)
        yield table

    def _cut(self, cell: str, number: int, spare: int) -> str:
        if not self._columns[number].is_cut:
            return cell
        return shorten(cell, self._wanted(number) + spare)

    def _width(self, shown: list[int]) -> int:
        return sum(self._wanted(number) + COLUMN_GAP for number in shown) - COLUMN_GAP

    def _wanted(self, number: int) -> int:
        lengths = [len(cells[number]) for cells, _ in self._rows]
        widest = max([len(self._columns[number].header), *lengths])
        column = self._columns[number]
        if column.is_cut:
            return min(widest, MIN_CUT)
        return min(widest, MIN_WRAPPED) if column.wraps else widest


def facts(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Return a borderless list of names and values."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return indented(grid)


def indented(renderable: RenderableType) -> RenderableType:
    """Return `renderable` two columns further right."""
    return Padding(renderable, (0, 0, 0, 2), expand=False)


def summary_line(result: Result) -> Text:
    """Return the outcome in one line, for `--quiet`."""
    line = Text(f"{result.instance}: ", overflow="fold")
    line.append(result.status.value, _STATUS_STYLE[result.status])
    value, bound = figures(result.value, result.bound)
    if result.value is not None:
        line.append(f" {value} {result.time_unit}")
    if result.bound is not None:
        line.append(f", bound {bound}, gap {percent(result.gap)}")
    if result.reason:
        line.append(f" ({result.reason})")
    line.append(f", {seconds(result.wall_seconds)}")
    return line


def report(result: Result, *, verbose: bool = False) -> RenderableType:
    """Return a result: the best schedule, the bound, and every heuristic beside them."""
    title = Text(f"{result.instance}: ")
    title.append(result.status.value, _STATUS_STYLE[result.status])
    parts: list[RenderableType] = [title, facts(_facts(result, verbose=verbose))]
    if result.heuristics:
        parts += [Text(), *_heuristics(result, verbose=verbose)]
    return Group(*parts)


def _facts(result: Result, *, verbose: bool) -> Iterator[tuple[str, str]]:
    unit = result.time_unit
    is_span = result.objective is Objective.DEVICE_SPAN
    other = result.makespan if is_span else result.device_span
    value, second, lower = figures(result.value, other, result.bound)
    if result.value is not None:
        by = f"  by {result.best_by}" if result.best_by else ""
        yield _OBJECTIVE_WORDS[result.objective], f"{value} {unit}{by}"
        yield "makespan" if is_span else "device span", f"{second} {unit}"
    if result.bound is not None:
        by = f"  by {result.bound_by}" if result.bound_by else ""
        yield "lower bound", f"{lower} {unit}{by}"
    if result.gap is not None:
        yield "gap", percent(result.gap)
    if result.bubble_ratio is not None:
        over = result.bubble_over_compute
        extra = f"  ({ratio(over)} of compute)" if over is not None else ""
        yield "bubble ratio", ratio(result.bubble_ratio) + extra
    if result.reason:
        yield "reason", result.reason
    if result.rounding_error:
        yield "rounding", f"times rounded up by at most {percent(result.rounding_error)}"
    why = result.stop_reason.value.replace("_", " ")
    yield "stopped", f"{why} after {seconds(result.wall_seconds)}"
    if verbose:
        for bound in result.bounds:
            yield f"bound {bound.name}", f"{figure(bound.value)} {unit}"
        yield "seed", f"{result.seed}, workers {result.workers or 'all'}"
        yield "versions", ", ".join(f"{k} {v}" for k, v in result.versions if v)


def _heuristics(result: Result, *, verbose: bool) -> Iterator[RenderableType]:
    entries = sorted(result.heuristics, key=_order)
    shown = [e for e in entries if verbose or e.status is not HeuristicStatus.NOT_APPLICABLE]
    if shown:
        word = _OBJECTIVE_WORDS[result.objective]
        table = FittingTable(
            Column("heuristic", is_text=True),
            Column(word),
            Column("gap"),
            Column("bubble", expendable=1),
            Column("status", is_text=True, wraps=verbose, is_cut=not verbose),
        )
        for entry, value in zip(shown, figures(*(e.value for e in shown)), strict=True):
            table.add_row(
                entry.name,
                value,
                percent(entry.gap),
                ratio(entry.bubble_ratio),
                _entry_status(entry, result, verbose=verbose),
                style=_ENTRY_STYLE[entry.status],
            )
        yield indented(table)
    hidden = [e.name for e in entries if e not in shown]
    if hidden:
        yield Text(f"  not applicable: {', '.join(hidden)} (--verbose says why)", "dim")


def _order(entry: HeuristicEntry) -> tuple[int, float]:
    return _RANK.index(entry.status), entry.value if entry.value is not None else 0.0


def _entry_status(entry: HeuristicEntry, result: Result, *, verbose: bool) -> str:
    if entry.status is HeuristicStatus.FEASIBLE:
        if entry.value is None or entry.value != result.value:
            return "feasible"
        return "optimal" if result.status is Status.OPTIMAL else "best"
    word = entry.status.value.replace("_", " ")
    if not entry.reason:
        return word
    if not verbose and (memory := _MEMORY.match(entry.reason)):
        return f"{word}: {memory['excess']}"
    return f"{word}: {_separated(entry.reason, result.time_unit)}"


def _separated(text: str, unit: str) -> str:
    """Return `text` with thousands separators in its times, which the unit follows."""
    pattern = rf"{_LONG_NUMBER}{re.escape(unit)}(?!\w))"
    return re.sub(pattern, lambda found: f"{int(found[0]):,}", text)


def entry_line(entry: HeuristicEntry, unit: str) -> Text:
    """Return what a heuristic reached in one line, for `--quiet`."""
    line = Text(f"{entry.name}: ", overflow="fold")
    line.append(entry.status.value, _ENTRY_STYLE[entry.status])
    if entry.value is not None:
        line.append(f" {figure(entry.value)} {unit}")
    if entry.reason:
        line.append(f" ({entry.reason})")
    return line


def entry_report(instance: Instance, entry: HeuristicEntry) -> RenderableType:
    """Return what one heuristic reaches on an instance."""
    title = Text(f"{entry.name} on {instance.name}: ")
    title.append(entry.status.value, _ENTRY_STYLE[entry.status] or "bold green")
    return Group(title, facts(_entry_facts(entry, instance.time_unit)))


def _entry_facts(entry: HeuristicEntry, unit: str) -> Iterator[tuple[str, str]]:
    if entry.reason:
        yield "reason", _separated(entry.reason, unit)
    times = figures(entry.makespan, entry.device_span)
    for name, text in zip(("makespan", "device span"), times, strict=True):
        yield name, text if text == ABSENT else f"{text} {unit}"
    yield "bubble ratio", ratio(entry.bubble_ratio)
    peaks = entry.peak_memory or {}
    for pool, peak in zip(peaks, figures(*peaks.values()), strict=True):
        yield f"peak, {pool}", peak

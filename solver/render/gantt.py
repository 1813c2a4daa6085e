"""Terminal Gantt chart: a row per device, letters and colours for ops, dots for bubbles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from numpy import format_float_positional
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from ppsolve.solver.render.axis import Axis, Segment, Window
from ppsolve.solver.render.curves import AmountCurve
from ppsolve.solver.render.figures import compact, figure, shorten
from ppsolve.solver.render.looks import WAIT_KIND, look_of
from ppsolve.solver.render.rows import Bar, Row, has_chunks, kinds_of

MIN_CHART = 8
CROWDED = 2.5
"""With more ops per column than this, columns stand for shares of time rather than for ops."""

NAME_WIDTH = 16
READABLE = 3
"""Columns that show the name of an op, such as F12."""


@dataclass(frozen=True)
class GanttCell:
    """A run of columns that belong to one bar, or to nothing (a bubble)."""

    bar: Bar | None
    width: int


@dataclass(frozen=True)
class Gantt:
    """A chart that fits whatever width it is printed at.

    Parameters
    ----------
    rows : list of Row
        What to draw; devices get their busy share at the right end.
    end : float
        Right end of the time axis (the makespan), in the schedule's unit.
    unit : str
        Name of the unit.
    part : (float, float or None)
        Draw only this part of the axis; ``None`` is its end.
    iterations : sequence of float
        Times at which iterations of the pipeline begin, the first of them 0.
    small_letters : str
        What small letters stand for.
    curves : sequence of AmountCurve
        Amounts over time that are drawn below the rows, with their largest value.
    idle : str
        What it is called that nothing runs in a row.
    """

    rows: list[Row]
    end: float
    unit: str
    part: tuple[float, float | None] = (0, None)
    iterations: Sequence[float] = ()
    small_letters: str = "2nd, 4th ... stage of a device"
    curves: Sequence[AmountCurve] = ()
    idle: str = "bubble"

    @property
    def window(self) -> Window:
        """The part of the axis that is drawn."""
        first, last = self.part
        return first, self.end if last is None else last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the chart's lines, none wider than the console."""
        plain = options.ascii_only
        names = [shorten(row.name, NAME_WIDTH) for row in self.rows]
        gutter = max((len(name) for name in [*names, *(c.name for c in self.curves)]), default=0)
        shows_share = options.max_width - gutter - 7 >= MIN_CHART
        width = max(options.max_width - gutter - 2 - (5 if shows_share else 0), 1)
        axis = Axis.of(self.window, self.iterations, width)
        edge = "|" if plain else "│"
        if len(self.iterations) > 1:
            yield axis.numbers(gutter + 2)
        for name, row in zip(names, self.rows, strict=True):
            line = Text(f"{name:>{gutter}} {edge}", no_wrap=True, overflow="crop", end="\n")
            for segment in axis.segments:
                line.append(edge if segment.column else "", "dim")
                _draw(line, row, segment, plain=plain)
            if shows_share and row.is_device:
                line.append(edge)
                line.append(f"{self._busy_share(row):>4.0%}", "dim")
            yield line
        for curve in self.curves:
            line = Text(f"{curve.name:>{gutter}} {edge}", no_wrap=True, overflow="crop")
            line.append(curve.drawn(self.window, width, plain=plain), "color(110)")
            line.append(f"{edge}{compact(curve.most):>4}" if shows_share else "", "dim")
            yield line
        yield from axis.lines(gutter + 1, self.unit, plain=plain)
        yield from self._legend(width, options.max_width, plain=plain)

    def _busy_share(self, row: Row) -> float:
        end = row.end or self.end
        return row.busy / end if end else 0.0

    def _legend(self, width: int, room: int, *, plain: bool) -> Iterator[Text]:
        looks = map(look_of, reversed(kinds_of(self.rows)))
        named = reversed({look.words: look for look in looks if look.words}.values())
        items = [Text.assemble((f" {look.words} ", look.style(0)), " ") for look in named]
        yield from _filled(
            [*items, Text(f" {_dot(plain)} {self.idle} "), Text(" blank: op goes on")], room
        )
        column = float(f"{(self.window[1] - self.window[0]) / width:.3g}")
        notes = [f" 1 column = {figure(column)} {self.unit}"]
        if has_chunks(self.rows):
            notes.append(f"small letters: {self.small_letters}")
        if any(row.end is not None and row.end < self.window[1] for row in self.rows):
            notes.append("a row ends with the last iteration of its device's refresh")
        if self.curves:
            notes.append("curves: full height is the number at the right end")
        yield Text("; ".join(notes), "dim", overflow="fold")
        if (hint := self._hint(width)) is not None:
            yield Text(f" {hint}", "dim", overflow="fold")

    def _hint(self, width: int) -> str | None:
        """Return the options that show single ops, where most are narrower than a column."""
        first, last = self.window
        lengths = [
            bar.end - bar.start
            for row in self.rows
            if row.is_device
            for bar in row.bars
            if bar.end > max(bar.start, first) and bar.start < last
        ]
        typical = median(lengths) if lengths else 0
        if not 0 < typical * width < last - first:
            return None
        if len(self.iterations) > 1:
            return "ops are narrower than columns; --iteration K draws one iteration"
        shown = " --to ".join(map(_plain, (first, first + typical * width / READABLE)))
        return f"ops are narrower than columns; --from {shown} draws a part with names"


def _plain(time: float) -> str:
    """Return a time in two digits, as options take it."""
    return format_float_positional(float(f"{time:.2g}"), trim="-")


def _filled(items: list[Text], room: int) -> Iterator[Text]:
    """Yield lines of items, none of which is broken unless it is alone too long."""
    line = Text(overflow="fold")
    for item in items:
        if line and line.cell_len + len(item.plain.rstrip()) > room:
            yield line
            line = Text(overflow="fold")
        line.append_text(item)
    yield line


def _dot(plain: bool) -> str:
    return "." if plain else "·"


def _drawn(cell: GanttCell, *, plain: bool) -> tuple[str, Style | str]:
    if cell.bar is None:
        return _dot(plain) * cell.width, "dim"
    label = cell.bar.text(cell.width)
    fill = label if cell.bar.kind == WAIT_KIND else " "
    return f"{label:{fill}<{cell.width}}", look_of(cell.bar.kind).style(cell.bar.shade)


def _draw(line: Text, row: Row, segment: Segment, *, plain: bool) -> None:
    """Append what a row shows in a segment; blanks where nothing is known of it any more."""
    known = segment.width
    if row.end is not None and row.end < segment.last:
        share = (row.end - segment.first) / (segment.last - segment.first)
        known = max(round(share * segment.width), 0)
    at = 0
    for cell in columns(row.bars, segment.first, segment.last, segment.width):
        blank = min(max(at + cell.width - known, 0), cell.width) if cell.bar is None else 0
        line.append(*_drawn(GanttCell(cell.bar, cell.width - blank), plain=plain))
        line.append(" " * blank)
        at += cell.width


def columns(bars: list[Bar], first: float, last: float, width: int) -> list[GanttCell]:
    """Divide the time from `first` to `last` into `width` columns and say what each shows.

    A column shows the kind that fills most of it, or a bubble if idle time does; an op that
    would vanish inside a bubble keeps one column. Where ops are shorter than columns, kinds and
    bubbles take turns so that each gets columns in proportion to its time.

    Parameters
    ----------
    bars : list of Bar
        The bars of one row.
    first, last : float
        Ends of the window, in the unit of the bars.
    width : int
        Number of columns.

    Returns
    -------
    list of GanttCell
        Runs of columns from left to right, `width` columns in all.
    """
    scale = width / (last - first) if last > first else 0.0
    shares: list[dict[str | None, float]] = [{} for _ in range(width)]
    longest: list[dict[str | None, tuple[float, Bar]]] = [{} for _ in range(width)]
    pieces = 0
    for bar in bars:
        for column, share in _shares((bar.start - first) * scale, (bar.end - first) * scale, width):
            pieces += 1
            shares[column][bar.kind] = shares[column].get(bar.kind, 0.0) + share
            if share > longest[column].get(bar.kind, (0.0,))[0]:
                longest[column][bar.kind] = (share, bar)
    for parts in shares:
        parts[None] = max(1.0 - sum(parts.values()), 0.0)
    crowded = pieces > CROWDED * width
    chosen = _in_turns(shares) if crowded else _largest(shares)
    owners = [
        best[kind][1] if kind in best else None for kind, best in zip(chosen, longest, strict=True)
    ]
    if not crowded:
        _keep_short_ops(longest, owners)
    return [GanttCell(run[0], len(run)) for run in (list(g) for _, g in groupby(owners, key=id))]


def _largest(shares: list[dict[str | None, float]]) -> list[str | None]:
    return [max(reversed(column), key=lambda kind: column[kind]) for column in shares]


def _in_turns(shares: list[dict[str | None, float]]) -> list[str | None]:
    """Return the kind of each column, what a column hides being owed to the next ones."""
    chosen: list[str | None] = []
    owed: dict[str | None, float] = {}
    for column in shares:
        for kind, share in column.items():
            owed[kind] = owed.get(kind, 0.0) + share
        present = [kind for kind, share in column.items() if share > 0]
        kind = max(present, key=lambda kind: owed[kind])
        owed[kind] -= 1.0
        chosen.append(kind)
    return chosen


def _shares(start: float, end: float, width: int) -> Iterator[tuple[int, float]]:
    start, end = max(start, 0.0), min(end, float(width))
    column = int(start)
    while column < end:
        yield column, min(end, column + 1) - max(start, column)
        column += 1


def _keep_short_ops(
    longest: list[dict[str | None, tuple[float, Bar]]], owners: list[Bar | None]
) -> None:
    shown = {id(owner) for owner in owners}
    for column, best in enumerate(longest):
        if owners[column] is None and best:
            bar = max(best.values(), key=lambda item: item[0])[1]
            if id(bar) not in shown:
                owners[column] = bar
                shown.add(id(bar))

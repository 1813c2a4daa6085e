"""Charts on the terminal: letters and colours for ops, dots for bubbles, blocks for amounts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from numpy import format_float_positional
from rich.console import ConsoleOptions
from rich.style import Style
from rich.text import Text

from ppsolve.solver.views.chart import (
    AmountCurve,
    Chart,
    ColumnRun,
    Row,
    columns,
    has_chunks,
)
from ppsolve.solver.views.colours import WAIT_KIND, look_of
from ppsolve.solver.views.figures import compact, figure, shorten
from ppsolve.solver.views.time_units import ratio_of_units, readable_unit

BLOCKS, DIGITS = " ▁▂▃▄▅▆▇█", " 12345678"


@dataclass(frozen=True)
class TerminalLayout:
    """Columns of a terminal."""

    name: int = 16  # longest name of a row
    readable: int = 3  # show the name of an op, such as F12
    least_chart: int = 8  # narrower charts go without busy shares


LAYOUT = TerminalLayout()


@dataclass(frozen=True)
class Axis:
    """A window of time over `width` columns."""

    window: tuple[float, float]
    width: int
    iterations: Sequence[float]  # when they begin

    def column_of(self, time: float) -> int:
        """Return the column in which `time` begins."""
        first, last = self.window
        return (
            round((time - first) / (last - first) * self.width) if last > first else 0
        )

    def numbers(self, indent: int) -> Text:
        """Return the line above a chart that says where which iteration begins."""
        first, last = self.window
        stops = [*self.iterations[1:], math.inf]
        marks = (
            (self.column_of(max(start, first)), str(number))
            for number, (start, end) in enumerate(
                zip(self.iterations, stops, strict=False)
            )
            if end > first and start < last
        )
        labels, _ = self._placed(marks, gap=1)
        head = "iteration"[: indent - 1].rjust(indent - 1) + " "
        return Text(head + labels, "dim", no_wrap=True, overflow="crop")

    def _placed(
        self, labels: Iterable[tuple[int, str]], gap: int
    ) -> tuple[str, list[int]]:
        line, columns = "", []
        for column, text in labels:
            room = len(line) + gap if line else 0
            if room <= column <= self.width - len(text):
                line = f"{line:<{column}}{text}"
                columns.append(column)
        return line, columns

    def lines(self, indent: int, unit: str, *, plain: bool) -> Iterator[Text]:
        """Yield the line below a chart, then the times under it, in ASCII if `plain`.

        The axis begins behind `indent` columns.
        """
        line, tick, corner = ("-", "+", "+") if plain else ("─", "┬", "└")
        ticks = round_times(*self.window, max(self.width // 12, 1)) or [self.window[0]]
        shown = readable_unit(unit, ticks[-1])
        factor = ratio_of_units(unit, shown)
        labels = ((self.column_of(t), figure(t * factor)) for t in ticks)
        text, columns = self._placed(labels, gap=2)
        marks = [line] * self.width
        for start in self.iterations[1:]:
            if self.window[0] < start < self.window[1]:
                marks[self.column_of(start)] = "+" if plain else "┴"
        for column in columns:
            marks[column] = tick
        text += f" {shown}" if len(text) + len(shown) + 1 <= self.width else ""
        yield Text(
            " " * indent + corner + "".join(marks), "dim", no_wrap=True, overflow="crop"
        )
        yield Text(" " * (indent + 1) + text, "dim", no_wrap=True, overflow="crop")


def round_times(first: float, last: float, steps: int) -> list[float]:
    """Return round times within a window, ascending; none where the window is a point.

    They are the multiples of `round_step` for so many steps.
    """
    step = round_step(last - first, steps)
    if step <= 0:
        return []
    numbers = range(math.ceil(first / step), math.floor(last / step) + 2)
    times = [float(f"{number * step:.12g}") for number in numbers]
    return [time for time in times if first <= time <= last]


def round_step(span: float, steps: int) -> float:
    """Return the least of 1, 2, 5 x 10^n that reaches `span` in few steps; 0 where `span` is 0."""
    if span < 1e-12:
        return 0.0
    power = 10.0 ** math.floor(math.log10(span / steps))
    factor = next(
        f for f in (1, 2, 5, 10, 20) if power * f * steps >= span * (1 - 1e-9)
    )
    return float(f"{power * factor:.12g}")


def chart_lines(chart: Chart, options: ConsoleOptions) -> Iterator[Text]:
    """Yield the lines of a chart, as wide as the options say, in ASCII if they ask for it."""
    plain, room = options.ascii_only, options.max_width
    names = [shorten(row.name, LAYOUT.name) for row in chart.rows]
    gutter = max(
        (len(name) for name in [*names, *(c.name for c in chart.curves)]), default=0
    )
    shows_share = room - gutter - 7 >= LAYOUT.least_chart
    width = max(room - gutter - 2 - (5 if shows_share else 0), 1)
    axis = Axis(chart.window, width, chart.iterations)
    edge = "|" if plain else "│"
    if len(chart.iterations) > 1:
        yield axis.numbers(gutter + 2)
    for name, row in zip(names, chart.rows, strict=True):
        line = Text(f"{name:>{gutter}} {edge}", no_wrap=True, overflow="crop", end="\n")
        _draw(line, row, axis, plain=plain)
        if shows_share and row.is_device:
            line.append(edge)
            line.append(f"{chart.busy_share(row):>4}", "dim")
        yield line
    for curve in chart.curves:
        line = Text(f"{curve.name:>{gutter}} {edge}", no_wrap=True, overflow="crop")
        line.append(blocks(curve, chart.window, width, plain=plain), "color(110)")
        line.append(f"{edge}{compact(curve.most):>4}" if shows_share else "", "dim")
        yield line
    yield from axis.lines(gutter + 1, chart.unit, plain=plain)
    yield from _legend(chart, width, room, plain=plain)


def blocks(
    curve: AmountCurve, window: tuple[float, float], width: int, *, plain: bool
) -> str:
    """Return a curve as blocks (digits if `plain`), full height at its largest amount."""
    levels, largest = DIGITS if plain else BLOCKS, curve.most or 1
    shares = (max(amount, 0) / largest for amount in curve.columns(window, width))
    return "".join(levels[math.ceil(share * (len(levels) - 1))] for share in shares)


def _legend(chart: Chart, width: int, room: int, *, plain: bool) -> Iterator[Text]:
    looks = chart.legend.items()
    items = [Text.assemble((f" {words} ", look.style(0)), " ") for words, look in looks]
    items += [Text(f" {_dot(plain)} {chart.idle} "), Text(" blank: op goes on")]
    line = Text(overflow="fold")
    for item in items:
        if line and line.cell_len + len(item.plain.rstrip()) > room:
            yield line
            line = Text(overflow="fold")
        line.append_text(item)
    yield line
    unit = readable_unit(chart.unit, chart.window[1])
    span = (chart.window[1] - chart.window[0]) * ratio_of_units(chart.unit, unit)
    notes = [f" 1 column = {figure(float(f'{span / width:.3g}'))} {unit}"]
    if has_chunks(chart.rows):
        notes.append(f"small letters: {chart.small_letters}")
    if any(row.end is not None and row.end < chart.window[1] for row in chart.rows):
        notes.append("a row ends with the last iteration of its device's refresh")
    if chart.curves:
        notes.append("curves: full height is the number at the right end")
    yield Text("; ".join(notes), "dim", overflow="fold")
    if (hint := _hint(chart, width)) is not None:
        yield Text(f" {hint}", "dim", overflow="fold")


def _hint(chart: Chart, width: int) -> str | None:
    first, last = chart.window
    bars = (bar for row in chart.rows if row.is_device for bar in row.bars)
    seen = (bar for bar in bars if bar.end > max(bar.start, first) and bar.start < last)
    lengths = [bar.end - bar.start for bar in seen]
    typical = median(lengths) if lengths else 0
    if not 0 < typical * width < last - first:
        return None
    times = (first, first + typical * width / LAYOUT.readable)
    option = " --to ".join(
        format_float_positional(float(f"{time:.2g}"), trim="-") for time in times
    )
    return f"ops are narrower than columns; --from {option} draws a part with names"


def _dot(plain: bool) -> str:
    return "." if plain else "·"


def _drawn(cell: ColumnRun, *, plain: bool) -> tuple[str, Style | str]:
    if cell.bar is None:
        return _dot(plain) * cell.width, "dim"
    label = cell.bar.text(cell.width)
    fill = label if cell.bar.kind == WAIT_KIND else " "
    return f"{label:{fill}<{cell.width}}", look_of(cell.bar.kind).style(cell.bar.shade)


def _draw(line: Text, row: Row, axis: Axis, *, plain: bool) -> None:
    """Append what a row shows; blanks where nothing is known of it any more."""
    first, last = axis.window
    known_width = axis.width
    if row.end is not None and row.end < last:
        known_width = max(axis.column_of(row.end), 0)
    column = 0
    for cell in columns(row.bars, first, last, axis.width):
        blank = (
            min(max(column + cell.width - known_width, 0), cell.width)
            if cell.bar is None
            else 0
        )
        line.append(*_drawn(ColumnRun(cell.bar, cell.width - blank), plain=plain))
        line.append(" " * blank)
        column += cell.width

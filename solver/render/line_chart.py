"""Charts of figures over batch sizes or devices: what they hold, and how a terminal shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ppsolve.solver.render.axis import round_step
from ppsolve.solver.render.figures import compact, figure

MARKS, PLAIN_MARKS = "●■▲◆★▼", "OXA#Q%"
LIMIT_MARKS, PLAIN_LIMIT_MARKS = "○□△◇☆▽", "oxa+q="
COLOURS = (75, 216, 114, 176, 222, 152)
"""Of the terminal's 256 colours, one per series; the marks tell series apart without them."""

MOST_SERIES = len(MARKS)
"""More lines in one chart cannot be told apart."""

WIDEST, ROWS, LEAST_COLUMNS = 100, 14, 16

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column; 0x2800 is the one without dots."""

BLANK_BRAILLE = 0x2800


@dataclass(frozen=True)
class Point:
    """One figure of a series.

    Parameters
    ----------
    x : float
        Where it is.
    high : float
        The figure, or what it is proved to be at most.
    low : float or None
        What is reached; None where nothing is. Equal to `high` where all is known.
    """

    x: float
    high: float
    low: float | None = None


@dataclass(frozen=True)
class Series:
    """A line of a chart, with marks at some of its points.

    Parameters
    ----------
    name : str
        What it is called in the legend.
    line : sequence of (x, y)
        Drawn from point to point, x ascending; may be empty.
    marked : sequence of Point
        Points with a mark: filled where reached, hollow where only proved to be at most there.
    """

    name: str
    line: Sequence[tuple[float, float]]
    marked: Sequence[Point]

    @property
    def most(self) -> float:
        """The largest figure."""
        return max([*(y for _, y in self.line), *(point.high for point in self.marked)])


@dataclass(frozen=True)
class LineChart:
    """Series over one logarithmic axis; figures from 0 up.

    Parameters
    ----------
    title : str
        What is drawn, with its unit.
    x_name : str
        What the horizontal axis counts.
    series : sequence of Series
        At least one, with at least one point; at most `MOST_SERIES`.
    is_shifted : bool
        Series stand side by side where they have figures of the same place.
    """

    title: str
    x_name: str
    series: Sequence[Series]
    is_shifted: bool = False

    @cached_property
    def xs(self) -> list[float]:
        """All places on the horizontal axis, ascending."""
        marked = (point.x for series in self.series for point in series.marked)
        return sorted({*marked, *(x for series in self.series for x, _ in series.line)})

    @cached_property
    def top(self) -> float:
        """The upper end of the vertical axis: a round number that nothing exceeds."""
        most = max(series.most for series in self.series)
        step = round_step(most, 4)
        return math.ceil(most / step * (1 - 1e-9)) * step if step else 1.0

    @property
    def has_limits(self) -> bool:
        """Whether some figures are only known to be at most something."""
        return any(point.low != point.high for series in self.series for point in series.marked)

    def x_ticks(self) -> list[float]:
        """Return the places to name: those of marks if there are few, else powers of two."""
        named = sorted({point.x for series in self.series for point in series.marked})
        if len(self.xs) <= 8 or len(self.xs) == len(named) <= 12:
            return self.xs
        first, last = self.xs[0], self.xs[-1]
        powers = (2.0**power for power in range(math.floor(math.log2(first)), 64))
        inner = [power for power in powers if first <= power <= last]
        return inner if len(inner) > 1 else [first, last]

    def y_ticks(self, wanted: int) -> list[float]:
        """Return about as many round figures from 0 to the top."""
        step = round_step(self.top, wanted)
        return [step * index for index in range(round(self.top / step) + 1)]

    def place(self, x: float) -> float:
        """Return where `x` is on the horizontal axis, from 0 to 1."""
        first, last = self.xs[0], self.xs[-1]
        return math.log(x / first) / math.log(last / first) if last > first else 0.5

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the chart's lines, none wider than the console."""
        yield Text(self.title, "bold")
        yield from _Canvas(self, min(options.max_width, WIDEST), plain=options.ascii_only).lines()


class _Canvas:
    """The characters of a chart: lines of small dots, marks above them."""

    def __init__(self, chart: LineChart, width: int, *, plain: bool) -> None:
        self._chart, self._plain = chart, plain
        self._labels = self._named_rows()
        self._gutter = max(len(text) for text in self._labels.values())
        self._width = max(width - self._gutter - 4, LEAST_COLUMNS)
        self._spread = len(chart.series) - 1 if chart.is_shifted else 0
        self._dots: dict[tuple[int, int], tuple[int, int]] = {}
        self._marks: dict[tuple[int, int], tuple[str, int]] = {}
        for number, series in enumerate(chart.series):
            self._draw(number, series)

    def _named_rows(self) -> dict[int, str]:
        ticks = self._chart.y_ticks(5)
        texts = [figure(tick) for tick in ticks]
        if max(map(len, texts)) > 7:
            texts = [compact(tick) for tick in ticks]
        return {self._row(tick): text for tick, text in zip(ticks, texts, strict=True)}

    def _row(self, y: float) -> int:
        return round((1 - y / self._chart.top) * (ROWS - 1))

    def _across(self, x: float, number: int | None = None) -> float:
        """Return how many columns a figure of a series, or the tick below all, is from the left."""
        shift = 0 if number is None or not self._chart.is_shifted else 2 * number - self._spread
        inner = self._width - 1 - 2 * self._spread
        return self._chart.place(x) * inner + self._spread + shift

    def _column(self, x: float, number: int | None = None) -> int:
        return round(self._across(x, number))

    def _draw(self, number: int, series: Series) -> None:
        for (x1, y1), (x2, y2) in pairwise(series.line):
            ends = ((self._across(x1, number), y1), (self._across(x2, number), y2))
            self._draw_line(number, *ends)
        marks = PLAIN_MARKS if self._plain else MARKS
        limits = PLAIN_LIMIT_MARKS if self._plain else LIMIT_MARKS
        for point in series.marked:
            column = self._column(point.x, number)
            if point.low is not None and point.low < point.high:
                self._draw_range(number, column, point.low, point.high)
            if point.low != point.high:
                self._marks[self._row(point.high), column] = (limits[number], number)
        for point in series.marked:
            if point.low is not None:
                place = self._row(point.low), self._column(point.x, number)
                self._marks[place] = (marks[number], number)

    def _draw_range(self, number: int, column: int, low: float, high: float) -> None:
        for row in range(self._row(high) + 1, self._row(low)):
            self._marks.setdefault((row, column), (":" if self._plain else "┊", number))

    def _draw_line(self, number: int, a: tuple[float, float], b: tuple[float, float]) -> None:
        """Set dots from one column and figure to another; a character has 2 x 4 of them."""
        (x1, y1), (x2, y2) = (self._dot(*a), self._dot(*b))
        steps = math.ceil(max(abs(x2 - x1), abs(y2 - y1), 1))
        for step in range(steps + 1):
            x, y = (math.floor(p + (q - p) * step / steps) for p, q in ((x1, x2), (y1, y2)))
            before, _ = self._dots.get((y // 4, x // 2), (0, 0))
            self._dots[y // 4, x // 2] = (before | DOTS[y % 4][x % 2], number)

    def _dot(self, across: float, y: float) -> tuple[float, float]:
        """Return column and row of dots; a figure is in the middle of a character's rows."""
        return 2 * across + 0.5, (1 - y / self._chart.top) * 4 * (ROWS - 1) + 2

    def lines(self) -> Iterator[Text]:
        """Yield the rows, the axis, and the legend."""
        tick, edge = ("+", "|") if self._plain else ("┤", "│")
        for row in range(ROWS):
            label = self._labels.get(row, "")
            line = Text(no_wrap=True, overflow="crop")
            line.append(f"{label:>{self._gutter}} {tick if label else edge}", "dim")
            for column in range(self._width):
                self._append(line, row, column)
            line.rstrip()
            yield line
        yield from self._axis()
        yield from self._legend()

    def _append(self, line: Text, row: int, column: int) -> None:
        if (row, column) in self._marks:
            mark, number = self._marks[row, column]
            line.append(mark, _style(number))
        elif (row, column) in self._dots:
            bits, number = self._dots[row, column]
            line.append("." if self._plain else chr(BLANK_BRAILLE | bits), _style(number))
        else:
            line.append(" ")

    def _axis(self) -> Iterator[Text]:
        corner, rule, tick = ("+", "-", "+") if self._plain else ("└", "─", "┬")
        marks, labels, room = [rule] * self._width, [" "] * (self._width + 2), 0
        for x in self._chart.x_ticks():
            text, column = figure(x), self._column(x)
            start = min(max(column - len(text) // 2, 0), self._width + 2 - len(text))
            marks[column] = tick
            if start >= room:
                labels[start : start + len(text)] = text
                room = start + len(text) + 1
        indent = " " * (self._gutter + 1)
        yield Text(f"{indent}{corner}{''.join(marks)}", "dim", no_wrap=True, overflow="crop")
        yield Text(f"{indent} {''.join(labels).rstrip()}", "dim", no_wrap=True, overflow="crop")
        centre = (self._width - len(self._chart.x_name)) // 2
        yield Text(f"{indent} {' ' * max(centre, 0)}{self._chart.x_name}", "dim")

    def _legend(self) -> Iterator[Text]:
        marks = PLAIN_MARKS if self._plain else MARKS
        yield from self._packed(
            Text.assemble((f"{marks[number]} ", _style(number)), series.name)
            for number, series in enumerate(self._chart.series)
        )
        if self._chart.has_limits:
            limits = PLAIN_LIMIT_MARKS if self._plain else LIMIT_MARKS
            words = (f"{marks[0]} reached by a schedule", f"{limits[0]} proved: at most")
            yield from self._packed(Text(text, "dim") for text in words)

    def _packed(self, entries: Iterable[Text]) -> Iterator[Text]:
        """Yield lines with as many entries as fit side by side."""
        indent = " " * (self._gutter + 2)
        line = Text()
        for entry in entries:
            if line and len(line) + len(entry) > self._width:
                yield line
                line = Text()
            line = Text.assemble(line, "   " if line else indent, entry)
        yield line


def _style(number: int) -> str:
    return f"color({COLOURS[number]})"

"""The time axis of a chart: which columns show which time, and where iterations begin."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from ppsolve.solver.render.figures import figure

Window = tuple[float, float]
LEAST_STEP = 1e-12
"""An axis of less has no steps."""

MIN_SEGMENT = 5
"""Iterations narrower than this are not told apart by separators."""


@dataclass(frozen=True)
class Segment:
    """A stretch of time that is drawn without a separator in it.

    Parameters
    ----------
    first, last : float
        Its ends.
    column, width : int
        Its first column, and how many it has.
    """

    first: float
    last: float
    column: int
    width: int

    def column_of(self, time: float) -> int:
        """Return the column in which `time` begins."""
        if self.last <= self.first:
            return self.column
        return self.column + round((time - self.first) / (self.last - self.first) * self.width)


@dataclass(frozen=True)
class Axis:
    """A window of time over `width` columns, a column of each separator included."""

    window: Window
    width: int
    segments: tuple[Segment, ...]
    iterations: Sequence[float]

    @classmethod
    def of(cls, window: Window, iterations: Sequence[float], width: int) -> Axis:
        """Divide a window where iterations begin, if there is room for separators.

        Parameters
        ----------
        window : (float, float)
            First and last time.
        iterations : sequence of float
            Times at which iterations begin.
        width : int
            Columns, those of separators included.

        Returns
        -------
        Axis
            Its segments lie side by side, a separator column between each two.
        """
        inner = [time for time in iterations if window[0] < time < window[1]]
        if width < MIN_SEGMENT * (len(inner) + 1):
            inner = []
        whole = Segment(*window, 0, width - len(inner))
        segments = []
        for number, (first, last) in enumerate(pairwise([window[0], *inner, window[1]])):
            left, right = whole.column_of(first), whole.column_of(last)
            segments.append(Segment(first, last, left + number, right - left))
        return cls(window, width, tuple(segments), iterations)

    def column_of(self, time: float) -> int:
        """Return the column in which `time` begins."""
        number = bisect_right([segment.first for segment in self.segments], time) - 1
        return self.segments[max(number, 0)].column_of(time)

    def numbers(self, indent: int) -> Text:
        """Return the line above a chart that says where which iteration begins."""
        first, last = self.window
        ends = [*self.iterations[1:], math.inf]
        shown = (
            (self.column_of(max(start, first)), str(number))
            for number, (start, end) in enumerate(zip(self.iterations, ends, strict=False))
            if end > first and start < last
        )
        labels, _ = self._placed(shown, gap=1)
        head = "iteration"[: indent - 1].rjust(indent - 1) + " "
        return Text(head + labels, "dim", no_wrap=True, overflow="crop")

    def _placed(self, labels: Iterable[tuple[int, str]], gap: int) -> tuple[str, list[int]]:
        """Return labels in a line, each at its column if there is room, and their columns."""
        line, columns = "", []
        for column, text in labels:
            room = len(line) + gap if line else 0
            if room <= column <= self.width - len(text):
                line = f"{line:<{column}}{text}"
                columns.append(column)
        return line, columns

    def lines(self, indent: int, unit: str, *, plain: bool) -> Iterator[Text]:
        """Yield the line below a chart and the times under it.

        Parameters
        ----------
        indent : int
            Columns to the left of the axis.
        unit : str
            Unit of the times.
        plain : bool
            Use no character beyond ASCII.

        Yields
        ------
        Text
            The line, then the times.
        """
        line, tick, corner = ("-", "+", "+") if plain else ("─", "┬", "└")
        ticks = ((self.column_of(time), figure(time)) for time in _ticks(*self.window, self.width))
        text, columns = self._placed(ticks, gap=2)
        marks = [line] * self.width
        for segment in self.segments[1:]:
            marks[segment.column - 1] = "+" if plain else "┴"
        for column in columns:
            marks[column] = tick
        text += f" {unit}" if len(text) + len(unit) + 1 <= self.width else ""
        yield Text(" " * indent + corner + "".join(marks), "dim", no_wrap=True, overflow="crop")
        yield Text(" " * (indent + 1) + text, "dim", no_wrap=True, overflow="crop")


def _ticks(first: float, last: float, width: int) -> list[float]:
    """Return round times from `first` to `last`, about one per 12 columns."""
    wanted = max(width // 12, 1)
    step = round_step(last - first, wanted)
    if step <= 0:
        return [first]
    count = int((last - first) / step) + 2
    start = -(-first // step)
    times = [float(f"{(start + index) * step:.12g}") for index in range(count)]
    return [time for time in times if first <= time <= last]


def round_step(most: float, wanted: int) -> float:
    """Return the least of 1, 2, 5 x 10^n that reaches `most` in at most `wanted` steps, or 0.

    Parameters
    ----------
    most : float
        What the steps reach.
    wanted : int
        Most steps.

    Returns
    -------
    float
        The step, in the unit of `most`.
    """
    if most < LEAST_STEP:
        return 0.0
    power = 10.0 ** math.floor(math.log10(most / wanted))
    factor = next(f for f in (1, 2, 5, 10, 20) if power * f * wanted >= most * (1 - 1e-9))
    return float(f"{power * factor:.12g}")

"""Charts of figures over batch sizes or devices: what they hold, and how a terminal lists them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ppsolve.solver.render.figures import ABSENT, figure, figures
from ppsolve.solver.render.tables import FittingTable, TableColumn

MOST_SERIES = 6
"""Lines of one chart at most: as many colours as most colour-blind people tell apart."""

MOST_TICKS = 12
"""Beyond so many figures the horizontal axis names powers of two instead of them all."""

NEAR = math.sqrt(2)
"""A figure is listed beside a power of two if it is nearer to that than to the next one."""


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

    def __str__(self) -> str:
        """Return the figure, or from what is reached to what is proved."""
        if self.low is None:
            return f"at most {figure(self.high)}"
        low, high = figures(self.low, self.high)
        return high if self.low == self.high else f"{low} to {high}"


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

    @property
    def has_choice(self) -> bool:
        """Whether marks tell what was chosen from the line."""
        return bool(self.marked) and len(self.marked) < len(self.line)

    def cell(self, x: float) -> str:
        """Return the figure at `x`, or the nearest one of the line with its own place."""
        for point in self.marked:
            if point.x == x:
                return f"{point} *" if self.has_choice else str(point)
        near = min(self.line, key=lambda point: abs(math.log(point[0] / x)), default=None)
        if near is None or not 1 / NEAR <= near[0] / x < NEAR:
            return ABSENT
        return figure(near[1]) if near[0] == x else f"{figure(near[1])} ({figure(near[0])})"


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
        Series stand side by side in the picture where they have figures of the same place.
    """

    title: str
    x_name: str
    series: Sequence[Series]
    is_shifted: bool = False

    @cached_property
    def xs(self) -> list[float]:
        """All places on the horizontal axis, ascending."""
        return sorted({*self.marks, *(x for series in self.series for x, _ in series.line)})

    @cached_property
    def marks(self) -> list[float]:
        """The places of all marks, ascending."""
        return sorted({point.x for series in self.series for point in series.marked})

    @property
    def has_limits(self) -> bool:
        """Whether some figures are only known to be at most something."""
        return any(point.low != point.high for series in self.series for point in series.marked)

    def x_ticks(self) -> list[float]:
        """Return the places to name: all if they are few, else powers of two."""
        if len(self.xs) <= 8 or len(self.xs) == len(self.marks) <= MOST_TICKS:
            return self.xs
        first, last = self.xs[0], self.xs[-1]
        powers = (2.0**power for power in range(math.floor(math.log2(first)), 64))
        inner = [power for power in powers if first <= power <= last]
        return inner if len(inner) > 1 else [first, last]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title and a table: a row for each named or marked place, a column a series."""
        few = self.marks if len(self.marks) <= MOST_TICKS else []
        table = FittingTable(
            TableColumn(self.x_name),
            *(
                TableColumn(series.name.replace(" on ", "\non "), expendable=place)
                for place, series in enumerate(self.series)
            ),
        )
        for x in sorted({*self.x_ticks(), *few}):
            table.add_row(figure(x), *(series.cell(x) for series in self.series))
        yield Text(self.title, "bold")
        yield table
        if self.legend:
            yield Text(self.legend, "dim", overflow="fold")

    @property
    def legend(self) -> str:
        """What figures mean that say more than one value, empty where there are none."""
        points = [point for series in self.series for point in series.marked]
        ranges = any(point.low not in (None, point.high) for point in points)
        parts = {
            "x to y: x reached, y never passed": ranges,
            "at most y: no schedule made": any(point.low is None for point in points),
            "x: proved best": self.has_limits and any(p.low == p.high for p in points),
            "*: the choice": any(series.has_choice for series in self.series),
        }
        return "; ".join(text for text, occurs in parts.items() if occurs)

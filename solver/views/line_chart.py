"""Charts as PNG or SVG files, drawn by matplotlib where that is installed."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.views.colours import SERIES
from ppsolve.solver.views.figures import ABSENT, figure, figures
from ppsolve.solver.views.tables import FittingTable, TableColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SERIES = len(SERIES)  # as many colours as most colour-blind people tell apart
FORMATS = {".png": "png", ".svg": "svg"}
PANEL_INCHES = (6.4, 4.6)
MARKERS = ("o", "s", "^", "D", "*", "v")

STYLE = {
    "svg.hashsalt": "ppsolve",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e0e0e0",
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "font.size": 9.5,
}


@dataclass(frozen=True)
class LineChartLayout:
    """How much line charts name, and where."""

    most_ticks: int = (
        12  # beyond, the horizontal axis names powers of two instead of all places
    )
    near: float = math.sqrt(2)  # figures are listed with the nearest power of two
    steps: int = 160  # of a line of a formula: enough that a picture shows no corners
    headroom: float = (
        1.05  # the axis ends above the largest figure, so that no mark is cut
    )


LAYOUT = LineChartLayout()


@dataclass(frozen=True)
class Point:
    """One figure of a series."""

    x: float  # where it is
    high: float  # the figure, or what it is proved to be at most
    # What is reached; None where nothing is. Equal to `high` where all is known.
    low: float | None = None

    def __str__(self) -> str:
        """Return the figure, or from what is reached to what is proved."""
        if self.low is None:
            return f"at most {figure(self.high)}"
        low, high = figures(self.low, self.high)
        return high if self.low == self.high else f"{low} to {high}"


@dataclass(frozen=True)
class Series:
    """A line of a chart, with marks at some of its points."""

    name: str  # what it is called in the legend
    line: Sequence[
        tuple[float, float]
    ]  # drawn from point to point, x ascending; may be empty
    # Points with a mark: filled where reached, hollow where only proved to be at most there.
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
        near = min(
            self.line, key=lambda point: abs(math.log(point[0] / x)), default=None
        )
        if near is None or not 1 / LAYOUT.near <= near[0] / x < LAYOUT.near:
            return ABSENT
        return (
            figure(near[1])
            if near[0] == x
            else f"{figure(near[1])} ({figure(near[0])})"
        )


@dataclass(frozen=True)
class LineChart:
    """Series over one logarithmic axis; figures from 0 up."""

    title: str  # what is drawn, with its unit
    x_name: str  # what the horizontal axis counts
    series: Sequence[
        Series
    ]  # at least one, with at least one point; at most `MOST_SERIES`

    @cached_property
    def xs(self) -> list[float]:
        """All places on the horizontal axis, ascending."""
        return sorted(
            {*self.marks, *(x for series in self.series for x, _ in series.line)}
        )

    @cached_property
    def marks(self) -> list[float]:
        """The places of all marks, ascending."""
        return sorted({point.x for series in self.series for point in series.marked})

    @property
    def has_limits(self) -> bool:
        """Whether some figures are only known to be at most something."""
        return any(
            point.low != point.high for series in self.series for point in series.marked
        )

    def x_ticks(self) -> list[float]:
        """Return the places to name: all if they are few, else powers of two."""
        if len(self.xs) <= 8 or len(self.xs) == len(self.marks) <= LAYOUT.most_ticks:
            return self.xs
        first, last = self.xs[0], self.xs[-1]
        powers = (2.0**power for power in range(math.floor(math.log2(first)), 64))
        inner = [power for power in powers if first <= power <= last]
        return inner if len(inner) > 1 else [first, last]

    def __rich__(self) -> RenderableType:
        """Return the title and a table: a row for each named or marked place, a column a series."""
        few = self.marks if len(self.marks) <= LAYOUT.most_ticks else []
        xs = sorted({*self.x_ticks(), *few})
        names = (series.name.replace(" on ", "\non ") for series in self.series)
        columns = (
            TableColumn(name, [series.cell(x) for x in xs], expendable=number)
            for number, (name, series) in enumerate(
                zip(names, self.series, strict=True)
            )
        )
        table = FittingTable(TableColumn(self.x_name, list(map(figure, xs))), *columns)
        legend = [Text(self.legend, "dim", overflow="fold")] if self.legend else []
        return Group(Text(self.title, "bold"), table, *legend)

    @property
    def legend(self) -> str:
        """What figures mean that say more than one value, empty where there are none."""
        points = [point for series in self.series for point in series.marked]
        ranges = any(point.low not in (None, point.high) for point in points)
        meanings = {
            "x to y: x is reached, y cannot be exceeded": ranges,
            "at most y: no schedule made": any(point.low is None for point in points),
            "x: proved best": self.has_limits and any(p.low == p.high for p in points),
            "*: the choice": any(series.has_choice for series in self.series),
        }
        return "; ".join(text for text, occurs in meanings.items() if occurs)


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    return find_spec("matplotlib") is not None


def require_matplotlib(field: str | None = None) -> None:
    """Raise an `InputError` that says how to get matplotlib, where it is not installed.

    It names the option that needs it.
    """
    if not has_matplotlib():
        text = "needs matplotlib, which is not installed: pip install 'ppsolve[plot]'"
        raise InputError(text, field=field, code=ErrorCode.NOT_INSTALLED)


def chart_format(path: str | Path) -> str:
    """Return the format of a file by its name: png or svg.

    An `InputError` says that the name ends in neither, or that matplotlib is not installed.
    """
    form = FORMATS.get(Path(path).suffix.lower())
    if form is None:
        text = f"expected a file name ending in {' or '.join(FORMATS)}"
        raise InputError(text, source=str(path), field="--chart", code=ErrorCode.FILE)
    require_matplotlib("--chart")
    return form


def chart_bytes(chart: LineChart, kind: str) -> bytes:
    """Return a chart as a file of a format; equal charts give equal bytes."""
    return figure_bytes(lambda: chart_figure(chart), kind)


def figure_bytes(
    draw: Callable[[], Figure], kind: str, style: Mapping[str, Any] = STYLE
) -> bytes:
    """Return a figure as a file (``png``, ``svg``, ``pdf``); equal figures give equal bytes.

    `draw` is called under the style, whatever the user's own settings are. Fonts are embedded.
    """
    stream = io.BytesIO()
    with styled(style), warnings.catch_warnings():
        # Names may hold letters that the font lacks: they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph")
        # Undated, so that equal pictures give equal bytes.
        undated = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}[kind]
        draw().savefig(stream, format=kind, metadata={undated: None})
    return stream.getvalue()


@contextmanager
def styled(style: Mapping[str, Any] = STYLE) -> Iterator[None]:
    """Draw by settings of our own, beside the defaults of matplotlib, instead of the user's."""
    require_matplotlib()
    import matplotlib
    import matplotlib.style

    with matplotlib.style.context("default"), matplotlib.rc_context(dict(style)):
        yield


def panel_figure(title: str) -> tuple[Figure, Axes]:
    """Return a figure with one panel, and the panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=PANEL_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def add_legend(axes: Axes, columns: int = 3) -> None:
    """Write the legend of a panel below it."""
    axes.legend(ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def chart_figure(chart: LineChart) -> Figure:
    """Return a chart as a figure."""
    picture, axes = panel_figure(chart.title)
    axes.set(xlabel=chart.x_name, xscale="log")
    ticks = chart.x_ticks()
    axes.set_xticks(ticks, [figure(x) for x in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: figure(y))
    for number, series in enumerate(chart.series):
        _draw_series(axes, series, number)
    limits = (("reached by a schedule", "#555555"), ("proved: at most", "white"))
    for name, face in limits if chart.has_limits else ():
        look: dict[str, Any] = {
            "color": "#555555",
            "markerfacecolor": face,
            "linestyle": "none",
        }
        axes.plot([], [], marker="o", label=name, **look)
    axes.set_ylim(
        0, LAYOUT.headroom * max(series.most for series in chart.series) or 1.0
    )
    add_legend(axes, 2 if chart.has_limits else 3)
    return picture


def _draw_series(axes: Axes, series: Series, number: int) -> None:
    colour = SERIES[number]
    marks: dict[str, Any] = {
        "marker": MARKERS[number],
        "color": colour,
        "markersize": 7,
    }
    hollow: dict[str, Any] = {
        **marks,
        "markerfacecolor": "white",
        "ls": "none",
        "zorder": 3,
    }
    axes.plot([x for x, _ in series.line], [y for _, y in series.line], color=colour)
    reached = [(p.x, p.low) for p in series.marked if p.low is not None]
    limits = [p for p in series.marked if p.low != p.high]
    for p in limits:
        low = p.high if p.low is None else p.low
        axes.plot([p.x, p.x], [low, p.high], color=colour, ls=":", lw=1.2)
    axes.plot([p.x for p in limits], [p.high for p in limits], **hollow)
    axes.plot(
        [x for x, _ in reached], [y for _, y in reached], ls="none", zorder=3, **marks
    )
    axes.plot(
        [], [], label=series.name, linestyle="-" if series.line else "none", **marks
    )

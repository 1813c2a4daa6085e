"""Charts as PNG or SVG files, drawn by matplotlib where that is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.render.figures import figure
from ppsolve.solver.render.line_chart import MARKS, LineChart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = {".png": "png", ".svg": "svg"}
PANEL_INCHES = (6.4, 4.6)
DOTS_PER_INCH = 150
SHIFT = 0.009
"""Of the width of a chart: half of what series stand apart that are side by side."""

SHAPES = dict(zip(MARKS, ("o", "s", "^", "D", "*", "v"), strict=True))
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which most colour-blind people can tell apart."""

STYLE = {
    "svg.hashsalt": "ppsolve",
    "svg.fonttype": "path",
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


def chart_format(path: str | Path) -> str:
    """Return what a file of this name holds: png or svg.

    Raises
    ------
    InputError
        The name ends in neither, or matplotlib is not installed.
    """
    wanted = FORMATS.get(Path(path).suffix.lower())
    if wanted is None:
        raise InputError(
            f"expected a file name ending in {' or '.join(FORMATS)}",
            source=str(path),
            field="--chart",
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError(
            "needs matplotlib, which is not installed: pip install 'ppsolve[plot]'", field="--chart"
        ) from None
    return wanted


def chart_bytes(charts: Sequence[LineChart], kind: str) -> bytes:
    """Return charts side by side as a file of a format; equal charts give equal bytes.

    Parameters
    ----------
    charts : sequence of LineChart
        At least one.
    kind : str
        ``png`` or ``svg``.
    """
    import matplotlib
    import matplotlib.style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.style.context("default"), matplotlib.rc_context(STYLE):
        width, height = PANEL_INCHES
        size = (width * len(charts), height)
        drawn = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
        FigureCanvasAgg(drawn)
        panels = drawn.subplots(1, len(charts), squeeze=False)[0]
        for axes, chart in zip(panels, charts, strict=True):
            _draw(axes, chart)
        stream = io.BytesIO()
        undated = {"Date": None} if kind == "svg" else {"Software": None}
        drawn.savefig(stream, format=kind, metadata=undated)
    return stream.getvalue()


def _draw(axes: Axes, chart: LineChart) -> None:
    _label(axes, chart)
    for number, series in enumerate(chart.series):
        shift = SHIFT * (2 * number - len(chart.series) + 1) if chart.is_shifted else 0.0
        _draw_series(axes, chart, series, number, shift)
    if chart.has_limits:
        for name, face in (("reached by a schedule", "#555555"), ("proved: at most", "white")):
            look: dict[str, Any] = {
                "color": "#555555",
                "markerfacecolor": face,
                "linestyle": "none",
            }
            axes.plot([], [], marker="o", label=name, **look)
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
    axes.legend(ncols=2 if chart.has_limits else 3, **below)


def _label(axes: Axes, chart: LineChart) -> None:
    """Set up the axes: places from 0 to 1, named by what they stand for."""
    axes.set_title(chart.title)
    axes.set_xlabel(chart.x_name)
    ticks = chart.x_ticks()
    axes.set_xticks([chart.place(x) for x in ticks], [figure(x) for x in ticks])
    axes.set_xlim(-0.05, 1.05)
    steps = chart.y_ticks(5)
    axes.set_yticks(steps, [figure(y) for y in steps])
    axes.set_ylim(0, chart.top * 1.02)


def _draw_series(axes: Axes, chart: LineChart, series: Series, number: int, shift: float) -> None:
    colour, shape = COLOURS[number], SHAPES[MARKS[number]]

    def across(x: float) -> float:
        return chart.place(x) + shift

    def mark(x: float, y: float, face: str) -> None:
        look: dict[str, Any] = {"markerfacecolor": face, "zorder": 3, "markersize": 7}
        axes.plot([across(x)], [y], marker=shape, color=colour, **look)

    places = [across(x) for x, _ in series.line]
    axes.plot(places, [y for _, y in series.line], color=colour, linewidth=1.6)
    for point in series.marked:
        if point.low is not None and point.low < point.high:
            axes.plot([across(point.x)] * 2, [point.low, point.high], color=colour, ls=":", lw=1.2)
        if point.low != point.high:
            mark(point.x, point.high, "white")
        if point.low is not None:
            mark(point.x, point.low, colour)
    legend: dict[str, Any] = {"linestyle": "-" if series.line else "none", "label": series.name}
    axes.plot([], [], marker=shape, color=colour, **legend)

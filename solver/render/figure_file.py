"""Charts as PNG or SVG files, drawn by matplotlib where that is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.render.charts import LineChart, Series
from ppsolve.solver.render.figures import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = {".png": "png", ".svg": "svg"}
PANEL_INCHES = (6.4, 4.6)
SHIFT = 0.018
"""Of the length of the horizontal axis: how far apart series stand that are side by side."""

HEADROOM = 1.05
"""The vertical axis ends above the largest figure by this, so that no mark is cut."""

SHAPES = ("o", "s", "^", "D", "*", "v")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The colours of Okabe and Ito, which most colour-blind people tell apart."""

LIMITS = (("reached by a schedule", "#555555"), ("proved: at most", "white"))

STYLE = {
    "svg.hashsalt": "ppsolve",
    "svg.fonttype": "path",
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


def chart_format(path: str | Path) -> str:
    """Return the format of a file by its name: png or svg.

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

    Returns
    -------
    bytes
        The content of the file.
    """
    import matplotlib
    import matplotlib.style

    stream = io.BytesIO()
    undated = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.style.context("default"), matplotlib.rc_context(STYLE):
        chart_figure(charts).savefig(stream, format=kind, metadata=undated)
    return stream.getvalue()


def chart_figure(charts: Sequence[LineChart]) -> Figure:
    """Return a figure with one panel for each chart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    drawn = Figure(figsize=(width * len(charts), height), layout="constrained")
    FigureCanvasAgg(drawn)
    panels = drawn.subplots(1, len(charts), squeeze=False)[0]
    for axes, chart in zip(panels, charts, strict=True):
        _draw(axes, chart)
    return drawn


def _draw(axes: Axes, chart: LineChart) -> None:
    axes.set(title=chart.title, xlabel=chart.x_name, xscale="log")
    ticks = chart.x_ticks()
    axes.set_xticks(ticks, [figure(x) for x in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: figure(y))
    apart = (chart.xs[-1] / chart.xs[0]) ** SHIFT if chart.is_shifted else 1.0
    for number, series in enumerate(chart.series):
        _draw_series(axes, series, number, apart ** (number - (len(chart.series) - 1) / 2))
    for name, face in LIMITS if chart.has_limits else ():
        look: dict[str, Any] = {"color": "#555555", "markerfacecolor": face, "linestyle": "none"}
        axes.plot([], [], marker="o", label=name, **look)
    axes.set_ylim(0, HEADROOM * max(series.most for series in chart.series) or 1.0)
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
    axes.legend(ncols=2 if chart.has_limits else 3, **below)


def _draw_series(axes: Axes, series: Series, number: int, factor: float) -> None:
    """Draw the line, the ranges, and above them the marks; places are multiplied by a factor."""
    colour = COLOURS[number]
    marks: dict[str, Any] = {"marker": SHAPES[number], "color": colour, "markersize": 7}
    axes.plot([x * factor for x, _ in series.line], [y for _, y in series.line], color=colour)
    reached = [(p.x * factor, p.low) for p in series.marked if p.low is not None]
    limits = [(p.x * factor, p.high, p.low) for p in series.marked if p.low != p.high]
    for x, high, low in limits:
        axes.plot([x, x], [high if low is None else low, high], color=colour, ls=":", lw=1.2)
    hollow: dict[str, Any] = {**marks, "markerfacecolor": "white", "ls": "none", "zorder": 3}
    axes.plot([x for x, *_ in limits], [high for _, high, _ in limits], **hollow)
    axes.plot([x for x, _ in reached], [y for _, y in reached], ls="none", zorder=3, **marks)
    axes.plot([], [], label=series.name, linestyle="-" if series.line else "none", **marks)

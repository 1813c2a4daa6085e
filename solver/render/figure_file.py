"""Charts as PNG or SVG files, drawn by matplotlib where that is installed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.render.charts import LineChart, Series
from ppsolve.solver.render.figures import figure
from ppsolve.solver.render.palette import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = {".png": "png", ".svg": "svg"}
PANEL_INCHES = (6.4, 4.6)
SHIFT = 0.018
"""Of the length of the horizontal axis: how far apart series stand that are side by side."""

HEADROOM = 1.05
"""The vertical axis ends above the largest figure by this, so that no mark is cut."""

LETTER, GAP = 5.6, 42.0
"""Points that a letter of a legend takes on average at 9.5 points, and a mark with its gaps."""

SHAPES = ("o", "s", "^", "D", "*", "v")
LIMITS = (("reached by a schedule", "#555555"), ("proved: at most", "white"))

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


UNDATED = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""What is left out of files of each format, so that equal pictures give equal bytes."""


def has_matplotlib() -> bool:
    """Return True if pictures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def require_matplotlib(field: str | None = None) -> None:
    """Raise an error that says how to get matplotlib, where it is not installed.

    Raises
    ------
    InputError
        It is not installed; names the option that needs it.
    """
    if not has_matplotlib():
        raise InputError(
            "needs matplotlib, which is not installed: pip install 'ppsolve[plot]'", field=field
        )


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
    require_matplotlib("--chart")
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
    return figure_bytes(lambda: chart_figure(charts), kind)


def figure_bytes(draw: Callable[[], Figure], kind: str, style: Mapping[str, Any] = STYLE) -> bytes:
    """Return a figure as a file of a format; equal figures give equal bytes.

    Parameters
    ----------
    draw : callable
        Returns the figure; called under the style, whatever the user's own settings are.
    kind : str
        ``png``, ``svg`` or ``pdf``; fonts are embedded in all of them.
    style : mapping of str to object
        Settings of matplotlib.

    Returns
    -------
    bytes
        The content of the file.
    """
    stream = io.BytesIO()
    with styled(style), warnings.catch_warnings():
        # Names may hold letters that the font lacks: they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph")
        draw().savefig(stream, format=kind, metadata=UNDATED[kind])
    return stream.getvalue()


@contextmanager
def styled(style: Mapping[str, Any] = STYLE) -> Iterator[None]:
    """Draw by settings of our own instead of the user's.

    Parameters
    ----------
    style : mapping of str to object
        Settings of matplotlib beside its defaults.

    Yields
    ------
    None
        While they hold.
    """
    import matplotlib
    import matplotlib.style

    with matplotlib.style.context("default"), matplotlib.rc_context(dict(style)):
        yield


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
    columns = _legend_columns([str(label) for label in axes.get_legend_handles_labels()[1]])
    axes.legend(ncols=columns or (2 if chart.has_limits else 3), **below)


def _legend_columns(labels: Sequence[str]) -> int:
    """Return the number of entries of a legend that fits into one line, else 0."""
    width = sum(LETTER * len(label) + GAP for label in labels)
    return len(labels) if width <= 72 * PANEL_INCHES[0] else 0


def _draw_series(axes: Axes, series: Series, number: int, factor: float) -> None:
    """Draw the line, the ranges, and above them the marks; places are multiplied by a factor."""
    colour = SERIES[number]
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

"""Charts of the documentation: schedules one below the other on one axis of time, small as files.

How a schedule is drawn is the library's own way (`ppsolve.solver.views.plot`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.instances import Instance
from ppsolve.solver.views.chart import AmountCurve, Chart
from ppsolve.solver.views.colours import SKY, VERMILION, lightened
from ppsolve.solver.views.drawings import drawn_of
from ppsolve.solver.views.line_chart import figure_bytes
from ppsolve.solver.views.plot.schedule import (
    amount_legend,
    draw_bound,
    draw_chart,
    legend_of,
    set_rows,
    set_times,
)
from ppsolve.solver.views.plot.sheet import PAPER, SHEET, Sheet, legend_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WEB = {**PAPER, "svg.fonttype": "none"}
"""Letters as text: a tenth of the size of their outlines, where each op has its number."""

INCHES = SHEET.page_inches
ROW, STRIP, TITLE, GAP, AXIS, EDGE = 15.0, 26.0, 15.0, 9.0, 24.0, 4.0
"""Points: a row, a strip of memory, a line of text, between panels, below and at the edges."""

LEFT, RIGHT = 46.0, 32.0
FAMILY = re.compile(r" font-family: [^;\"]*;")
STYLE_SHEET = "<style>text {font-family: 'DejaVu Sans', Verdana, sans-serif}</style>"
UNTURNED = re.compile(r' transform="rotate\(-?0 [^"]*\)"')
LONG = re.compile(r"(\.\d\d)\d+")
GROUPED = re.compile(r'<g id="text_\d+">\s*<g clip-path="[^"]*">\s*(<text.*?</text>)\s*</g>\s*</g>')


@dataclass(frozen=True)
class Panel:
    """A schedule of a picture.

    Parameters
    ----------
    title : str
        Its line of text.
    found : Result or HeuristicEntry
        Has the schedule.
    instance : Instance
        What it schedules.
    is_bounded : bool
        Whether the proven bound of a result is drawn.
    pool : int, optional
        The device whose memory is drawn below.
    """

    title: str
    found: Result | HeuristicEntry
    instance: Instance
    is_bounded: bool = True
    pool: int | None = None


def svg(draw: Callable[[], Figure]) -> str:
    """Return a figure as SVG: its words as text, numbers of two decimals."""
    text = figure_bytes(draw, "svg", WEB).decode()
    text = UNTURNED.sub("", FAMILY.sub("", text)).replace("<defs>", f"{STYLE_SHEET}<defs>", 1)
    return LONG.sub(r"\1", GROUPED.sub(r"\1", text))


def stacked(
    panels: Sequence[Panel],
    mark: Callable[[Axes, Chart], None] | None = None,
    idle: str | None = None,
) -> Figure:
    """Return schedules one below the other, all from time 0 to the end of the longest.

    Parameters
    ----------
    panels : sequence of Panel
        At least one.
    mark : callable, optional
        Draws into the first panel what is to be explained there.
    idle : str, optional
        Colour that it gives to idle time, for the legend.

    Returns
    -------
    Figure
        The picture, with one legend.
    """
    drawn = [drawn_of(panel.found, panel.instance) for panel in panels]
    end = max(each.chart.end for each in drawn)
    charts = [replace(each.chart, part=(0, end)) for each in drawn]
    strips = [
        [] if panel.pool is None else [each.curves[panel.pool]]
        for panel, each in zip(panels, drawn, strict=True)
    ]
    legend = [*legend_of(charts[0]), *amount_legend([one for strip in strips for one in strip])]
    if idle is not None:
        legend[-1].set_facecolor(idle)
    heights = [
        TITLE + ROW * len(chart.rows) + GAP + STRIP * len(strip)
        for chart, strip in zip(charts, strips, strict=True)
    ]
    lines = len(legend_lines(legend, INCHES * SHEET.inch - LEFT - RIGHT))
    sheet = Sheet.of(INCHES, sum(heights) + AXIS + SHEET.legend_line * lines + EDGE, LEFT, RIGHT)
    top, lowest = 0.0, None
    for panel, each, chart, strip in zip(panels, drawn, charts, strips, strict=True):
        if lowest is not None:
            lowest.tick_params(axis="x", labelbottom=False)
        lowest = _draw(sheet, panel, chart, top, each.bound if panel.is_bounded else None)
        if mark is not None and top == 0:
            mark(lowest, chart)
        top += TITLE + ROW * len(chart.rows) + GAP
        for amount in strip:
            lowest.tick_params(axis="x", labelbottom=False)
            lowest = _draw_amount(sheet, amount, top - 0.6 * GAP, end)
            top += STRIP
    assert lowest is not None
    set_times(lowest, charts[0].unit, sheet.room)
    sheet.legend(legend, sum(heights) + AXIS)
    return sheet.figure


def _draw(sheet: Sheet, panel: Panel, chart: Chart, top: float, bound: float | None) -> Axes:
    axes = sheet.panel(top + TITLE, ROW * len(chart.rows))
    draw_chart(axes, chart, ROW, sheet.room)
    draw_bound(axes, bound, chart.window)
    axes.annotate(
        panel.title, (0, 1), (0, 2.5), "axes fraction", "offset points",
        fontsize=SHEET.name + 0.5, fontweight="bold",
    )  # fmt: skip
    return axes


def _draw_amount(sheet: Sheet, amount: AmountCurve, top: float, end: float) -> Axes:
    """Draw memory in use by its own steps, which are few."""
    axes = sheet.panel(top, STRIP - 6)
    times = [time for time, _ in amount.points] + [end]
    heights = [height for _, height in amount.points]
    axes.fill_between(
        times, [*heights, heights[-1]], step="post", color=lightened(SKY, 0.35), linewidth=0
    )
    if amount.cap is not None:
        axes.axhline(amount.cap, color=VERMILION, linewidth=0.8, linestyle=(0, (3, 1.5)))
    height = max(amount.most, amount.cap or 0) or 1.0
    set_rows(axes, ["memory 0"], STRIP, max(height, 1) / 2)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.08 * height)
    return axes

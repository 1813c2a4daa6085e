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
from ppsolve.solver.views.chart import Chart
from ppsolve.solver.views.line_chart import figure_bytes
from ppsolve.solver.views.plot.pictures import drawn_of
from ppsolve.solver.views.plot.schedule import (
    amount_legend,
    draw_amounts,
    frame_chart,
    legend_of,
    name_times,
    paint_ops,
)
from ppsolve.solver.views.plot.sheet import (
    PAPER,
    SHEET,
    sheet_of,
    width_in,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WEB = {**PAPER, "svg.fonttype": "none"}
"""Letters as text: a tenth of the size of their outlines, where each op has its number."""

INCHES = SHEET.page_inches
ROW, STRIP = 15.0, 24.0
"""Points: a row, a strip of memory."""

FAMILY = re.compile(r" font-family: [^;\"]*;")
STYLE_SHEET = "<style>text {font-family: 'DejaVu Sans', Verdana, sans-serif}</style>"
UNTURNED = re.compile(r' transform="rotate\(-?0 [^"]*\)"')
LONG = re.compile(r"(\.\d\d)\d+")
GROUPED = re.compile(
    r'<g id="text_\d+">\s*<g clip-path="[^"]*">\s*(<text.*?</text>)\s*</g>\s*</g>'
)


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
    text = UNTURNED.sub("", FAMILY.sub("", text)).replace(
        "<defs>", f"{STYLE_SHEET}<defs>", 1
    )
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
        []
        if panel.pool is None
        else [replace(each.curves[panel.pool], name="memory 0")]
        for panel, each in zip(panels, drawn, strict=True)
    ]
    legend = [
        *legend_of(charts[0]),
        *amount_legend([one for strip in strips for one in strip]),
    ]
    if idle is not None:
        legend[-1].set_facecolor(idle)
    heights: list[float] = []
    for chart, strip in zip(charts, strips, strict=True):
        heights += [ROW * len(chart.rows), *(STRIP for _ in strip)]
    figure, axes = sheet_of(INCHES, heights, legend, 2 * len(panels))
    places, rows = iter(axes), []
    for panel, each, chart, strip in zip(panels, drawn, charts, strips, strict=True):
        rows.append(next(places))
        frame_chart(rows[-1], chart, ROW, each.bound if panel.is_bounded else None)
        write_title(rows[-1], panel.title)
        if strip:
            draw_amounts(next(places), strip, (0, end), STRIP)
    name_times(axes[-1], charts[0].unit)
    points = width_in(axes[0])
    for own, chart in zip(rows, charts, strict=True):
        paint_ops(own, chart, ROW, points)
    if mark is not None:
        mark(axes[0], charts[0])
    return figure

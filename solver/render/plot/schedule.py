"""The figures of one schedule: its chart with amounts below it, or the amounts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.plot.amounts import (
    Amount,
    amount_legend,
    draw_amounts,
    peak_of,
    write_beside,
)
from ppsolve.solver.render.plot.drawn import Drawn
from ppsolve.solver.render.plot.gantt import (
    busy_shares,
    draw_bound,
    draw_gantt,
    draw_iterations,
    legend_of,
    set_times,
)
from ppsolve.solver.render.plot.sheet import (
    ABOVE,
    AXIS,
    EDGE,
    LEGEND_LINE,
    LINE,
    POINTS,
    PROSE,
    Sheet,
    legend_lines,
    named,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW, STRIP, TALL_STRIP = 14.0, 11.0, 26.0
"""Heights of a row, of a strip below a chart and of one without a chart, in points."""

MOST_ROWS, MOST_BELOW = 210.0, 120.0
"""Points: rows and strips of many devices get narrower, so that text stays on the page."""

GAP = 7.0
"""Points between panels."""

LEAST_ROOM = 60.0
"""Points of a chart's width, however long names beside it are."""


@dataclass(frozen=True)
class _FigureLayout:
    """Where the parts of a figure are, in points from its upper edge.

    Parameters
    ----------
    chart : Gantt
        The rows; empty if only amounts are drawn.
    amounts : sequence of Amount
        The strips.
    has_rows : bool
        Whether the rows are drawn.
    has_title : bool
        Whether there are lines above.
    width : float
        Width of the figure.
    """

    chart: Gantt
    amounts: Sequence[Amount]
    has_rows: bool
    has_title: bool
    width: float

    @cached_property
    def left(self) -> float:
        """Room for the names of rows."""
        names = [row.name for row in self.chart.rows if self.has_rows]
        names += [amount.curve.name for amount in self.amounts]
        widest = max((width_of(named(name)) * PROSE for name in names), default=0)
        return min(widest + 8, self.width - LEAST_ROOM - self.right)

    @cached_property
    def right(self) -> float:
        """Room for shares and peaks."""
        peaks = [peak_of(amount) for amount in self.amounts]
        return max(width_of(text) for text in [*peaks, "100%"]) * PROSE + 10

    @cached_property
    def row(self) -> float:
        """Height of a row."""
        return min(ROW, MOST_ROWS / max(len(self.chart.rows), 1))

    @cached_property
    def strip(self) -> float:
        """Height of a strip."""
        usual, most = (STRIP, MOST_BELOW) if self.has_rows else (TALL_STRIP, MOST_ROWS)
        return min(usual, most / max(len(self.amounts), 1))

    @cached_property
    def top(self) -> float:
        """Where the first panel begins."""
        return EDGE + (2 * LINE if self.has_title else 0) + ABOVE

    @cached_property
    def rows(self) -> float:
        """Height of all rows."""
        return self.row * len(self.chart.rows) if self.has_rows else 0.0

    @cached_property
    def strips(self) -> float:
        """Height of all strips."""
        return self.strip * len(self.amounts)

    @cached_property
    def foot(self) -> float:
        """Where the axis of time is."""
        gap = GAP if self.rows and self.strips else 0
        return self.top + self.rows + gap + self.strips


def schedule_figure(
    drawn: Drawn, title: str | None, inches: float, *, has_rows: bool = True
) -> Figure:
    """Return the figure of a schedule.

    Parameters
    ----------
    drawn : Drawn
        The schedule.
    title : str, optional
        First line, by default the instance and the method; empty for no lines above.
    inches : float
        Width of the figure.
    has_rows : bool
        Draw the rows of devices; else the amounts over time alone.

    Returns
    -------
    Figure
        The chart, with amounts over time below it.

    Raises
    ------
    InputError
        There is nothing to draw.
    """
    chart = drawn.chart
    amounts = drawn.amounts(chart)
    _refuse_nothing(chart, amounts, has_rows=has_rows)
    layout = _FigureLayout(chart, amounts, has_rows, title != "", inches * POINTS)
    legend = legend_of(chart) if has_rows else amount_legend(amounts)
    if has_rows:
        legend += amount_legend(amounts)
    room = layout.width - layout.left - layout.right
    bottom = layout.foot + AXIS
    height = bottom + LEGEND_LINE * len(legend_lines(legend, room)) + EDGE
    sheet = Sheet.of(inches, height, layout.left, layout.right)
    sheet.title(drawn.shown.title if title is None else title, *drawn.captions)
    lowest = _draw_panels(sheet, layout, drawn.bound)
    set_times(lowest, chart.unit, sheet.room)
    sheet.legend(legend, bottom)
    return sheet.figure


def _refuse_nothing(chart: Gantt, amounts: Sequence[Amount], *, has_rows: bool) -> None:
    first, last = chart.window
    if not last > first or not chart.rows:
        raise InputError("there is nothing to draw: no op takes time", field="schedule")
    if not has_rows and not amounts:
        raise InputError(
            "there is no memory to draw; it needs an instance with a capacity", field="memory"
        )


def _draw_panels(sheet: Sheet, layout: _FigureLayout, bound: float | None) -> Axes:
    """Draw rows and strips and return the lower panel."""
    chart, panels = layout.chart, []
    if layout.has_rows:
        axes = sheet.panel(layout.top, layout.rows)
        draw_gantt(axes, chart, layout.row, sheet.room)
        write_beside(axes, busy_shares(chart), layout.row, 0.5)
        draw_iterations(axes, chart, sheet.room)
        if bound is not None:
            draw_bound(axes, bound, chart.window)
        panels.append(axes)
    if layout.amounts:
        axes = sheet.panel(layout.foot - layout.strips, layout.strips)
        draw_amounts(axes, layout.amounts, chart.window, layout.strip, sheet.room)
        panels.append(axes)
    for axes in panels[:-1]:
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
    return panels[-1]

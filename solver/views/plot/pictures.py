"""Figures of results: schedule, memory, gaps of heuristics, curves.

>>> from ppsolve.solver.views.plot.pictures import gantt
>>> gantt(result).savefig("schedule.pdf")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.models.studies.curve import Curve
from ppsolve.models.studies.plan.result import Plan
from ppsolve.solver.views.colours import BLUE, GREY, VERMILION
from ppsolve.solver.views.curve import curve_figure
from ppsolve.solver.views.drawings import caption_of, drawn_of
from ppsolve.solver.views.figures import percent
from ppsolve.solver.views.line_chart import require_matplotlib, styled
from ppsolve.solver.views.plot.schedule import HATCH, SHADOW, schedule_figure
from ppsolve.solver.views.plot.sheet import (
    INK,
    PAPER,
    SHEET,
    Sheet,
    legend_lines,
    named,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUND: dict[str, Any] = {"color": VERMILION, "linewidth": 1.0, "linestyle": (0, (4, 2))}
BROKEN: dict[str, Any] = {"facecolor": GREY, "edgecolor": SHADOW, "hatch": HATCH, "linewidth": 0}


@dataclass(frozen=True)
class GapsLayout:
    """Bars of the gaps of heuristics."""

    row: float = 11.0  # points of a bar with its distance to the next one
    most_shown: int = 30  # the best heuristics; more would fill a page
    number: int = 8  # letters of the percentage behind the longest bar
    least_axis: float = 0.01  # of the axis, even where all are as good as the best schedule


GAPS = GapsLayout()


def gantt(
    found: Result | HeuristicEntry | Plan,
    instance: Instance | None = None,
    *,
    title: str | None = None,
    inches: float = SHEET.page_inches,
) -> Figure:
    """Return the chart of a schedule, with the memory in use below it.

    Parameters
    ----------
    found : Result, HeuristicEntry or Plan
        What has a schedule; of a plan its winner's is drawn.
    instance : Instance, optional
        What it schedules; by default the one that the result carries.
    title : str, optional
        First line, by default the instance and the method; empty for no lines above the chart.
    inches : float
        Width of the figure.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        There is no schedule in it, or matplotlib is not installed.
    """
    require_matplotlib()
    drawn = drawn_of(found, instance)
    with styled(PAPER):
        return schedule_figure(drawn, title, inches)


def memory(
    found: Result | HeuristicEntry | Plan,
    instance: Instance | None = None,
    *,
    title: str | None = None,
    inches: float = SHEET.page_inches,
) -> Figure:
    """Return the memory in use over time against its capacity, device by device.

    Parameters
    ----------
    found, instance, title, inches
        As for `gantt`.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        There is no schedule or no memory in it, or matplotlib is not installed.
    """
    require_matplotlib()
    drawn = drawn_of(found, instance)
    with styled(PAPER):
        return schedule_figure(drawn, title, inches, has_rows=False)


def gaps(
    result: Result, *, title: str | None = None, inches: float = SHEET.column_inches
) -> Figure:
    """Return the heuristics of a result as bars: how far each is over the best schedule.

    Parameters
    ----------
    result : Result
    title, inches
        As for `gantt`; the first line is by default the instance.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        No heuristic has a value, or matplotlib is not installed.
    """
    require_matplotlib()
    with styled(PAPER):
        first = result.instance if title is None else title
        return _gaps_figure(result, first, caption_of(result, with_methods=False), inches)


def curve(found: Curve, *, title: str | None = None, inches: float = SHEET.column_inches) -> Figure:
    """Return best values and bounds over memory, micro-batches or chunks.

    Parameters
    ----------
    found : Curve
    title, inches
        As for `gantt`; the first line is by default the instance.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        Nothing is known of any point, or matplotlib is not installed.
    """
    require_matplotlib()
    with styled(PAPER):
        return curve_figure(found, found.instance if title is None else title, inches)


def _gaps_figure(result: Result, title: str, caption: str, inches: float) -> Figure:
    entries = [entry for entry in result.heuristics if entry.gap is not None]
    if not entries:
        raise InputError("no heuristic of it has a gap to draw", field="heuristics")
    entries = sorted(entries, key=lambda e: (e.gap or 0, e.name))[: GAPS.most_shown]
    bound = None  # over the best value: 0 where that is optimal, else below
    if result.value and result.bound is not None:
        bound = min(0.0, float(result.bound) / float(result.value) - 1)
    left = max(width_of(named(entry.name)) for entry in entries) * SHEET.prose + 8
    legend = _gaps_legend(entries, has_bound=bound is not None)
    top = SHEET.edge + 2 * SHEET.line * bool(title) + SHEET.above * (bound is not None)
    foot = top + GAPS.row * len(entries)
    below = SHEET.axis + SHEET.legend_line * len(legend_lines(legend, inches * SHEET.inch - left))
    sheet = Sheet.of(inches, foot + below + SHEET.edge, left, SHEET.edge + 6)
    sheet.title(title, caption)
    axes = sheet.panel(top, foot - top)
    _draw_gaps(axes, entries, bound, sheet.room)
    sheet.legend(legend, foot + SHEET.axis)
    return sheet.figure


def _draw_gaps(
    axes: Axes, entries: Sequence[HeuristicEntry], bound: float | None, points: float
) -> None:
    gaps = [float(entry.gap or 0) for entry in entries]
    most, least = max(*gaps, GAPS.least_axis), min(*gaps, bound or 0)
    share = width_of("0" * GAPS.number) / points
    axes.set_xlim(least, least + (most - least) / max(1 - share, 0.2))
    axes.set_ylim(len(entries) - 0.5, -0.5)
    for place, (entry, gap) in enumerate(zip(entries, gaps, strict=True)):
        axes.barh(place, gap, height=0.72, **({"facecolor": BLUE} if _is_valid(entry) else BROKEN))
        axes.annotate(
            percent(gap), (max(gap, 0), place), (3, 0), textcoords="offset points", va="center",
            fontsize=SHEET.name - 0.5,
        )  # fmt: skip
    if bound != 0:
        axes.axvline(0, color=INK, linewidth=0.6)
    if bound is not None:
        axes.axvline(bound, zorder=3, clip_on=False, **BOUND)
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(entries)), [named(entry.name) for entry in entries])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda gap, _: f"{100 * gap:g} %")
    axes.set_xlabel("over the best schedule", labelpad=1)


def _is_valid(entry: HeuristicEntry) -> bool:
    return entry.status is HeuristicStatus.FEASIBLE


def _gaps_legend(entries: Sequence[HeuristicEntry], *, has_bound: bool) -> list[Artist]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[Artist] = []
    if not all(map(_is_valid, entries)):
        found = [Patch(facecolor=BLUE, label="valid"), Patch(**BROKEN, label="breaks a rule")]
    if has_bound:
        found.append(Line2D([], [], label="proven bound", **BOUND))
    return found

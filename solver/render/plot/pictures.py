"""Figures of results: schedule, memory, gaps of heuristics, curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.curve.document import Curve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.models.plan.result import Plan
from ppsolve.solver.render.curve import curve_figure
from ppsolve.solver.render.drawings import caption_of, drawn_of
from ppsolve.solver.render.figures import percent
from ppsolve.solver.render.line_chart import require_matplotlib, styled
from ppsolve.solver.render.palette import BLUE, GREY, VERMILION
from ppsolve.solver.render.plot.schedule import HATCH, SHADOW, schedule_figure
from ppsolve.solver.render.plot.sheet import (
    ABOVE,
    AXIS,
    COLUMN_INCHES,
    EDGE,
    INK,
    LEGEND_LINE,
    LINE,
    NAME_SIZE,
    PAGE_INCHES,
    PAPER,
    PROSE,
    Sheet,
    legend_lines,
    named,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 11.0
"""Height of a bar with its distance to the next one, in points."""

MOST_SHOWN = 30
"""Heuristics that are drawn, the best ones: more would fill a page."""

NUMBER_ROOM = 8
"""Letters of the percentage behind the longest bar."""

LEAST_AXIS = 0.01
"""The axis reaches this far even where all heuristics are as good as the best schedule."""

BOUND: dict[str, Any] = {"color": VERMILION, "linewidth": 1.0, "linestyle": (0, (4, 2))}
BROKEN: dict[str, Any] = {"facecolor": GREY, "edgecolor": SHADOW, "hatch": HATCH, "linewidth": 0}


def gaps_figure(result: Result, title: str, caption: str, inches: float) -> Figure:
    """Return bars of the heuristics of a result, by how far they are over the best schedule.

    Parameters
    ----------
    result : Result
        Value and bound, and the heuristics with theirs.
    title, caption : str
        Lines above; no lines where the title is empty.
    inches : float
        Width of the figure.

    Returns
    -------
    Figure
        A bar per heuristic, the best first; hatched where a heuristic breaks a rule.

    Raises
    ------
    InputError
        No heuristic has a value, or there is no best one.
    """
    entries = _chosen(result)
    names = [named(entry.name) for entry in entries]
    bound = _bound(result)
    left = max(width_of(name) for name in names) * PROSE + 8
    legend = _gaps_legend(entries, has_bound=bound is not None)
    top = EDGE + (2 * LINE if title else 0) + (ABOVE if bound is not None else 0)
    foot = top + ROW * len(entries)
    lines = len(legend_lines(legend, inches * 72 - left))
    sheet = Sheet.of(inches, foot + AXIS + LEGEND_LINE * lines + EDGE, left, EDGE + 6)
    sheet.title(title, caption)
    axes = sheet.panel(top, foot - top)
    _draw_gaps(axes, entries, names, bound, sheet.room)
    sheet.legend(legend, foot + AXIS)
    return sheet.figure


def _chosen(result: Result) -> list[HeuristicEntry]:
    """Return the entries that are drawn, the best first."""
    known = [entry for entry in result.heuristics if entry.gap is not None]
    if not known:
        raise InputError("no heuristic of it has a gap to draw", field="heuristics")
    known.sort(key=lambda entry: (entry.gap or 0, entry.name))
    return known[:MOST_SHOWN]


def _bound(result: Result) -> float | None:
    """Return the bound as a distance over the best value: 0 where that is optimal, else below."""
    if not result.value or result.bound is None:
        return None
    return min(0.0, float(result.bound) / float(result.value) - 1)


def _draw_gaps(
    axes: Axes, entries: Sequence[HeuristicEntry], names: Sequence[str], bound: float | None,
    points: float,
) -> None:  # fmt: skip
    gaps = [float(entry.gap or 0) for entry in entries]
    most, least = max(*gaps, LEAST_AXIS), min(*gaps, bound or 0)
    share = width_of("0" * NUMBER_ROOM) / points
    axes.set_xlim(least, least + (most - least) / max(1 - share, 0.2))
    axes.set_ylim(len(entries) - 0.5, -0.5)
    for place, (entry, gap) in enumerate(zip(entries, gaps, strict=True)):
        look = {"facecolor": BLUE} if _is_valid(entry) else BROKEN
        axes.barh(place, gap, height=0.72, **look)
        axes.annotate(
            percent(gap), (max(gap, 0), place), (3, 0), textcoords="offset points", va="center",
            fontsize=NAME_SIZE - 0.5,
        )  # fmt: skip
    if bound != 0:
        axes.axvline(0, color=INK, linewidth=0.6)
    if bound is not None:
        axes.axvline(bound, zorder=3, clip_on=False, **BOUND)
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(entries)), names)
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


def gantt(
    found: Result | HeuristicEntry | Plan,
    instance: Instance | None = None,
    *,
    title: str | None = None,
    inches: float = PAGE_INCHES,
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
        A figure of matplotlib.

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
    inches: float = PAGE_INCHES,
) -> Figure:
    """Return the memory in use over time against its capacity, device by device.

    Parameters
    ----------
    found : Result, HeuristicEntry or Plan
        What has a schedule.
    instance : Instance, optional
        What it schedules; by default the one that the result carries.
    title : str, optional
        First line as in `gantt`.
    inches : float
        Width of the figure.

    Returns
    -------
    Figure
        A figure of matplotlib.

    Raises
    ------
    InputError
        There is no schedule or no memory in it, or matplotlib is not installed.
    """
    require_matplotlib()
    drawn = drawn_of(found, instance)
    with styled(PAPER):
        return schedule_figure(drawn, title, inches, has_rows=False)


def gaps(result: Result, *, title: str | None = None, inches: float = COLUMN_INCHES) -> Figure:
    """Return the heuristics of a result as bars: how far each is over the best schedule.

    Parameters
    ----------
    result : Result
        Value, bound and heuristics.
    title : str, optional
        First line, by default the instance; empty for no lines above.
    inches : float
        Width of the figure.

    Returns
    -------
    Figure
        A figure of matplotlib.

    Raises
    ------
    InputError
        No heuristic has a value, or matplotlib is not installed.
    """
    require_matplotlib()
    with styled(PAPER):
        first = result.instance if title is None else title
        return gaps_figure(result, first, caption_of(result, with_methods=False), inches)


def curve(found: Curve, *, title: str | None = None, inches: float = COLUMN_INCHES) -> Figure:
    """Return best values and bounds over memory, micro-batches or chunks.

    Parameters
    ----------
    found : Curve
        What `ppsolve.curve` returns.
    title : str, optional
        First line, by default the instance; empty for none.
    inches : float
        Width of the figure.

    Returns
    -------
    Figure
        A figure of matplotlib.

    Raises
    ------
    InputError
        Nothing is known of any point, or matplotlib is not installed.
    """
    require_matplotlib()
    with styled(PAPER):
        return curve_figure(found, found.instance if title is None else title, inches)

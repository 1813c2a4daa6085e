"""Figures of results: schedule, memory, gaps of heuristics, curves.

>>> from ppsolve.solver.render.plot.pictures import gantt
>>> gantt(result).savefig("schedule.pdf")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.curve import Curve
from ppsolve.models.instances import Instance
from ppsolve.models.plan.result import Plan
from ppsolve.solver.render.figure_file import require_matplotlib, styled
from ppsolve.solver.render.plot.curve import curve_figure
from ppsolve.solver.render.plot.drawn import caption_of, drawn_of
from ppsolve.solver.render.plot.gaps import gaps_figure
from ppsolve.solver.render.plot.schedule import schedule_figure
from ppsolve.solver.render.plot.sheet import COLUMN_INCHES, PAGE_INCHES, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

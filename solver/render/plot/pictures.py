"""Figures of results: schedule, memory, gaps of heuristics, curves.

>>> from ppsolve.solver.render.plot.pictures import gantt
>>> gantt(result).savefig("schedule.pdf")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.instances import Instance
from ppsolve.models.plan.result import Plan
from ppsolve.solver.render.figure_file import require_matplotlib, styled
from ppsolve.solver.render.plot.drawn import drawn_of
from ppsolve.solver.render.plot.schedule import schedule_figure
from ppsolve.solver.render.plot.sheet import PAGE_INCHES, PAPER

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

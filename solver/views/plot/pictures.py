"""Figures of results: schedule, memory, gaps of heuristics, curves.

>>> from ppsolve.solver.views.plot.pictures import gantt
>>> gantt(result).savefig("schedule.pdf")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.models.studies.curve import Curve
from ppsolve.models.studies.plan.result import Plan
from ppsolve.solver.api.kinds import parse_instance
from ppsolve.solver.views.colours import BLUE, VERMILION
from ppsolve.solver.views.curve import curve_figure
from ppsolve.solver.views.drawings import ANY, Drawn, caption_of, drawn_on, title_of
from ppsolve.solver.views.figures import percent
from ppsolve.solver.views.line_chart import styled
from ppsolve.solver.views.plot.schedule import schedule_figure
from ppsolve.solver.views.plot.sheet import PAPER, SHEET, named, sheet_of, write_title
from ppsolve.solver.views.schedule_view import ScheduleView, ViewOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled(PAPER)
def gantt(
    found: Result | HeuristicEntry | Plan,
    instance: Instance | None = None,
    *,
    title: str | None = None,
    inches: float = SHEET.page_inches,
) -> Figure:
    """Return the chart of a schedule, with the memory in use below it.

    `found`: what has a schedule; of a plan its winner's is drawn.
    `instance`: what it schedules; by default the one that the result carries.
    `title`: first line, by default the instance and the method; empty for no lines
        above the chart.
    `inches`: width of the figure.
    Raises `InputError`: there is no schedule in it, or matplotlib is not installed.
    """
    return schedule_figure(drawn_of(found, instance), title, inches)


@styled(PAPER)
def memory(
    found: Result | HeuristicEntry | Plan,
    instance: Instance | None = None,
    *,
    title: str | None = None,
    inches: float = SHEET.page_inches,
) -> Figure:
    """Return the memory in use over time against its capacity, device by device.

    Raises `InputError`: there is no schedule or no memory in it, or matplotlib is not
        installed.
    """
    return schedule_figure(drawn_of(found, instance), title, inches, has_rows=False)


@styled(PAPER)
def gaps(
    result: Result, *, title: str | None = None, inches: float = SHEET.column_inches
) -> Figure:
    """Return the heuristics of a result as bars: how far each is over the best schedule.

    Raises `InputError`: no heuristic has a value, or matplotlib is not installed.
    """
    from matplotlib.lines import Line2D

    title = result.instance if title is None else title
    valid = [
        entry for entry in result.heuristics if entry.status is HeuristicStatus.FEASIBLE
    ]
    ranked = sorted((entry.gap, entry.name) for entry in valid if entry.gap is not None)
    ranked = ranked[: SHEET.most_bars]
    if not ranked:
        raise InputError(
            "no heuristic of it has a gap to draw",
            field="heuristics",
            code=ErrorCode.MISSING,
        )
    names, gaps = [named(name) for _, name in ranked], [float(gap) for gap, _ in ranked]
    legend: list[Line2D] = []
    if result.value and result.bound is not None:
        # Over the best value: 0 where that is optimal, else below.
        bound = min(0.0, float(result.bound) / float(result.value) - 1)
        legend = [
            Line2D(
                [bound] * 2, [-0.5, len(ranked) - 0.5], color=VERMILION, ls="--", lw=1
            )
        ]
        legend[0].set_label("proven bound")
    figure, (axes,) = sheet_of(
        inches, [SHEET.line * len(ranked)], legend, 2 * bool(title)
    )
    write_title(axes, title, caption_of(result))
    bars = axes.barh(range(len(ranked)), gaps, height=0.72, facecolor=BLUE)
    axes.bar_label(bars, list(map(percent, gaps)), padding=3)
    for line in legend:
        axes.add_line(line)
    axes.margins(x=0.2, y=0)
    axes.set_yticks(range(len(ranked)), names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda gap, _: f"{100 * gap:g} %")
    axes.set_xlabel("over the best schedule", labelpad=1)
    return figure


@styled(PAPER)
def curve(
    found: Curve, *, title: str | None = None, inches: float = SHEET.column_inches
) -> Figure:
    """Return best values and bounds over memory or micro-batches.

    Raises `InputError`: nothing is known of any point, or matplotlib is not installed.
    """
    return curve_figure(found, found.instance if title is None else title, inches)


def drawn_of(
    source: Result | HeuristicEntry | Plan, instance: Instance | None = None
) -> Drawn:
    """Return the schedule of a result, of a heuristic, or of the winner of a plan.

    The instance is by default the one that the result carries; where it is known, links and memory
    are drawn. An `InputError` says that there is no schedule in it, or none of the instance.
    """
    if isinstance(source, Plan):
        if source.result is None or source.instance is None:
            raise InputError(
                f"the plan has no winner (status {source.status})",
                field="winner",
                code=ErrorCode.MISSING,
            )
        return drawn_of(source.result, source.instance)
    if source.schedule is None:
        raise InputError(
            "there is no schedule in it", field="schedule", code=ErrorCode.MISSING
        )
    if (
        instance is None
        and isinstance(source, Result)
        and source.instance_document is not None
    ):
        instance = parse_instance(source.instance_document)
    data = source.model_dump(mode="json")
    if instance is None:
        return Drawn(
            ScheduleView(title_of(data), source.schedule, source, ViewOptions()), ANY
        )
    return drawn_on(instance, data, source, ViewOptions())[0]

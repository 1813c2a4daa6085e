"""The view that suits a schedule: iterations of a refresh, or one chart of all ops."""

from __future__ import annotations

from rich.console import RenderableType

from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.result import RefreshFigures
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.solver.kfac.pattern import is_refresh, pattern_of
from ppsolve.solver.render import schedule_view
from ppsolve.solver.render.kfac.view import RefreshView, Repeats, repeats_of
from ppsolve.solver.render.overlap.rows import is_overlap_document
from ppsolve.solver.render.overlap.view import view_of_overlap, view_of_overlap_document
from ppsolve.solver.render.schedule_view import Window

Iterations = tuple[int, int]
"""First and last iteration that are drawn."""


def view_of_schedule(
    title: str,
    instance: Instance,
    schedule: Schedule,
    source: Result | HeuristicEntry | None = None,
    *,
    links: bool = False,
    window: Window = (0, None),
    iterations: Iterations | None = None,
) -> RenderableType:
    """Return the view of a schedule of a known instance.

    Raises
    ------
    InputError
        `iterations` are not there.
    """
    if is_refresh(instance):
        scale = schedule.problem.scale
        period = scale.time(pattern_of(instance, round_up=scale.worst_relative_error > 0).period)
        document = ScheduleDocument.of(schedule)
        repeats = repeats_of(document, float(period))
        if repeats is not None:
            window = _window(repeats, window, iterations)
            figures = source if isinstance(source, RefreshFigures) else None
            problem = schedule.problem
            return RefreshView(title, document, repeats, problem, figures, links, window)
    _refuse_iterations(iterations)
    if isinstance(instance, OverlapInstance):
        return view_of_overlap(title, instance, schedule, source, window)
    return schedule_view.view_of_schedule(title, schedule, links=links, window=window)


def view_of_document(
    title: str,
    document: ScheduleDocument,
    source: Result | HeuristicEntry | None = None,
    *,
    links: bool = False,
    window: Window = (0, None),
    iterations: Iterations | None = None,
) -> RenderableType:
    """Return the view of a schedule without its instance; errors as for `view_of_schedule`."""
    repeats = repeats_of(document)
    if repeats is not None:
        window = _window(repeats, window, iterations)
        figures = source if isinstance(source, RefreshFigures) else None
        return RefreshView(title, document, repeats, None, figures, links, window)
    _refuse_iterations(iterations)
    if is_overlap_document(document):
        return view_of_overlap_document(title, document, source, window)
    return schedule_view.view_of_document(title, document, source, links=links, window=window)


def _window(repeats: Repeats, window: Window, iterations: Iterations | None) -> Window:
    if iterations is None:
        return window
    first, last = iterations
    if last >= repeats.most:
        raise InputError(
            f"expected iterations from 0 to {repeats.most - 1}, got {last}", field="--iteration"
        )
    return repeats.window(first, last)


def _refuse_iterations(iterations: Iterations | None) -> None:
    if iterations is not None:
        raise InputError(
            "expected the schedule of a K-FAC refresh around a pinned pipeline",
            field="--iteration",
        )

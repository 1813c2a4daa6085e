"""Descriptions and views as the command line asks for them, in one call."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.views.drawing import Drawing
from ppsolve.solver.views.drawings import ANY, drawing_of
from ppsolve.solver.views.schedule_view import ScheduleView, ViewOptions


def describe_problem(instance: Instance, problem: Any) -> RenderableType:
    return drawing_of(instance.kind).describe(instance, problem)


def view_of_schedule(
    title: str, instance: Instance, schedule: Schedule, source: Any = None, **frame: Any
) -> RenderableType:
    return drawing_of(instance.kind).view(
        _shown(title, instance, schedule, source, **frame)
    )


def _shown(
    title: str, instance: Instance, schedule: Schedule, source: Any = None, **frame: Any
) -> ScheduleView:
    document = ScheduleDocument.of(schedule)
    return ScheduleView(
        title, document, source, ViewOptions(**frame), instance, schedule
    )


def view_of_any(title: str, schedule: Schedule, **frame: Any) -> RenderableType:
    """Return the view that suits schedules of any kind, which asks nothing of the instance."""
    return Drawing().view(_shown(title, Instance.model_construct(), schedule, **frame))


def view_of_document(
    title: str, document: ScheduleDocument, source: Any = None, **frame: Any
) -> RenderableType:
    shown = ScheduleView(title, document, source, ViewOptions(**frame))
    return ANY.view(shown)

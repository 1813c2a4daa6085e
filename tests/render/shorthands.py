"""Descriptions and views as the command line asks for them, in one call."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.render.drawing import Drawing, ViewOptions
from ppsolve.solver.render.drawings import drawing_of, drawing_of_document


def describe_problem(instance: Instance, problem: Any) -> RenderableType:
    return drawing_of(instance.kind).describe(instance, problem)


def view_of_schedule(
    title: str, instance: Instance, schedule: Schedule, source: Any = None, **frame: Any
) -> RenderableType:
    return drawing_of(instance.kind).view(title, instance, schedule, source, ViewOptions(**frame))


def view_of_any(title: str, schedule: Schedule, **frame: Any) -> RenderableType:
    """Return the view that suits schedules of any kind, which asks nothing of the instance."""
    instance = Instance.model_construct()
    return Drawing().view(title, instance, schedule, None, ViewOptions(**frame))


def view_of_document(
    title: str, document: ScheduleDocument, source: Any = None, **frame: Any
) -> RenderableType:
    return drawing_of_document(document).view_alone(title, document, source, ViewOptions(**frame))

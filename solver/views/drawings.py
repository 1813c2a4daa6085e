"""A schedule and what is known of it, read from whatever a figure is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pkgutil import resolve_name
from typing import Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.views.chart import AmountCurve, Chart, pool_curves
from ppsolve.solver.views.drawing import Drawing
from ppsolve.solver.views.figures import figure, figures, percent
from ppsolve.solver.views.schedule_view import ScheduleReport, ScheduleView, ViewOptions
from ppsolve.solver.views.wording import spaced, unit_of, with_unit

# Kinds that are not here are drawn as any kind can be; a class is imported on first use.
DRAWINGS = {
    "pipeline": "ppsolve.solver.views.pipeline:PipelineDrawing",
    "kfac": "ppsolve.solver.views.kfac:KfacDrawing",
    "overlap": "ppsolve.solver.views.overlap:OverlapDrawing",
}

ANY = Drawing()


@cache
def drawing_of(kind: str | None) -> Drawing:
    """Return the drawing of a kind, the default one if it has none of its own."""
    home = DRAWINGS.get(kind or "")
    drawing: Drawing = ANY if home is None else resolve_name(home)()
    return drawing


def bound_of(source: object, objective: Objective) -> float | None:
    """Return the proven bound of a result where it is one of a time of its schedule, else None."""
    if (
        not isinstance(source, Result)
        or source.objective is not objective
        or source.bound is None
    ):
        return None
    return (
        float(source.bound) if source.value_unit in {None, source.time_unit} else None
    )


@dataclass(frozen=True)
class Drawn:
    """A schedule that a figure shows, and how its kind is drawn."""

    shown: ScheduleView
    drawing: Drawing

    @cached_property
    def view(self) -> ScheduleReport:
        """Its chart and its figures."""
        return self.drawing.view(self.shown)

    @property
    def chart(self) -> Chart:
        """Its rows."""
        return self.view.chart

    @property
    def curves(self) -> Sequence[AmountCurve]:
        """The amounts over time: by the schedule, else those that its file has."""
        schedule, source = self.shown.schedule, self.shown.source
        if schedule is None or self.chart.curves:
            return self.chart.curves
        amounts = (
            pool_curves(schedule)
            if source is None
            else self.drawing.curves(source, schedule)
        )
        tick = float(schedule.problem.scale.tick)
        return [curve.scaled(tick) for curve in amounts]

    @property
    def bound(self) -> float | None:
        """The proven bound where it is one of the end of the schedule."""
        return bound_of(self.shown.source, Objective.MAKESPAN)

    @property
    def caption(self) -> str:
        """Value, bound and gap in one line; the end where no more is known."""
        source = self.shown.source
        if isinstance(source, Result):
            return caption_of(source)
        return f"makespan {figure(self.shown.end)} {self.shown.unit}"


def caption_of(result: Result) -> str:
    """Return value, bound and gap of a result in one line."""
    name, unit = spaced(result.objective), unit_of(result)
    value, bound = figures(result.value, result.bound)
    phrases = []
    if result.value is not None:
        phrases.append(("" if name == unit else f"{name} ") + with_unit(value, unit))
    if result.gap == 0 and result.bound_by:
        phrases.append(drawing_of(result.kind).proof(result))
    elif result.bound is not None:
        phrases.append(f"lower bound {with_unit(bound, unit)}")
        phrases += [] if result.gap is None else [f"gap {percent(result.gap)}"]
    return ", ".join(phrases)


def drawn_on(
    instance: Instance,
    data: Any,
    owner: Result | HeuristicEntry | None,
    frame: ViewOptions,
    *,
    exact: bool = False,
    source: str = "",
) -> tuple[Drawn, list[Violation]]:
    """Return a schedule of a known instance, and the rules that its names of ops break.

    `data` is the parsed JSON of a result, a heuristic's entry or a bare schedule, `owner` the same
    as a document. An `InputError` names `source`: it is no schedule of the instance.
    """
    kind = kind_of(instance)
    problem = kind.lower(instance, exact=exact, document=data)
    schedule, violations = kind.read(instance, problem, data, source)
    if schedule is None:
        raise InputError(
            f"not a whole schedule: {violations[0]}",
            source=source,
            code=ErrorCode.SCHEDULE,
        )
    title, document = title_of(data, instance), ScheduleDocument.of(schedule)
    view = ScheduleView(title, document, owner, frame, instance, schedule)
    return Drawn(view, drawing_of(instance.kind)), violations


def title_of(data: Any, instance: Instance | None = None) -> str:
    """Return the title of a schedule: its instance, and what made it, as its parsed JSON says."""
    name = data.get("instance", "schedule") if instance is None else instance.name
    by = data.get("best_by") or data.get("name")
    return f"{name}, {by}" if by else str(name)

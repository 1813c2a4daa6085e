"""Schedules of a pipeline as rows of a table, and in the form that the chart of pages reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import optimize
from ppsolve.solver.api.kinds import kind_of, schedule_in
from ppsolve.solver.api.registry import find_heuristic, quick_heuristics
from ppsolve.solver.heuristics.heuristic import Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.pipeline.quick import QuickAnswer, quick
from ppsolve.solver.views.chart import pool_curves
from ppsolve.solver.views.drawings import drawing_of
from ppsolve.solver.views.page.columns import Columns, columns_of
from ppsolve.solver.views.page.idle import causes_of

Drawn = tuple[str, Schedule]
"""A schedule and its title."""


class _QuickFigures(NamedTuple):
    value: float | None = None
    by: str | None = None
    bound: float | None = None
    bound_by: str | None = None
    published: dict[str, float | None] | None = None


def picture_of(
    instance: PipelineInstance,
    drawn: Sequence[str | dict[str, Any]],
    heuristics: Sequence[str],
) -> dict[str, Any]:
    """Answer a pipeline with the chart of schedules, a row for each heuristic, or both.

    `drawn`: names of heuristics, and documents that hold a schedule.
    `heuristics`: names; "all": all that do not search.

    Pipelines that `quick` refuses have a bound only beside rows: it takes part of a second.
    """
    names = quick_heuristics(instance) if heuristics == "all" else heuristics
    answer = _quick(instance) or (_bound(instance) if names else _QuickFigures())
    document = {**answer._asdict(), "time_unit": instance.time_unit}
    problem = kind_of(instance).lower(instance)
    if names:
        document["heuristics"] = [_row(instance, problem, name) for name in names]
    if drawn:
        document["chart"] = _chart(instance, problem, drawn, answer.bound)
    return document


def quick_heuristic(name: str) -> Heuristic:
    """Return a heuristic; an `InputError` says that it searches."""
    heuristic = find_heuristic(name)
    if heuristic.is_own or heuristic.is_search:
        text = f'expected a heuristic that does not search, got "{heuristic.name}"'
        raise InputError(text, code=ErrorCode.UNSUPPORTED)
    return heuristic


def _quick(instance: PipelineInstance) -> _QuickFigures | None:
    try:
        answer = asdict(cast("QuickAnswer", quick(instance)))
    except InputError:
        return None
    return _QuickFigures(**{name: answer[name] for name in _QuickFigures._fields})


def _bound(instance: PipelineInstance) -> _QuickFigures:
    result = optimize(instance, time_limit=0, heuristics=[])
    return _QuickFigures(bound=result.bound, bound_by=result.bound_by)


def _outcome(instance: Instance, problem: Problem, name: str) -> HeuristicOutcome:
    return kind_of(instance).run_heuristic(quick_heuristic(name), instance, problem)


def _row(instance: Instance, problem: Problem, name: str) -> dict[str, Any]:
    outcome = _outcome(instance, problem, name)
    entry = kind_of(instance).entry_of(instance, problem, outcome)
    fields = {"name", "status", "reason", "makespan", "bubble_ratio", "peak_memory"}
    return entry.model_dump(mode="json", include=fields)


def _chart(
    instance: PipelineInstance,
    problem: Problem,
    drawn: Sequence[Any],
    bound: float | None,
) -> dict[str, Any]:
    schedules = [_drawn(instance, problem, entry) for entry in drawn]
    shown = [schedule for schedule in schedules if schedule is not None]
    return {
        "unit": printable(instance.time_unit),
        "titles": [printable(title) for title, _ in shown],
        "shown": [_columns(instance, schedule, bound) for _, schedule in shown],
    }


def _drawn(instance: PipelineInstance, problem: Problem, entry: Any) -> Drawn | None:
    if isinstance(entry, dict):
        # The instance of the question, whichever one the document carries.
        bare = {key: entry[key] for key in entry if key != "instance_document"}
        title = str(entry.get("best_by") or "schedule")[:80]
        return title, schedule_in(bare, otherwise=instance)[1]
    outcome = _outcome(instance, problem, entry)
    return None if outcome.schedule is None else (outcome.name, outcome.schedule)


def _columns(
    instance: PipelineInstance, schedule: Schedule, bound: float | None
) -> Columns:
    drawing = drawing_of(instance.kind)
    kinds = drawing.kinds_of_ops(instance, schedule.problem)
    return {
        "tick": float(schedule.problem.scale.tick),
        "bound": bound,
        "spanBound": None,
        "period": drawing.period(instance) or 0,
        **columns_of(schedule, causes_of(schedule), pool_curves(schedule), kinds),
    }

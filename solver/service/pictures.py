"""Schedules of heuristics in the form that the chart of pages reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.documents.printable import printable
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import find_heuristic
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.views.drawings import drawing_of
from ppsolve.solver.views.page.columns import Columns, columns_of
from ppsolve.solver.views.page.idle import causes_of


def pictures(
    instance: Instance, names: Sequence[str], bound: float | None
) -> dict[str, Any]:
    """Return schedules of heuristics as rows, and as the columns of one chart.

    `names`: heuristics; each has a row, and a column where it has a schedule.
    `bound`: bound of the makespan in the instance's unit.
    """
    kind = kind_of(instance)
    problem = kind.lower(instance)
    outcomes = [
        kind.run_heuristic(find_heuristic(name), instance, problem) for name in names
    ]
    drawn = [outcome for outcome in outcomes if outcome.schedule is not None]
    return {
        "schedules": [_row(outcome) for outcome in outcomes],
        "chart": {
            "unit": printable(instance.time_unit),
            "titles": [outcome.name for outcome in drawn],
            "shown": [_columns(instance, outcome, problem, bound) for outcome in drawn],
        },
    }


def _row(outcome: HeuristicOutcome) -> dict[str, Any]:
    schedule = outcome.schedule
    return {
        "name": outcome.name,
        "status": outcome.status.value,
        "reason": outcome.reason,
        "makespan": schedule and schedule.problem.scale.time(schedule.makespan),
    }


def _columns(
    instance: Instance,
    outcome: HeuristicOutcome,
    problem: Problem,
    bound: float | None,
) -> Columns:
    schedule, drawing = outcome.schedule, drawing_of(instance.kind)
    assert schedule is not None
    entry = kind_of(instance).entry_of(instance, problem, outcome)
    return {
        "tick": float(schedule.problem.scale.tick),
        "bound": bound,
        "spanBound": None,
        "period": drawing.period(instance) or 0,
        **columns_of(
            schedule,
            causes_of(schedule),
            drawing.curves(entry, schedule),
            drawing.kinds_of_ops(instance, schedule.problem),
        ),
    }

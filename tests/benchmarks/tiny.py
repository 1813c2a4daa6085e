"""A tiny instance, results of it, and what `verify` says of a directory."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

from best_known import verify
from best_known_files import StoredSchedule

from ppsolve.models.core.result import (
    Result,
    ScheduleDocument,
    Status,
    StopReason,
    Versions,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.structure.timing import time_orders

TODAY = datetime.date(2025, 1, 31)
OPTIMUM = 9
NAME = "tiny/two.json"


Solve = Callable[[Result | None], Any]


def tiny(**changes: Any) -> Instance:
    """Two devices, two micro-batches, F 1, B 2: by hand the optimum is 1 + 6 + 2 = 9."""
    data = {
        "kind": "pipeline",
        "name": "two",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 1, "backward": 2},
    }
    return parse_instance({**data, **changes})


def schedule_of(instance: Instance, *, late: int = 0) -> Schedule:
    """Return the 1F1B schedule, all of it `late` ticks later than need be."""
    problem = lower(instance)
    forward, backward = problem.grid("F"), problem.grid("B")
    orders = [
        [*forward[0], *backward[0]],
        [forward[1][0], backward[1][0], forward[1][1], backward[1][1]],
    ]
    schedule = time_orders(problem, orders)
    return Schedule(problem, schedule.start + late)


def result_of(instance: Instance, *, late: int = 0, bound: float | None = 7) -> Result:
    return result_with(instance, schedule_of(instance, late=late), bound)


def result_with(
    instance: Instance, schedule: Schedule, bound: float | None = None
) -> Result:
    value = schedule.problem.scale.time(schedule.value)
    return Result(
        instance=instance.name,
        status=Status.FEASIBLE,
        objective=schedule.problem.objective,
        time_unit="us",
        value=value,
        makespan=value,
        bound=bound,
        bound_by="work",
        best_by="1f1b",
        stop_reason=StopReason.TIME,
        wall_seconds=1.239,
        workers=2,
        versions=Versions(ppsolve="0.1.0", ortools="9.15", python="3.11"),
        schedule=ScheduleDocument.of(schedule),
    )


def stored_of(schedule: Schedule) -> StoredSchedule:
    return StoredSchedule.of(result_with(tiny(), schedule))


def problems(directory: Path) -> list[str]:
    return [problem for verified in verify(directory) for problem in verified.problems]

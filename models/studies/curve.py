"""The document of a curve: best makespan and proved bound at each point."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from ppsolve.models.core.result import (
    Figure,
    HeuristicStatus,
    Reported,
    ReportedFile,
    Status,
)
from ppsolve.models.documents.display import ShownInNotebooks


class Over(StrEnum):
    """The varied amount of a curve."""

    CAPACITY = "capacity"
    MICROBATCHES = "microbatches"


class SolvedPoint(Reported):
    """What is known of one instance of a study; figures are absent where there is no schedule.

    `microbatch_time` is the value over the number of micro-batches. `best_by` names the source of
    the schedule, `peak_memory` is the largest peak of a device.
    """

    status: Status
    value: Figure | None = None
    bound: Figure | None = None
    gap: float | None = None
    microbatch_time: float | None = None
    peak_memory: float | None = None
    best_by: str | None = None
    reason: str | None = None


class PointHeuristic(Reported):
    """What one heuristic reaches at a point; only feasible ones have a value."""

    name: str
    status: HeuristicStatus
    value: Figure | None = None
    bubble_ratio: float | None = None
    reason: str | None = None


class CurvePoint(SolvedPoint):
    """One point.

    `at` is the capacity (an amount, or one per device) or the number of micro-batches.
    `multiple` is a capacity as multiple of p, if it was given so. `bubble_ratio` is that of the
    schedule, `bound_bubble_ratio` that of any schedule as long as the bound.
    """

    bubble_ratio: float | None = None
    bound_bubble_ratio: float | None = None
    heuristics: tuple[PointHeuristic, ...] = ()

    at: Figure | list[Figure]
    multiple: Figure | None = None


class Curve(ShownInNotebooks, ReportedFile):
    """Best values and bounds of one instance over capacities or numbers of micro-batches.

    `gap` is (value - bound) / value. `kept` are points with every activation kept, if the pipeline
    may recompute or offload some. With a `runtime` only schedules that it runs count. Where
    `rates` is true, tables and pictures show bubble ratios instead of values and bounds.
    """

    kind: Literal["curve"] = "curve"
    instance: str
    over: Over
    objective: str
    time_unit: str
    runtime: str | None = None
    rates: bool = False
    wall_seconds: float = 0.0
    interrupted: bool = False
    points: tuple[CurvePoint, ...]
    kept: tuple[CurvePoint, ...] | None = None

    def written(self) -> dict[str, Any]:
        """Return plain JSON data; each point also has `at` under the name of the varied amount."""
        data = self.model_dump(mode="json", by_alias=True)
        data["points"] = [
            {str(self.over): point["at"], **point} for point in data["points"]
        ]
        return data

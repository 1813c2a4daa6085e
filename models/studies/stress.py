"""Distributions of makespans of fixed orders under jitter."""

from __future__ import annotations

from typing import Literal

from ppsolve.models.core.result import Figure, Reported, ReportedFile


class StressEntry(Reported):
    """Distribution of one schedule's makespan, in the instance's time unit.

    `planned` is its makespan with the durations of the instance, each op as early as its order
    allows. `p5` to `p99` are percentiles; `stays_ahead` is the share of runs in which the best
    schedule ends no later than this one.
    """

    name: str
    planned: Figure
    mean: float
    deviation: float
    p5: float
    p50: float
    p95: float
    p99: float
    worst: float
    stays_ahead: float | None = None


class StressReport(ReportedFile):
    """Makespans of the best schedule and of heuristics over the same random durations.

    `jitter` holds the coefficient of variation by kind of op, `slow` the factor by device. The
    first entry is the best schedule of the result.
    """

    kind: Literal["stress"] = "stress"
    instance: str
    time_unit: str
    runs: int
    seed: int
    jitter: dict[str, float]
    slow: dict[int, float]
    entries: tuple[StressEntry, ...]

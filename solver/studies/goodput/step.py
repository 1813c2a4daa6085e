"""Proven ranges of step times, and the rates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import plain
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result


@dataclass(frozen=True)
class Interval:
    """A figure that is at least `low` and at most `high`; floats, or arrays of one shape.

    Of a time `high` is that of the measured schedules, `low` a bound for every schedule; of
    throughput and goodput `low` is that of the schedules. The end of the schedules is an estimate
    where it is extrapolated, all else is proved.
    """

    low: Any
    high: Any

    def rate(self, amount: Any) -> Interval:
        """Return an amount per time: by the longest time, then by the shortest."""
        with np.errstate(divide="ignore"):
            return Interval(amount / self.high, amount / self.low)

    def __mul__(self, factor: Any) -> Interval:
        """Return both ends times a factor >= 0."""
        return Interval(self.low * factor, self.high * factor)

    def plain(self) -> Interval:
        """Return ends without axes as Python scalars."""
        return Interval(plain(self.low), plain(self.high))


@dataclass
class StepTime:
    """The proven step time of one pipeline at one number of micro-batches.

    `floor`: lower bound for every schedule.
    `reached`: step time of the best checked schedule; None without one.
    `method`: its source: the name of a heuristic, or ``cp-sat``.
    `failures`: heuristics that made no schedule, with their reasons; those that do not
        apply last.
    """

    floor: Fraction | float = 0
    reached: float | None = None
    method: str | None = None
    failures: tuple[HeuristicEntry, ...] = ()

    def learn(self, result: Result) -> None:
        """Take over the bound and the schedule of a run."""
        if result.bound is not None:
            self.floor = max(self.floor, result.bound - result.tick_error)
        if result.makespan is not None and (
            self.reached is None or result.makespan < self.reached
        ):
            self.reached, self.method = float(result.makespan), result.best_by
        last, feasible = HeuristicStatus.NOT_APPLICABLE, HeuristicStatus.FEASIBLE
        failed = (e for e in result.heuristics if e.status is not feasible and e.reason)
        self.failures = tuple(sorted(failed, key=lambda entry: entry.status is last))

    @property
    def time(self) -> Interval:
        """The proven range of the time; without a schedule it has no end."""
        reached = float("inf") if self.reached is None else self.reached
        return Interval(min(float(self.floor), reached), reached)

"""What CP-SAT is asked: a question, its limits, and its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock


@dataclass(frozen=True)
class SearchLimits:
    """Limits and settings of one search."""

    seconds: float | None = 60.0  # wall time; None for no limit
    # CP-SAT's deterministic time, reproducible with one worker and a seed; None for no limit
    deterministic: float | None = None
    gap: float = 0.0  # stop once (value - bound) / value is at most this
    # workers, seed: search threads, and random seed
    workers: int = 1
    seed: int = 0
    # propagate all pairs of ops of one resource together with their precedences
    dynamic_orders: bool = False
    # one of many questions that take a second or so: begin sooner and propagate less, where ops are
    # not mostly alike
    is_short: bool = False
    is_plain: bool = False  # use CP-SAT's defaults
    clock: Clock | None = None  # clock of the call: the search ends with it

    def start(self) -> Clock:
        """Return a clock that runs from now until the wall limit."""
        return (
            Clock(self.seconds)
            if self.clock is None
            else self.clock.within(self.seconds)
        )

    def scaled(self, share: float) -> SearchLimits:
        """Return limits with a share of the time."""
        return replace(
            self,
            seconds=None if self.seconds is None else self.seconds * share,
            deterministic=None
            if self.deterministic is None
            else self.deterministic * share,
        )

    def less(self, seconds: float, units: float) -> SearchLimits:
        """Return the limits minus the time used, never below 0."""
        return replace(
            self,
            seconds=_left(self.seconds, seconds),
            deterministic=_left(self.deterministic, units),
        )


def _left(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)


Rounding = Literal["up", "down"]

EXACT, FEW_DEVICES, NEIGHBOURHOODS = "cp-sat", "few-devices", "neighbourhoods"
VARIANTS = "variants"
"""Names of the exact searches in reports."""


class Company(Enum):
    """Other searches of a problem: they say which questions are worth asking."""

    NEW = "nothing has searched it"
    SEARCHED = "searches have found the incumbent, so that often nothing is better"
    SHARED = "other searches look for schedules meanwhile"


@dataclass(frozen=True)
class Question:
    """A question to CP-SAT about a problem."""

    lower: int  # a proved lower bound in ticks, which becomes part of the model
    known: Schedule | None = (
        None  # the best known schedule: gives the horizon and the hint
    )
    upper: int | None = None  # largest objective to look for, in ticks
    rounding: Rounding = (
        "down"  # rounding of memory amounts that have no small exact scale
    )


@dataclass(frozen=True)
class ExactAnswer:
    """Outcome of one run of CP-SAT."""

    schedule: Schedule | None  # best schedule of the model
    bound: int | None  # proved lower bound of the model, in ticks
    infeasible: bool  # the model was proved to have no schedule
    stop_reason: StopReason  # why the search ended
    memory_is_exact: bool  # the model's memory rules are exactly the problem's
    deterministic_time: float  # in CP-SAT's units; 0 for an abandoned run

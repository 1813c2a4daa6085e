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
    """Limits and settings of one search.

    Parameters
    ----------
    seconds : float or None
        Wall time; None for no limit.
    deterministic : float or None
        CP-SAT's deterministic time, reproducible with one worker and a seed; None for no limit.
    gap : float
        Stop once (value - bound) / value is at most this.
    workers : int
        Search threads.
    seed : int
        Random seed.
    dynamic_orders : bool
        Propagate all pairs of ops of one resource together with their precedences.
    is_short : bool
        The question is one of many that take a second or so: begin sooner and propagate less, where
        ops are not mostly alike.
    is_plain : bool
        Use CP-SAT's defaults, whatever the model and the question are like.
    clock : Clock, optional
        The clock of the call that the search is part of: the search ends with it.
    """

    seconds: float | None = 60.0
    deterministic: float | None = None
    gap: float = 0.0
    workers: int = 1
    seed: int = 0
    dynamic_orders: bool = False
    is_short: bool = False
    is_plain: bool = False
    clock: Clock | None = None

    def start(self) -> Clock:
        """Return a clock that runs from now until the wall limit."""
        return Clock(self.seconds) if self.clock is None else self.clock.within(self.seconds)

    def scaled(self, share: float) -> SearchLimits:
        """Return limits with a share of the time."""
        return replace(
            self,
            seconds=None if self.seconds is None else self.seconds * share,
            deterministic=None if self.deterministic is None else self.deterministic * share,
        )

    def less(self, seconds: float, units: float) -> SearchLimits:
        """Return the limits minus the time used.

        Parameters
        ----------
        seconds : float
            Wall time used.
        units : float
            Deterministic time used, in CP-SAT's units.

        Returns
        -------
        SearchLimits
            Remaining limits, never below 0.
        """
        return replace(
            self,
            seconds=_left(self.seconds, seconds),
            deterministic=_left(self.deterministic, units),
        )


def _left(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)


Rounding = Literal["up", "down"]

EXACT, FEW_DEVICES, NEIGHBOURHOODS = "cp-sat", "few-devices", "neighbourhoods"
"""Names of the exact searches in reports."""


class Company(Enum):
    """What else searches a problem, which says what is worth asking."""

    NEW = "nothing has searched it"
    SEARCHED = "searches have found the incumbent, so that often nothing is better"
    SHARED = "other searches look for schedules meanwhile"


@dataclass(frozen=True)
class Question:
    """What CP-SAT is asked about a problem.

    Parameters
    ----------
    lower : int
        A proved lower bound in ticks. It becomes part of the model, as CP-SAT's own bound can be
        far lower.
    known : Schedule, optional
        The best known schedule: gives the horizon and the hint.
    upper : int, optional
        Largest objective to look for, in ticks.
    rounding : {"up", "down"}
        Rounding of memory amounts that have no small exact scale.
    window_work : bool
        Count the work in every hole: proves more where holes are nearly full, takes longer.
    """

    lower: int
    known: Schedule | None = None
    upper: int | None = None
    rounding: Rounding = "down"
    window_work: bool = False


@dataclass(frozen=True)
class ExactAnswer:
    """Outcome of one run of CP-SAT.

    Parameters
    ----------
    schedule : Schedule or None
        Best schedule of the model.
    bound : int or None
        Proven lower bound of the model, in ticks.
    infeasible : bool
        The model was proved to have no schedule.
    stop_reason : StopReason
        Reason for which the search ended.
    memory_is_exact : bool
        The model's memory rules are exactly the problem's.
    deterministic_time : float
        Deterministic time used, in CP-SAT's units; 0 for a run that was given up on.
    """

    schedule: Schedule | None
    bound: int | None
    infeasible: bool
    stop_reason: StopReason
    memory_is_exact: bool
    deterministic_time: float

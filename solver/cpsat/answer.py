"""What one search with CP-SAT found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule

IncumbentSource = Callable[[], Schedule | None]
"""Gives the best schedule that was found elsewhere, None while there is none."""


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

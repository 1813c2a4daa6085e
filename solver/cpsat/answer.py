"""What one search with CP-SAT found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule

EXACT, FEW_DEVICES, NEIGHBOURHOODS = "cp-sat", "few-devices", "neighbourhoods"
"""Names of the exact searches in reports."""


class Company(Enum):
    """What else searches a problem, which says what is worth asking."""

    NEW = "nothing has searched it"
    SEARCHED = "searches have found the incumbent, so that often nothing is better"
    SHARED = "other searches look for schedules meanwhile"


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

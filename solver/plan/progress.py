"""What a plan tells while it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PlanProgress:
    """State of a plan.

    Parameters
    ----------
    seconds : float
        Wall time since the start.
    phase : str
        What the configuration at hand is given to.
    examined, enumerated : int
        Configurations decided or looked at more closely than all are, and all of them.
    best : float or None
        Best goodput reached, in samples per second.
    bound : float
        Goodput that no configuration exceeds.
    """

    seconds: float
    phase: str
    examined: int
    enumerated: int
    best: float | None
    bound: float


PlanListener = Callable[[PlanProgress], None]

PHASES = ("splits and bounds", "heuristics", "exact solver", "finishing")
"""What a candidate of each level is given to next."""

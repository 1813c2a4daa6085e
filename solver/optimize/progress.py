"""What the solver tells a listener while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ppsolve.models.core.result import Figure


@dataclass(frozen=True)
class Progress:
    """One event of a run; figures in the instance's time unit, absent while unknown.

    Parameters
    ----------
    event : str
        ``heuristic`` (one finished), ``bound`` (a better lower bound), ``incumbent`` (a better
        schedule) or ``phase`` (what starts now).
    seconds : float
        Wall time since the start of the run.
    source : str
        Which heuristic, bound or phase.
    incumbent, bound : number or None
        Best objective value and lower bound so far.
    gap : float or None
        (incumbent - bound) / incumbent.
    """

    event: str
    seconds: float
    source: str
    incumbent: Figure | None = None
    bound: Figure | None = None
    gap: float | None = None


ProgressListener = Callable[[Progress], None]

"""Limits of one exact search."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

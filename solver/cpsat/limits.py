"""Limits of one exact search."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SearchLimits:
    """When to stop, and how to search.

    Parameters
    ----------
    seconds : float or None
        Wall time.
    deterministic : float or None
        CP-SAT's deterministic time, reproducible on any machine.
    gap : float
        Stop once (value - bound) / value is at most this.
    workers : int
        Search threads.
    seed : int
        Random seed.
    """

    seconds: float | None = 60.0
    deterministic: float | None = None
    gap: float = 0.0
    workers: int = 1
    seed: int = 0

    def scaled(self, share: float) -> SearchLimits:
        """Return limits with a share of the time."""
        return replace(
            self,
            seconds=None if self.seconds is None else self.seconds * share,
            deterministic=None if self.deterministic is None else self.deterministic * share,
        )

    def less(self, seconds: float, units: float) -> SearchLimits:
        """Return what is left after so many seconds and deterministic units."""
        return replace(
            self,
            seconds=_left(self.seconds, seconds),
            deterministic=_left(self.deterministic, units),
        )


def _left(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)

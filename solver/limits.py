"""Limits of one exact search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
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

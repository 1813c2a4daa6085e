"""The steady state of makespans over micro-batches: where their growth was seen to repeat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ppsolve.models.core.arrays import Floats
from ppsolve.models.core.problem import IntArray

TOLERANCE = 1e-9
"""Relative to the largest time: below it, two times differ by rounding only."""

LEAST_COVER = 4
"""A run of evenly spaced points is trusted if its length is at least its end divided by this.

With a larger one a short run far out may hide a longer period; with 2 the run of the default
numbers of micro-batches, from 4D to 6D, would not be trusted.
"""

LEAST_RUN = 4
"""A run of fewer points is not trusted: of three, two steps may be the same by chance."""


@dataclass(frozen=True)
class SteadyState:
    """How a makespan grows once warm-up and cool-down no longer change.

    Parameters
    ----------
    last : int
        Largest number of micro-batches that the growth was read from.
    period : int
        Micro-batches after which the growth repeats.
    growth : float
        What the makespan grows by per period.
    repeats : bool
        Whether the growth was seen to repeat, in schedules of one method and for two whole periods
        at least; False for a mere difference quotient, which may be off either way.
    """

    last: int
    period: int
    growth: float
    repeats: bool

    @property
    def slope(self) -> float:
        """Time per micro-batch."""
        return self.growth / self.period


def steady_state(
    points: IntArray,
    makespans: Floats,
    methods: Sequence[str],
    optimal: Sequence[bool],
    least_slope: float,
) -> SteadyState:
    """Return the growth of the makespan at the largest measured numbers of micro-batches.

    Schedules may repeat after several micro-batches only: 1F1B on 4 stages with F = 1, B = 2
    and latency 1 grows by 5, 5, 5, 3, so by 18 per 4 micro-batches, 4.5 for each.

    1. Only the last points count whose schedules are of one method or all proved optimal: the
       best of several methods may change from one to the other and back.
    2. A run is a stretch of n >= 4 evenly spaced points whose length is at least a quarter of
       its last point: few neighbours far out say nothing of a longer period.
    3. It repeats after p of its points if the makespan grew by one and the same amount over
       every p points within its last max(2p + 1, n // 2 + 1) points: two whole periods, and
       half of a long run, whose start may still be warm-up.
    4. The latest run counts that repeats, with its least p, that predicts every later point (a
       later one may show that the run was not steady yet), and that does not grow less than
       `least_slope`.
    5. Without one it is the difference quotient between the last point and the last one of
       at most half as many micro-batches (else the first): far apart, so that part of a
       period weighs little, and exact where the period divides the distance.

    Parameters
    ----------
    points : int64[k]
        Numbers of micro-batches, ascending, k >= 2.
    makespans : float64[k]
        Not decreasing.
    methods, optimal : sequence of str, sequence of bool
        What made each schedule, and whether it is proved optimal.
    least_slope : float
        Lower bound on the time per micro-batch: a smaller growth cannot go on.

    Returns
    -------
    SteadyState
        The growth that repeats, or the difference quotient of rule 5.
    """
    since = _since(methods, optimal)
    for run in reversed(list(_runs(points[since:]))):
        shown = slice(since + run.start, since + run.stop)
        found = _repeating(points[shown], makespans[shown])
        if (
            found is not None
            and found.slope >= least_slope * (1 - TOLERANCE)
            and _predicts(found, points, makespans)
        ):
            return found
    far = max(int(np.searchsorted(points, points[-1] / 2, side="right")) - 1, 0)
    growth = float(makespans[-1] - makespans[far])
    return SteadyState(int(points[-1]), int(points[-1] - points[far]), growth, repeats=False)


def _since(methods: Sequence[str], optimal: Sequence[bool]) -> int:
    """Return from which point on all schedules are of one method, or all proved optimal."""
    others = [place for place, name in enumerate(methods) if name != methods[-1]]
    unproved = [place for place, is_optimal in enumerate(optimal) if not is_optimal]
    return min(max(others, default=-1), max(unproved, default=-1)) + 1


def _runs(points: IntArray) -> Iterator[slice]:
    """Yield the longest stretches of `LEAST_RUN` or more evenly spaced points that reach far."""
    steps = np.diff(points)
    cuts = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for first, last in pairwise(cuts):
        far = (points[last] - points[first]) * LEAST_COVER >= points[last]
        if last - first + 1 >= LEAST_RUN and far:
            yield slice(first, last + 1)


def _repeating(points: IntArray, makespans: Floats) -> SteadyState | None:
    """Return the least period of an evenly spaced run, None if it shows none."""
    close = TOLERANCE * float(makespans[-1])
    for period in range(1, (len(points) - 1) // 2 + 1):
        shown = makespans[-max(2 * period + 1, len(makespans) // 2 + 1) :]
        growths = shown[period:] - shown[:-period]
        if np.ptp(growths) <= close:
            last, length = int(points[-1]), int(points[-1] - points[-1 - period])
            return SteadyState(last, length, float(growths[-1]), repeats=True)
    return None


def _predicts(steady: SteadyState, points: IntArray, makespans: Floats) -> bool:
    """Say if every later point is as predicted, or between what its neighbours predict."""
    later = points > steady.last
    periods = -(-(points[later] - steady.last) // steady.period)
    base = points[later] - periods * steady.period
    grown = makespans[later] - periods * steady.growth
    close = TOLERANCE * makespans[-1]
    least = makespans[np.maximum(np.searchsorted(points, base, side="right") - 1, 0)]
    most = makespans[np.searchsorted(points, base)]
    return bool(np.all((grown >= least - close) & (grown <= most + close)))

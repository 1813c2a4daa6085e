"""Makespan of a pipeline over its number of micro-batches, measured and extrapolated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import (
    Floats,
    as_array,
    as_number,
    plain,
    refuse,
    whole_numbers,
)
from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError


@dataclass(frozen=True)
class CurveParams:
    """When growth over micro-batches counts as steady."""

    # Relative to the largest time: below it, two times differ by rounding only.
    tolerance: float = 1e-9
    # A run of evenly spaced points is trusted if its length is its end over this, or more.
    least_cover: int = 4
    # Points of a trusted run, at least: of three, two steps may be the same by chance.
    least_run: int = 4


CURVE = CurveParams()


@dataclass(frozen=True)
class SteadyState:
    """Growth of a makespan once warm-up and cool-down no longer change.

    `last`: largest number of micro-batches that the growth was read from.
    `period`, `growth`: micro-batches after which the growth repeats, and the growth of
        the makespan per period.
    `repeats`: whether the growth was seen to repeat, in schedules of one method and for
        two whole periods at least; False for a mere difference quotient, which may be
        off either way.
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

    1. Only the last points count whose schedules are of one method or all proved optimal: the best
       of several methods may change from one to the other and back.
    2. A run is a stretch of n >= 4 evenly spaced points whose length is at least a quarter of its
       last point: few neighbours far out say nothing of a longer period.
    3. It repeats after p of its points if the makespan grew by one and the same amount over every p
       points within its last max(2p + 1, n // 2 + 1) points: two whole periods, and half of a long
       run, whose start may still be warm-up.
    4. The latest run counts that repeats, with its least p, that predicts every later point, and
       that does not grow less than `least_slope`.
    5. Without one it is the difference quotient between the last point and the last one of at most
       half as many micro-batches (else the first): far apart, so that part of a period weighs
       little.

    `points`: int64[k], numbers of micro-batches, ascending, k >= 2.
    `makespans`: float64[k].
    `methods`, `optimal`: source of each schedule, and whether it is proved optimal.
    `least_slope`: lower bound on the time per micro-batch: a smaller growth cannot go
        on.
    """
    since = _since(methods, optimal)
    for run in reversed(list(_runs(points[since:]))):
        window = slice(since + run.start, since + run.stop)
        steady = _repeating(points[window], makespans[window])
        if (
            steady is not None
            and steady.slope >= least_slope * (1 - CURVE.tolerance)
            and _predicts(steady, points, makespans)
        ):
            return steady
    far = max(int(np.searchsorted(points, points[-1] / 2, side="right")) - 1, 0)
    growth = float(makespans[-1] - makespans[far])
    return SteadyState(
        int(points[-1]), int(points[-1] - points[far]), growth, repeats=False
    )


def _since(methods: Sequence[str], optimal: Sequence[bool]) -> int:
    # From which point on all schedules are of one method, or all proved optimal.
    differing = [index for index, name in enumerate(methods) if name != methods[-1]]
    unproved = [index for index, is_optimal in enumerate(optimal) if not is_optimal]
    return min(max(differing, default=-1), max(unproved, default=-1)) + 1


def _runs(points: IntArray) -> Iterator[slice]:
    """Yield the longest stretches of evenly spaced points that are long enough to be trusted."""
    steps = np.diff(points)
    cuts = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for first, last in pairwise(cuts):
        far = (points[last] - points[first]) * CURVE.least_cover >= points[last]
        if last - first + 1 >= CURVE.least_run and far:
            yield slice(first, last + 1)


def _repeating(points: IntArray, makespans: Floats) -> SteadyState | None:
    # The least period of an evenly spaced run.
    close = CURVE.tolerance * float(makespans[-1])
    for period in range(1, (len(points) - 1) // 2 + 1):
        tail = makespans[-max(2 * period + 1, len(makespans) // 2 + 1) :]
        growths = tail[period:] - tail[:-period]
        if np.ptp(growths) <= close:
            last, length = int(points[-1]), int(points[-1] - points[-1 - period])
            return SteadyState(last, length, float(growths[-1]), repeats=True)
    return None


def _predicts(steady: SteadyState, points: IntArray, makespans: Floats) -> bool:
    # Every later point is as predicted, or between the predictions of its neighbours.
    later = points > steady.last
    periods = -(-(points[later] - steady.last) // steady.period)
    base = points[later] - periods * steady.period
    grown = makespans[later] - periods * steady.growth
    close = CURVE.tolerance * makespans[-1]
    lower = makespans[np.maximum(np.searchsorted(points, base, side="right") - 1, 0)]
    upper = makespans[np.searchsorted(points, base)]
    return bool(np.all((grown >= lower - close) & (grown <= upper + close)))


TIMES = ("makespans", "bounds", "work_bounds")
"""Fields of a curve with a time for each number of micro-batches."""


class WrongBoundError(Exception):
    """A lower bound above the makespan of a schedule: one of the two must be wrong."""


def at_most(bounds: Floats, reached: Floats, largest: float = 0.0) -> Floats:
    """Return lower bounds cut to the times reached, which rounding may have put them above.

    Raises `WrongBoundError` where one is above by more than rounding.

    `bounds`, `reached`: float64[...], proven bounds, and the times of schedules; they broadcast.
    `largest`: the greatest figure behind the bounds, to which rounding is relative.
    """
    above = bounds - reached > CURVE.tolerance * np.maximum(reached, largest)
    if np.any(above):
        index = np.unravel_index(np.argmax(above), np.shape(above))
        bound, best = np.asarray(bounds)[index], np.asarray(reached)[index]
        raise WrongBoundError(
            f"bound {bound:g} above the {best:g} that a schedule takes"
        )
    return np.minimum(bounds, reached)


def timed_replicas(replicas: int | None, *, has_sync: bool) -> int | None:
    """Return the number of copies that a sync was timed for, checked; None if it is not known.

    Raises `InputError` where it is not a whole number of at least 1, or is given without a sync in
    the schedules.
    """
    if replicas is None:
        return None
    if not has_sync:
        raise InputError(
            "expected none, as there is no sync in the schedules (from allreduce or "
            f"collectives.reduce_scatter), got {describe(replicas)}",
            field="replicas",
            code=ErrorCode.CONFLICT,
        )
    return int(whole_numbers("replicas", as_number("replicas", replicas)))


@dataclass(frozen=True)
class ScheduleCurve:
    """Makespans of checked schedules and proven bounds at a few numbers of micro-batches.

    All micro-batches are alike, so a schedule stays valid without one of them and needs no more
    memory. Therefore the optimum does not decrease with the number of micro-batches M: every bound
    holds for larger M too, and every measured makespan for fewer. Beyond the last point no schedule
    is known, and if memory is limited, none may fit.

    The work bound max over devices r of head_r + M w_r + tail_r is convex and piecewise linear in
    M, so the line through two of its values is a lower bound for all M that are not between them.

    Parameters
    ----------
    microbatches : sequence of int
        The k numbers of micro-batches that were measured, ascending.
    makespans : sequence of float
        Makespan of the best checked schedule at each, > 0, not decreasing.
    bounds : sequence of float
        Proven lower bound on the makespan at each, at most the makespan.
    work_bounds : sequence of float
        The work bound at each, at most `bounds`; not decreasing, convex.
    methods : sequence of str
        Source of each schedule: the name of a heuristic, or ``cp-sat``.
    time_unit : str
        Unit of all times.
    multiple : int
        Numbers of micro-batches are multiples of this (2 for bidirectional pipes).
    has_sync : bool
        Whether the schedules contain an all-reduce or reduce-scatter of the gradients of each
        stage.
    replicas : int or None
        With sync: the number of data-parallel copies that it was timed for, None if unknown.

    Raises
    ------
    InputError
        The figures contradict each other or these rules; names the field.
    """

    microbatches: Sequence[int]
    makespans: Sequence[float]
    bounds: Sequence[float]
    work_bounds: Sequence[float]
    methods: Sequence[str]
    time_unit: str
    multiple: int = 1
    has_sync: bool = False
    replicas: int | None = None

    def __post_init__(self) -> None:
        """Check the figures, and keep them as tuples."""
        points = np.atleast_1d(whole_numbers("microbatches", self.microbatches))
        object.__setattr__(self, "microbatches", tuple(points.tolist()))
        for field in TIMES:
            times = np.atleast_1d(as_array(field, getattr(self, field)))
            object.__setattr__(self, field, tuple(times.tolist()))
        object.__setattr__(self, "methods", tuple(self.methods))
        self._check_microbatches()
        self._check_times()
        self._check_work()
        if not isinstance(self.has_sync, bool):
            raise InputError(
                f"expected true or false, got {describe(self.has_sync)}",
                field="has_sync",
                code=ErrorCode.TYPE,
            )
        replicas = timed_replicas(self.replicas, has_sync=self.has_sync)
        object.__setattr__(self, "replicas", replicas)

    def _check_microbatches(self) -> None:
        points = self._points
        if not len(points) or np.any(np.diff(points) <= 0):
            text = "expected at least one number, in ascending order"
            raise InputError(text, field="microbatches", code=ErrorCode.RANGE)
        if not isinstance(self.multiple, int) or self.multiple < 1:
            text = (
                f"expected a whole number of at least 1, got {describe(self.multiple)}"
            )
            raise InputError(text, field="multiple", code=ErrorCode.RANGE)
        self._check_multiples(points)
        for field in (*TIMES, "methods"):
            count = len(getattr(self, field))
            if count != len(points):
                raise InputError(
                    f"expected {len(points)} entries (one per number of micro-batches), "
                    f"got {count}",
                    field=field,
                    code=ErrorCode.LENGTH,
                )

    def _check_multiples(self, microbatches: IntArray) -> None:
        odd = microbatches % self.multiple != 0
        refuse("microbatches", microbatches, odd, f"a multiple of {self.multiple}")

    def _check_times(self) -> None:
        makespans, bounds, work = (np.array(getattr(self, field)) for field in TIMES)
        refuse("makespans", makespans, makespans <= 0, "a time > 0")
        if np.any(np.diff(makespans) < 0):
            raise InputError(
                "expected makespans that do not decrease: a micro-batch left out of a schedule "
                "leaves a schedule",
                field="makespans",
            )
        refuse("bounds", bounds, bounds > makespans, "at most the makespan")
        refuse("work_bounds", work, work > bounds, "at most the bound")

    def _check_work(self) -> None:
        work, gaps = self._work, np.diff(self._points)
        rise = np.diff(work) / gaps
        bent = -np.diff(rise) * np.maximum(gaps[1:], gaps[:-1])
        if np.any(rise < 0) or np.any(bent > CURVE.tolerance * work[-1]):
            raise InputError(
                "expected values that do not decrease and grow ever faster: the work bound is "
                "convex",
                field="work_bounds",
            )

    @cached_property
    def _points(self) -> IntArray:
        return np.array(self.microbatches, dtype=np.int64)

    @cached_property
    def _makespans(self) -> Floats:
        return np.array(self.makespans)

    @cached_property
    def _work(self) -> Floats:
        return np.array(self.work_bounds)

    @property
    def optimal(self) -> tuple[bool, ...]:
        """Whether each schedule is proved optimal: its makespan is its bound."""
        return tuple(m == b for m, b in zip(self.makespans, self.bounds, strict=True))

    @cached_property
    def steady(self) -> SteadyState:
        """Growth of the makespan at the largest measured numbers, see `steady_state`.

        Raises
        ------
        InputError
            Only one number of micro-batches was measured.
        """
        return steady_state(
            self._points, self._makespans, self.methods, self.optimal, self.bound_slope
        )

    @property
    def slope(self) -> float:
        """Steady time per micro-batch of the schedules; at least `bound_slope`.

        An estimate where `steady.repeats` is False.
        """
        return max(self.steady.slope, self.bound_slope)

    @property
    def bound_slope(self) -> float:
        """Lower bound on the steady time per micro-batch of any schedules.

        Raises
        ------
        InputError
            Only one number of micro-batches was measured.
        """
        if len(self.microbatches) < 2:
            raise InputError(
                "expected at least two measured numbers of micro-batches to know the time of one "
                f"more, got only {self.microbatches[0]}",
                field="microbatches",
                code=ErrorCode.RANGE,
            )
        work = self._work
        return float((work[-1] - work[-2]) / (self._points[-1] - self._points[-2]))

    def makespan(self, microbatches: Any) -> Any:
        """Return the makespan of the schedules, in `time_unit`, at numbers of micro-batches.

        Up to the last point checked schedules reach it: as measured, or that of the next point,
        with micro-batches left out. Beyond it is an estimate, not below the proven bound: the
        steady state goes on, period by period or, where none was seen, by the slope (see
        `is_extrapolated`).

        Raises
        ------
        InputError
            A number below 1 or no multiple of `multiple`, or one beyond the only one measured.
        """
        counts = self._wanted(microbatches)
        values = np.array(self._carried(counts))
        beyond = counts > self._points[-1]
        if beyond.any():
            values[beyond] = self._extended(counts[beyond])
        return plain(values)

    def is_extrapolated(self, microbatches: Any) -> Any:
        """Whether there are more micro-batches than were measured, bool or bool[...]."""
        return plain(self._wanted(microbatches) > self._points[-1])

    def holds_for(self, replicas: IntArray) -> BoolArray:
        """Mark the numbers of copies for which the schedules are right, bool[...]."""
        held = np.ones(replicas.shape, dtype=np.bool_)
        return held if self.replicas is None else replicas == self.replicas

    def bound(self, microbatches: Any) -> Any:
        """Return a lower bound on the makespan of every schedule; parameters as for `makespan`.

        The largest of: the bounds of all measured numbers up to M; the lines through the two
        neighbouring work bounds on either side of M; and the first bound, of N micro-batches, by
        ceil(N / M), as so many schedules of M one after the other are a schedule of N. Exact for
        whole times.
        """
        return plain(self._bound(self._wanted(microbatches)))

    def _wanted(self, microbatches: Any) -> IntArray:
        counts = whole_numbers("microbatches", microbatches)
        self._check_multiples(counts)
        return counts

    def _carried(self, counts: IntArray) -> Floats:
        index = np.searchsorted(self._points, counts)
        return self._makespans[np.minimum(index, len(self._points) - 1)]

    def _extended(self, counts: IntArray) -> Floats:
        steady = self.steady
        if steady.repeats:
            periods = -(-(counts - steady.last) // steady.period)
            estimate = (
                self._carried(counts - periods * steady.period)
                + periods * steady.growth
            )
        else:
            excess = counts - steady.last
            # Multiplied first: whole times stay exact over whole periods.
            rise = np.maximum(
                excess * steady.growth / steady.period, excess * self.bound_slope
            )
            estimate = self._makespans[-1] + rise
        return np.maximum(estimate, at_most(self._bound(counts), estimate))

    def _bound(self, counts: IntArray) -> Floats:
        bounds = np.array(self.bounds)
        index = np.searchsorted(self._points, counts, side="right") - 1
        carried = np.maximum.accumulate(bounds)[np.maximum(index, 0)]
        best = np.where(index >= 0, carried, bounds[0] / -(-self._points[0] // counts))
        if len(self._points) > 1:
            for first in (index - 1, index + 1):
                best = np.maximum(best, self._line(first, counts))
        reached = np.where(counts > self._points[-1], np.inf, self._carried(counts))
        return at_most(best, reached, self.makespans[-1])

    def _line(self, first: IntArray, counts: IntArray) -> Floats:
        # The line through work bounds `first` and `first` + 1, 0 where they do not exist.
        # Multiplied before it is divided: with whole times and a whole bound behind it, the
        # quotient cannot be rounded past that bound.
        exists = (first >= 0) & (first + 1 < len(self._points))
        a = np.where(exists, first, 0)
        points, work = self._points, self._work
        base = np.where(counts > points[a], a + 1, a)
        rise = (
            (counts - points[base])
            * (work[a + 1] - work[a])
            / (points[a + 1] - points[a])
        )
        return np.where(exists, np.maximum(work[base] + rise, 0.0), 0.0)

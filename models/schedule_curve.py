"""Makespan of one pipeline over its number of micro-batches: what was measured, and beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ppsolve.models.base import describe
from ppsolve.models.errors import InputError
from ppsolve.models.goodput import Floats, as_array, refuse
from ppsolve.models.problem import BoolArray, IntArray

TOLERANCE = 1e-9
"""Relative to the largest time: below it, two times differ by rounding only."""

LEAST_COVER = 4
"""A run of evenly spaced points is trusted if its length is at least its end divided by this."""


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
        Whether the growth was seen to repeat; False for a mere difference quotient.
    """

    last: int
    period: int
    growth: float
    repeats: bool

    @property
    def slope(self) -> float:
        """Time per micro-batch."""
        return self.growth / self.period


@dataclass(frozen=True)
class ScheduleCurve:
    """Makespans of checked schedules and proven bounds at a few numbers of micro-batches.

    All micro-batches are alike, so one left out of a schedule leaves a schedule: the optimum does
    not decrease with the number of micro-batches M, and every bound holds for larger M too.

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
        The work bound at each, at most `bounds`; convex.
    methods : sequence of str
        What made each schedule: the name of a heuristic, or ``cp-sat``.
    time_unit : str
        Unit of all times.
    multiple : int
        Numbers of micro-batches are multiples of this (2 for bidirectional pipes).

    Raises
    ------
    InputError
        The figures contradict each other or what is said above; names the field.
    """

    microbatches: Sequence[int]
    makespans: Sequence[float]
    bounds: Sequence[float]
    work_bounds: Sequence[float]
    methods: Sequence[str]
    time_unit: str
    multiple: int = 1

    def __post_init__(self) -> None:
        """Check the figures, and keep them as tuples."""
        points = whole_numbers("microbatches", self.microbatches)
        object.__setattr__(self, "microbatches", tuple(np.atleast_1d(points).tolist()))
        for field in ("makespans", "bounds", "work_bounds"):
            times = np.atleast_1d(as_array(field, getattr(self, field)))
            object.__setattr__(self, field, tuple(times.tolist()))
        object.__setattr__(self, "methods", tuple(self.methods))
        self._check_microbatches()
        self._check_times()

    def _check_microbatches(self) -> None:
        points = self.microbatches
        if not points or any(a >= b for a, b in pairwise(points)):
            raise InputError(
                "expected at least one number, in ascending order", field="microbatches"
            )
        if not isinstance(self.multiple, int) or self.multiple < 1:
            raise InputError(
                f"expected a whole number of at least 1, got {describe(self.multiple)}",
                field="multiple",
            )
        self._check_multiples(np.array(points))
        for field in ("makespans", "bounds", "work_bounds", "methods"):
            found = len(getattr(self, field))
            if found != len(points):
                raise InputError(
                    f"expected {len(points)} entries (one per number of micro-batches), "
                    f"got {found}",
                    field=field,
                )

    def _check_multiples(self, microbatches: IntArray) -> None:
        odd = microbatches % self.multiple != 0
        refuse(
            "microbatches", microbatches.astype(np.float64), odd, f"a multiple of {self.multiple}"
        )

    def _check_times(self) -> None:
        makespans, bounds, work = self._arrays
        refuse("makespans", makespans, makespans <= 0, "a time > 0")
        if np.any(np.diff(makespans) < 0):
            raise InputError(
                "expected makespans that do not decrease: a micro-batch left out of a schedule "
                "leaves a schedule",
                field="makespans",
            )
        for field, low, high in (("bounds", bounds, makespans), ("work_bounds", work, bounds)):
            above = "makespan" if field == "bounds" else "bound"
            refuse(field, low, low > high, f"at most the {above}")
        rise = np.diff(work) / np.diff(self._points)
        if np.any(np.diff(rise) < -TOLERANCE * max(work[-1], 1e-300)):
            raise InputError(
                "expected values that grow ever faster: the work bound is convex",
                field="work_bounds",
            )

    @cached_property
    def _points(self) -> IntArray:
        return np.array(self.microbatches, dtype=np.int64)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        return np.array(self.makespans), np.array(self.bounds), np.array(self.work_bounds)

    @property
    def optimal(self) -> tuple[bool, ...]:
        """Whether each schedule is proved optimal: its makespan is its bound."""
        return tuple(m == b for m, b in zip(self.makespans, self.bounds, strict=True))

    @cached_property
    def steady(self) -> SteadyState:
        """How the makespan grows at the largest measured numbers of micro-batches.

        Schedules may repeat after several micro-batches only: 1F1B on 4 stages with F = 1, B = 2
        and latency 1 grows by 5, 5, 5, 3, so by 18 per 4 micro-batches, 4.5 for each.

        1. A run is a stretch of n >= 3 evenly spaced points whose length is at least a quarter of
           its last point: three neighbours far out say nothing of a longer period.
        2. It repeats after p of its points if the makespan grew by one and the same amount over
           every p points within its last max(2p + 1, n // 2 + 1) points: at least p + 1
           comparisons, and half of a long run, whose start may still be warm-up.
        3. The latest run counts that repeats, with its least p, and that predicts every later
           point; a later point may show that the run was not steady yet.
        4. Without one it is the difference quotient between the last point and the last one of
           at most half as many micro-batches (else the first): far apart, so that part of a
           period weighs little, and exact where the period divides the distance.

        Raises
        ------
        InputError
            Only one number of micro-batches was measured.
        """
        self._need_two()
        points, values = self._points, self._arrays[0]
        for run in reversed(list(_runs(points))):
            found = _repeating(points[run], values[run])
            if found is not None and _predicts(found, points, values):
                return found
        far = max(int(np.searchsorted(points, points[-1] / 2, side="right")) - 1, 0)
        growth = float(values[-1] - values[far])
        return SteadyState(int(points[-1]), int(points[-1] - points[far]), growth, repeats=False)

    @property
    def slope(self) -> float:
        """Steady time per micro-batch of the schedules, measured; see `steady`.

        At least `bound_slope`: less cannot go on.
        """
        return max(self.steady.slope, self.bound_slope)

    @property
    def bound_slope(self) -> float:
        """Lower bound on the steady time per micro-batch of any schedules: of the work bound.

        Raises
        ------
        InputError
            Only one number of micro-batches was measured.
        """
        self._need_two()
        work = self._arrays[2]
        return float((work[-1] - work[-2]) / (self._points[-1] - self._points[-2]))

    def _need_two(self) -> None:
        if len(self.microbatches) < 2:
            raise InputError(
                "expected at least two measured numbers of micro-batches to know the time of one "
                f"more, got only {self.microbatches[0]}",
                field="microbatches",
            )

    def makespan(self, microbatches: Any) -> Any:
        """Return the makespan of the schedules.

        Where measured, as measured. Beyond, the steady state goes on, period by period; between
        two points it is linear, below the first one the slope backwards, but not below the line
        to 0. No estimate is below the proven bound.

        Parameters
        ----------
        microbatches : int or array of int
            Numbers of micro-batches M >= 1.

        Returns
        -------
        float or float64[...]
            In `time_unit`; see `is_extrapolated`.

        Raises
        ------
        InputError
            A number below 1 or no multiple of `multiple`, or other than the one that was measured.
        """
        wanted = self._wanted(microbatches)
        measured, place = self._measured(wanted)
        values = self._arrays[0][place]
        if not measured.all():
            estimate = np.maximum(self._estimate(wanted), self._bound(wanted))
            values = np.where(measured, values, estimate)
        return like(values, microbatches)

    def is_extrapolated(self, microbatches: Any) -> Any:
        """Return whether no schedule with so many micro-batches was measured, bool or bool[...]."""
        return like(~self._measured(self._wanted(microbatches))[0], microbatches)

    def bound(self, microbatches: Any) -> Any:
        """Return a lower bound on the makespan of every schedule; parameters as for `makespan`.

        The largest of: the bounds of all measured numbers up to M; the lines through the two
        neighbouring work bounds on either side of M; and the first bound, of N micro-batches, by
        ceil(N / M), as so many schedules of M one after the other are a schedule of N. Exact for
        whole times; to the rounding of doubles otherwise.
        """
        wanted = self._wanted(microbatches)
        return like(self._bound(wanted), microbatches)

    def _wanted(self, microbatches: Any) -> IntArray:
        wanted = whole_numbers("microbatches", microbatches)
        self._check_multiples(wanted)
        return wanted

    def _measured(self, wanted: IntArray) -> tuple[BoolArray, IntArray]:
        """Return which of `wanted` are measured, and the place of each among the points."""
        place = np.minimum(np.searchsorted(self._points, wanted), len(self._points) - 1)
        return self._points[place] == wanted, place

    def _estimate(self, wanted: IntArray) -> Floats:
        steady, points, values = self.steady, self._points, self._arrays[0]
        periods = np.maximum(-(-(wanted - steady.last) // steady.period), 0)
        if steady.repeats:
            within = np.interp(wanted - periods * steady.period, points, values)
            found = within + periods * steady.growth
        else:
            # Multiplied first: whole times stay exact over whole periods.
            beyond = np.maximum(wanted - steady.last, 0) * steady.growth / steady.period
            found = np.interp(wanted, points, values) + beyond
        back = values[0] - (points[0] - wanted) * self.slope
        early = np.maximum(back, values[0] * wanted / points[0])
        estimate: Floats = np.where(wanted < points[0], early, found)
        return estimate

    def _bound(self, wanted: IntArray) -> Floats:
        makespans, bounds, _ = self._arrays
        place = np.searchsorted(self._points, wanted, side="right") - 1
        carried = np.maximum.accumulate(bounds)[np.maximum(place, 0)]
        best = np.where(place >= 0, carried, bounds[0] / -(-self._points[0] // wanted))
        if len(self._points) > 1:
            for first in (place - 1, place + 1):
                best = np.maximum(best, self._line(first, wanted))
        measured, at = self._measured(wanted)
        return np.where(measured, np.minimum(best, makespans[at]), best)

    def _line(self, first: IntArray, wanted: IntArray) -> Floats:
        """Return the line through work bounds `first` and `first` + 1, 0 where they are not.

        Multiplied before it is divided: with whole times and a whole bound behind it, the
        quotient cannot be rounded past that bound.
        """
        exists = (first >= 0) & (first + 1 < len(self._points))
        a = np.where(exists, first, 0)
        points, work = self._points, self._arrays[2]
        base = np.where(wanted > points[a], a + 1, a)
        rise = (wanted - points[base]) * (work[a + 1] - work[a]) / (points[a + 1] - points[a])
        return np.where(exists, np.maximum(work[base] + rise, 0.0), 0.0)


def _runs(points: IntArray) -> Iterator[slice]:
    """Yield the longest stretches of at least three evenly spaced points that reach far enough."""
    steps = np.diff(points)
    cuts = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for first, last in pairwise(cuts):
        far = (points[last] - points[first]) * LEAST_COVER >= points[last]
        if last - first >= 2 and far:
            yield slice(first, last + 1)


def _repeating(points: IntArray, values: Floats) -> SteadyState | None:
    """Return the least period of an evenly spaced run, None if it shows none."""
    close = TOLERANCE * float(values[-1])
    for period in range(1, (len(points) - 1) // 2 + 1):
        shown = values[-max(2 * period + 1, len(values) // 2 + 1) :]
        growths = shown[period:] - shown[:-period]
        if np.ptp(growths) <= close:
            last, length = int(points[-1]), int(points[-1] - points[-1 - period])
            return SteadyState(last, length, float(growths[-1]), repeats=True)
    return None


def _predicts(steady: SteadyState, points: IntArray, values: Floats) -> bool:
    later = points[points > steady.last]
    periods = -(-(later - steady.last) // steady.period)
    predicted = np.interp(later - periods * steady.period, points, values)
    missed = np.abs(predicted + periods * steady.growth - values[points > steady.last])
    return bool(np.all(missed <= TOLERANCE * values[-1]))


def whole_numbers(field: str, values: Any) -> IntArray:
    """Return whole numbers of any shape as int64.

    Raises
    ------
    InputError
        Names the first that is not a whole number of at least 1, and its place in `field`.
    """
    return as_array(field, values, least=1, whole=True).astype(np.int64)


def like(values: Any, *given: Any) -> Any:
    """Return `values`, as a Python scalar where everything given was a scalar."""
    if all(np.ndim(item) == 0 for item in given):
        return np.asarray(values).item()
    return values

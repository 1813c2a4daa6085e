"""Curves of a report: performance profiles, and the mean gap over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.bench.record import BenchRecord
from ppsolve.models.core.result import Status
from ppsolve.solver.bench.report.cases import Method, ScoredRecord

WITHIN = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Excess of the columns in which a profile is written as a table."""

MOST_TIMES = 120
"""Times at which a curve over time is kept; a picture has room for no more."""

LEAST_TIME = 0.01
"""Seconds from which curves over time begin: clocks of a run start at its first line."""


@dataclass(frozen=True)
class PerformanceProfile:
    """Performance profile of a method (Dolan and Moré, Mathematical Programming 91, 2002).

    Parameters
    ----------
    method : Method
        The method.
    steps : tuple of (float, float)
        Ratio of its value to the best one, and the share of instances on which it is at most that;
        ratios ascend. Instances that it did not solve have no ratio and count in the share.
    """

    method: Method
    steps: tuple[tuple[float, float], ...]

    def share(self, excess: float) -> float:
        """Return the share of instances whose value is at most `excess` above the best one."""
        # Ratios are rounded, so 1.1 may be a little more than 1 + 0.1.
        reached = [share for ratio, share in self.steps if ratio <= 1 + excess + 1e-12]
        return reached[-1] if reached else 0.0


@dataclass(frozen=True)
class GapCurve:
    """Mean gap over time of the records of a family.

    Parameters
    ----------
    family : str
        Its name.
    points : tuple of (float, float)
        Seconds, ascending, and the mean of all records' gaps from then on. A record without value
        or bound counts as 1, and one that is over keeps its last gap.
    """

    family: str
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The mean gap in the end."""
        return self.points[-1][1]


def profiles(cases: Sequence[ScoredRecord]) -> list[PerformanceProfile]:
    """Return the profile of every method, over all cases that any method solved."""
    known = [case for case in cases if case.best is not None]
    ratios: dict[Method, list[float]] = {}
    for case in known:
        for outcome in case.outcomes:
            excess = case.excess(outcome.value)
            own = ratios.setdefault(outcome.method, [])
            if excess is not None:
                own.append(1 + excess)
    return [
        PerformanceProfile(method, tuple(_steps(own, len(known)))) for method, own in ratios.items()
    ]


def _steps(ratios: Sequence[float], count: int) -> Iterator[tuple[float, float]]:
    """Yield each ratio with the share of `count` instances on which it is at most that."""
    found, times = np.unique(np.array(ratios), return_counts=True)
    yield from zip(found.tolist(), (np.cumsum(times) / count).tolist(), strict=True)


def gap_curve(family: str, cases: Sequence[ScoredRecord]) -> GapCurve:
    """Return the mean gap over time of some cases.

    Parameters
    ----------
    family : str
        Name of the curve.
    cases : sequence of ScoredRecord
        At least one.

    Returns
    -------
    GapCurve
        At most `MOST_TIMES` points.
    """
    falls = [list(_falls(case.record)) for case in cases]
    times = sorted({max(time, LEAST_TIME) for own in falls for time, _ in own})
    kept = _thinned(times)
    total = np.zeros(len(kept))
    for own in falls:
        moments = np.array([max(time, LEAST_TIME) for time, _ in own])
        gaps = np.array([1.0, *(gap for _, gap in own)])
        total += gaps[np.searchsorted(moments, kept, side="right")]
    means = total / len(cases)
    return GapCurve(family, tuple(zip(kept, means.tolist(), strict=True)))


def _thinned(times: Sequence[float]) -> list[float]:
    """Return at most `MOST_TIMES` of the times, evenly on a logarithmic axis, with the last one."""
    if len(times) <= MOST_TIMES:
        return list(times)
    grid = np.geomspace(times[0], times[-1], MOST_TIMES)
    grid[-1] = times[-1]
    places = np.unique(np.searchsorted(np.array(times), grid, side="right") - 1)
    return [times[place] for place in places.tolist()]


def _falls(record: BenchRecord) -> Iterator[tuple[float, float]]:
    """Yield the seconds at which the gap of a record may change, and the gap from then on."""
    least = 1.0
    for seconds, value, bound in record.anytime:
        least = min(least, _gap(value, bound))
        yield seconds, least
    is_empty = record.status is Status.INFEASIBLE
    last = max([record.seconds, *(seconds for seconds, *_ in record.anytime)])
    yield last, 0.0 if is_empty else min(least, _gap(record.value, record.bound))


def _gap(value: float | None, bound: float | None) -> float:
    """Return (value - bound) / value between 0 and 1, 1 where one of them is not known."""
    if value is None or bound is None:
        return 1.0
    if value == bound:
        return 0.0
    return min(max((value - bound) / value, 0.0), 1.0) if value else 1.0

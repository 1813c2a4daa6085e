"""Start windows of every op, from heads, tails and the best known schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from ppsolve.solver.bounds.relaxations import Relaxations, end_tails
from ppsolve.solver.bounds.spans import NEVER, Spans
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(frozen=True)
class Windows:
    """Earliest and latest start of every op, int64[n], and the horizon they lie in."""

    earliest: IntArray
    latest: IntArray
    horizon: int

    def starts(self, problem: Problem) -> Iterator[list[int]]:
        """Yield the possible starts of every op as flat closed intervals, op by op."""
        bounds = zip(self.earliest.tolist(), self.latest.tolist(), strict=True)
        for op, (low, high) in enumerate(bounds):
            allowed = problem.windows.get(op)
            yield [low, high] if allowed is None else _clipped(allowed, low, high)

    def op_without_start(self, problem: Problem) -> int | None:
        """Return the first op that has no possible start, or None."""
        for op, allowed in sorted(problem.windows.items()):
            if not _clipped(allowed, int(self.earliest[op]), int(self.latest[op])):
                return op
        return None


def _clipped(allowed: IntArray, low: int, high: int) -> list[int]:
    kept = (
        (max(a, low), min(b, high))
        for a, b in allowed.tolist()
        if a <= high and b >= low
    )
    return [moment for window in kept for moment in window]


def start_windows(implied: ImpliedOrder, upper: int | None) -> Windows:
    """Return start windows from heads, tails and the best known objective, if there is one.

    They keep an optimal schedule, and every one as good as `upper`.
    """
    problem = implied.problem
    heads = Relaxations(implied).strong_heads
    tails = end_tails(problem, implied.full)
    pinned = problem.pinned != FREE
    if problem.objective is Objective.COMPLETION:
        upper = None
    is_span = problem.objective is Objective.DEVICE_SPAN and upper is not None
    spans = Spans(problem, implied.full) if is_span else None
    everything = latest_end(problem)
    horizon = (
        everything if upper is None else max(everything, upper) if is_span else upper
    )
    latest = np.where(pinned, problem.pinned, horizon - tails)
    if spans is not None and upper is not None and not pinned.any():
        latest = np.minimum(latest, _within_spans(problem, spans, upper, latest))
        horizon = int((latest + problem.duration).max(initial=0))
    return Windows(heads, np.maximum(latest, heads), horizon)


def _within_spans(
    problem: Problem, spans: Spans, upper: int, latest: IntArray
) -> IntArray:
    """Return the latest starts that keep every device's span within `upper`, int64[n].

    Where everything follows an op of one device, that device starts at 0. Any device starts no
    later than its first op may, and ends a span later at most.
    """
    ops = [problem.ops_by_resource[r] for r in spans.resources]
    devices = range(len(ops))
    follows = [(spans.around(device).head > NEVER // 2).all() for device in devices]
    anchored = np.array(follows, dtype=np.bool_) & (not problem.is_anchored)
    # Tightened starts of devices tighten ends once more; every pass is valid by itself.
    for _ in range(2):
        starts = np.array(
            [latest[members].min() if len(members) else 0 for members in ops],
            dtype=np.int64,
        )
        starts[anchored] = 0
        for device in devices:
            tail = spans.around(device).tail
            limits = np.where(
                tail > NEVER // 2, int(starts[device]) + upper - tail, 2**62
            )
            latest = np.minimum(latest, limits)
    return latest


def latest_end(problem: Problem) -> int:
    """Return a moment before which some best schedule ends, whatever the objective.

    Of all best schedules one has the least sum of starts; each of its ops starts when something
    fixed or some op before it, lag included, ends.
    """
    last = max(
        (int(allowed.max(initial=0)) for allowed in problem.windows.values()), default=0
    )
    fixed = int(
        max(problem.release.max(initial=0), problem.pinned.max(initial=0), last)
    )
    return fixed + int(problem.duration.sum() + problem.lag.sum())

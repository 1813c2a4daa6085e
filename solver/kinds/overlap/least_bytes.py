"""Searches of programs by CP-SAT: least peak of live bytes, and schedules without idle time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import Objective, most_in_use
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.lowering import LoweredOverlap, lower_overlap
from ppsolve.solver.exact.question import Question, SearchLimits
from ppsolve.solver.exact.search import solve
from ppsolve.solver.kinds.overlap.realise import realised
from ppsolve.solver.kinds.overlap.replay import bytes_of_order, replay
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder


def idle_free_schedule(schedule: Schedule, limits: SearchLimits) -> Schedule | None:
    """Start all ops as early as the rules allow together, keeping the makespan.

    A program runs every node as soon as its streams and data allow; only waits and launches hold
    something back. Where caps make idle time useful, it has to be time until something ends. None
    where no such schedule is found in time.
    """
    problem = schedule.problem
    latest = schedule.makespan - problem.duration
    windows = {
        op: np.array([[0, last]], dtype=np.int64)
        for op, last in enumerate(latest.tolist())
    }
    early = replace(
        problem,
        objective=Objective.COMPLETION,
        weight=np.ones(problem.num_ops, dtype=np.int64),
        windows=windows,
    )
    # Most searches take 0.1 s and 0.01 units; one that takes longer may end, as any schedule found
    # will do: the replay of its program order decides.
    seconds, units = (
        math.inf if limit is None else limit
        for limit in (limits.seconds, limits.deterministic)
    )
    within = replace(
        limits, seconds=min(10.0, seconds), deterministic=min(5.0, units), gap=0.0
    )
    question = Question(0, Schedule(early, schedule.start))
    answer = solve(ImpliedOrder(early), question, within).schedule
    return None if answer is None else Schedule(problem, answer.start)


@dataclass(frozen=True)
class LeastBytes:
    """A program order; no order of its makespan has a smaller peak than `lower` bytes."""

    order: list[int]  # places in the program, in the new order
    lower: Fraction


def least_bytes(
    instance: OverlapInstance, order: Sequence[int], makespan: int, limits: SearchLimits
) -> LeastBytes:
    """Lower the peak of live bytes without a longer makespan, by halving the cap.

    The search starts from a valid order, whose makespan in ticks it keeps; limits are for all
    searches together.
    """
    search = _LeastBytesSearch(instance, makespan, limits)
    best = list(order)
    low, tried, high = 0, 0, search.peak(best)
    while tried < high and not search.is_out_of_time():
        cap = (tried + high) // 2
        candidate = search.order_within(cap)
        if candidate:
            best, high = candidate, search.peak(candidate)
            continue
        tried = cap + 1
        if candidate is None:
            low = tried
    return LeastBytes(best, low * search.unit)


class _LeastBytesSearch:
    def __init__(
        self, instance: OverlapInstance, makespan: int, limits: SearchLimits
    ) -> None:
        self.instance, self.makespan, self.limits = instance, makespan, limits
        self.began = time.monotonic()
        self.units_used = 0.0
        self.durations = lower_overlap(instance).duration[: len(instance.nodes)]
        sizes = instance.sizes
        denominator = math.lcm(*(size.denominator for size in sizes))
        amounts = [int(size * denominator) for size in sizes]
        self.unit = Fraction(math.gcd(*amounts) or 1, denominator)

    def peak(self, order: Sequence[int]) -> int:
        timed = replay(self.instance, order, self.durations.tolist())
        return int(bytes_of_order(self.instance, order, timed).peak / self.unit)

    def is_out_of_time(self) -> bool:
        remaining = self._left()
        return remaining.seconds == 0 or remaining.deterministic == 0

    def _left(self) -> SearchLimits:
        remaining = self.limits.less(time.monotonic() - self.began, self.units_used)
        return replace(remaining, gap=0.0)

    def _capacity(self, cap: int) -> Decimal:
        """Return a capacity of which a pool lets `cap` units be held, and not one more."""
        # most_in_use lets more than one unit beyond a capacity of 1e9 units be held.
        capacity = self.unit * (cap + Fraction(1, 2)) / most_in_use(Fraction(1))
        with localcontext(prec=100):  # an amount of an instance has at most 46 digits
            return Decimal(capacity.numerator) / Decimal(capacity.denominator)

    def order_within(self, cap: int) -> list[int] | None:
        """Return an order that keeps a cap in units; None: impossible, empty: none found."""
        limited = self.instance.model_copy(
            update={"max_live_bytes": self._capacity(cap)}
        )
        problem = lower_overlap(limited)
        try:
            question = Question(0, upper=self.makespan)
            outcome = solve(ImpliedOrder(problem), question, self._left())
        except MemoryInfeasible:
            return None
        self.units_used += outcome.deterministic_time
        if outcome.infeasible:
            return None
        if outcome.schedule is None:
            return []
        return self._order_of(limited, outcome.schedule) or []

    def _order_of(
        self, limited: OverlapInstance, schedule: Schedule
    ) -> list[int] | None:
        """Return a program order of a schedule, else of one without needless idle time."""
        lowered = LoweredOverlap.of(limited, schedule.problem)
        realisation = realised(limited, lowered, schedule)
        if realisation is None or realisation[1].makespan > self.makespan:
            early = idle_free_schedule(schedule, self._left())
            realisation = None if early is None else realised(limited, lowered, early)
        return (
            None
            if realisation is None or realisation[1].makespan > self.makespan
            else realisation[0]
        )

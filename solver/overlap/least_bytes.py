"""The least peak of live bytes at a given makespan, by halving the cap."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.lowering import LoweredOverlap, lower_overlap
from ppsolve.solver.cpsat.engine import Question, solve
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.overlap.idle_free import idle_free_schedule
from ppsolve.solver.overlap.realise import realised
from ppsolve.solver.overlap.replay import live_bytes, replay
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

_EXCESS = Fraction(1, 10**9)
"""Excess that `Pool.limit` allows: more than one unit of a capacity beyond 1e9 units."""

_DIGITS = 100
"""Digits of a capacity, far more than the 46 that an amount of an instance can have."""


@dataclass(frozen=True)
class LeastBytes:
    """A program order and a bound on the peak of live bytes.

    Parameters
    ----------
    order : list of int
        Places in the program, in the new order.
    lower : Fraction
        Proved: no order of this makespan has a smaller peak, in bytes.
    """

    order: list[int]
    lower: Fraction


def least_bytes(
    instance: OverlapInstance, order: Sequence[int], makespan: int, limits: SearchLimits
) -> LeastBytes:
    """Lower the peak of live bytes without a longer makespan.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    order : sequence of int
        A valid order that takes `makespan` ticks.
    makespan : int
        Most ticks that the order may take.
    limits : SearchLimits
        Time for all searches together.

    Returns
    -------
    LeastBytes
        The best order found and the proved bound.
    """
    search = _LeastBytesSearch(instance, makespan, limits)
    best = list(order)
    low, tried, high = 0, 0, search.peak(best)
    while tried < high and not search.is_out_of_time():
        cap = (tried + high) // 2
        found = search.order_within(cap)
        if found:
            best, high = found, search.peak(found)
            continue
        tried = cap + 1
        if found is None:
            low = tried
    return LeastBytes(best, low * search.unit)


class _LeastBytesSearch:
    def __init__(self, instance: OverlapInstance, makespan: int, limits: SearchLimits) -> None:
        self.instance, self.makespan, self.limits = instance, makespan, limits
        self.began = time.monotonic()
        self.units_used = 0.0
        self.durations = lower_overlap(instance).duration[: len(instance.nodes)]
        sizes = [Fraction(node.bytes) for node in instance.nodes if node.bytes]
        denominator = math.lcm(*(size.denominator for size in sizes))
        whole = [int(size * denominator) for size in sizes]
        self.unit = Fraction(math.gcd(*whole) or 1, denominator)

    def peak(self, order: Sequence[int]) -> int:
        """Return the peak of an order in whole units."""
        timed = replay(self.instance, order, self.durations.tolist())
        return int(live_bytes(self.instance, timed.start, timed.end).peak / self.unit)

    def is_out_of_time(self) -> bool:
        """Return True if no time is left."""
        left = self._left()
        return left.seconds == 0 or left.deterministic == 0

    def _left(self) -> SearchLimits:
        left = self.limits.less(time.monotonic() - self.began, self.units_used)
        return replace(left, gap=0.0)

    def _capacity(self, cap: int) -> Decimal:
        """Return a capacity of which a pool lets `cap` units be held, and not one more."""
        capacity = self.unit * (cap + Fraction(1, 2)) / (1 + _EXCESS)
        with localcontext(prec=_DIGITS):
            return Decimal(capacity.numerator) / Decimal(capacity.denominator)

    def order_within(self, cap: int) -> list[int] | None:
        """Return an order that keeps a cap in units; None: impossible, empty: none found."""
        limited = self.instance.model_copy(update={"max_live_bytes": self._capacity(cap)})
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

    def _order_of(self, limited: OverlapInstance, schedule: Schedule) -> list[int] | None:
        """Return a program order of a schedule, else of one without needless idle time."""
        lowered = LoweredOverlap.of(limited, schedule.problem)
        found = realised(limited, lowered, schedule)
        if found is None or found[1].makespan > self.makespan:
            early = idle_free_schedule(schedule, self._left())
            found = None if early is None else realised(limited, lowered, early)
        return None if found is None or found[1].makespan > self.makespan else found[0]

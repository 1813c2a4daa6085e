"""Exact conversion between decimal times of instances and integer ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.documents.base import as_json_number
from ppsolve.models.documents.errors import ErrorCode, InputError

UNITS_PER_SECOND = {"ns": 10**9, "us": 10**6, "ms": 10**3, "s": 1}
"""The time units of known length."""

MAX_TICKS = 2**40
"""Largest single time in ticks; leaves 23 bits for sums over ops inside an int64."""


def no_common_tick(remedy: str) -> InputError:
    """Return the error for times that no exact scale holds."""
    return InputError(
        f"the times have no common tick within {MAX_TICKS} ticks of the longest one; {remedy}",
        field="times",
        code=ErrorCode.RANGE,
    )


@dataclass(frozen=True)
class TimeScale:
    """Length of one integer tick in units of instance time.

    `tick`: length of one tick in the instance's time unit.
    `unit`: name of the instance's time unit, e.g. ``us``.
    `is_exact`: every time is a whole multiple of the tick; else each was rounded up by
        less than one tick.
    """

    tick: Fraction
    unit: str
    is_exact: bool = True

    @classmethod
    def fit(
        cls, times: Iterable[Fraction], unit: str, *, exact: bool = False
    ) -> TimeScale:
        """Return the scale with the longest tick 1/q of which every time is a whole multiple.

        Where that takes too many ticks, the tick is the greatest common divisor of all times (100
        for 100 and 300). It is the second choice, since schedules made elsewhere may start ops at
        any whole unit or written decimal. No optimum is lost either way: in some optimal schedule
        every start is a sum or difference of times.

        Times without such a tick are rounded up, not to the nearest tick: a schedule of longer ops
        is one of the given ops too, at the same starts, and no op shrinks to one of no time. The
        largest time has at most `MAX_TICKS` ticks; where only exact scales will do, an `InputError`
        names times that both give more.
        """
        positive = {time for time in times if time > 0}
        if not positive:
            return cls(Fraction(1), unit)
        finest = Fraction(1, math.lcm(*(time.denominator for time in positive)))
        common = finest * math.gcd(*(int(time / finest) for time in positive))
        for tick in (finest, common):
            if max(positive) / tick <= MAX_TICKS:
                return cls(tick, unit)
        if exact:
            raise no_common_tick("give fewer digits, or do not ask for exact ticks")
        # With 10**9 ticks no time grows by more than 1e-9 of the longest one, and sums over
        # 900,000 ops stay below 2**53. A power of ten lets every sum be a short decimal.
        digits = math.floor(math.log10(max(positive))) - 9
        return cls(Fraction(10) ** digits, unit, is_exact=False)

    def ticks(self, time: Fraction) -> int:
        """Return `time` in ticks, rounded up where the scale is not exact."""
        return math.ceil(time / self.tick)

    def time(self, ticks: int) -> int | float:
        """Return `ticks` in the instance's unit: an int where whole, else the nearest double."""
        return as_json_number(int(ticks) * self.tick)

    def times(self, ticks: NDArray[np.int64]) -> list[int | float]:
        """Return many `ticks` as `time` does."""
        numbers: list[int] = ticks.tolist()
        numerator, denominator = self.tick.numerator, self.tick.denominator
        if denominator == 1:
            return [number * numerator for number in numbers]
        # Division of ints is rounded to the nearest double, however long they are.
        products = (number * numerator for number in numbers)
        return [
            product / denominator if product % denominator else product // denominator
            for product in products
        ]

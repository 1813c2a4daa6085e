"""Exact memory amounts as small integers that CP-SAT can add up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from ppsolve.solver.structure.holds import Holds

Rounding = Literal["up", "down"]

FINE = 2**40
"""Largest capacity. Rounding errs by 2**-40 of it per hold, so that 1,000 holds together stay
within the 1e-9 by which a pool may be exceeded."""

COARSE = 2**6
"""Capacity that is allowed however long the horizon is; with less, rounded amounts say little."""

MAX_COMBINATIONS = 1_000_000
"""Combinations of counts that are compared to prove a scale exact; above it the scale is taken for
inexact, which costs a second search with amounts rounded up, never a wrong answer."""

KEPT_SCALES, FEW_AMOUNTS = 4096, 8
"""Sets of so few amounts of which the integers are kept, a few MB: a search through stretches asks
for the same ones again and again. Of 25 s of it on V 16 x 48 at 1.375p scales took 1.7 s, with this
and numbers of 64 bits where they suffice 0.9."""


@dataclass(frozen=True)
class Demands:
    """Integer demands of the holds of one pool.

    Parameters
    ----------
    demand : tuple of int
        Demand of each hold.
    capacity : int
        Most that may be in use.
    is_exact : bool
        The integers allow exactly the sets of holds that the fractions allow.
    """

    demand: tuple[int, ...]
    capacity: int
    is_exact: bool


def integer_demands(holds: Holds, limit: Fraction, rounding: Rounding, horizon: int) -> Demands:
    """Scale the amounts of `holds` into small integers, exactly where that is possible.

    Parameters
    ----------
    holds : Holds
        A pool's holds.
    limit : Fraction
        Largest amount that may be in use, allowed excess included.
    rounding : {"up", "down"}
        Rounding where no small exact scale is found: up keeps every schedule within the limit,
        down keeps every allowed schedule.
    horizon : int
        Latest end in ticks: the shorter it is, the finer the integers may be.

    Returns
    -------
    Demands
        One integer per hold, in the order of `holds`, and the capacity.
    """
    largest = _largest_capacity(len(holds.amount), horizon)
    available = limit - holds.base
    if available <= 0:
        return Demands((1,) * len(holds.amount), 0, is_exact=True)
    counts = Counter(holds.amount)
    scale = _kept if len(counts) <= FEW_AMOUNTS else _scaled
    scaled = scale(tuple(sorted(counts.items())), available, largest, rounding)
    whole = dict(zip(sorted(counts), scaled.demand, strict=True))
    return replace(scaled, demand=tuple(whole[amount] for amount in holds.amount))


def _scaled(
    counts: tuple[tuple[Fraction, int], ...],
    available: Fraction,
    largest: int,
    rounding: Rounding,
) -> Demands:
    """Return one demand for each amount that occurs so many times, in the order of the amounts."""
    number = dict(counts)
    for scale in _candidate_scales(list(number), available):
        whole = {amount: math.ceil(amount * scale) for amount in number}
        capacity = math.floor(available * scale)
        if capacity <= largest and _same_sets(number, whole, available, capacity):
            return Demands(tuple(whole.values()), capacity, is_exact=True)
    scale = Fraction(largest) / available
    round_amount = math.ceil if rounding == "up" else math.floor
    demand = tuple(round_amount(amount * scale) for amount in number)
    return Demands(demand, largest, is_exact=False)


_kept = lru_cache(maxsize=KEPT_SCALES)(_scaled)


def _largest_capacity(num_holds: int, horizon: int) -> int:
    """Return the largest capacity, a power of two, whose energy holds x horizon fits int64."""
    bits = 61 - max(1, num_holds).bit_length() - max(1, horizon).bit_length()
    return max(COARSE, min(FINE, 1 << max(0, bits)))


def _candidate_scales(amounts: list[Fraction], available: Fraction) -> Iterator[Fraction]:
    """Yield the scales to try, small capacities first, the common denominator last.

    The last one is always exact where it is small enough; the others only find an equivalent model
    with smaller numbers.
    """
    if not amounts or available <= 0:
        return
    smallest = min(amounts)
    # Small amounts as 1 to 64, then capacities of 2**6 to 2**20; the test of a scale is cheap.
    yield from (k / smallest for k in range(1, 65))
    yield from (2**k / available for k in range(6, 21))
    yield Fraction(math.lcm(*(amount.denominator for amount in amounts)))


def _same_sets(
    counts: dict[Fraction, int], whole: dict[Fraction, int], available: Fraction, capacity: int
) -> bool:
    """Return true if the same multisets of amounts fit the fractions and the integers.

    Only the last amount's largest count has to be compared for each choice of the others.
    """
    amounts = sorted(counts, reverse=True)
    most = [min(counts[a], available // a) for a in amounts]
    if math.prod(n + 1 for n in most[:-1]) > MAX_COMBINATIONS:
        return False
    unit = math.lcm(available.denominator, *(a.denominator for a in amounts))
    exact = int(available * unit)
    # Products with `exact_left` are at most `exact`, or one amount where none of it fits.
    largest = max(exact, int(amounts[0] * unit), capacity + max(whole.values()) * (1 + max(most)))
    number = np.int64 if largest < 2**62 else object
    exact_left = np.array([exact], dtype=number)
    whole_left = np.array([capacity], dtype=number)
    for amount, count in zip(amounts[:-1], most[:-1], strict=True):
        used = np.arange(count + 1, dtype=number)
        exact_left = (exact_left[:, None] - used * int(amount * unit)).ravel()
        whole_left = (whole_left[:, None] - used * whole[amount]).ravel()
        if np.any((exact_left < 0) != (whole_left < 0)):
            return False
        keep = exact_left >= 0
        exact_left, whole_left = exact_left[keep], whole_left[keep]
    last, top = amounts[-1], counts[amounts[-1]]
    exact_count = np.minimum(exact_left // int(last * unit), top)
    whole_count = np.minimum(whole_left // whole[last], top)
    return bool(np.all(exact_count == whole_count))

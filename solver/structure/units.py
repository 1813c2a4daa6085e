"""Exact amounts as whole numbers, so that arrays can hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import IntArray


def whole_units(amounts: Sequence[Fraction], count: int) -> tuple[IntArray, int]:
    """Return amounts as multiples of their largest common unit 1 / k.

    Parameters
    ----------
    amounts : sequence of Fraction
        a amounts.
    count : int
        Sums of at most this many of them are to be formed.

    Returns
    -------
    amounts : int64[a] or object[a]
        The multiples; Python's own integers where a sum could exceed 64 bits.
    k : int
        Units in 1.
    """
    unit = math.lcm(*(amount.denominator for amount in amounts))
    whole = [amount.numerator * (unit // amount.denominator) for amount in amounts]
    largest = max(map(abs, whole), default=0) * max(1, count)
    return np.array(whole, dtype=np.int64 if largest < 2**62 else object), unit

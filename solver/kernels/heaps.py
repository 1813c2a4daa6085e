"""Binary heaps of (key, item) pairs, many in one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import part

FIRST, SIZE, HEAD = 0, 1, 2
"""Columns of `heads` (first pair and number of pairs of each heap) and its width."""


def empty_heaps(capacity: IntArray) -> IntArray:
    """Return the heads of empty heaps, and behind them the size of the array of all pairs.

    Parameters
    ----------
    capacity : int64[h]
        Largest number of pairs of each heap.

    Returns
    -------
    int64[2 * (h + 1)]
        One head per heap; then the length of the flat array that holds all pairs, and 0.
    """
    heads = np.zeros((len(capacity) + 1, HEAD), dtype=np.int64)
    heads[1:, FIRST] = np.cumsum(capacity)
    heads[-1, FIRST] *= 2
    return heads.ravel()


@part
def push(pairs: Any, heads: Any, which: int, key: int, item: int) -> None:
    """Add a pair to heap number `which`."""
    base = heads[which * HEAD + FIRST]
    at = heads[which * HEAD + SIZE]
    heads[which * HEAD + SIZE] = at + 1
    while at > 0:
        up = (at - 1) >> 1
        above = 2 * (base + up)
        if pairs[above] < key or (pairs[above] == key and pairs[above + 1] <= item):
            break
        pairs[2 * (base + at)] = pairs[above]
        pairs[2 * (base + at) + 1] = pairs[above + 1]
        at = up
    pairs[2 * (base + at)] = key
    pairs[2 * (base + at) + 1] = item


@part
def pop(pairs: Any, heads: Any, which: int) -> int:
    """Remove the smallest pair of heap number `which`; return its item."""
    base = heads[which * HEAD + FIRST]
    size = heads[which * HEAD + SIZE] - 1
    heads[which * HEAD + SIZE] = size
    smallest = pairs[2 * base + 1]
    key, item = pairs[2 * (base + size)], pairs[2 * (base + size) + 1]
    at, child = 0, 1
    while child < size:
        below = 2 * (base + child)
        if child + 1 < size and (
            pairs[below + 2] < pairs[below]
            or (pairs[below + 2] == pairs[below] and pairs[below + 3] < pairs[below + 1])
        ):
            child += 1
            below += 2
        if key < pairs[below] or (key == pairs[below] and item <= pairs[below + 1]):
            break
        pairs[2 * (base + at)] = pairs[below]
        pairs[2 * (base + at) + 1] = pairs[below + 1]
        at, child = child, 2 * child + 1
    pairs[2 * (base + at)] = key
    pairs[2 * (base + at) + 1] = item
    return smallest


@part
def size_of(heads: Any, which: int) -> int:
    """Return the number of pairs of a heap."""
    return heads[which * HEAD + SIZE]


@part
def first_key(pairs: Any, heads: Any, which: int) -> int:
    """Return the smallest key of a heap that is not empty."""
    return pairs[2 * heads[which * HEAD + FIRST]]


@part
def first_item(pairs: Any, heads: Any, which: int) -> int:
    """Return the item of the smallest pair of a heap that is not empty."""
    return pairs[2 * heads[which * HEAD + FIRST] + 1]

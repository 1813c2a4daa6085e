"""Binary heaps of (key, item) pairs, many in two flat tables; ties by item."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import part


class Heaps(NamedTuple):
    """h heaps; heap k is in slots first[k]..first[k] + size[k] - 1, the smallest pair first."""

    key: Any  # int64[...]
    item: Any  # int64[...]
    first: Any  # int64[h]
    size: Any  # int64[h]


def empty_heaps(capacity: IntArray) -> Heaps:
    """Return empty heaps with room for ``capacity[k]`` pairs each, int64[h]."""
    behind = np.cumsum(capacity)
    table = np.zeros((2, int(capacity.sum())), dtype=np.int64)
    return Heaps(table[0], table[1], behind - capacity, np.zeros_like(behind))


@part
def push(heaps: Heaps, which: int, key: int, item: int) -> None:
    """Add a pair to a heap."""
    keys, items, first = heaps.key, heaps.item, heaps.first[which]
    hole = heaps.size[which]
    heaps.size[which] = hole + 1
    while hole > 0:
        parent = (hole - 1) >> 1
        above = first + parent
        if keys[above] < key or (keys[above] == key and items[above] <= item):
            break
        keys[first + hole], items[first + hole] = keys[above], items[above]
        hole = parent
    keys[first + hole], items[first + hole] = key, item


@part
def pop(heaps: Heaps, which: int) -> int:
    """Remove the smallest pair of a heap; return its item."""
    keys, items, first = heaps.key, heaps.item, heaps.first[which]
    size = heaps.size[which] - 1
    heaps.size[which] = size
    smallest, key, item = items[first], keys[first + size], items[first + size]
    hole, child = 0, 1
    while child < size:
        below = first + child
        if child + 1 < size and (
            keys[below + 1] < keys[below]
            or (keys[below + 1] == keys[below] and items[below + 1] < items[below])
        ):
            child += 1
            below += 1
        if key < keys[below] or (key == keys[below] and item <= items[below]):
            break
        keys[first + hole], items[first + hole] = keys[below], items[below]
        hole, child = child, 2 * child + 1
    keys[first + hole], items[first + hole] = key, item
    return smallest


@part
def first_key(heaps: Heaps, which: int) -> int:
    """Return the smallest key of a heap that is not empty."""
    return heaps.key[heaps.first[which]]


@part
def first_item(heaps: Heaps, which: int) -> int:
    """Return the item of the smallest pair of a heap that is not empty."""
    return heaps.item[heaps.first[which]]

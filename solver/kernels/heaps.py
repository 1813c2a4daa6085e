"""Heaps of (key, op) pairs in two flat tables; equal keys go by op number."""

from __future__ import annotations

from typing import Any

from ppsolve.solver.kernels.compilation import part


@part
def push(keys: Any, ops: Any, size: int, key: int, op: int) -> int:
    """Add a pair to a heap.

    Parameters
    ----------
    keys, ops : int64[n]
        The heap in slots 0..size - 1; smallest pair first.
    size : int
        Number of pairs.
    key, op : int
        The new pair.

    Returns
    -------
    int
        New number of pairs.
    """
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and ops[parent] < op):
            break
        keys[place], ops[place] = keys[parent], ops[parent]
        place = parent
    keys[place], ops[place] = key, op
    return size + 1


@part
def pop(keys: Any, ops: Any, size: int) -> int:
    """Move the smallest pair of a heap behind it, into slot `size` - 1; return `size` - 1."""
    last = size - 1
    least_key, least_op = keys[0], ops[0]
    key, op = keys[last], ops[last]
    place, child = 0, 1
    while child < last:
        right = child + 1
        if right < last and (
            keys[right] < keys[child] or (keys[right] == keys[child] and ops[right] < ops[child])
        ):
            child = right
        if key < keys[child] or (key == keys[child] and op < ops[child]):
            break
        keys[place], ops[place] = keys[child], ops[child]
        place, child = child, 2 * child + 1
    keys[place], ops[place] = key, op
    keys[last], ops[last] = least_key, least_op
    return last

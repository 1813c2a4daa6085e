"""Sorting of ops by three keys, fast where they are nearly sorted."""

from __future__ import annotations

from typing import Any

from ppsolve.solver.kernels.compilation import part

_BLOCK = 8
"""Ops that are sorted by insertion before blocks are merged."""


@part
def _precedes(first: Any, second: Any, third: Any, sign: int, a: int, b: int) -> bool:
    """Return true if op a comes before op b; of equal keys the lower number first."""
    if first[a] != first[b]:
        return first[a] < first[b]
    if second[a] != second[b]:
        return second[a] < second[b]
    if third[a] != third[b]:
        return sign * third[a] < sign * third[b]
    return a < b


@part
def sort_by(order: Any, spare: Any, first: Any, second: Any, third: Any, sign: int) -> None:
    """Sort `order`, a permutation of all ops, by first, then second, then sign * third."""
    count = len(order)
    for block in range(0, count, _BLOCK):
        for at in range(block + 1, min(block + _BLOCK, count)):
            op, place = order[at], at
            while place > block and _precedes(first, second, third, sign, op, order[place - 1]):
                order[place] = order[place - 1]
                place -= 1
            order[place] = op
    width = _BLOCK
    while width < count:
        for left in range(0, count - width, 2 * width):
            middle, right = left + width, min(left + 2 * width, count)
            if _precedes(first, second, third, sign, order[middle], order[middle - 1]):
                _merge(order, spare, first, second, third, sign, left, middle, right)
        width *= 2


@part
def _merge(
    order: Any,
    spare: Any,
    first: Any,
    second: Any,
    third: Any,
    sign: int,
    left: int,
    middle: int,
    right: int,
) -> None:
    # What precedes the first op on the right stays: where ops are nearly sorted, almost all.
    until = middle - 1
    while left < until:
        half = (left + until) >> 1
        if _precedes(first, second, third, sign, order[middle], order[half]):
            until = half
        else:
            left = half + 1
    for at in range(left, middle):
        spare[at] = order[at]
    low, high = left, middle
    for at in range(left, right):
        if low == middle:
            return
        if high < right and _precedes(first, second, third, sign, order[high], spare[low]):
            order[at] = order[high]
            high += 1
        else:
            order[at] = spare[low]
            low += 1

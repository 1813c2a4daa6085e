"""Bounds of one machine: its ops one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, cells
from ppsolve.solver.kernels.heaps import pop, push


class Jobs(NamedTuple):
    """Ops of one resource.

    Attributes
    ----------
    head, length, tail : int64[k]
        Earliest start, duration, and least time from the end to the end of the schedule, in ticks.
    """

    head: Any
    length: Any
    tail: Any


@Kernel
def least_end(jobs: Jobs) -> int:
    """Return the end of Jackson's preemptive schedule.

    Parameters
    ----------
    jobs : Jobs
        The ops, by head.

    Returns
    -------
    int
        Ticks; 0 for no ops.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    count = len(head)
    left, keys, waiting = cells(count), cells(count), cells(count)
    size = position = now = best = 0
    while position < count or size > 0:
        if size == 0 and head[position] > now:
            now = head[position]
        while position < count and head[position] <= now:
            left[position] = length[position]
            size = push(keys, waiting, size, -tail[position], position)
            position += 1
        op = waiting[0]
        if position == count or now + left[op] <= head[position]:
            now += left[op]
            size = pop(keys, waiting, size)
            best = max(best, now + tail[op])
        else:
            left[op] -= head[position] - now
            now = head[position]
    return best


@Kernel
def least_end_of_returns(jobs: Jobs, acquires: Any, cuts: Any, fits: Any, longest: int) -> int:
    """Return the least end when few acquires have started by each of some moments.

    Parameters
    ----------
    jobs : Jobs
        The ops, those with the longest tails first.
    acquires : int64[k]
        1 where an op acquires.
    cuts : int64[c]
        Moments in ticks.
    fits : int64[c]
        Largest number of acquires that can have started by each of them.
    longest : int
        Longest duration of an acquire in ticks.

    Returns
    -------
    int
        Largest bound of all moments and all tails, in ticks.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    best = 0
    for number in range(len(cuts)):
        cut, most = cuts[number], fits[number]
        follows = early = 0
        for op in range(len(head)):
            late = head[op] >= cut
            if late or acquires[op] == 1:
                follows += length[op]
            if not late and acquires[op] == 1:
                early += 1
            left = follows - min(early, most) * longest
            if left > 0 and cut + left + tail[op] > best:
                best = cut + left + tail[op]
    return best

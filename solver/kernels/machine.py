"""Bounds of one machine: its ops one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, cells


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


NONE = -(2**62)
"""End of no op at all."""


@Kernel
def least_end(jobs: Jobs, leaf: Any) -> int:
    """Return the end of Jackson's preemptive schedule.

    It is the largest end of a set of ops without tails, plus the least tail of the set. A binary
    tree over the ops by head gives the ends (Vilím 2004): each node holds the work below it and
    the end of that work.

    Parameters
    ----------
    jobs : Jobs
        The ops, those with the longest tails first.
    leaf : int64[k]
        Place of each op in the order of heads.

    Returns
    -------
    int
        Ticks; 0 for no ops.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    leaves = 1
    while leaves < len(head):
        leaves *= 2
    work, end = cells(2 * leaves), cells(2 * leaves)
    for node in range(2 * leaves):
        end[node] = NONE
    best = 0
    for op in range(len(head)):
        node = leaves + leaf[op]
        work[node], end[node] = length[op], head[op] + length[op]
        while node > 1:
            node //= 2
            left, right = 2 * node, 2 * node + 1
            work[node] = work[left] + work[right]
            end[node] = max(end[right], end[left] + work[right])
        best = max(best, end[1] + tail[op])
    return int(best)


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

"""Bounds of one machine: its ops one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel


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


class Tree(NamedTuple):
    """A binary tree over ops by head: the children of node k are nodes 2 k and 2 k + 1.

    Attributes
    ----------
    work, end : int64[2 * leaves]
        Ticks of work of the ops below each node, and the earliest end of that work.
    """

    work: Any
    end: Any


def empty_tree(count: int) -> Tree:
    """Return a tree for `count` ops, none of them in it yet."""
    size = 2 << max(0, count - 1).bit_length()
    return Tree(np.zeros(size, dtype=np.int64), np.full(size, -(2**62), dtype=np.int64))


@Kernel
def least_end(jobs: Jobs, leaf: Any, tree: Tree) -> int:
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
    tree : Tree
        No work, no ends.

    Returns
    -------
    int
        Ticks; 0 for no ops.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    work, end = tree.work, tree.end
    leaves, best = len(work) // 2, 0
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

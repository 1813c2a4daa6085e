"""Bounds of one machine: its ops one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part

FAR = 2**62
"""Above every time."""


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


class Ends(NamedTuple):
    """Which ops of a resource may come first and last.

    Attributes
    ----------
    first, last : int64[a], int64[b]
        Ops that may be the first, by head, and the last, by tail; the least ones in front.
    owner : int64[k]
        Micro-batch of each op.
    alone : int64[m]
        1 where a micro-batch cannot have both the first and the last op.
    """

    first: Any
    last: Any
    owner: Any
    alone: Any


@part
def _end_inside(jobs: Jobs, leaf: Any, tree: Tree, first: int, last: int) -> int:
    """Return the end of Jackson's preemptive schedule of the ops between a first and a last one."""
    head, length, tail = jobs.head, jobs.length, jobs.tail
    work, end = tree.work, tree.end
    leaves, best = len(work) // 2, 0
    begin, left_over = head[first] + length[first], tail[last] + length[last]
    for node in range(len(work)):
        work[node], end[node] = 0, -FAR
    for op in range(len(head)):
        if op in (first, last):
            continue
        node = leaves + leaf[op]
        work[node], end[node] = length[op], max(head[op], begin) + length[op]
        while node > 1:
            node //= 2
            work[node] = work[2 * node] + work[2 * node + 1]
            end[node] = max(end[2 * node + 1], end[2 * node] + work[2 * node + 1])
        best = max(best, end[1] + max(tail[op], left_over))
    return int(best)


@Kernel
def least_end_with_ends(jobs: Jobs, leaf: Any, ends: Ends, tree: Tree, effort: int) -> int:
    """Return the least end over all choices of the first and the last op of a resource.

    All other ops run between the two, in Jackson's preemptive schedule.

    Parameters
    ----------
    jobs : Jobs
        The ops, those with the longest tails first.
    leaf : int64[k]
        Place of each op in the order of heads.
    ends : Ends
        Which ops may come first and last.
    tree : Tree
        Work space.
    effort : int
        Pairs that are tried; what more pairs can reach is bounded by heads, work and tails.

    Returns
    -------
    int
        Ticks; 0 for no ops.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    owner, alone = ends.owner, ends.alone
    if len(head) == 0:
        return 0
    total = 0
    for op in range(len(head)):
        total += length[op]
    best, least_tail = FAR, tail[ends.last[0]]
    for first in ends.first:
        if head[first] + total + least_tail >= best:
            break
        for last in ends.last:
            reach = head[first] + total + tail[last]
            if reach >= best:
                break
            if first == last and len(head) > 1:
                continue
            if first != last and owner[first] == owner[last] and alone[owner[first]] == 1:
                continue
            if effort == 0:
                return int(min(best, head[first] + total + least_tail))
            effort -= 1
            best = min(best, max(reach, _end_inside(jobs, leaf, tree, first, last)))
    return int(best)

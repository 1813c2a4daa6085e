"""Bounds of one machine, its ops one after the other, and of what follows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import Heaps, empty_heaps, pop, push
from ppsolve.solver.kernels.records import NEVER


class Jobs(NamedTuple):
    """Ops of one resource, in ticks."""

    head: Any  # int64[k]: earliest start
    length: Any  # int64[k]: duration
    tail: Any  # int64[k]: least time from the end to the end of the schedule


class Tree(NamedTuple):
    """A binary tree over ops by head: the children of node k are nodes 2 k and 2 k + 1."""

    work: Any  # int64[2 * leaves]: ticks of work of the ops below each node
    end: Any  # int64[2 * leaves]: earliest end of that work


def empty_tree(count: int) -> Tree:
    """Return room for a tree of `count` ops."""
    return Tree(*np.zeros((2, 2 << max(0, count - 1).bit_length()), dtype=np.int64))


@Kernel
def least_end(jobs: Jobs, leaf: Any, tree: Tree) -> int:
    """Return the end of Jackson's preemptive schedule, 0 for no ops.

    It is the largest end of a set of ops without tails, plus the least tail of the set. A binary
    tree over the ops by head gives the ends (Vilím 2004): each node holds the work below it and the
    end of that work. Jobs with the longest tails come first; `leaf` has the place of each in the
    order of heads.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    work, end = tree.work, tree.end
    leaves, best = len(work) // 2, 0
    for node in range(len(work)):
        work[node], end[node] = 0, -NEVER
    for op in range(len(head)):
        node = leaves + leaf[op]
        work[node], end[node] = length[op], head[op] + length[op]
        while node > 1:
            node //= 2
            child = 2 * node
            work[node] = work[child] + work[child + 1]
            end[node] = max(end[child + 1], end[child] + work[child + 1])
        best = max(best, end[1] + tail[op])
    return int(best)


@Kernel
def least_end_of_returns(
    jobs: Jobs, acquires: Any, cuts: Any, fits: Any, longest: int
) -> int:
    """Return the least end when few acquires have started by each of some moments.

    It is the largest bound of all moments and all tails. Jobs with the longest tails come first;
    `acquires` marks those that acquire, of which `longest` is the longest duration. By each of the
    moments `cuts` at most `fits` acquires can have started.
    """
    head, length, tail = jobs.head, jobs.length, jobs.tail
    best = 0
    for number in range(len(cuts)):
        cut, fitting = cuts[number], fits[number]
        follows = early = 0
        for op in range(len(head)):
            late = head[op] >= cut
            if late or acquires[op] == 1:
                follows += length[op]
            if not late and acquires[op] == 1:
                early += 1
            late_work = follows - min(early, fitting) * longest
            if late_work > 0 and cut + late_work + tail[op] > best:
                best = cut + late_work + tail[op]
    return best


class Drain(NamedTuple):
    """A resource that works on m micro-batches, a position before it, and a later one."""

    head: Any  # int64[k]: heads of the ops of the resource, the largest first
    length: Any  # int64[k]
    owner: Any  # int64[k]: their micro-batches
    passage: Any  # int64[m]: length of the position before
    reach: Any  # int64[m]: least time from its end until the resource is done with it
    begin: int  # least head of the position before
    lag: Any  # int64[m]: least time from the end on the resource to the later position's start
    last: Any  # int64[m]: length of the later position
    ready: Any  # int64[m]: least head of the later position
    twin: Any  # int64[m]: a micro-batch of higher number that is the same in everything, or -1


class OrderTree(NamedTuple):
    """A tree of orders from the back: each node puts a micro-batch before those of its parents."""

    parent: Any  # int64[n]: node that comes behind; node 0 is empty
    member: Any  # int64[n]: micro-batch
    depth: Any  # int64[n]: number of micro-batches
    release: Any  # int64[n]: least start of the later position of the micro-batch
    open: Heaps  # one heap of the nodes that may be continued, by bound
    starts: Any  # int64[m]: work space, as all that follow
    by_start: Any
    left: Any


def empty_orders(nodes: int, count: int) -> OrderTree:
    """Return an empty tree of orders of `count` micro-batches, with room for some nodes."""
    parent, member, depth, release = np.zeros((4, nodes), dtype=np.int64)
    spare = np.zeros((3, count), dtype=np.int64)
    return OrderTree(
        parent, member, depth, release, empty_heaps(np.array([nodes])), *spare
    )


@part
def _time_of(drain: Drain, remaining: Any) -> int:
    """Return the least time at which the resource is done with the micro-batches that are left."""
    head, length, owner = drain.head, drain.length, drain.owner
    best = work = 0
    for op in range(len(head)):
        if remaining[owner[op]] == 1:
            work += length[op]
            best = max(best, head[op] + work)
    passage, nearest = drain.begin, -1
    for member in range(len(remaining)):
        if remaining[member] == 1:
            passage += drain.passage[member]
            if nearest < 0 or drain.reach[member] < nearest:
                nearest = drain.reach[member]
    return max(best, passage + nearest)


@part
def _sort_starts(starts: Any, by_start: Any) -> None:
    """Sort `by_start`, a permutation, by starts going down."""
    for index in range(1, len(by_start)):
        member, hole = by_start[index], index
        while hole > 0 and starts[by_start[hole - 1]] < starts[member]:
            by_start[hole] = by_start[hole - 1]
            hole -= 1
        by_start[hole] = member


@part
def _end_with(drain: Drain, starts: Any, by_start: Any, moved: int, start: int) -> int:
    """Return when the later position ends if one micro-batch starts it at another time."""
    last = drain.last
    best = work = 0
    is_placed = False
    for member in by_start:
        if member == moved:
            continue
        if not is_placed and start >= starts[member]:
            work += last[moved]
            best = max(best, start + work)
            is_placed = True
        work += last[member]
        best = max(best, starts[member] + work)
    if not is_placed:
        best = max(best, start + work + last[moved])
    return int(best)


@part
def _recall(drain: Drain, orders: OrderTree, node: int) -> None:
    """Set the starts of a node and the micro-batches that are left."""
    starts, remaining = orders.starts, orders.left
    for member in range(len(remaining)):
        starts[member], remaining[member] = drain.ready[member], 1
        orders.by_start[member] = member
    while node > 0:
        member = orders.member[node]
        starts[member], remaining[member] = orders.release[node], 0
        node = orders.parent[node]
    _sort_starts(starts, orders.by_start)


@part
def _is_needless(
    drain: Drain, remaining: Any, time: int, member: int, behind: int, current: int
) -> bool:
    """Whether exchanging a micro-batch with the one behind it is no worse.

    Only their own starts change. Less work, or as much, starts from any moment on; of two orders
    that are as good, one is needless. `remaining` has those in front of both, and `member`; `time`
    is the least time at which the resource is done with all of these, and `current` the start of
    the later position of `member` as it is.
    """
    lag, arrival, last = drain.lag, drain.ready, drain.last
    remaining[member], remaining[behind] = 0, 1
    sooner = max(arrival[behind], _time_of(drain, remaining) + lag[behind])
    remaining[member], remaining[behind] = 1, 0
    later = max(arrival[member], time + lag[member])
    start = max(arrival[behind], time + lag[behind])
    is_less = False
    for cut in (sooner, later):
        new = last[behind] * (sooner >= cut) + last[member] * (later >= cut)
        old = last[behind] * (start >= cut) + last[member] * (current >= cut)
        if new > old:
            return False
        is_less |= new < old
    for cut in (start, current):
        new = last[behind] * (sooner >= cut) + last[member] * (later >= cut)
        old = last[behind] * (start >= cut) + last[member] * (current >= cut)
        is_less |= new < old
    return is_less or member > behind


@Kernel
def least_drain(drain: Drain, orders: OrderTree) -> int:
    """Return the least end of the later position over all orders in which the resource finishes.

    The last of any set of micro-batches is finished no earlier than the resource can be done with
    the set. Orders grow from the back, best bound first, until one is complete or no node is left;
    then the bound is that of those left open.
    """
    count, nodes, size = len(drain.last), len(orders.parent), 1
    twin, lag, arrival = drain.twin, drain.lag, drain.ready
    starts, by_start, remaining = orders.starts, orders.by_start, orders.left
    _recall(drain, orders, 0)
    orders.depth[0], orders.open.size[0] = 0, 0
    push(orders.open, 0, _end_with(drain, starts, by_start, 0, arrival[0]), nodes)
    while True:
        bound = orders.open.key[orders.open.first[0]]
        node = nodes - pop(orders.open, 0)
        if orders.depth[node] == count or size + count > nodes:
            return int(bound)
        _recall(drain, orders, node)
        time, behind = _time_of(drain, remaining), orders.member[node]
        time_of_both = time
        if node > 0:
            remaining[behind] = 1
            time_of_both = _time_of(drain, remaining)
            remaining[behind] = 0
        for member in range(count):
            if remaining[member] == 0 or (
                twin[member] >= 0 and remaining[twin[member]] == 1
            ):
                continue
            start = max(arrival[member], time + lag[member])
            if node > 0 and _is_needless(
                drain, remaining, time_of_both, member, behind, start
            ):
                continue
            end = max(bound, _end_with(drain, starts, by_start, member, start))
            orders.parent[size], orders.member[size] = node, member
            orders.depth[size], orders.release[size] = orders.depth[node] + 1, start
            push(orders.open, 0, end, nodes - size)
            size += 1

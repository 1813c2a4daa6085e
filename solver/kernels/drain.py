"""What is left to do after a resource, over all orders in which it finishes micro-batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import Heaps, empty_heaps, pop, push


class Drain(NamedTuple):
    """A resource that works on m micro-batches, a position before it, and a later one.

    Attributes
    ----------
    head, length, owner : int64[k]
        Ops of the resource, those with the largest heads first, and their micro-batches.
    passage, reach : int64[m]
        Length of the position before, and least time from its end until the resource is done with
        the micro-batch.
    begin : int
        Least head of the position before.
    lag, last : int64[m]
        Least time from the end on the resource to the start of the later position; its length.
    ready : int64[m]
        Least head of the later position.
    twin : int64[m]
        A micro-batch of higher number that is the same in everything, or -1.
    """

    head: Any
    length: Any
    owner: Any
    passage: Any
    reach: Any
    begin: int
    lag: Any
    last: Any
    ready: Any
    twin: Any


class OrderTree(NamedTuple):
    """A tree of orders from the back: each node puts a micro-batch before those of its parents.

    Attributes
    ----------
    parent, member, depth, release : int64[n]
        Node that comes behind, micro-batch, number of micro-batches, and least start of the later
        position of the micro-batch. Node 0 is empty.
    open : Heaps
        One heap of the nodes that may be continued, by bound.
    starts, by_start, left : int64[m]
        Work space.
    """

    parent: Any
    member: Any
    depth: Any
    release: Any
    open: Heaps
    starts: Any
    by_start: Any
    left: Any


def empty_orders(nodes: int, count: int) -> OrderTree:
    """Return room for a number of nodes of orders.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    count : int
        Number of micro-batches m.

    Returns
    -------
    OrderTree
        An empty tree.
    """
    table = np.zeros((4, nodes), dtype=np.int64)
    spare = np.zeros((3, count), dtype=np.int64)
    parent, member, depth, release = table
    return OrderTree(parent, member, depth, release, empty_heaps(np.array([nodes])), *spare)


@part
def _time_of(drain: Drain, left: Any) -> int:
    """Return the least time at which the resource is done with the micro-batches that are left."""
    head, length, owner = drain.head, drain.length, drain.owner
    best = work = 0
    for op in range(len(head)):
        if left[owner[op]] == 1:
            work += length[op]
            best = max(best, head[op] + work)
    passage, nearest = drain.begin, -1
    for member in range(len(left)):
        if left[member] == 1:
            passage += drain.passage[member]
            if nearest < 0 or drain.reach[member] < nearest:
                nearest = drain.reach[member]
    return max(best, passage + nearest)


@part
def _sort_starts(starts: Any, by_start: Any) -> None:
    """Sort `by_start`, a permutation, by starts going down."""
    for at in range(1, len(by_start)):
        member, place = by_start[at], at
        while place > 0 and starts[by_start[place - 1]] < starts[member]:
            by_start[place] = by_start[place - 1]
            place -= 1
        by_start[place] = member


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
    starts, left = orders.starts, orders.left
    for member in range(len(left)):
        starts[member], left[member] = drain.ready[member], 1
        orders.by_start[member] = member
    while node > 0:
        member = orders.member[node]
        starts[member], left[member] = orders.release[node], 0
        node = orders.parent[node]
    _sort_starts(starts, orders.by_start)


@part
def _is_needless(drain: Drain, left: Any, time: int, member: int, behind: int, found: int) -> bool:
    """Return true if exchanging a micro-batch with the one behind it is no worse.

    Only their own starts change. Less work, or as much, starts from any moment on.

    Parameters
    ----------
    drain : Drain
        The micro-batches.
    left : int64[m]
        1 for those in front of both, and for `member`.
    time : int
        Least time at which the resource is done with all of them and both.
    member, behind : int
        The two micro-batches.
    found : int
        Start of the later position of `member` as it is.

    Returns
    -------
    bool
        Of two that are as good, true for one of the two orders.
    """
    lag, ready, last = drain.lag, drain.ready, drain.last
    left[member], left[behind] = 0, 1
    sooner = max(ready[behind], _time_of(drain, left) + lag[behind])
    left[member], left[behind] = 1, 0
    later = max(ready[member], time + lag[member])
    start = max(ready[behind], time + lag[behind])
    is_less = False
    for cut in (sooner, later):
        new = last[behind] * (sooner >= cut) + last[member] * (later >= cut)
        old = last[behind] * (start >= cut) + last[member] * (found >= cut)
        if new > old:
            return False
        is_less |= new < old
    for cut in (start, found):
        new = last[behind] * (sooner >= cut) + last[member] * (later >= cut)
        old = last[behind] * (start >= cut) + last[member] * (found >= cut)
        is_less |= new < old
    return is_less or member > behind


@Kernel
def least_drain(drain: Drain, orders: OrderTree) -> int:
    """Return the least end of the later position over all orders in which the resource finishes.

    The last of any set of micro-batches is finished no earlier than the resource can be done with
    the set. Orders grow from the back, best bound first, until one is complete or no node is left.

    Parameters
    ----------
    drain : Drain
        The micro-batches.
    orders : OrderTree
        Room for nodes; the bound of those left open where it is too small.

    Returns
    -------
    int
        Ticks.
    """
    count, nodes, size = len(drain.last), len(orders.parent), 1
    twin, lag, ready = drain.twin, drain.lag, drain.ready
    starts, by_start, left = orders.starts, orders.by_start, orders.left
    _recall(drain, orders, 0)
    orders.depth[0], orders.open.size[0] = 0, 0
    push(orders.open, 0, _end_with(drain, starts, by_start, 0, ready[0]), nodes)
    while True:
        bound = orders.open.key[orders.open.first[0]]
        node = nodes - pop(orders.open, 0)
        if orders.depth[node] == count or size + count > nodes:
            return int(bound)
        _recall(drain, orders, node)
        time, behind = _time_of(drain, left), orders.member[node]
        time_of_both = time
        if node > 0:
            left[behind] = 1
            time_of_both = _time_of(drain, left)
            left[behind] = 0
        for member in range(count):
            if left[member] == 0 or (twin[member] >= 0 and left[twin[member]] == 1):
                continue
            start = max(ready[member], time + lag[member])
            if node > 0 and _is_needless(drain, left, time_of_both, member, behind, start):
                continue
            end = max(bound, _end_with(drain, starts, by_start, member, start))
            orders.parent[size], orders.member[size] = node, member
            orders.depth[size], orders.release[size] = orders.depth[node] + 1, start
            push(orders.open, 0, end, nodes - size)
            size += 1

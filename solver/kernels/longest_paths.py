"""Longest paths through precedences, and earliest starts where resources serve first come."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import Heaps, pop, push
from ppsolve.solver.kernels.records import PrecedenceGraph, ResourceUse


class Groups(NamedTuple):
    """Ops of several groups."""

    pointer: Any  # int64[g + 1]: rows of op
    op: Any  # int64[...]


@Kernel
def sort_ops(graph: PrecedenceGraph, missing: Any, order: Any) -> int:
    """Put ops into topological order; return how many, fewer than n where there is a cycle.

    `missing` has the number of precedences into each op; it is written.
    """
    count = 0
    for op in range(len(order)):
        if missing[op] == 0:
            order[count] = op
            count += 1
    done = 0
    while done < count:
        op = order[done]
        done += 1
        for row in range(graph.pointer[op], graph.pointer[op + 1]):
            waiter = graph.successor[row]
            missing[waiter] -= 1
            if missing[waiter] == 0:
                order[count] = waiter
                count += 1
    return count


@part
def _push_starts(graph: PrecedenceGraph, ops: Any, start: Any) -> None:
    """Raise starts until all precedences hold; `ops` are in topological order."""
    duration, pointer, successor, lag = (
        graph.duration,
        graph.pointer,
        graph.successor,
        graph.lag,
    )
    for op in ops:
        end = start[op] + duration[op]
        for row in range(pointer[op], pointer[op + 1]):
            waiter, moment = successor[row], end + lag[row]
            if moment > start[waiter]:
                start[waiter] = moment


@Kernel
def earliest_starts(graph: PrecedenceGraph, order: Any, start: Any) -> None:
    """Raise starts until all precedences hold; ops come in a topological order."""
    _push_starts(graph, order, start)


@Kernel
def longest_tails(graph: PrecedenceGraph, order: Any, tail: Any) -> None:
    """Raise tails until each is as long as every path from the start of its op.

    A tail has the least ticks from an op's start to the end of all; ops come in a topological
    order.
    """
    duration, pointer, successor, lag = (
        graph.duration,
        graph.pointer,
        graph.successor,
        graph.lag,
    )
    for index in range(len(order) - 1, -1, -1):
        op = order[index]
        longest, length = tail[op], duration[op]
        for row in range(pointer[op], pointer[op + 1]):
            longest = max(longest, length + lag[row] + tail[successor[row]])
        tail[op] = longest


@part
def _hold_back(graph: PrecedenceGraph, groups: Groups, target: int, start: Any) -> bool:
    """Raise the starts of each group to its last end - `target`; return true if one was earlier."""
    raised = False
    for group in range(len(groups.pointer) - 1):
        first, last = groups.pointer[group], groups.pointer[group + 1]
        floor = -1
        for row in range(first, last):
            op = groups.op[row]
            floor = max(floor, start[op] + graph.duration[op] - target)
        for row in range(first, last):
            if start[groups.op[row]] < floor:
                start[groups.op[row]] = floor
                raised = True
    return raised


@Kernel
def start_within(
    graph: PrecedenceGraph, groups: Groups, target: int, start: Any
) -> int:
    """Find the earliest starts with the span of every group at most `target`; return 0 if none.

    Each group is one edge back from its last op to its first. As in Bellman and Ford's algorithm a
    feasible system changes no more after as many rounds as there are such edges. Ops are numbered
    in topological order, each group has those of a device; starts are raised.
    """
    for _ in range(len(groups.pointer)):
        _push_starts(graph, range(len(start)), start)
        if not _hold_back(graph, groups, target, start):
            return 1
    return 0


class FirstComeUse(NamedTuple):
    """Resources that serve ops first come first served, and the intervals kept for pinned ops."""

    use: ResourceUse
    pinned: Any  # int64[n]: fixed starts, or -1
    pointer: Any  # int64[R + 1]: rows of begin and end, by resource
    begin: Any  # int64[...]: intervals that pinned ops keep free, in ticks
    end: Any


class FirstComeState(NamedTuple):
    """Ops that are ready. All is written."""

    missing: Any  # int64[n]: number of precedences into each op
    free: Any  # int64[R]: zeros
    heap: Heaps  # one empty heap for n ops
    ready: Any  # int64[n]: earliest starts alone, in ticks


@part
def _serve(served: FirstComeUse, free: Any, op: int, time: int, length: int) -> int:
    """Return the first moment >= `time` at which an op's resources have served all others.

    The op overlaps no interval that is kept for a pinned one.
    """
    use, moved = served.use, True
    for seat in range(use.pointer[op], use.pointer[op + 1]):
        time = max(time, free[use.resource[seat]])
    while moved:
        moved = False
        for seat in range(use.pointer[op], use.pointer[op + 1]):
            resource = use.resource[seat]
            for row in range(served.pointer[resource], served.pointer[resource + 1]):
                if served.begin[row] < time + length and time < served.end[row]:
                    time, moved = served.end[row], True
    return time


@Kernel
def serve_first_come(
    graph: PrecedenceGraph, served: FirstComeUse, state: FirstComeState, start: Any
) -> int:
    """Start ops in the order in which they become ready; return how many started.

    Starts are all -1 and become those of the ops, except of ops that wait for a cycle. The state is
    written.
    """
    duration, use, done = graph.duration, served.use, 0
    heap, arrival, missing, free = state.heap, state.ready, state.missing, state.free
    for op in range(len(start)):
        if missing[op] == 0:
            push(heap, 0, arrival[op], op)
    while heap.size[0] > 0:
        op = pop(heap, 0)
        time, length = arrival[op], duration[op]
        if use.pointer[op] < use.pointer[op + 1]:
            # A pinned op that is ready at its pin takes the interval that is kept for it.
            if served.pinned[op] != time:
                time = _serve(served, free, op, time, length)
            for seat in range(use.pointer[op], use.pointer[op + 1]):
                resource = use.resource[seat]
                free[resource] = max(free[resource], time + length)
        start[op] = time
        done += 1
        for row in range(graph.pointer[op], graph.pointer[op + 1]):
            waiter = graph.successor[row]
            arrival[waiter] = max(arrival[waiter], time + length + graph.lag[row])
            missing[waiter] -= 1
            if missing[waiter] == 0:
                push(heap, 0, arrival[waiter], waiter)
    return done

"""Earliest starts where resources serve ops first come first served."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import Heaps, pop, push
from ppsolve.solver.kernels.records import PrecedenceGraph, ResourceUse


class Kept(NamedTuple):
    """Intervals that pinned ops keep free on resources.

    Attributes
    ----------
    pointer : int64[R + 1]
        Rows of `begin` and `end`, by resource.
    begin, end : int64[...]
        The intervals in ticks.
    """

    pointer: Any
    begin: Any
    end: Any


@part
def _between_pins(kept: Kept, served: ResourceUse, op: int, time: int, length: int) -> int:
    """Return the first moment >= `time` at which `op` overlaps no interval that is kept free."""
    moved = True
    while moved:
        moved = False
        for seat in range(served.pointer[op], served.pointer[op + 1]):
            resource = served.resource[seat]
            for row in range(kept.pointer[resource], kept.pointer[resource + 1]):
                if kept.begin[row] < time + length and time < kept.end[row]:
                    time, moved = kept.end[row], True
    return time


@part
def _serve(served: ResourceUse, kept: Kept, free: Any, op: int, time: int, length: int) -> int:
    """Return the first moment >= `time` at which the resources of `op` have served all others."""
    for seat in range(served.pointer[op], served.pointer[op + 1]):
        time = max(time, free[served.resource[seat]])
    return _between_pins(kept, served, op, time, length)


@Kernel
def serve_first_come(
    graph: PrecedenceGraph,
    served: ResourceUse,
    kept: Kept,
    pinned: Any,
    missing: Any,
    free: Any,
    heap: Heaps,
    ready: Any,
    start: Any,
) -> int:
    """Start ops in the order in which they become ready.

    Parameters
    ----------
    graph : PrecedenceGraph
        Precedences of n ops.
    served : ResourceUse
        Resources that serve ops first come first served, by op.
    kept : Kept
        Intervals of those resources that pinned ops keep free.
    pinned : int64[n]
        Fixed starts, or -1.
    missing : int64[n]
        Number of precedences into each op; written.
    free : int64[R]
        Zeros; written.
    heap : Heaps
        One empty heap for n ops.
    ready : int64[n]
        Earliest starts alone, in ticks; written.
    start : int64[n]
        All -1; become the starts, except of ops that wait for a cycle.

    Returns
    -------
    int
        Number of ops that started.
    """
    duration, done = graph.duration, 0
    for op in range(len(start)):
        if missing[op] == 0:
            push(heap, 0, ready[op], op)
    while heap.size[0] > 0:
        op = pop(heap, 0)
        time, length = ready[op], duration[op]
        if served.pointer[op] < served.pointer[op + 1]:
            # A pinned op that is ready at its pin takes the interval that is kept for it.
            if pinned[op] != time:
                time = _serve(served, kept, free, op, time, length)
            for seat in range(served.pointer[op], served.pointer[op + 1]):
                resource = served.resource[seat]
                free[resource] = max(free[resource], time + length)
        start[op] = time
        done += 1
        for row in range(graph.pointer[op], graph.pointer[op + 1]):
            waiter = graph.successor[row]
            ready[waiter] = max(ready[waiter], time + length + graph.lag[row])
            missing[waiter] -= 1
            if missing[waiter] == 0:
                push(heap, 0, ready[waiter], waiter)
    return done

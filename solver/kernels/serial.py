"""Serial schedule generation: the op of the lowest rank that is ready goes into its first gap."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.gaps import Gaps, block, free_from, occupy
from ppsolve.solver.kernels.heaps import Heaps, pop, push
from ppsolve.solver.kernels.ledger import MemoryState, give_back, shortage, take
from ppsolve.solver.kernels.records import MemoryUse, PrecedenceGraph, ResourceUse
from ppsolve.solver.kernels.usage import Usage, change_use, roomy_from


class Queue(NamedTuple):
    """Ops that are ready, a heap by rank, and ops that wait for a pool, a chain per pool.

    Attributes
    ----------
    rank : int64[n]
        Priorities; lowest first.
    heap : Heaps
        One heap.
    ready, missing : int64[n]
        Earliest starts by precedences, and predecessors that are not placed.
    first : int64[P]
        First op that waits for each pool, or -1.
    behind : int64[n]
        Next op of the chain, or -1.
    """

    rank: Any
    heap: Heaps
    ready: Any
    missing: Any
    first: Any
    behind: Any


@Kernel
def place_by_rank(
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    gaps: Gaps,
    usage: Usage,
    state: MemoryState,
    queue: Queue,
    pinned: Any,
    start: Any,
) -> None:
    """Place all ops by rank; see `ppsolve.solver.heuristics.serial.generate_serial`.

    Parameters
    ----------
    graph, use, memory : PrecedenceGraph, ResourceUse, MemoryUse
        Precedences; what ops occupy and acquire.
    gaps, usage, state, queue : Gaps, Usage, MemoryState, Queue
        The state before any op; written.
    pinned : int64[n]
        Fixed starts, or -1.
    start : int64[n]
        All -1; becomes the starts in ticks, and -2 - p for ops that wait for pool p at the end.
    """
    for op in range(len(start)):
        if not queue.missing[op]:
            push(queue.heap, 0, queue.rank[op], op)
        if pinned[op] >= 0:
            for seat in range(use.pointer[op], use.pointer[op + 1]):
                block(gaps, use.resource[seat], pinned[op], pinned[op] + graph.duration[op])
    while queue.heap.size[0]:
        op = pop(queue.heap, 0)
        pool = shortage(state, memory, op, 1)
        if pool >= 0:
            start[op] = -2 - pool
            queue.behind[op], queue.first[pool] = queue.first[pool], op
            continue
        time, length = queue.ready[op], graph.duration[op]
        time = roomy_from(usage, memory, memory.net_amount, op, time)
        if pinned[op] != time:
            time = free_from(gaps, use, op, time, length)
            occupy(gaps, use, op, time, time + length)
        start[op] = time
        change_use(usage, memory, op, time, time + length)
        take(state, memory, op)
        give_back(state, memory, op)
        for row in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
            _wake(queue, memory.release_pool[row])
        _announce(queue, graph, op, time + length)


@part
def _wake(queue: Queue, pool: int) -> None:
    """Make the ops that wait for a pool ready."""
    op = queue.first[pool]
    queue.first[pool] = -1
    while op >= 0:
        push(queue.heap, 0, queue.rank[op], op)
        op = queue.behind[op]


@part
def _announce(queue: Queue, graph: PrecedenceGraph, op: int, end: int) -> None:
    """Make the ops ready for which `op` was the last to wait for."""
    for row in range(graph.pointer[op], graph.pointer[op + 1]):
        waiter, moment = graph.successor[row], end + graph.lag[row]
        if moment > queue.ready[waiter]:
            queue.ready[waiter] = moment
        queue.missing[waiter] -= 1
        if not queue.missing[waiter]:
            push(queue.heap, 0, queue.rank[waiter], waiter)

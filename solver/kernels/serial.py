"""Serial schedule generation: the op of the lowest rank that is ready goes into its first gap."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import fixed, part
from ppsolve.solver.kernels.gaps import Gaps, block, free_from, occupy
from ppsolve.solver.kernels.heaps import pop, push, size_of
from ppsolve.solver.kernels.ledger import FREE, POOL, PROMISES, give_back, keeps_promises, take
from ppsolve.solver.kernels.records import Graph, Memory, Seats
from ppsolve.solver.kernels.usage import Usage, change_use, roomy_from


class Queue(NamedTuple):
    """Ops that are ready, a heap by rank, and ops that wait for a pool, a chain per pool.

    Attributes
    ----------
    rank : int64[n]
        Priorities; lowest first.
    pairs, heads : int64[2 * n], int64[4]
        The heap, see `ppsolve.solver.kernels.heaps`.
    ready, missing : int64[n]
        Earliest starts by precedences, and predecessors that are not placed.
    first : int64[P]
        First op that waits for each pool, or -1.
    behind : int64[n]
        Next op of the chain, or -1.
    """

    rank: Any
    pairs: Any
    heads: Any
    ready: Any
    missing: Any
    first: Any
    behind: Any


class Ledger(NamedTuple):
    """Tables of `ppsolve.solver.kernels.ledger`."""

    pools: Any
    claims: Any
    begun: Any


@fixed
def place_by_rank(
    graph: Graph,
    seats: Seats,
    memory: Memory,
    gaps: Gaps,
    usage: Usage,
    ledger: Ledger,
    queue: Queue,
    pinned: Any,
    start: Any,
) -> None:
    """Place all ops by rank; see `ppsolve.solver.heuristics.serial.generate_serial`.

    Parameters
    ----------
    graph, seats, memory : Graph, Seats, Memory
        Precedences; what ops occupy and acquire.
    gaps, usage, ledger, queue : Gaps, Usage, Ledger, Queue
        The state before any op; written.
    pinned : int64[n]
        Fixed starts, or -1.
    start : int64[n]
        All -1; becomes the starts in ticks, and -2 - p for ops that wait for pool p at the end.
    """
    for op in range(len(start)):
        if queue.missing[op] == 0:
            push(queue.pairs, queue.heads, 0, queue.rank[op], op)
        if pinned[op] >= 0:
            for seat in range(seats.pointer[op], seats.pointer[op + 1]):
                block(gaps, seats.resource[seat], pinned[op], pinned[op] + graph.duration[op])
    while size_of(queue.heads, 0) > 0:
        op = pop(queue.pairs, queue.heads, 0)
        pool = _shortage(ledger, memory, op)
        if pool >= 0:
            start[op] = -2 - pool
            queue.behind[op], queue.first[pool] = queue.first[pool], op
            continue
        time, length = queue.ready[op], graph.duration[op]
        time = roomy_from(usage, memory, memory.net_amount, op, time)
        if pinned[op] != time:
            time = free_from(gaps, seats, op, time, length)
            occupy(gaps, seats, op, time, time + length)
        start[op] = time
        change_use(usage, memory, op, time, time + length)
        _pass_through(ledger, memory, op)
        for row in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
            _wake(queue, memory.release_pool[row])
        _announce(queue, graph, op, time + length)


@part
def _shortage(ledger: Ledger, memory: Memory, op: int) -> int:
    """Return a pool that `op` cannot acquire now, or -1."""
    pools, claims, begun = ledger.pools, ledger.claims, ledger.begun
    num_owners, owner = memory.num_owners, memory.owner[op]
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        pool, amount = memory.acquire_pool[row], memory.net_amount[row]
        if amount > pools[pool * POOL + FREE]:
            return pool
        promises = pools[pool * POOL + PROMISES] > 0
        if promises and not keeps_promises(
            pools, claims, begun, num_owners, owner, pool, amount, 1
        ):
            return pool
    return -1


@part
def _pass_through(ledger: Ledger, memory: Memory, op: int) -> None:
    """Acquire and release the amounts of an op in the ledger, which knows no time."""
    pools, claims, num_owners = ledger.pools, ledger.claims, memory.num_owners
    owner = memory.owner[op]
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        pool, amount = memory.acquire_pool[row], memory.acquire_amount[row]
        take(pools, claims, ledger.begun, num_owners, owner, pool, amount)
    for row in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        pool, amount = memory.release_pool[row], memory.release_amount[row]
        give_back(pools, claims, num_owners, owner, pool, amount)


@part
def _wake(queue: Queue, pool: int) -> None:
    """Make the ops that wait for a pool ready."""
    op = queue.first[pool]
    queue.first[pool] = -1
    while op >= 0:
        push(queue.pairs, queue.heads, 0, queue.rank[op], op)
        op = queue.behind[op]


@part
def _announce(queue: Queue, graph: Graph, op: int, end: int) -> None:
    """Make the ops ready for which `op` was the last to wait for."""
    for row in range(graph.pointer[op], graph.pointer[op + 1]):
        waiter, moment = graph.successor[row], end + graph.lag[row]
        if moment > queue.ready[waiter]:
            queue.ready[waiter] = moment
        queue.missing[waiter] -= 1
        if queue.missing[waiter] == 0:
            push(queue.pairs, queue.heads, 0, queue.rank[waiter], waiter)

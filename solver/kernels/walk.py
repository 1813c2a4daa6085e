"""Parallel schedule generation: walk through time, start the best op wherever one can start."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import Kernel, cells, part
from ppsolve.solver.kernels.heaps import (
    HEAD,
    SIZE,
    empty_heaps,
    first_item,
    first_key,
    pop,
    push,
    size_of,
)
from ppsolve.solver.kernels.ledger import (
    FREE,
    POOL,
    PROMISES,
    give_back,
    keeps_promises,
    open_ledger,
    take,
)
from ppsolve.solver.kernels.records import Graph, Memory, Seats

DURATION, HOME, RANK, FILLER, BY_RANK, READY, MISSING, NEXT, OP = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Columns of the table of ops and its width. `NEXT` links ops that wait at the same place."""

_LATE = 2**62


class Ranking(NamedTuple):
    """Priorities and preferences; see `ppsolve.solver.heuristics.parallel.Rule`.

    Attributes
    ----------
    rank : int64[n]
        Priority of each op, all different; the lowest goes first.
    filler, by_rank : int64[n]
        1 for ops that fill idle time; 0 for ops that are served first come first served.
    pinned : int64[n]
        Fixed starts, or -1.
    patience, filler_patience : float
        As in `Rule`.
    frees_memory, reserve : int
        As in `Rule`; 0 or 1.
    """

    rank: Any
    filler: Any
    by_rank: Any
    pinned: Any
    patience: float
    filler_patience: float
    frees_memory: int
    reserve: int


def _ops(graph: Graph, seats: Seats, ranking: Ranking) -> IntArray:
    """Return the table of ops before anything has started."""
    table = np.zeros((len(graph.duration), OP), dtype=np.int64)
    seated = np.flatnonzero(np.diff(seats.pointer))
    table[:, DURATION] = graph.duration
    table[:, HOME] = seats.num_resources
    table[seated, HOME] = seats.resource[seats.pointer[seated]]
    table[:, RANK] = ranking.rank
    table[:, FILLER] = ranking.filler
    table[:, BY_RANK] = ranking.by_rank
    table[:, READY] = graph.earliest
    table[:, MISSING] = graph.num_predecessors
    return table.ravel()


def _heads(home: IntArray, seats: Seats, ranking: Ranking) -> IntArray:
    """Lay out the heaps: queues, fillers, arrivals and pins by resource, then events.

    Ops without a resource have a block of their own behind those of the resources.
    """
    at_home = np.bincount(home, minlength=seats.num_resources + 1)
    pins = np.bincount(
        seats.resource[np.repeat(ranking.pinned >= 0, np.diff(seats.pointer))],
        minlength=seats.num_resources + 1,
    )
    return empty_heaps(np.concatenate([at_home, at_home, at_home, pins, [len(home)]]))


def run_walk(
    graph: Graph, seats: Seats, memory: Memory, ranking: Ranking
) -> tuple[IntArray, IntArray]:
    """Schedule all ops that can start.

    Parameters
    ----------
    graph, seats, memory, ranking
        The problem and the rule, n ops.

    Returns
    -------
    start, awaited : int64[n], int64[n]
        Starts in ticks, -1 for ops that never start; the pool for whose memory an op waits at the
        end, else -1.
    """
    ops = _ops(graph, seats, ranking)
    heads = _heads(ops[HOME::OP], seats, ranking)
    start, awaited = np.full((2, len(graph.duration)), -1, dtype=np.int64)
    pools, claims = open_ledger(memory)
    walk(graph, seats, memory, ranking, ops, heads, pools, claims, start, awaited)
    return start, awaited


@part
def _announce(ops: Any, pairs: Any, heads: Any, unlimited: int, waits: bool, op: int) -> None:
    """Schedule the arrival of an op whose predecessors have all started."""
    row = op * OP
    push(pairs, heads, 4 * (unlimited + 1), ops[row + READY], op)
    if waits and ops[row + FILLER] == 0:
        upcoming = 2 * (unlimited + 1) + ops[row + HOME]
        push(pairs, heads, upcoming, ops[row + READY], ops[row + RANK])


@part
def _mark(dirty: Any, listed: Any, resource: int) -> None:
    """Note that a resource has something to serve; `listed` holds their number, then them."""
    if dirty[resource] == 0:
        dirty[resource] = 1
        listed[0] += 1
        listed[listed[0]] = resource


@part
def _enqueue(
    ops: Any, pairs: Any, heads: Any, dirty: Any, listed: Any, unlimited: int, op: int
) -> None:
    row = op * OP
    home = ops[row + HOME]
    key = ops[row + RANK] if ops[row + BY_RANK] else ops[row + READY]
    fills = ops[row + FILLER] > 0 and home != unlimited
    push(pairs, heads, home + (unlimited + 1 if fills else 0), key, op)
    _mark(dirty, listed, home)


@part
def _wake(
    ops: Any,
    pairs: Any,
    heads: Any,
    dirty: Any,
    listed: Any,
    waiting: Any,
    unlimited: int,
    place: int,
) -> None:
    op = waiting[place]
    waiting[place] = -1
    while op >= 0:
        _enqueue(ops, pairs, heads, dirty, listed, unlimited, op)
        op = ops[op * OP + NEXT]


@part
def _worth_waiting(
    ops: Any, pairs: Any, heads: Any, unlimited: int, now: int, op: int, patience: float
) -> bool:
    """Return true if `op` should wait for a better one that is known to arrive soon."""
    row = op * OP
    upcoming = 2 * (unlimited + 1) + ops[row + HOME]
    while size_of(heads, upcoming) > 0 and first_key(pairs, heads, upcoming) <= now:
        pop(pairs, heads, upcoming)
    if size_of(heads, upcoming) == 0:
        return False
    moment = first_key(pairs, heads, upcoming)
    if ops[row + FILLER] == 0 and first_item(pairs, heads, upcoming) > ops[row + RANK]:
        return False
    delay = now + ops[row + DURATION] - moment
    return delay > 0 and moment - now <= patience * delay


@part
def _is_awaited(pointer: Any, pool_of: Any, waiting: Any, num_resources: int, op: int) -> bool:
    """Return true if an op waits for memory that `op` releases."""
    for position in range(pointer[op], pointer[op + 1]):
        if waiting[num_resources + pool_of[position]] >= 0:
            return True
    return False


@part
def _meets_pin(
    pairs: Any, heads: Any, start: Any, unlimited: int, resource: int, op: int, end: int
) -> bool:
    """Return true if an op that ends at `end` would overrun the next pinned start."""
    pins = 3 * (unlimited + 1) + resource
    while size_of(heads, pins) > 0 and start[first_item(pairs, heads, pins)] >= 0:
        pop(pairs, heads, pins)
    if size_of(heads, pins) == 0 or first_item(pairs, heads, pins) == op:
        return False
    return first_key(pairs, heads, pins) < end


@part
def _next_to_serve(
    pairs: Any, heads: Any, dirty: Any, listed: Any, unlimited: int, waits: bool
) -> int:
    """Unlist and return the resource to serve next; with patience that of the best rank first.

    Ops without a resource come before all others.
    """
    best, best_key, best_item, at = -1, _LATE, 0, 0
    for place in range(1, listed[0] + 1):
        resource = listed[place]
        key, item = 0, 0
        if resource == unlimited:
            key = -1
        elif waits:
            key = _LATE
            if size_of(heads, resource) > 0:
                key = first_key(pairs, heads, resource)
                item = first_item(pairs, heads, resource)
        if (
            best < 0
            or key < best_key
            or (key == best_key and (item < best_item or (item == best_item and resource < best)))
        ):
            best, best_key, best_item, at = resource, key, item, place
    listed[at] = listed[listed[0]]
    listed[0] -= 1
    dirty[best] = 0
    return best


@Kernel
def walk(
    graph: Graph,
    seats: Seats,
    memory: Memory,
    ranking: Ranking,
    ops: Any,
    heads: Any,
    pools: Any,
    claims: Any,
    start: Any,
    awaited: Any,
) -> None:
    """Schedule all ops that can start.

    Parameters
    ----------
    graph, seats, memory, ranking
        The problem and the rule, n ops.
    ops : int64[n * OP]
        Table of ops, changed.
    heads : int64[...]
        Layout of the heaps, changed.
    pools, claims : int64[...]
        Ledger of memory, changed.
    start, awaited : int64[n], int64[n]
        All -1; get what `run_walk` returns.
    """
    pointer, successor, lag = graph.pointer, graph.successor, graph.lag
    seat, resource_of, unlimited = seats.pointer, seats.resource, seats.num_resources
    acquired, acquired_pool = memory.acquire_pointer, memory.acquire_pool
    acquired_amount, net_amount = memory.acquire_amount, memory.net_amount
    released, released_pool = memory.release_pointer, memory.release_pool
    released_amount, owner_of = memory.release_amount, memory.owner
    num_owners, pinned, reserve = memory.num_owners, ranking.pinned, ranking.reserve
    patience, filler_patience = ranking.patience, ranking.filler_patience
    waits = patience > 0 or filler_patience > 0
    count, num_pools = len(start), len(memory.size)
    events = 4 * (unlimited + 1)
    begun = cells(num_owners)
    num_pins = 0
    for op in range(count):
        if pinned[op] >= 0:
            num_pins += 1
    pairs = cells(heads[len(heads) - 2])
    busy, dirty, listed = cells(unlimited + 1), cells(unlimited + 1), cells(unlimited + 2)
    waiting = cells(unlimited + num_pools)
    for place in range(unlimited + num_pools):
        waiting[place] = -1
    for op in range(count):
        if pinned[op] >= 0:
            for position in range(seat[op], seat[op + 1]):
                push(pairs, heads, 3 * (unlimited + 1) + resource_of[position], pinned[op], op)
        if ops[op * OP + MISSING] == 0:
            _announce(ops, pairs, heads, unlimited, waits, op)

    started, now = 0, 0
    while True:
        while size_of(heads, events) > 0 and first_key(pairs, heads, events) == now:
            op = pop(pairs, heads, events)
            if op >= 0:
                _enqueue(ops, pairs, heads, dirty, listed, unlimited, op)
                continue
            op = -op - 1
            for position in range(seat[op], seat[op + 1]):
                resource = resource_of[position]
                busy[resource] = 0
                _mark(dirty, listed, resource)
                _wake(ops, pairs, heads, dirty, listed, waiting, unlimited, resource)
            for position in range(released[op], released[op + 1]):
                pool, amount = released_pool[position], released_amount[position]
                give_back(pools, claims, num_owners, owner_of[op], pool, amount)
                _wake(ops, pairs, heads, dirty, listed, waiting, unlimited, unlimited + pool)
        if listed[0] == 0:
            if size_of(heads, events) == 0:
                if num_pins == 0 or started == count:
                    break
                # Pins that cannot be kept are overrun; the checker reports them.
                num_pins = 0
                for resource in range(unlimited):
                    heads[(3 * (unlimited + 1) + resource) * HEAD + SIZE] = 0
                    _wake(ops, pairs, heads, dirty, listed, waiting, unlimited, resource)
                continue
            now = first_key(pairs, heads, events)
            continue
        served_last = False
        while listed[0] > 0 and not served_last:
            resource = _next_to_serve(pairs, heads, dirty, listed, unlimited, waits)
            # Ops without a resource may make others arrive at this very moment.
            served_last = resource == unlimited
            for turn in range(3):
                queue, wait_for = resource, patience
                if turn != 1:
                    queue = unlimited + 1 + resource
                if busy[resource] or size_of(heads, queue) == 0 or (served_last and turn != 1):
                    continue
                if turn != 1:
                    awaited_now = _is_awaited(
                        released, released_pool, waiting, unlimited,
                        first_item(pairs, heads, queue),
                    )  # fmt: skip
                    if turn == 0 and not (ranking.frees_memory and awaited_now):
                        continue
                    wait_for = 0.0 if awaited_now else filler_patience
                if served_last:
                    wait_for = 0.0
                while size_of(heads, queue) > 0:
                    op = first_item(pairs, heads, queue)
                    if wait_for > 0 and _worth_waiting(
                        ops, pairs, heads, unlimited, now, op, wait_for
                    ):
                        break
                    pop(pairs, heads, queue)
                    end = now + ops[op * OP + DURATION]
                    place = -1
                    for position in range(seat[op], seat[op + 1]):
                        used = resource_of[position]
                        if busy[used] or (
                            num_pins > 0
                            and _meets_pin(pairs, heads, start, unlimited, used, op, end)
                        ):
                            place = used
                            break
                    if place < 0:
                        for position in range(acquired[op], acquired[op + 1]):
                            pool, amount = acquired_pool[position], net_amount[position]
                            if amount > pools[pool * POOL + FREE] or (
                                pools[pool * POOL + PROMISES] > 0
                                and not keeps_promises(
                                    pools, claims, begun, num_owners,
                                    owner_of[op], pool, amount, reserve,
                                )
                            ):  # fmt: skip
                                place = unlimited + pool
                                break
                    if place >= 0:
                        ops[op * OP + NEXT] = waiting[place]
                        waiting[place] = op
                        continue
                    start[op] = now
                    started += 1
                    for position in range(seat[op], seat[op + 1]):
                        busy[resource_of[position]] = 1
                    for position in range(acquired[op], acquired[op + 1]):
                        take(
                            pools, claims, begun, num_owners,
                            owner_of[op], acquired_pool[position], acquired_amount[position],
                        )  # fmt: skip
                    push(pairs, heads, events, end, -op - 1)
                    for position in range(pointer[op], pointer[op + 1]):
                        row = successor[position] * OP
                        ops[row + READY] = max(ops[row + READY], end + lag[position])
                        ops[row + MISSING] -= 1
                        if ops[row + MISSING] == 0:
                            _announce(ops, pairs, heads, unlimited, waits, successor[position])
                    if not served_last:
                        break
    for pool in range(num_pools):
        op = waiting[unlimited + pool]
        while op >= 0:
            awaited[op] = pool
            op = ops[op * OP + NEXT]

"""Parallel schedule generation: walk through time, start the best op wherever one can start."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import Heaps, empty_heaps, first_item, first_key, pop, push
from ppsolve.solver.kernels.ledger import MemoryState, give_back, shortage, take
from ppsolve.solver.kernels.records import MemoryUse, PrecedenceGraph, ResourceUse

_LATE = 2**62


class Ranking(NamedTuple):
    """Priorities and preferences; see `ppsolve.solver.heuristics.parallel.PriorityRule`.

    Attributes
    ----------
    rank : int64[n]
        Priority of each op, all different; the lowest goes first.
    filler, by_rank : int64[n]
        1 for ops that fill idle time; 0 for ops that are served first come first served.
    pinned : int64[n]
        Fixed starts, or -1.
    patience, filler_patience : float
        As in `PriorityRule`.
    frees_memory, reserve : int
        As in `PriorityRule`; 0 or 1.
    """

    rank: Any
    filler: Any
    by_rank: Any
    pinned: Any
    patience: float
    filler_patience: float
    frees_memory: int
    reserve: int


class DispatchState(NamedTuple):
    """What is ready and who waits for what. Resource number R stands for ops that occupy nothing.

    Attributes
    ----------
    home : int64[n]
        First resource of each op.
    ready, missing : int64[n]
        Earliest starts by precedences, and predecessors that have not started.
    busy, dirty : int64[R + 1]
        1 for resources that are occupied, and for those that have something to serve.
    listed : int64[R + 2]
        Number of dirty resources, then them.
    heaps : Heaps
        In blocks of R + 1 by resource, from number 0: ops by rank; from `fillers` on: fillers by
        rank; from `arrivals` on: moments and ranks of ops with a known arrival that fill nothing;
        from `pins` on: pinned starts that are still to come. Number `events`: moments at which ops
        arrive, and at which op j ends as ``-j - 1``. One table for all: every further array costs
        a tenth of a second when `walk` is compiled.
    fillers, arrivals, pins, events : int
        See `heaps`.
    first : int64[R + P]
        First op that waits for each resource, then for each pool, or -1.
    behind : int64[n]
        Next op that waits for the same, or -1.
    """

    home: Any
    ready: Any
    missing: Any
    busy: Any
    dirty: Any
    listed: Any
    heaps: Heaps
    fillers: int
    arrivals: int
    pins: int
    events: int
    first: Any
    behind: Any


def desk_of(
    graph: PrecedenceGraph, seats: ResourceUse, memory: MemoryUse, ranking: Ranking
) -> DispatchState:
    """Return the state before any op.

    Parameters
    ----------
    graph, seats, memory, ranking : PrecedenceGraph, ResourceUse, MemoryUse, Ranking
        The problem and the rule, n ops.

    Returns
    -------
    DispatchState
        Nothing is ready yet.
    """
    count, resources = len(graph.duration), seats.num_resources
    home = np.full(count, resources, dtype=np.int64)
    seated = np.flatnonzero(np.diff(seats.pointer))
    home[seated] = seats.resource[seats.pointer[seated]]
    at_home = np.bincount(home, minlength=resources + 1)
    pinned = seats.resource[np.repeat(ranking.pinned >= 0, np.diff(seats.pointer))]
    num_pinned = np.bincount(pinned, minlength=resources + 1)
    busy, dirty = np.zeros((2, resources + 1), dtype=np.int64)
    return DispatchState(
        home,
        graph.earliest.copy(),
        graph.num_predecessors.copy(),
        busy,
        dirty,
        np.zeros(resources + 2, dtype=np.int64),
        empty_heaps(np.concatenate([at_home, at_home, at_home, num_pinned, [count]])),
        resources + 1,
        2 * (resources + 1),
        3 * (resources + 1),
        4 * (resources + 1),
        np.full(resources + len(memory.size), -1, dtype=np.int64),
        np.full(count, -1, dtype=np.int64),
    )


@part
def _announce(desk: DispatchState, ranking: Ranking, op: int) -> None:
    """Schedule the arrival of an op whose predecessors have all started."""
    push(desk.heaps, desk.events, desk.ready[op], op)
    waits = ranking.patience > 0 or ranking.filler_patience > 0
    if waits and ranking.filler[op] == 0:
        push(desk.heaps, desk.arrivals + desk.home[op], desk.ready[op], ranking.rank[op])


@part
def _mark(desk: DispatchState, resource: int) -> None:
    """Note that a resource has something to serve."""
    if desk.dirty[resource] == 0:
        desk.dirty[resource] = 1
        desk.listed[0] += 1
        desk.listed[desk.listed[0]] = resource


@part
def _enqueue(desk: DispatchState, ranking: Ranking, op: int) -> None:
    home = desk.home[op]
    key = ranking.rank[op] if ranking.by_rank[op] else desk.ready[op]
    if ranking.filler[op] and home < len(desk.busy) - 1:
        push(desk.heaps, desk.fillers + home, key, op)
    else:
        push(desk.heaps, home, key, op)
    _mark(desk, home)


@part
def _wake(desk: DispatchState, ranking: Ranking, place: int) -> None:
    """Make the ops ready that wait at a place."""
    op = desk.first[place]
    desk.first[place] = -1
    while op >= 0:
        _enqueue(desk, ranking, op)
        op = desk.behind[op]


@part
def _finish(
    desk: DispatchState,
    ledger: MemoryState,
    seats: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    op: int,
) -> None:
    for position in range(seats.pointer[op], seats.pointer[op + 1]):
        resource = seats.resource[position]
        desk.busy[resource] = 0
        _mark(desk, resource)
        _wake(desk, ranking, resource)
    give_back(ledger, memory, op)
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        _wake(desk, ranking, seats.num_resources + memory.release_pool[position])


@part
def _next_to_serve(desk: DispatchState, waits: bool) -> int:
    """Unlist and return the resource to serve next; with patience that of the best rank first.

    Ops without a resource come before all others: they may make some arrive at this moment.
    """
    best, best_key, best_item, at = -1, _LATE, 0, 0
    for place in range(1, desk.listed[0] + 1):
        resource, key, item = desk.listed[place], 0, 0
        if resource == len(desk.busy) - 1:
            key = -1
        elif waits:
            key = _LATE
            if desk.heaps.size[resource] > 0:
                key, item = first_key(desk.heaps, resource), first_item(desk.heaps, resource)
        if (
            best < 0
            or key < best_key
            or (key == best_key and (item < best_item or (item == best_item and resource < best)))
        ):
            best, best_key, best_item, at = resource, key, item, place
    desk.listed[at] = desk.listed[desk.listed[0]]
    desk.listed[0] -= 1
    desk.dirty[best] = 0
    return best


@part
def _worth_waiting(
    desk: DispatchState,
    graph: PrecedenceGraph,
    ranking: Ranking,
    now: int,
    op: int,
    patience: float,
) -> bool:
    """Return true if `op` should wait for a better one that is known to arrive soon."""
    heaps, arrivals = desk.heaps, desk.arrivals + desk.home[op]
    while heaps.size[arrivals] > 0 and first_key(heaps, arrivals) <= now:
        pop(heaps, arrivals)
    if heaps.size[arrivals] == 0:
        return False
    moment = first_key(heaps, arrivals)
    if ranking.filler[op] == 0 and first_item(heaps, arrivals) > ranking.rank[op]:
        return False
    delay = now + graph.duration[op] - moment
    return delay > 0 and moment - now <= patience * delay


@part
def _is_awaited(desk: DispatchState, memory: MemoryUse, num_resources: int, op: int) -> bool:
    """Return true if an op waits for memory that `op` releases."""
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        if desk.first[num_resources + memory.release_pool[position]] >= 0:
            return True
    return False


@part
def _meets_pin(desk: DispatchState, start: Any, resource: int, op: int, end: int) -> bool:
    """Return true if an op that ends at `end` would overrun the next pinned start."""
    heaps, pins = desk.heaps, desk.pins + resource
    while heaps.size[pins] > 0 and start[first_item(heaps, pins)] >= 0:
        pop(heaps, pins)
    if heaps.size[pins] == 0 or first_item(heaps, pins) == op:
        return False
    return first_key(heaps, pins) < end


@part
def _held_up(
    desk: DispatchState,
    ledger: MemoryState,
    graph: PrecedenceGraph,
    seats: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    start: Any,
    now: int,
    op: int,
) -> bool:
    """Let `op` wait and return true if it cannot start now."""
    place = -1
    for position in range(seats.pointer[op], seats.pointer[op + 1]):
        resource = seats.resource[position]
        if desk.busy[resource] or _meets_pin(desk, start, resource, op, now + graph.duration[op]):
            place = resource
            break
    if place < 0:
        pool = shortage(ledger, memory, op, ranking.reserve)
        if pool < 0:
            return False
        place = seats.num_resources + pool
    desk.behind[op], desk.first[place] = desk.first[place], op
    return True


@part
def _start(
    desk: DispatchState,
    ledger: MemoryState,
    graph: PrecedenceGraph,
    seats: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    now: int,
    op: int,
) -> None:
    for position in range(seats.pointer[op], seats.pointer[op + 1]):
        desk.busy[seats.resource[position]] = 1
    take(ledger, memory, op)
    end = now + graph.duration[op]
    push(desk.heaps, desk.events, end, -op - 1)
    for position in range(graph.pointer[op], graph.pointer[op + 1]):
        waiter, moment = graph.successor[position], end + graph.lag[position]
        if moment > desk.ready[waiter]:
            desk.ready[waiter] = moment
        desk.missing[waiter] -= 1
        if desk.missing[waiter] == 0:
            _announce(desk, ranking, waiter)


@part
def _start_best(
    desk: DispatchState,
    ledger: MemoryState,
    graph: PrecedenceGraph,
    seats: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    start: Any,
    now: int,
    queue: int,
    resource: int,
    patience: float,
) -> None:
    """Start the first op of a queue that can start (without a resource: all that can)."""
    while desk.heaps.size[queue] > 0:
        op = first_item(desk.heaps, queue)
        if patience > 0 and _worth_waiting(desk, graph, ranking, now, op, patience):
            return
        pop(desk.heaps, queue)
        if not _held_up(desk, ledger, graph, seats, memory, ranking, start, now, op):
            start[op] = now
            _start(desk, ledger, graph, seats, memory, ranking, now, op)
            if resource < seats.num_resources:
                return


@part
def _serve(
    desk: DispatchState,
    ledger: MemoryState,
    graph: PrecedenceGraph,
    seats: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    start: Any,
    now: int,
    resource: int,
) -> None:
    heaps, fillers, patience = desk.heaps, desk.fillers + resource, ranking.patience
    if resource == seats.num_resources:
        patience = 0.0
    # A filler; then any other op; then, where that did not start either, a filler that may wait.
    for turn in range(3):
        queue, wait = resource, patience
        if turn != 1:
            if desk.busy[resource] or heaps.size[fillers] == 0:
                continue
            awaited = _is_awaited(desk, memory, seats.num_resources, first_item(heaps, fillers))
            if turn == 0 and not (awaited and ranking.frees_memory):
                continue
            queue, wait = fillers, 0.0 if awaited else ranking.filler_patience
        if desk.busy[resource] == 0:
            _start_best(
                desk, ledger, graph, seats, memory, ranking, start, now, queue, resource, wait
            )


@part
def _open(desk: DispatchState, graph: PrecedenceGraph, seats: ResourceUse, ranking: Ranking) -> int:
    """Announce the ops without predecessors; return the number of pins."""
    num_pins = 0
    for op in range(len(graph.duration)):
        if ranking.pinned[op] >= 0:
            num_pins += 1
            for position in range(seats.pointer[op], seats.pointer[op + 1]):
                push(desk.heaps, desk.pins + seats.resource[position], ranking.pinned[op], op)
        if desk.missing[op] == 0:
            _announce(desk, ranking, op)
    return num_pins


@part
def _give_up_pins(desk: DispatchState, ranking: Ranking) -> None:
    """Let ops overrun pins that cannot be kept; the checker reports them."""
    for resource in range(len(desk.busy) - 1):
        desk.heaps.size[desk.pins + resource] = 0
        _wake(desk, ranking, resource)


@Kernel
def walk(
    graph: PrecedenceGraph,
    seats: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    desk: DispatchState,
    ledger: MemoryState,
    start: Any,
    awaited: Any,
) -> None:
    """Schedule all ops that can start.

    Parameters
    ----------
    graph, seats, memory, ranking : PrecedenceGraph, ResourceUse, MemoryUse, Ranking
        The problem and the rule, n ops.
    desk, ledger : DispatchState, MemoryState
        The state before any op; written.
    start : int64[n]
        All -1; becomes the starts in ticks, -1 for ops that never start.
    awaited : int64[n]
        All -1; becomes the pool for whose memory an op waits at the end.
    """
    heaps, events, now, unlimited = desk.heaps, desk.events, 0, seats.num_resources
    waits = ranking.patience > 0 or ranking.filler_patience > 0
    has_pins = _open(desk, graph, seats, ranking) > 0
    while True:
        while heaps.size[events] > 0 and first_key(heaps, events) == now:
            code = pop(heaps, events)
            if code >= 0:
                _enqueue(desk, ranking, code)
            else:
                _finish(desk, ledger, seats, memory, ranking, -code - 1)
        resource = -1
        while desk.listed[0] > 0 and resource != unlimited:
            resource = _next_to_serve(desk, waits)
            _serve(desk, ledger, graph, seats, memory, ranking, start, now, resource)
        if desk.listed[0] > 0 or resource == unlimited:
            continue
        if heaps.size[events] > 0:
            now = first_key(heaps, events)
        elif has_pins:
            has_pins = False
            _give_up_pins(desk, ranking)
        else:
            break
    for pool in range(len(memory.size)):
        op = desk.first[unlimited + pool]
        while op >= 0:
            awaited[op] = pool
            op = desk.behind[op]


def run_walk(
    graph: PrecedenceGraph,
    seats: ResourceUse,
    memory: MemoryUse,
    ledger: MemoryState,
    ranking: Ranking,
) -> tuple[IntArray, IntArray]:
    """Schedule all ops that can start.

    Parameters
    ----------
    graph, seats, memory, ranking : PrecedenceGraph, ResourceUse, MemoryUse, Ranking
        The problem and the rule, n ops.
    ledger : MemoryState
        State of all pools before any op; written.

    Returns
    -------
    start, awaited : int64[n], int64[n]
        Starts in ticks, -1 for ops that never start; the pool for whose memory an op waits at the
        end, else -1.
    """
    start, awaited = np.full((2, len(graph.duration)), -1, dtype=np.int64)
    desk = desk_of(graph, seats, memory, ranking)
    walk(graph, seats, memory, ranking, desk, ledger, start, awaited)
    return start, awaited

"""Parallel schedule generation: walk through time, start the best op wherever one can start."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import (
    Heaps,
    empty_heaps,
    first_item,
    first_key,
    pop,
    push,
)
from ppsolve.solver.kernels.memory_state import MemoryState, give_back, shortage, take
from ppsolve.solver.kernels.records import (
    NEVER,
    MemoryUse,
    PrecedenceGraph,
    ResourceUse,
)

PATIENCE = 1024
"""What a patience of 1 is for the kernel, which has no floats."""


class Ranking(NamedTuple):
    """Priorities and preferences; see `ppsolve.solver.heuristics.list_scheduling.PriorityRule`."""

    rank: Any  # int64[n]: priority of each op, all different; the lowest goes first
    filler: Any  # int64[n]: 1 for ops that fill idle time
    by_rank: Any  # int64[n]: 0 for ops that are served first come first served
    pinned: Any  # int64[n]: fixed starts, or -1
    patience: int  # in 1 / `PATIENCE`
    filler_patience: int
    frees_memory: int  # 0 or 1
    reserve: int  # 0 or 1


class DispatchState(NamedTuple):
    """The problem, what is ready, and who waits for what.

    Resource number R stands for ops that occupy nothing. `heaps` are in blocks of R + 1 by
    resource, from number 0: ops by rank; from `fillers` on: fillers by rank; from `arrivals` on:
    moments and ranks of ops with a known arrival that fill nothing; from `pins` on: pinned starts
    that are still to come. Number `events`: moments at which ops arrive, and at which op j ends as
    ``-j - 1``.
    """

    graph: PrecedenceGraph
    use: ResourceUse
    memory: MemoryUse
    ranking: Ranking
    pools: MemoryState
    home: Any  # int64[n]: first resource of each op
    ready: Any  # int64[n]: earliest starts by precedences
    missing: Any  # int64[n]: number of predecessors that have not started
    busy: Any  # int64[R + 1]: 1 while occupied
    dirty: Any  # int64[R + 1]: 1 where there is something to serve
    num_dirty: Any  # int64[1]
    listed: Any  # int64[R + 1]: the dirty resources
    heaps: Heaps
    fillers: int
    arrivals: int
    pins: int
    events: int
    first: Any  # int64[R + P]: first op that waits for each resource, then for each pool, or -1
    behind: Any  # int64[n]: next op that waits for the same, or -1


def _dispatch_of(
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    pools: MemoryState,
    ranking: Ranking,
) -> DispatchState:
    count, blocks = len(graph.duration), use.num_resources + 1
    home = np.full(count, use.num_resources, dtype=np.int64)
    seated = np.flatnonzero(np.diff(use.pointer))
    home[seated] = use.resource[use.pointer[seated]]
    at_home = np.bincount(home, minlength=blocks)
    pinned = use.resource[np.repeat(ranking.pinned >= 0, np.diff(use.pointer))]
    num_pinned = np.bincount(pinned, minlength=blocks)
    busy, dirty, listed = np.zeros((3, blocks), dtype=np.int64)
    return DispatchState(
        graph,
        use,
        memory,
        ranking,
        pools,
        home,
        graph.earliest.copy(),
        graph.num_predecessors.copy(),
        busy,
        dirty,
        np.zeros(1, dtype=np.int64),
        listed,
        empty_heaps(np.concatenate([at_home, at_home, at_home, num_pinned, [count]])),
        blocks,
        2 * blocks,
        3 * blocks,
        4 * blocks,
        np.full(use.num_resources + len(memory.size), -1, dtype=np.int64),
        np.full(count, -1, dtype=np.int64),
    )


@part
def _announce(state: DispatchState, op: int) -> None:
    """Schedule the arrival of an op whose predecessors have all started."""
    ranking = state.ranking
    push(state.heaps, state.events, state.ready[op], op)
    waits = ranking.patience > 0 or ranking.filler_patience > 0
    if waits and ranking.filler[op] == 0:
        push(
            state.heaps,
            state.arrivals + state.home[op],
            state.ready[op],
            ranking.rank[op],
        )


@part
def _mark(state: DispatchState, resource: int) -> None:
    """Note that a resource has something to serve."""
    if state.dirty[resource] == 0:
        state.dirty[resource] = 1
        state.listed[state.num_dirty[0]] = resource
        state.num_dirty[0] += 1


@part
def _enqueue(state: DispatchState, op: int) -> None:
    home, ranking = state.home[op], state.ranking
    key = ranking.rank[op] if ranking.by_rank[op] else state.ready[op]
    if ranking.filler[op] and home < state.use.num_resources:
        push(state.heaps, state.fillers + home, key, op)
    else:
        push(state.heaps, home, key, op)
    _mark(state, home)


@part
def _wake(state: DispatchState, queue: int) -> None:
    """Make the ops ready that wait at a place."""
    op = state.first[queue]
    state.first[queue] = -1
    while op >= 0:
        _enqueue(state, op)
        op = state.behind[op]


@part
def _finish(state: DispatchState, op: int) -> None:
    use, memory = state.use, state.memory
    for position in range(use.pointer[op], use.pointer[op + 1]):
        resource = use.resource[position]
        state.busy[resource] = 0
        _mark(state, resource)
        _wake(state, resource)
    give_back(state.pools, memory, op)
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        _wake(state, use.num_resources + memory.release_pool[position])


@part
def _next_to_serve(state: DispatchState, waits: bool) -> int:
    """Unlist and return the resource to serve next; with patience that of the best rank first.

    Ops without a resource come before all others: they may make some arrive at this moment.
    """
    best, best_key, best_item, best_index = -1, NEVER, 0, 0
    heaps, listed, unlimited = state.heaps, state.listed, state.use.num_resources
    for index in range(state.num_dirty[0]):
        resource, key, item = listed[index], 0, 0
        if resource == unlimited:
            key = -1
        elif waits:
            key = NEVER
            if heaps.size[resource] > 0:
                key, item = first_key(heaps, resource), first_item(heaps, resource)
        if (
            best < 0
            or key < best_key
            or (
                key == best_key
                and (item < best_item or (item == best_item and resource < best))
            )
        ):
            best, best_key, best_item, best_index = resource, key, item, index
    state.num_dirty[0] -= 1
    listed[best_index] = listed[state.num_dirty[0]]
    state.dirty[best] = 0
    return best


@part
def _worth_waiting(state: DispatchState, now: int, op: int, patience: int) -> bool:
    """Whether `op` should wait for a better one that is known to arrive soon."""
    heaps, ranking, arrivals = (
        state.heaps,
        state.ranking,
        state.arrivals + state.home[op],
    )
    while heaps.size[arrivals] > 0 and first_key(heaps, arrivals) <= now:
        pop(heaps, arrivals)
    if heaps.size[arrivals] == 0:
        return False
    moment = first_key(heaps, arrivals)
    if ranking.filler[op] == 0 and first_item(heaps, arrivals) > ranking.rank[op]:
        return False
    delay = now + state.graph.duration[op] - moment
    return delay > 0 and (moment - now) * PATIENCE <= patience * delay


@part
def _is_awaited(state: DispatchState, op: int) -> bool:
    """Whether an op waits for memory that `op` releases."""
    memory, unlimited = state.memory, state.use.num_resources
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        if state.first[unlimited + memory.release_pool[position]] >= 0:
            return True
    return False


@part
def _meets_pin(
    state: DispatchState, start: Any, resource: int, op: int, end: int
) -> bool:
    """Whether an op that ends at `end` would overrun the next pinned start."""
    heaps, pins = state.heaps, state.pins + resource
    while heaps.size[pins] > 0 and start[first_item(heaps, pins)] >= 0:
        pop(heaps, pins)
    if heaps.size[pins] == 0 or first_item(heaps, pins) == op:
        return False
    return first_key(heaps, pins) < end


@part
def _held_up(state: DispatchState, start: Any, now: int, op: int) -> bool:
    """Let `op` wait and return true if it cannot start now."""
    use, queue, end = state.use, -1, now + state.graph.duration[op]
    for position in range(use.pointer[op], use.pointer[op + 1]):
        resource = use.resource[position]
        if state.busy[resource] or _meets_pin(state, start, resource, op, end):
            queue = resource
            break
    if queue < 0:
        pool = shortage(state.pools, state.memory, op, state.ranking.reserve)
        if pool < 0:
            return False
        queue = use.num_resources + pool
    state.behind[op], state.first[queue] = state.first[queue], op
    return True


@part
def _start(state: DispatchState, now: int, op: int) -> None:
    use, graph, arrival, missing = state.use, state.graph, state.ready, state.missing
    for position in range(use.pointer[op], use.pointer[op + 1]):
        state.busy[use.resource[position]] = 1
    take(state.pools, state.memory, op)
    end = now + graph.duration[op]
    push(state.heaps, state.events, end, -op - 1)
    for position in range(graph.pointer[op], graph.pointer[op + 1]):
        waiter, moment = graph.successor[position], end + graph.lag[position]
        if moment > arrival[waiter]:
            arrival[waiter] = moment
        missing[waiter] -= 1
        if missing[waiter] == 0:
            _announce(state, waiter)


@part
def _start_best(
    state: DispatchState, start: Any, now: int, queue: int, resource: int, patience: int
) -> None:
    """Start the first op of a queue that can start (without a resource: all that can)."""
    while state.heaps.size[queue] > 0:
        op = first_item(state.heaps, queue)
        if patience > 0 and _worth_waiting(state, now, op, patience):
            return
        pop(state.heaps, queue)
        if not _held_up(state, start, now, op):
            start[op] = now
            _start(state, now, op)
            if resource < state.use.num_resources:
                return


@part
def _serve(state: DispatchState, start: Any, now: int, resource: int) -> None:
    heaps, ranking, fillers = state.heaps, state.ranking, state.fillers + resource
    patience = ranking.patience
    if resource == state.use.num_resources:
        patience = 0
    # A filler; then any other op; then, where that did not start either, a filler that may wait.
    for turn in range(3):
        queue, wait = resource, patience
        if turn != 1:
            if state.busy[resource] or heaps.size[fillers] == 0:
                continue
            awaited = _is_awaited(state, first_item(heaps, fillers))
            if turn == 0 and not (awaited and ranking.frees_memory):
                continue
            queue, wait = fillers, 0 if awaited else ranking.filler_patience
        if state.busy[resource] == 0:
            _start_best(state, start, now, queue, resource, wait)


@part
def _open(state: DispatchState) -> int:
    """Announce the ops without predecessors; return the number of pins."""
    num_pins, use, pinned = 0, state.use, state.ranking.pinned
    for op in range(len(state.graph.duration)):
        if pinned[op] >= 0:
            num_pins += 1
            for position in range(use.pointer[op], use.pointer[op + 1]):
                push(state.heaps, state.pins + use.resource[position], pinned[op], op)
        if state.missing[op] == 0:
            _announce(state, op)
    return num_pins


@part
def _give_up_pins(state: DispatchState) -> None:
    """Let ops overrun pins that cannot be kept; the checker reports them."""
    for resource in range(state.use.num_resources):
        state.heaps.size[state.pins + resource] = 0
        _wake(state, resource)


@Kernel
def parallel_sgs(state: DispatchState, start: Any, awaited: Any) -> None:
    """Schedule all ops that can start.

    Starts, and the pools for whose memory ops wait at the end, are all -1 before; they stay so for
    ops that never start, and for those that wait for no memory. The state is written.
    """
    heaps, events, now, unlimited = (
        state.heaps,
        state.events,
        0,
        state.use.num_resources,
    )
    waits = state.ranking.patience > 0 or state.ranking.filler_patience > 0
    has_pins = _open(state) > 0
    while True:
        while heaps.size[events] > 0 and first_key(heaps, events) == now:
            code = pop(heaps, events)
            if code >= 0:
                _enqueue(state, code)
            else:
                _finish(state, -code - 1)
        resource = -1
        while state.num_dirty[0] > 0 and resource != unlimited:
            resource = _next_to_serve(state, waits)
            _serve(state, start, now, resource)
        if state.num_dirty[0] > 0 or resource == unlimited:
            continue
        if heaps.size[events] > 0:
            now = first_key(heaps, events)
        elif has_pins:
            has_pins = False
            _give_up_pins(state)
        else:
            break
    for pool in range(len(state.memory.size)):
        op = state.first[unlimited + pool]
        while op >= 0:
            awaited[op] = pool
            op = state.behind[op]


def run_parallel_sgs(
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    pools: MemoryState,
    ranking: Ranking,
) -> tuple[IntArray, IntArray]:
    """Schedule all ops that can start; the state of all pools is written.

    Starts in ticks are -1 for ops that never start; so are the pools for whose memory ops wait at
    the end, where they wait for none.
    """
    start, awaited = np.full((2, len(graph.duration)), -1, dtype=np.int64)
    parallel_sgs(_dispatch_of(graph, use, memory, pools, ranking), start, awaited)
    return start, awaited

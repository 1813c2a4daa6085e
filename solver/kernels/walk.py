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


def dispatch_of(
    graph: PrecedenceGraph, use: ResourceUse, memory: MemoryUse, ranking: Ranking
) -> DispatchState:
    """Return the state before any op.

    Parameters
    ----------
    graph, use, memory, ranking : PrecedenceGraph, ResourceUse, MemoryUse, Ranking
        The problem and the rule, n ops.

    Returns
    -------
    DispatchState
        Nothing is ready yet.
    """
    count, resources = len(graph.duration), use.num_resources
    home = np.full(count, resources, dtype=np.int64)
    seated = np.flatnonzero(np.diff(use.pointer))
    home[seated] = use.resource[use.pointer[seated]]
    at_home = np.bincount(home, minlength=resources + 1)
    pinned = use.resource[np.repeat(ranking.pinned >= 0, np.diff(use.pointer))]
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
def _announce(dispatch: DispatchState, ranking: Ranking, op: int) -> None:
    """Schedule the arrival of an op whose predecessors have all started."""
    push(dispatch.heaps, dispatch.events, dispatch.ready[op], op)
    waits = ranking.patience > 0 or ranking.filler_patience > 0
    if waits and ranking.filler[op] == 0:
        push(
            dispatch.heaps,
            dispatch.arrivals + dispatch.home[op],
            dispatch.ready[op],
            ranking.rank[op],
        )


@part
def _mark(dispatch: DispatchState, resource: int) -> None:
    """Note that a resource has something to serve."""
    if dispatch.dirty[resource] == 0:
        dispatch.dirty[resource] = 1
        dispatch.listed[0] += 1
        dispatch.listed[dispatch.listed[0]] = resource


@part
def _enqueue(dispatch: DispatchState, ranking: Ranking, op: int) -> None:
    home = dispatch.home[op]
    key = ranking.rank[op] if ranking.by_rank[op] else dispatch.ready[op]
    if ranking.filler[op] and home < len(dispatch.busy) - 1:
        push(dispatch.heaps, dispatch.fillers + home, key, op)
    else:
        push(dispatch.heaps, home, key, op)
    _mark(dispatch, home)


@part
def _wake(dispatch: DispatchState, ranking: Ranking, place: int) -> None:
    """Make the ops ready that wait at a place."""
    op = dispatch.first[place]
    dispatch.first[place] = -1
    while op >= 0:
        _enqueue(dispatch, ranking, op)
        op = dispatch.behind[op]


@part
def _finish(
    dispatch: DispatchState,
    state: MemoryState,
    use: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    op: int,
) -> None:
    for position in range(use.pointer[op], use.pointer[op + 1]):
        resource = use.resource[position]
        dispatch.busy[resource] = 0
        _mark(dispatch, resource)
        _wake(dispatch, ranking, resource)
    give_back(state, memory, op)
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        _wake(dispatch, ranking, use.num_resources + memory.release_pool[position])


@part
def _next_to_serve(dispatch: DispatchState, waits: bool) -> int:
    """Unlist and return the resource to serve next; with patience that of the best rank first.

    Ops without a resource come before all others: they may make some arrive at this moment.
    """
    best, best_key, best_item, at = -1, _LATE, 0, 0
    for place in range(1, dispatch.listed[0] + 1):
        resource, key, item = dispatch.listed[place], 0, 0
        if resource == len(dispatch.busy) - 1:
            key = -1
        elif waits:
            key = _LATE
            if dispatch.heaps.size[resource] > 0:
                key, item = (
                    first_key(dispatch.heaps, resource),
                    first_item(dispatch.heaps, resource),
                )
        if (
            best < 0
            or key < best_key
            or (key == best_key and (item < best_item or (item == best_item and resource < best)))
        ):
            best, best_key, best_item, at = resource, key, item, place
    dispatch.listed[at] = dispatch.listed[dispatch.listed[0]]
    dispatch.listed[0] -= 1
    dispatch.dirty[best] = 0
    return best


@part
def _worth_waiting(
    dispatch: DispatchState,
    graph: PrecedenceGraph,
    ranking: Ranking,
    now: int,
    op: int,
    patience: float,
) -> bool:
    """Return true if `op` should wait for a better one that is known to arrive soon."""
    heaps, arrivals = dispatch.heaps, dispatch.arrivals + dispatch.home[op]
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
def _is_awaited(dispatch: DispatchState, memory: MemoryUse, num_resources: int, op: int) -> bool:
    """Return true if an op waits for memory that `op` releases."""
    for position in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        if dispatch.first[num_resources + memory.release_pool[position]] >= 0:
            return True
    return False


@part
def _meets_pin(dispatch: DispatchState, start: Any, resource: int, op: int, end: int) -> bool:
    """Return true if an op that ends at `end` would overrun the next pinned start."""
    heaps, pins = dispatch.heaps, dispatch.pins + resource
    while heaps.size[pins] > 0 and start[first_item(heaps, pins)] >= 0:
        pop(heaps, pins)
    if heaps.size[pins] == 0 or first_item(heaps, pins) == op:
        return False
    return first_key(heaps, pins) < end


@part
def _held_up(
    dispatch: DispatchState,
    state: MemoryState,
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    start: Any,
    now: int,
    op: int,
) -> bool:
    """Let `op` wait and return true if it cannot start now."""
    place = -1
    for position in range(use.pointer[op], use.pointer[op + 1]):
        resource = use.resource[position]
        if dispatch.busy[resource] or _meets_pin(
            dispatch, start, resource, op, now + graph.duration[op]
        ):
            place = resource
            break
    if place < 0:
        pool = shortage(state, memory, op, ranking.reserve)
        if pool < 0:
            return False
        place = use.num_resources + pool
    dispatch.behind[op], dispatch.first[place] = dispatch.first[place], op
    return True


@part
def _start(
    dispatch: DispatchState,
    state: MemoryState,
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    now: int,
    op: int,
) -> None:
    for position in range(use.pointer[op], use.pointer[op + 1]):
        dispatch.busy[use.resource[position]] = 1
    take(state, memory, op)
    end = now + graph.duration[op]
    push(dispatch.heaps, dispatch.events, end, -op - 1)
    for position in range(graph.pointer[op], graph.pointer[op + 1]):
        waiter, moment = graph.successor[position], end + graph.lag[position]
        if moment > dispatch.ready[waiter]:
            dispatch.ready[waiter] = moment
        dispatch.missing[waiter] -= 1
        if dispatch.missing[waiter] == 0:
            _announce(dispatch, ranking, waiter)


@part
def _start_best(
    dispatch: DispatchState,
    state: MemoryState,
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    start: Any,
    now: int,
    queue: int,
    resource: int,
    patience: float,
) -> None:
    """Start the first op of a queue that can start (without a resource: all that can)."""
    while dispatch.heaps.size[queue] > 0:
        op = first_item(dispatch.heaps, queue)
        if patience > 0 and _worth_waiting(dispatch, graph, ranking, now, op, patience):
            return
        pop(dispatch.heaps, queue)
        if not _held_up(dispatch, state, graph, use, memory, ranking, start, now, op):
            start[op] = now
            _start(dispatch, state, graph, use, memory, ranking, now, op)
            if resource < use.num_resources:
                return


@part
def _serve(
    dispatch: DispatchState,
    state: MemoryState,
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    start: Any,
    now: int,
    resource: int,
) -> None:
    heaps, fillers, patience = dispatch.heaps, dispatch.fillers + resource, ranking.patience
    if resource == use.num_resources:
        patience = 0.0
    # A filler; then any other op; then, where that did not start either, a filler that may wait.
    for turn in range(3):
        queue, wait = resource, patience
        if turn != 1:
            if dispatch.busy[resource] or heaps.size[fillers] == 0:
                continue
            awaited = _is_awaited(dispatch, memory, use.num_resources, first_item(heaps, fillers))
            if turn == 0 and not (awaited and ranking.frees_memory):
                continue
            queue, wait = fillers, 0.0 if awaited else ranking.filler_patience
        if dispatch.busy[resource] == 0:
            _start_best(
                dispatch, state, graph, use, memory, ranking, start, now, queue, resource, wait
            )


@part
def _open(
    dispatch: DispatchState, graph: PrecedenceGraph, use: ResourceUse, ranking: Ranking
) -> int:
    """Announce the ops without predecessors; return the number of pins."""
    num_pins = 0
    for op in range(len(graph.duration)):
        if ranking.pinned[op] >= 0:
            num_pins += 1
            for position in range(use.pointer[op], use.pointer[op + 1]):
                push(dispatch.heaps, dispatch.pins + use.resource[position], ranking.pinned[op], op)
        if dispatch.missing[op] == 0:
            _announce(dispatch, ranking, op)
    return num_pins


@part
def _give_up_pins(dispatch: DispatchState, ranking: Ranking) -> None:
    """Let ops overrun pins that cannot be kept; the checker reports them."""
    for resource in range(len(dispatch.busy) - 1):
        dispatch.heaps.size[dispatch.pins + resource] = 0
        _wake(dispatch, ranking, resource)


@Kernel
def walk(
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    ranking: Ranking,
    dispatch: DispatchState,
    state: MemoryState,
    start: Any,
    awaited: Any,
) -> None:
    """Schedule all ops that can start.

    Parameters
    ----------
    graph, use, memory, ranking : PrecedenceGraph, ResourceUse, MemoryUse, Ranking
        The problem and the rule, n ops.
    dispatch, state : DispatchState, MemoryState
        The state before any op; written.
    start : int64[n]
        All -1; becomes the starts in ticks, -1 for ops that never start.
    awaited : int64[n]
        All -1; becomes the pool for whose memory an op waits at the end.
    """
    heaps, events, now, unlimited = dispatch.heaps, dispatch.events, 0, use.num_resources
    waits = ranking.patience > 0 or ranking.filler_patience > 0
    has_pins = _open(dispatch, graph, use, ranking) > 0
    while True:
        while heaps.size[events] > 0 and first_key(heaps, events) == now:
            code = pop(heaps, events)
            if code >= 0:
                _enqueue(dispatch, ranking, code)
            else:
                _finish(dispatch, state, use, memory, ranking, -code - 1)
        resource = -1
        while dispatch.listed[0] > 0 and resource != unlimited:
            resource = _next_to_serve(dispatch, waits)
            _serve(dispatch, state, graph, use, memory, ranking, start, now, resource)
        if dispatch.listed[0] > 0 or resource == unlimited:
            continue
        if heaps.size[events] > 0:
            now = first_key(heaps, events)
        elif has_pins:
            has_pins = False
            _give_up_pins(dispatch, ranking)
        else:
            break
    for pool in range(len(memory.size)):
        op = dispatch.first[unlimited + pool]
        while op >= 0:
            awaited[op] = pool
            op = dispatch.behind[op]


def run_walk(
    graph: PrecedenceGraph,
    use: ResourceUse,
    memory: MemoryUse,
    state: MemoryState,
    ranking: Ranking,
) -> tuple[IntArray, IntArray]:
    """Schedule all ops that can start.

    Parameters
    ----------
    graph, use, memory, ranking : PrecedenceGraph, ResourceUse, MemoryUse, Ranking
        The problem and the rule, n ops.
    state : MemoryState
        State of all pools before any op; written.

    Returns
    -------
    start, awaited : int64[n], int64[n]
        Starts in ticks, -1 for ops that never start; the pool for whose memory an op waits at the
        end, else -1.
    """
    start, awaited = np.full((2, len(graph.duration)), -1, dtype=np.int64)
    dispatch = dispatch_of(graph, use, memory, ranking)
    walk(graph, use, memory, ranking, dispatch, state, start, awaited)
    return start, awaited

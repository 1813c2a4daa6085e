"""Ops in order on their resources: earliest starts and tails, all or those that a move changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import part


class OrderState(NamedTuple):
    """What is ordered: n ops, each on one resource or on none; V positions of alike vectors."""

    duration: Any  # int64[n]: ticks
    resource: Any  # int64[n]: resource of each op, or -1
    need: Any  # int64[n]: amount that an op acquires in the one pool of its resource
    freed: Any  # int64[n]: amount that it releases there at its end
    room: Any  # int64[R]: free amount of that pool before any op
    into: Any  # int64[n + 1]: rows of source and wait, by the op that waits
    source: Any  # int64[k]: op that comes first
    wait: Any  # int64[k]: lag in ticks
    out: Any  # int64[n + 1]: rows of target and delay, by the op that comes first
    target: Any  # int64[k]: op that waits
    delay: Any  # int64[k]: lag in ticks
    row: Any  # int64[n]: vector (micro-batch) of each op, or -1
    column: Any  # int64[n]: its position there, or -1
    twin: Any  # int64[vectors * V]: ops of the vectors
    width: int  # V
    chance: Any  # int64[...]: exponentially distributed numbers, mean 65,536


class OrderBuffers(NamedTuple):
    """Room for a search over n ops. Everything is written."""

    last: Any  # int64[R]
    level: Any  # int64[R]
    before: Any  # int64[n]: op before each one on its resource, or -1
    after: Any  # int64[n]: op behind it
    head: Any  # int64[n]: earliest start
    ready: Any  # int64[n]: earliest start that precedences alone allow
    tail: Any  # int64[n]: longest path from an op's start to the end of all
    rest: Any  # int64[n]: longest path from its end, by precedences alone
    free: Any  # int64[n]: free amount of the pool just before an op
    place: Any  # int64[n]: place of each op in the topological order
    stale: Any  # int64[n]: 1 where the head has to be found again
    dated: Any  # int64[n]: 1 where the tail has to be found again
    path: Any  # int64[n]: a longest path
    first: Any  # int64[n]: for each place of it, the first place of its block
    final: Any  # int64[n]: the last place of its block
    line: Any  # int64[n]: a stretch of ops in the order of a move
    early: Any  # int64[n]: the heads that they would get


class Changed(NamedTuple):
    """What has to be timed again; nothing where there are no heads."""

    begin: int  # place in the order at which ops with a stale head begin
    end: int  # place at which those with a stale tail end
    heads: int  # their numbers
    tails: int


@part
def _link(state: OrderState, buffers: OrderBuffers, order: Any) -> None:
    """Set neighbours, free amounts and places of all ops from a topological order."""
    for resource in range(len(buffers.last)):
        buffers.last[resource] = -1
    for index in range(len(order)):
        op = order[index]
        buffers.place[op], buffers.before[op], buffers.after[op] = index, -1, -1
        resource = state.resource[op]
        if resource < 0:
            continue
        last = buffers.last[resource]
        buffers.before[op], buffers.last[resource] = last, op
        if last < 0:
            buffers.free[op] = state.room[resource]
        else:
            buffers.after[last] = op
            buffers.free[op] = buffers.free[last] - state.need[last] + state.freed[last]


@part
def find_heads(
    state: OrderState, buffers: OrderBuffers, order: Any, changed: Changed
) -> None:
    """Find the earliest starts of stale ops, and of all that follow from them, again."""
    duration, source, wait, target = (
        state.duration,
        state.source,
        state.wait,
        state.target,
    )
    head, stale, after = buffers.head, buffers.stale, buffers.after
    index, pending = changed.begin, changed.heads
    while pending > 0:
        op = order[index]
        index += 1
        if stale[op] == 0:
            continue
        stale[op] = 0
        pending -= 1
        start = 0
        for row in range(state.into[op], state.into[op + 1]):
            leader = source[row]
            start = max(start, head[leader] + duration[leader] + wait[row])
        buffers.ready[op] = start
        leader = buffers.before[op]
        if leader >= 0:
            start = max(start, head[leader] + duration[leader])
        if start == head[op]:
            continue
        head[op] = start
        for row in range(state.out[op], state.out[op + 1]):
            pending += 1 - stale[target[row]]
            stale[target[row]] = 1
        if after[op] >= 0:
            pending += 1 - stale[after[op]]
            stale[after[op]] = 1


@part
def find_tails(
    state: OrderState, buffers: OrderBuffers, order: Any, changed: Changed
) -> None:
    """Find the tails of stale ops, and of all that follow from them, again."""
    duration, source, target, delay = (
        state.duration,
        state.source,
        state.target,
        state.delay,
    )
    tail, stale, before = buffers.tail, buffers.dated, buffers.before
    index, pending = changed.end, changed.tails
    while pending > 0:
        op = order[index]
        index -= 1
        if stale[op] == 0:
            continue
        stale[op] = 0
        pending -= 1
        longest = 0
        for row in range(state.out[op], state.out[op + 1]):
            longest = max(longest, tail[target[row]] + delay[row])
        buffers.rest[op] = longest
        if buffers.after[op] >= 0:
            longest = max(longest, tail[buffers.after[op]])
        longest += duration[op]
        if longest == tail[op]:
            continue
        tail[op] = longest
        for row in range(state.into[op], state.into[op + 1]):
            pending += 1 - stale[source[row]]
            stale[source[row]] = 1
        if before[op] >= 0:
            pending += 1 - stale[before[op]]
            stale[before[op]] = 1


@part
def simulate(state: OrderState, buffers: OrderBuffers, order: Any) -> int:
    """Return the makespan of an order, or -1 where it breaks a precedence or overfills a pool."""
    duration, source, wait, head = (
        state.duration,
        state.source,
        state.wait,
        buffers.early,
    )
    end, free, longest = buffers.last, buffers.level, 0
    for resource in range(len(end)):
        end[resource], free[resource] = 0, state.room[resource]
    for index in range(len(order)):
        op = order[index]
        start, resource = 0, state.resource[op]
        if resource >= 0:
            start = end[resource]
            free[resource] -= state.need[op]
            if free[resource] < 0:
                return -1
            free[resource] += state.freed[op]
        for row in range(state.into[op], state.into[op + 1]):
            leader = source[row]
            if buffers.place[leader] > index:
                return -1
            start = max(start, head[leader] + duration[leader] + wait[row])
        head[op] = start
        start += duration[op]
        longest = max(longest, start)
        if resource >= 0:
            end[resource] = start
    return longest


@part
def outdate_all(state: OrderState, buffers: OrderBuffers, order: Any) -> Changed:
    """Link all ops from a topological order; all have to be timed again."""
    count = len(order)
    _link(state, buffers, order)
    for op in range(count):
        buffers.head[op], buffers.tail[op], buffers.stale[op], buffers.dated[op] = (
            -1,
            -1,
            1,
            1,
        )
    return Changed(0, count - 1, count, count)

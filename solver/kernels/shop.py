"""Ops in order on their resources: earliest starts and tails, all or those that a move changes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import part

BEGIN, END, HEADS, TAILS = 0, 1, 2, 3
"""Places in `Bench.todo`."""


class OrderState(NamedTuple):
    """What is ordered: n ops, each on one resource or on none.

    Attributes
    ----------
    duration : int64[n]
        Durations in ticks.
    resource : int64[n]
        Resource of each op, or -1.
    need, freed : int64[n]
        Amounts that an op acquires at its start and releases at its end, in the one pool of its
        resource.
    room : int64[R]
        Free amount of that pool before any op.
    into, source, wait : int64[n + 1], int64[k], int64[k]
        Precedences by the op that waits: rows, op that comes first, lag in ticks.
    out, target, delay : int64[n + 1], int64[k], int64[k]
        The same by the op that comes first: rows, op that waits, lag in ticks.
    chance : int64[CHANCES]
        Exponentially distributed numbers, mean 65,536: a table, so that all machines agree.
    """

    duration: Any
    resource: Any
    need: Any
    freed: Any
    room: Any
    into: Any
    source: Any
    wait: Any
    out: Any
    target: Any
    delay: Any
    row: Any
    column: Any
    twin: Any
    width: int
    chance: Any


class Bench(NamedTuple):
    """Room for a search over n ops.

    Attributes
    ----------
    last, level : int64[R]
        Anything.
    todo : int64[4]
        Place at which ops with a stale head begin and at which those with a stale tail end; their
        numbers.
    before, after : int64[n]
        Neighbours of each op on its resource, or -1.
    head, ready : int64[n]
        Earliest start; earliest start that precedences alone allow.
    tail, rest : int64[n]
        Longest path from an op's start to the end of all; from its end, by precedences alone.
    free : int64[n]
        Free amount of the pool just before an op.
    place : int64[n]
        Place of each op in the topological order.
    stale, dated : int64[n]
        1 for ops whose head, and for ops whose tail, has to be found again.
    path, first, final : int64[n]
        A longest path, and for each of its places the first and last place of its block.
    line, early : int64[n]
        A stretch of ops in the order of a move, and the heads that they would get.
    """

    last: Any
    level: Any
    todo: Any
    before: Any
    after: Any
    head: Any
    ready: Any
    tail: Any
    rest: Any
    free: Any
    place: Any
    stale: Any
    dated: Any
    path: Any
    first: Any
    final: Any
    line: Any
    early: Any


@part
def _link(state: OrderState, bench: Bench, order: Any) -> None:
    """Set neighbours, free amounts and places of all ops from a topological order."""
    for resource in range(len(bench.last)):
        bench.last[resource] = -1
    for place in range(len(order)):
        op = order[place]
        bench.place[op], bench.before[op], bench.after[op] = place, -1, -1
        resource = state.resource[op]
        if resource < 0:
            continue
        other = bench.last[resource]
        bench.before[op], bench.last[resource] = other, op
        if other < 0:
            bench.free[op] = state.room[resource]
        else:
            bench.after[other] = op
            bench.free[op] = bench.free[other] - state.need[other] + state.freed[other]


@part
def find_heads(state: OrderState, bench: Bench, order: Any) -> None:
    """Find the earliest starts of stale ops, and of all that follow from them, again."""
    duration, source, wait, target = state.duration, state.source, state.wait, state.target
    head, stale, after = bench.head, bench.stale, bench.after
    place, pending, bench.todo[HEADS] = bench.todo[BEGIN], bench.todo[HEADS], 0
    while pending > 0:
        op = order[place]
        place += 1
        if stale[op] == 0:
            continue
        stale[op] = 0
        pending -= 1
        start = 0
        for row in range(state.into[op], state.into[op + 1]):
            other = source[row]
            start = max(start, head[other] + duration[other] + wait[row])
        bench.ready[op] = start
        other = bench.before[op]
        if other >= 0:
            start = max(start, head[other] + duration[other])
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
def find_tails(state: OrderState, bench: Bench, order: Any) -> None:
    """Find the tails of stale ops, and of all that follow from them, again."""
    duration, source, target, delay = state.duration, state.source, state.target, state.delay
    tail, stale, before = bench.tail, bench.dated, bench.before
    place, pending, bench.todo[TAILS] = bench.todo[END], bench.todo[TAILS], 0
    while pending > 0:
        op = order[place]
        place -= 1
        if stale[op] == 0:
            continue
        stale[op] = 0
        pending -= 1
        rest = 0
        for row in range(state.out[op], state.out[op + 1]):
            rest = max(rest, tail[target[row]] + delay[row])
        bench.rest[op] = rest
        if bench.after[op] >= 0:
            rest = max(rest, tail[bench.after[op]])
        rest += duration[op]
        if rest == tail[op]:
            continue
        tail[op] = rest
        for row in range(state.into[op], state.into[op + 1]):
            pending += 1 - stale[source[row]]
            stale[source[row]] = 1
        if before[op] >= 0:
            pending += 1 - stale[before[op]]
            stale[before[op]] = 1


@part
def simulate(state: OrderState, bench: Bench, order: Any) -> int:
    """Return the makespan of an order, or -1 where it breaks a precedence or overfills a pool."""
    duration, source, wait, head = state.duration, state.source, state.wait, bench.early
    end, free, longest = bench.last, bench.level, 0
    for resource in range(len(end)):
        end[resource], free[resource] = 0, state.room[resource]
    for at in range(len(order)):
        op = order[at]
        start, resource = 0, state.resource[op]
        if resource >= 0:
            start = end[resource]
            free[resource] -= state.need[op]
            if free[resource] < 0:
                return -1
            free[resource] += state.freed[op]
        for row in range(state.into[op], state.into[op + 1]):
            other = source[row]
            if bench.place[other] > at:
                return -1
            start = max(start, head[other] + duration[other] + wait[row])
        head[op] = start
        start += duration[op]
        longest = max(longest, start)
        if resource >= 0:
            end[resource] = start
    return longest


@part
def outdate(bench: Bench, op: int) -> None:
    """Note that head and tail of an op have to be found again."""
    bench.todo[HEADS] += 1 - bench.stale[op]
    bench.todo[TAILS] += 1 - bench.dated[op]
    bench.stale[op], bench.dated[op] = 1, 1


@part
def outdate_all(state: OrderState, bench: Bench, order: Any) -> None:
    """Link all ops from a topological order, and note that all have to be timed again."""
    count = len(order)
    _link(state, bench, order)
    for op in range(count):
        bench.head[op], bench.tail[op], bench.stale[op], bench.dated[op] = -1, -1, 1, 1
    todo = bench.todo
    todo[BEGIN], todo[END], todo[HEADS], todo[TAILS] = 0, count - 1, count, count

"""A flow's ops in one topological order, timed as early as the order allows.

Node ``k * V + v`` is position v of the micro-batch in slot k; a line is an order of all nodes in
which each comes after those that it waits for. Each resource serves its nodes in the order of the
line. The micro-batch of a slot is given as the offset of its row in tables of m * V entries, so
that micro-batches change places without any node being renumbered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER


class Chain(NamedTuple):
    """What every micro-batch passes: V positions on R resources."""

    slot: Any  # int64[m * V]: slot of each node
    position: Any  # int64[m * V]: position of each node
    pointer: Any  # int64[V + 1]: rows of source and lag, by the position that waits
    source: Any  # int64[k]: position that comes first
    lag: Any  # int64[k]: ticks from its end to the start of the one that waits
    resource: Any  # int64[V]: resource of each position, or -1
    first: Any  # int64[...]: positions that wait for no other


class Lengths(NamedTuple):
    """A chain, and what micro-batches differ in: one row of V entries each."""

    chain: Chain
    duration: Any  # int64[m * V]: ticks
    after: Any  # int64[m * V]: longest chain that follows, in ticks
    need: Any  # int64[m * V]: amount that is acquired
    net: Any  # int64[m * V]: change in use once the op has ended
    room: Any  # int64[R]: free amount of the pool of each resource
    rest: Any  # int64[R]: work of each resource and the shortest chain after its last op, in ticks


class LineOrder(NamedTuple):
    """A line, and the micro-batches in its slots."""

    line: Any  # int64[m * V]: nodes in order
    before: Any  # int64[m * V]: node before each one on its resource, or m * V
    row: Any  # int64[m]: row of the micro-batch of each slot, times V


class LineTimes(NamedTuple):
    """Times of a line, by node but for `reach`; entry m * V stands for no node, and is 0."""

    end: Any  # int64[m * V + 1]: ticks
    idle: Any  # int64[m * V + 1]: idle time of the resource so far, in ticks
    used: Any  # int64[m * V + 1]: use of its pool once the op has ended
    reach: Any  # int64[m * V + 1]: by place: a lower bound on the makespan from all nodes before it


@part
def time_places(
    lengths: Lengths,
    order: LineOrder,
    times: LineTimes,
    begin: int,
    until: int,
    limit: int,
) -> int:
    """Time the places `begin` to `until` - 1 of a line; those before `begin` are known.

    Returns `until`, or the place at which the makespan exceeds `limit` or a pool is overrun.
    """
    chain, line, before, row = lengths.chain, order.line, order.before, order.row
    slot_of, position_of, resource_of = chain.slot, chain.position, chain.resource
    pointer, source, lag = chain.pointer, chain.source, chain.lag
    duration, after, need, net = (
        lengths.duration,
        lengths.after,
        lengths.need,
        lengths.net,
    )
    room, remaining = lengths.room, lengths.rest
    end, idle, used, reach = times.end, times.idle, times.used, times.reach
    high = reach[begin]
    for index in range(begin, until):
        node = line[index]
        position = position_of[node]
        entry = row[slot_of[node]] + position
        origin = node - position
        earlier = before[node]
        free = end[earlier]
        start = free
        for number in range(pointer[position], pointer[position + 1]):
            arrival = end[origin + source[number]] + lag[number]
            if arrival > start:
                start = arrival
        close = start + duration[entry]
        end[node] = close
        if close + after[entry] > high:
            high = close + after[entry]
        resource = resource_of[position]
        if resource >= 0:
            idle[node] = idle[earlier] + start - free
            used[node] = used[earlier] + net[entry]
            if idle[node] + remaining[resource] > high:
                high = idle[node] + remaining[resource]
            if used[earlier] + need[entry] > room[resource]:
                high = NEVER
        reach[index + 1] = high
        if high > limit:
            return index
    return until


@Kernel
def time_line(lengths: Lengths, order: LineOrder, times: LineTimes, end: Any) -> None:
    """Time a whole line, whether it overruns a pool or not.

    `end`, int64[m * V + 1], becomes the end of each node in ticks.
    """
    room = LineTimes(end, times.idle, times.used, times.reach)
    time_places(lengths, order, room, 0, len(order.line), NEVER)


@Kernel
def time_permutations(
    lengths: Lengths, order: LineOrder, times: LineTimes, rows: Any, value: Any
) -> None:
    """Time many permutations of the micro-batches in one line, whose rows and times are written.

    `rows`, int64[K * m], has the rows of the micro-batches of all slots, times V: K permutations
    one after the other. `value`, int64[K], becomes the makespan of each in ticks, `NEVER` where a
    pool is overrun.
    """
    size, count = len(order.line), len(order.row)
    for number in range(len(value)):
        for slot in range(count):
            order.row[slot] = rows[number * count + slot]
        stop = time_places(lengths, order, times, 0, size, NEVER - 1)
        value[number] = times.reach[size] if stop == size else NEVER

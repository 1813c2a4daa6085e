"""Kernels: a flow's ops in one line, timed as early as the line allows.

A line is an order of all nodes in which every node comes after those that it waits for. Node
``k * V + v`` is position v of the micro-batch in slot k. Each resource serves its nodes in the
order of the line. `row` gives the micro-batch of a slot as the offset of its row in tables of
m * V entries, so that micro-batches change places without any node being renumbered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part

NEVER = 2**62
"""The makespan of a line that overruns a pool, or exceeds what was asked for."""


class Chain(NamedTuple):
    """What every micro-batch passes: V positions on R resources.

    Attributes
    ----------
    slot, position : int64[m * V]
        Slot and position of each node.
    pointer : int64[V + 1]
        Rows of `source` and `lag`, by the position that waits.
    source, lag : int64[k]
        Position that comes first, and ticks from its end to the start of the one that waits.
    resource : int64[V]
        Resource of each position, or -1.
    first : int64[...]
        Positions that wait for no other.
    """

    slot: Any
    position: Any
    pointer: Any
    source: Any
    lag: Any
    resource: Any
    first: Any


class Lengths(NamedTuple):
    """What micro-batches differ in, one row of V entries each.

    Attributes
    ----------
    duration, after : int64[m * V]
        Durations, and the longest chain that follows, in ticks.
    need, net : int64[m * V]
        Amount that is acquired, and the change in use once the op has ended.
    room : int64[R]
        Free amount of the pool of each resource.
    rest : int64[R]
        Work of each resource and the shortest chain that follows its last op, in ticks.
    """

    duration: Any
    after: Any
    need: Any
    net: Any
    room: Any
    rest: Any


class LineTimes(NamedTuple):
    """Times of a line, by node but for `reach`; entry m * V stands for no node, and is 0.

    Attributes
    ----------
    end : int64[m * V + 1]
        Ends in ticks.
    idle, used : int64[m * V + 1]
        Idle time of the resource so far in ticks, and use of its pool once the op has ended.
    reach : int64[m * V + 1]
        By place in the line: a lower bound on the makespan from all nodes before it.
    """

    end: Any
    idle: Any
    used: Any
    reach: Any


@part
def walk(
    chain: Chain,
    lengths: Lengths,
    row: Any,
    line: Any,
    before: Any,
    begin: int,
    until: int,
    limit: int,
    end: Any,
    idle: Any,
    used: Any,
    reach: Any,
) -> int:
    """Time the places `begin` to `until` - 1 of a line; those before `begin` are known.

    Parameters
    ----------
    chain, lengths : Chain, Lengths
        The flow.
    row : int64[m]
        Row of the micro-batch of each slot, times V.
    line : int64[m * V]
        Nodes in order.
    before : int64[m * V]
        Node before each one on its resource, or m * V.
    begin, until : int
        Places in the line.
    limit : int
        Ticks beyond which the makespan does not matter.
    end, idle, used, reach : int64[m * V + 1]
        As in `LineTimes`; written.

    Returns
    -------
    int
        `until`, or the place at which the limit or a pool is overrun.
    """
    slot_of, position_of, resource_of = chain.slot, chain.position, chain.resource
    pointer, source, lag = chain.pointer, chain.source, chain.lag
    duration, after, need, net = lengths.duration, lengths.after, lengths.need, lengths.net
    room, rest = lengths.room, lengths.rest
    high = reach[begin]
    for place in range(begin, until):
        node = line[place]
        position = position_of[node]
        entry = row[slot_of[node]] + position
        origin = node - position
        earlier = before[node]
        free = end[earlier]
        start = free
        for number in range(pointer[position], pointer[position + 1]):
            ready = end[origin + source[number]] + lag[number]
            if ready > start:
                start = ready
        close = start + duration[entry]
        end[node] = close
        if close + after[entry] > high:
            high = close + after[entry]
        resource = resource_of[position]
        if resource >= 0:
            idle[node] = idle[earlier] + start - free
            used[node] = used[earlier] + net[entry]
            if idle[node] + rest[resource] > high:
                high = idle[node] + rest[resource]
            if used[earlier] + need[entry] > room[resource]:
                high = NEVER
        reach[place + 1] = high
        if high > limit:
            return place
    return until


@Kernel
def time_line(
    chain: Chain,
    lengths: Lengths,
    row: Any,
    line: Any,
    before: Any,
    limit: int,
    end: Any,
    idle: Any,
    used: Any,
    reach: Any,
) -> int:
    """Time a whole line.

    Parameters
    ----------
    chain, lengths, row, line, before, limit, end, idle, used, reach
        As in `walk`.

    Returns
    -------
    int
        Makespan in ticks, `NEVER` where it exceeds the limit or a pool is overrun.
    """
    size = len(line)
    if walk(chain, lengths, row, line, before, 0, size, limit, end, idle, used, reach) < size:
        return NEVER
    return reach[size]


@Kernel
def time_permutations(
    chain: Chain,
    lengths: Lengths,
    line: Any,
    before: Any,
    rows: Any,
    row: Any,
    end: Any,
    idle: Any,
    used: Any,
    reach: Any,
    value: Any,
) -> None:
    """Time many permutations of the micro-batches in one line.

    Parameters
    ----------
    chain, lengths, line, before
        As in `walk`.
    rows : int64[K * m]
        Rows of the micro-batches of all slots, times V: K permutations one after the other.
    row : int64[m]
        Written.
    end, idle, used, reach : int64[m * V + 1]
        Written.
    value : int64[K]
        Becomes the makespan of each permutation in ticks, `NEVER` where a pool is overrun.
    """
    size, count = len(line), len(row)
    for number in range(len(value)):
        for slot in range(count):
            row[slot] = rows[number * count + slot]
        limit = NEVER - 1
        stop = walk(chain, lengths, row, line, before, 0, size, limit, end, idle, used, reach)
        value[number] = reach[size] if stop == size else NEVER

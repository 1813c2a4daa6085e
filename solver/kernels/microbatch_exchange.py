"""Search over the micro-batches of replicas: their order in each, and exchange between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.annealing import draw
from ppsolve.solver.kernels.compilation import Kernel, part

TOO_LONG = 2**61
"""Makespan of an order that overruns a pool."""

REORDER, EXCHANGE, MOVE = 0, 1, 2
"""What may be done: reorder replicas, swap micro-batches between them, move them as well."""


class ReplicaPatterns(NamedTuple):
    """Orders of ops with slots in place of micro-batches; pattern j has rows first[j]:first[j + 1].

    Rows come in an order in which each follows all that it waits for.
    """

    first: Any  # int64[number of patterns + 1]
    slot: Any  # int64[rows]: slot of the micro-batch, -1 for an op of none
    position: Any  # int64[rows]: column of the tables of `ExchangeSizes`
    pointer: Any  # int64[rows + 1]: rows of source and lag
    source: (
        Any  # int64[...]: row that is waited for, counted from the first of the pattern
    )
    lag: Any  # int64[...]: ticks after its end
    pool: Any  # int64[rows]: pool that is used, or -1


class ExchangeSizes(NamedTuple):
    """Durations and amounts of M micro-batches in V positions; row M is for ops of none."""

    duration: Any  # int64[(M + 1) * V]: ticks
    acquire: Any  # int64[(M + 1) * V]: whole units of the pool of the position
    release: Any  # int64[(M + 1) * V]
    load: Any  # int64[M * C]: work of each micro-batch on each of C devices in ticks
    edge: Any  # int64[C]: least ticks before and after the work of a device
    room: Any  # int64[P]: free amount of each pool before any op
    num_positions: int
    num_microbatches: int


class Choice(NamedTuple):
    """Which pattern a replica follows, by its number of micro-batches."""

    pattern: Any  # int64[width + 1]: pattern for each count from 0 on, -1 where there is none
    width: int  # most micro-batches of a replica: those of replica r are in width * r and behind


class TimedReplicas(NamedTuple):
    """Orders, durations and amounts of replicas, and room to time them."""

    patterns: ReplicaPatterns
    sizes: ExchangeSizes
    choice: Choice
    end: Any  # int64[rows]: ends of the rows of a pattern in ticks; written
    level: Any  # int64[P]: free amount of each pool; written
    load: Any  # int64[R * C]: work of each replica on each device; written


class ExchangePace(NamedTuple):
    """How long a walk goes on, and what it tries and takes."""

    steps: int
    heat: int  # most ticks by which a replica may get slower, plus one
    target: int  # makespan of the slowest replica at which it stops
    way: int  # `REORDER`, `EXCHANGE` or `MOVE`


class ReplicaState(NamedTuple):
    """Micro-batches of R replicas, first as they are, then as they were in the best assignment."""

    member: Any  # int64[2 * R * width]: by replica and slot
    count: Any  # int64[2 * R]: their numbers
    value: Any  # int64[2 * R]: makespans in ticks
    num_replicas: int


def timed_replicas(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    choice: Choice,
    num_replicas: int = 1,
) -> TimedReplicas:
    """Return replicas with room to time them, for all kernels of this module."""
    lengths = (
        np.diff(patterns.first).max(),
        len(sizes.room),
        num_replicas * len(sizes.edge),
    )
    room = (np.zeros(int(length), dtype=np.int64) for length in lengths)
    return TimedReplicas(patterns, sizes, choice, *room)


@part
def _span_of(problem: TimedReplicas, which: int, member: Any, offset: int) -> int:
    """Return the makespan of a pattern with the micro-batches from `offset` on in its slots."""
    patterns, sizes, end, level = (
        problem.patterns,
        problem.sizes,
        problem.end,
        problem.level,
    )
    slot, position, pointer = patterns.slot, patterns.position, patterns.pointer
    source, lag, pools = patterns.source, patterns.lag, patterns.pool
    duration, width = sizes.duration, sizes.num_positions
    first, span = patterns.first[which], 0
    for pool in range(len(level)):
        level[pool] = sizes.room[pool]
    for row in range(first, patterns.first[which + 1]):
        entry = sizes.num_microbatches
        if slot[row] >= 0:
            entry = member[offset + slot[row]]
        entry = entry * width + position[row]
        time = 0
        for edge in range(pointer[row], pointer[row + 1]):
            time = max(time, end[source[edge]] + lag[edge])
        time += duration[entry]
        end[row - first] = time
        span = max(span, time)
        if pools[row] >= 0:
            level[pools[row]] -= sizes.acquire[entry]
            if level[pools[row]] < 0:
                return TOO_LONG
            level[pools[row]] += sizes.release[entry]
    return span


@part
def _time(problem: TimedReplicas, state: ReplicaState, replica: int) -> int:
    """Return the makespan of a replica in ticks."""
    choice = problem.choice
    which = choice.pattern[state.count[replica]]
    return _span_of(problem, which, state.member, replica * choice.width)


@part
def _move_slot(member: Any, offset: int, source: int, target: int) -> None:
    """Take the micro-batch of one slot out and put it into another; those between move up."""
    moved, step = member[offset + source], 1 if target > source else -1
    slot = source
    while slot != target:
        member[offset + slot] = member[offset + slot + step]
        slot += step
    member[offset + target] = moved


@part
def _slowest(state: ReplicaState, first: int) -> int:
    """Return the slowest replica, the number of `first` that of replica 0."""
    slow = first
    for replica in range(first + 1, first + state.num_replicas):
        if state.value[replica] > state.value[slow]:
            slow = replica
    return slow


@part
def _chosen(state: ReplicaState, rng: Any) -> int:
    """Return the slowest replica, in one of 4 steps any: so others get shorter and take more."""
    if state.num_replicas > 1 and draw(rng, 4) == 0:
        return draw(rng, state.num_replicas)
    return _slowest(state, 0)


@part
def _swap(member: Any, first: int, second: int) -> None:
    member[first], member[second] = member[second], member[first]


@part
def _reorder(
    problem: TimedReplicas, state: ReplicaState, replica: int, slack: int, rng: Any
) -> bool:
    """Swap or move two slots of a replica; return true if that is kept."""
    member, count, base = (
        state.member,
        state.count[replica],
        replica * problem.choice.width,
    )
    source, target = draw(rng, count), draw(rng, count)
    if source == target:
        return False
    swaps = draw(rng, 2) == 1
    if swaps:
        _swap(member, base + source, base + target)
    else:
        _move_slot(member, base, source, target)
    new = _time(problem, state, replica)
    if new <= state.value[replica] + slack:
        state.value[replica] = new
        return True
    if swaps:
        _swap(member, base + source, base + target)
    else:
        _move_slot(member, base, target, source)
    return False


class Trade(NamedTuple):
    """A micro-batch that one replica gives to another one, for another one or for nothing."""

    slow: int  # the replica that gives
    fast: int
    one: int  # slot that gives, and slot that takes
    other: int
    given: int  # the micro-batches; -1: nothing is taken in return
    taken: int


@part
def _trade(
    problem: TimedReplicas,
    state: ReplicaState,
    slow: int,
    slack: int,
    moves: bool,
    rng: Any,
) -> bool:
    """Swap micro-batches of two replicas, or move one; return true if that is kept."""
    member, count, value, choice = (
        state.member,
        state.count,
        state.value,
        problem.choice,
    )
    fast, width = draw(rng, state.num_replicas - 1), choice.width
    fast += 1 if fast >= slow else 0
    moves = moves and count[slow] > 1 and count[fast] < width
    moves = moves and choice.pattern[count[slow] - 1] >= 0
    moves = moves and choice.pattern[min(width, count[fast] + 1)] >= 0
    base, to, limit = slow * width, fast * width, max(value[slow], value[fast]) + slack
    slow_slot, fast_slot = draw(rng, count[slow]), draw(rng, count[fast])
    outgoing, incoming = (
        member[base + slow_slot],
        -1 if moves else member[to + fast_slot],
    )
    trade = Trade(slow, fast, slow_slot, fast_slot, outgoing, incoming)
    if not _may_fit(problem, trade, limit):
        return False
    if moves:
        _hand_over(state, width, trade)
    else:
        member[base + slow_slot], member[to + fast_slot] = incoming, outgoing
    new = _time(problem, state, fast)
    if new <= limit:
        gained = new
        new = _time(problem, state, slow)
        if new <= limit:
            value[slow], value[fast] = new, gained
            _carry(problem, trade)
            return True
    if moves:
        _hand_over(
            state, width, Trade(fast, slow, fast_slot, slow_slot, outgoing, incoming)
        )
    else:
        member[base + slow_slot], member[to + fast_slot] = outgoing, incoming
    return False


@part
def _hand_over(state: ReplicaState, width: int, trade: Trade) -> None:
    """Move the micro-batch in a slot of one replica to a slot of another."""
    member, count, giver, taker = state.member, state.count, trade.slow, trade.fast
    last = giver * width + count[giver] - 1
    _move_slot(member, giver * width, trade.one, count[giver] - 1)
    member[taker * width + count[taker]] = member[last]
    _move_slot(member, taker * width, count[taker], trade.other)
    count[giver] -= 1
    count[taker] += 1


@part
def _change(problem: TimedReplicas, trade: Trade, device: int) -> int:
    """Return the work on a device that a trade takes from the replica that gives."""
    load, devices = problem.sizes.load, len(problem.sizes.edge)
    change: int = load[trade.given * devices + device]
    if trade.taken >= 0:
        change -= load[trade.taken * devices + device]
    return change


@part
def _may_fit(problem: TimedReplicas, trade: Trade, limit: int) -> bool:
    """Return false if the work on some device alone takes longer than the limit."""
    devices, load = len(problem.sizes.edge), problem.load
    for device in range(devices):
        change = _change(problem, trade, device)
        room = limit - problem.sizes.edge[device]
        if load[trade.fast * devices + device] + change > room:
            return False
        if load[trade.slow * devices + device] - change > room:
            return False
    return True


@part
def _carry(problem: TimedReplicas, trade: Trade) -> None:
    """Count the work of the micro-batches that changed their replica."""
    devices = len(problem.sizes.edge)
    for device in range(devices):
        change = _change(problem, trade, device)
        problem.load[trade.fast * devices + device] += change
        problem.load[trade.slow * devices + device] -= change


@part
def _count_load(problem: TimedReplicas, state: ReplicaState) -> None:
    """Add up the work of each replica on each device."""
    load, devices, width = problem.load, len(problem.sizes.edge), problem.choice.width
    for replica in range(state.num_replicas):
        for device in range(devices):
            work = 0
            for slot in range(state.count[replica]):
                work += problem.sizes.load[
                    state.member[replica * width + slot] * devices + device
                ]
            load[replica * devices + device] = work


@part
def _keep(values: Any) -> None:
    """Copy the first half of an array, what is, to the second, the best."""
    half = len(values) // 2
    for index in range(half):
        values[half + index] = values[index]


@Kernel
def time_pattern(problem: TimedReplicas, which: int, member: Any, end: Any) -> int:
    """Return the makespan of a pattern with some micro-batches in its slots.

    It is `TOO_LONG` where a pool is overrun. `end` becomes the end of each row in ticks.
    """
    span = _span_of(problem, which, member, 0)
    for row in range(len(end)):
        end[row] = problem.end[row]
    return int(span)


@Kernel
def time_each(problem: TimedReplicas, member: Any, count: Any, value: Any) -> None:
    """Time every replica: `value`, int64[R], becomes the makespan of each.

    `member`, int64[R * width], has the micro-batches of each replica by slot, `count` their
    numbers.
    """
    state = ReplicaState(member, count, value, len(count))
    for replica in range(len(count)):
        value[replica] = _time(problem, state, replica)


@Kernel
def exchange(
    problem: TimedReplicas,
    pace: ExchangePace,
    member: Any,
    count: Any,
    value: Any,
    rng: Any,
) -> int:
    """Change micro-batches of the slowest replicas, and keep the best found.

    A step swaps or moves two slots of a replica, or swaps two micro-batches of two replicas, or
    moves one from the slowest to another. It stays where the slower of both replicas gets no slower
    than it was, or by less than a random part of the heat. The steps that were left when the target
    was met are returned.

    `member`, `count` and `value` are int64[2 * R * width], int64[2 * R] and int64[2 * R]: what is,
    then what was best.
    """
    replicas, steps = len(count) // 2, pace.steps
    state = ReplicaState(member, count, value, replicas)
    _count_load(problem, state)
    best = value[_slowest(state, replicas)]
    while steps > 0 and best > pace.target:
        steps -= 1
        slow, slack = _chosen(state, rng), 0
        if pace.heat > 1:
            slack = draw(rng, pace.heat)
        drawn = draw(rng, 4)
        if pace.way == REORDER or drawn == 0:
            changed = _reorder(problem, state, slow, slack, rng)
        else:
            moves = pace.way == MOVE and drawn == 1
            changed = _trade(problem, state, slow, slack, moves, rng)
        if changed:
            span = value[_slowest(state, 0)]
            if span < best:
                best = span
                _keep(member)
                _keep(count)
                _keep(value)
    return steps

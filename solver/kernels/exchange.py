"""Search over the micro-batches of replicas: their order in each, and exchange between them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part

TOO_LONG = 2**61
"""Makespan of an order that overruns a pool."""

STEP, SEED_MODULUS = 48271, 2**31 - 1
"""Factor and modulus of the random numbers (Park, Miller and Stockmeyer 1993): every product stays
below 2**47, so that Python and compiled code draw the same ones."""

REORDER, EXCHANGE, MOVE = 0, 1, 2
"""What may be done: reorder replicas, swap micro-batches between them, move them as well."""

MOSTLY = 4
"""One of so many steps changes a replica at random instead of the slowest, so that others get
shorter and take more from it."""


class ReplicaPatterns(NamedTuple):
    """Orders of ops with slots in place of micro-batches; pattern j has rows first[j]:first[j + 1].

    Rows come in an order in which each follows all that it waits for.

    Attributes
    ----------
    first : int64[number of patterns + 1]
        Rows of each pattern.
    slot, position : int64[rows]
        Slot of the micro-batch, -1 for an op of none, and column of the tables of `ExchangeSizes`.
    pointer : int64[rows + 1]
        Rows of `source` and `lag`.
    source, lag : int64[...]
        Row, counted from the first of the pattern, that is waited for, and ticks after its end.
    pool : int64[rows]
        Pool that is used, or -1.
    """

    first: Any
    slot: Any
    position: Any
    pointer: Any
    source: Any
    lag: Any
    pool: Any


class ExchangeSizes(NamedTuple):
    """Durations and amounts of M micro-batches in V positions; row M is for ops of none.

    Attributes
    ----------
    duration, acquire, release : int64[(M + 1) * V]
        Ticks, and whole units of the pool of the position.
    load : int64[M * C]
        Work of each micro-batch on each of C devices in ticks.
    edge : int64[C]
        Least ticks before and after the work of a device.
    room : int64[P]
        Free amount of each pool before any op.
    num_positions, num_microbatches : int
        V and M.
    """

    duration: Any
    acquire: Any
    release: Any
    load: Any
    edge: Any
    room: Any
    num_positions: int
    num_microbatches: int


class Choice(NamedTuple):
    """Which pattern a replica follows, by its number of micro-batches.

    Attributes
    ----------
    pattern : int64[width + 1]
        Pattern for each count from 0 to the most, -1 where there is none.
    width : int
        Most micro-batches of a replica: those of replica r are in width * r and behind.
    """

    pattern: Any
    width: int


class ReplicaState(NamedTuple):
    """Replicas and their micro-batches.

    Attributes
    ----------
    member, count : int64[R * width], int64[R]
        Micro-batches by replica and slot, and their numbers.
    load : int64[R * C]
        Work on each device in ticks.
    value : int64[R]
        Makespans in ticks.
    """

    member: Any
    count: Any
    load: Any
    value: Any


@part
def span_of(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    which: int,
    member: Any,
    offset: int,
    end: Any,
    level: Any,
) -> int:
    """Return the makespan of a pattern with some micro-batches in its slots."""
    slot, position, pointer = patterns.slot, patterns.position, patterns.pointer
    source, lag, pools = patterns.source, patterns.lag, patterns.pool
    duration, width = sizes.duration, sizes.num_positions
    first, span = patterns.first[which], 0
    for pool in range(len(level)):
        level[pool] = sizes.room[pool]
    for row in range(first, patterns.first[which + 1]):
        place = sizes.num_microbatches
        if slot[row] >= 0:
            place = member[offset + slot[row]]
        place = place * width + position[row]
        time = 0
        for edge in range(pointer[row], pointer[row + 1]):
            time = max(time, end[source[edge]] + lag[edge])
        time += duration[place]
        end[row - first] = time
        span = max(span, time)
        if pools[row] >= 0:
            level[pools[row]] -= sizes.acquire[place]
            if level[pools[row]] < 0:
                return TOO_LONG
            level[pools[row]] += sizes.release[place]
    return span


@part
def draw(numbers: Any, below: int) -> int:
    """Return a random number from 0 to `below` - 1."""
    numbers[0] = numbers[0] * STEP % SEED_MODULUS
    return int(numbers[0] % below)


@part
def move_slot(member: Any, offset: int, source: int, target: int) -> None:
    """Take the micro-batch of one slot out and put it into another; those between move up."""
    moved, step = member[offset + source], 1 if target > source else -1
    slot = source
    while slot != target:
        member[offset + slot] = member[offset + slot + step]
        slot += step
    member[offset + target] = moved


@part
def _slowest(value: Any) -> int:
    slow = 0
    for replica in range(1, len(value)):
        if value[replica] > value[slow]:
            slow = replica
    return slow


@part
def _chosen(state: ReplicaState, numbers: Any) -> int:
    """Return the slowest replica, now and then any."""
    if len(state.value) > 1 and draw(numbers, MOSTLY) == 0:
        return draw(numbers, len(state.value))
    return _slowest(state.value)


@part
def _copy(source: Any, target: Any) -> None:
    for place in range(len(source)):
        target[place] = source[place]


@part
def _swap(member: Any, one: int, other: int) -> None:
    member[one], member[other] = member[other], member[one]


@part
def _reorder(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    choice: Choice,
    state: ReplicaState,
    replica: int,
    slack: int,
    numbers: Any,
    end: Any,
    level: Any,
) -> bool:
    """Swap or move two slots of a replica; return true if that is kept."""
    member, count, at = state.member, state.count[replica], replica * choice.width
    one, other = draw(numbers, count), draw(numbers, count)
    if one == other:
        return False
    swaps = draw(numbers, 2) == 1
    if swaps:
        _swap(member, at + one, at + other)
    else:
        move_slot(member, at, one, other)
    new = span_of(patterns, sizes, choice.pattern[count], member, at, end, level)
    if new <= state.value[replica] + slack:
        state.value[replica] = new
        return True
    if swaps:
        _swap(member, at + one, at + other)
    else:
        move_slot(member, at, other, one)
    return False


@part
def _trade(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    choice: Choice,
    state: ReplicaState,
    slow: int,
    slack: int,
    moves: bool,
    numbers: Any,
    end: Any,
    level: Any,
) -> bool:
    """Swap micro-batches of two replicas, or move one; return true if that is kept."""
    member, count, value, width = state.member, state.count, state.value, choice.width
    fast = draw(numbers, len(value) - 1)
    fast += 1 if fast >= slow else 0
    moves = moves and count[slow] > 1 and count[fast] < width
    moves = moves and choice.pattern[count[slow] - 1] >= 0
    moves = moves and choice.pattern[min(width, count[fast] + 1)] >= 0
    at, to, limit = slow * width, fast * width, max(value[slow], value[fast]) + slack
    one, other = draw(numbers, count[slow]), draw(numbers, count[fast])
    given, taken = member[at + one], -1 if moves else member[to + other]
    if not _may_fit(sizes, state.load, slow, fast, given, taken, limit):
        return False
    if moves:
        _hand_over(state, width, slow, one, fast, other)
    else:
        member[at + one], member[to + other] = taken, given
    new = span_of(patterns, sizes, choice.pattern[count[fast]], member, to, end, level)
    if new <= limit:
        gained = new
        new = span_of(patterns, sizes, choice.pattern[count[slow]], member, at, end, level)
        if new <= limit:
            value[slow], value[fast] = new, gained
            _carry(sizes, state.load, slow, fast, given, taken)
            return True
    if moves:
        _hand_over(state, width, fast, other, slow, one)
    else:
        member[at + one], member[to + other] = given, taken
    return False


@part
def _hand_over(
    state: ReplicaState, width: int, giver: int, one: int, taker: int, other: int
) -> None:
    """Move the micro-batch in a slot of one replica to a slot of another."""
    member, count = state.member, state.count
    last = giver * width + count[giver] - 1
    move_slot(member, giver * width, one, count[giver] - 1)
    member[taker * width + count[taker]] = member[last]
    move_slot(member, taker * width, count[taker], other)
    count[giver] -= 1
    count[taker] += 1


@part
def _may_fit(
    sizes: ExchangeSizes, load: Any, slow: int, fast: int, given: int, taken: int, limit: int
) -> bool:
    """Return false if the work on some device alone takes longer than the limit."""
    devices = len(sizes.edge)
    for device in range(devices):
        change = sizes.load[given * devices + device]
        if taken >= 0:
            change -= sizes.load[taken * devices + device]
        room = limit - sizes.edge[device]
        if load[fast * devices + device] + change > room:
            return False
        if load[slow * devices + device] - change > room:
            return False
    return True


@part
def _carry(sizes: ExchangeSizes, load: Any, slow: int, fast: int, given: int, taken: int) -> None:
    """Count the work of the micro-batches that changed their replica."""
    devices = len(sizes.edge)
    for device in range(devices):
        change = sizes.load[given * devices + device]
        if taken >= 0:
            change -= sizes.load[taken * devices + device]
        load[fast * devices + device] += change
        load[slow * devices + device] -= change


@Kernel
def time_pattern(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    which: int,
    member: Any,
    offset: int,
    end: Any,
    level: Any,
) -> int:
    """Return the makespan of a pattern with some micro-batches in its slots.

    Parameters
    ----------
    patterns, sizes : ReplicaPatterns, ExchangeSizes
        Orders, durations and amounts.
    which : int
        Number of the pattern.
    member : int64[...]
        Micro-batches of the slots, from `offset` on.
    offset : int
        Place of slot 0.
    end : int64[rows]
        Becomes the end of each row of the pattern in ticks.
    level : int64[P]
        Becomes the free amount of each pool.

    Returns
    -------
    int
        Ticks, or `TOO_LONG` where a pool is overrun.
    """
    return int(span_of(patterns, sizes, which, member, offset, end, level))


@Kernel
def time_each(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    choice: Choice,
    member: Any,
    count: Any,
    value: Any,
    end: Any,
    level: Any,
) -> None:
    """Time every replica.

    Parameters
    ----------
    patterns, sizes, choice : ReplicaPatterns, ExchangeSizes, Choice
        Orders, durations and amounts, and the pattern for each number of micro-batches.
    member, count : int64[R * width], int64[R]
        Micro-batches of each replica by slot, and their numbers.
    value : int64[R]
        Becomes the makespan of each replica.
    end, level : int64[rows], int64[P]
        Scratch.
    """
    for replica in range(len(count)):
        pattern = choice.pattern[count[replica]]
        at = replica * choice.width
        value[replica] = span_of(patterns, sizes, pattern, member, at, end, level)


@Kernel
def exchange(
    patterns: ReplicaPatterns,
    sizes: ExchangeSizes,
    choice: Choice,
    member: Any,
    count: Any,
    load: Any,
    value: Any,
    best_member: Any,
    best_count: Any,
    numbers: Any,
    end: Any,
    level: Any,
    heat: int,
    steps: int,
) -> int:
    """Change micro-batches of the slowest replicas, and keep the best found.

    A step swaps or moves two slots of a replica, or swaps two micro-batches of two replicas, or
    moves one from the slowest to another. It stays where the slower of both replicas gets no
    slower than it was, or by less than a random part of the heat.

    Parameters
    ----------
    patterns, sizes, choice : ReplicaPatterns, ExchangeSizes, Choice
        Orders, durations and amounts, and the pattern for each number of micro-batches.
    member : int64[R * width]
        Micro-batches of each replica by slot; written.
    count : int64[R]
        Number of micro-batches of each replica; written.
    load : int64[R * C]
        Work of each replica on each device; written.
    value : int64[R]
        Makespan of each replica; written.
    best_member, best_count : int64[R * width], int64[R]
        The best found; written.
    numbers : int64[4]
        State of the random numbers, the best makespan of the slowest replica, a makespan to stop
        at, and whether micro-batches may be moved (2), exchanged (1) or reordered only (0).
    end, level : int64[rows], int64[P]
        Scratch.
    heat : int
        Most ticks by which a replica may get slower, plus one.
    steps : int
        Number of steps.

    Returns
    -------
    int
        Steps that were left when the makespan to stop at was met.
    """
    state = ReplicaState(member, count, load, value)
    while steps > 0 and numbers[1] > numbers[2]:
        steps -= 1
        slow, slack = _chosen(state, numbers), 0
        if heat > 1:
            slack = draw(numbers, heat)
        way = draw(numbers, 4)
        if numbers[3] == REORDER or way == 0:
            changed = _reorder(patterns, sizes, choice, state, slow, slack, numbers, end, level)
        else:
            moves = numbers[3] == MOVE and way == 1
            changed = _trade(
                patterns, sizes, choice, state, slow, slack, moves, numbers, end, level
            )
        if changed:
            span = value[_slowest(value)]
            if span < numbers[1]:
                numbers[1] = span
                _copy(member, best_member)
                _copy(count, best_count)
    return steps

"""Lists of ops of which neighbours on a resource run as one where both end sooner, annealed."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.annealing import draw
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER


class FusedOps(NamedTuple):
    """What is listed: n ops, each on one resource or on none, and options of two ops or three."""

    duration: Any  # int64[n]: ticks
    resource: Any  # int64[n]: resource of each op, or -1
    need: Any  # int64[n]: amount that an op acquires in the one pool of its resource
    freed: Any  # int64[n]: amount that it releases there at its end
    room: Any  # int64[R]: free amount of that pool before any op
    into: Any  # int64[n + 1]: rows of source and wait, by the op that waits
    source: Any  # int64[k]: op that comes first
    wait: Any  # int64[k]: lag in ticks
    options: Any  # int64[n + 1]: rows of the next four, by either of the first two ops
    partner: Any  # int64[...]: the other one, ascending
    ticks: Any  # int64[...]: duration of the option
    third: Any  # int64[...]: a further op that it covers, or -1
    extra: Any  # int64[...]: amount that it holds more
    chance: Any  # int64[...]: exponentially distributed numbers, mean 65,536


class FusedTimes(NamedTuple):
    """Room to time a list of n ops. Everything is written."""

    start: Any  # int64[n]
    end: Any  # int64[n]
    mate: Any  # int64[n]: row of the option that covers an op, or -1
    is_awaited: Any  # int64[n]: 1 where a later op of the list was timed by its end
    last: Any  # int64[R]: last op of each resource, or -1
    free: Any  # int64[R]: free amount of its pool behind it


class FusedPace(NamedTuple):
    """What steps a search tries and takes."""

    steps: int
    heat: int  # mean of the ticks by which a step that is taken may make the schedule longer
    reach: int  # most places by which an op moves
    target: int  # makespan in ticks at which the search ends


@part
def _option(ops: FusedOps, one: int, other: int) -> int:
    """Return the row of the option of two ops, or -1."""
    low, high = ops.options[one], ops.options[one + 1]
    while low < high:
        middle = (low + high) // 2
        if ops.partner[middle] < other:
            low = middle + 1
        else:
            high = middle
    return low if low < ops.options[one + 1] and ops.partner[low] == other else -1


@part
def _fuse(ops: FusedOps, times: FusedTimes, op: int, ready: int) -> bool:
    """Let an op run with the last one of its resource if both so end no later than in turn."""
    at = ops.resource[op]
    last = times.last[at] if at >= 0 else -1
    if last < 0 or times.is_awaited[last] or times.mate[last] >= 0:
        return False
    row = _option(ops, op, last)
    if row < 0:
        return False
    start = max(times.start[last], ready)
    end = start + ops.ticks[row]
    if end >= max(times.end[last], ready) + ops.duration[op]:
        return False
    third = ops.third[row]
    need, freed = ops.need[op], ops.freed[op]
    if third >= 0:
        need, freed = need + ops.need[third], freed + ops.freed[third]
    before = times.free[at] - ops.freed[last]
    if before < need + ops.extra[row]:
        return False
    times.free[at] += freed - need
    for each in (op, last, third):
        if each >= 0:
            times.start[each], times.end[each], times.mate[each] = start, end, row
    return True


@part
def _time(ops: FusedOps, times: FusedTimes, order: Any) -> int:
    """Time a list; return its makespan, or `NEVER` where a pool would overflow."""
    for op in range(len(order)):
        times.mate[op], times.is_awaited[op] = -1, 0
    for at in range(len(ops.room)):
        times.last[at], times.free[at] = -1, ops.room[at]
    longest = 0
    for op in order:
        if times.mate[op] >= 0:
            continue
        ready = 0
        for row in range(ops.into[op], ops.into[op + 1]):
            source = ops.source[row]
            times.is_awaited[source] = 1
            ready = max(ready, times.end[source] + ops.wait[row])
        if not _fuse(ops, times, op, ready):
            at = ops.resource[op]
            if at >= 0:
                if times.free[at] < ops.need[op]:
                    return NEVER
                times.free[at] += ops.freed[op] - ops.need[op]
                if times.last[at] >= 0:
                    ready = max(ready, times.end[times.last[at]])
                times.last[at] = op
            times.start[op], times.end[op] = ready, ready + ops.duration[op]
        longest = max(longest, times.end[op])
    return longest


@part
def _shift(order: Any, place: int, to: int) -> None:
    """Move the op at a place to another place; those between move up."""
    op, step = order[place], 1 if place < to else -1
    for at in range(place, to, step):
        order[at] = order[at + step]
    order[to] = op


@part
def _farthest(ops: FusedOps, order: Any, place: int, to: int) -> int:
    """Return the place nearest to another one that an op may move to before what it waits for."""
    op, at, step = order[place], place, 1 if place < to else -1
    while at != to:
        other = order[at + step]
        one, two = (other, op) if step > 0 else (op, other)
        for row in range(ops.into[one], ops.into[one + 1]):
            if ops.source[row] == two:
                return at
        at += step
    return at


@Kernel
def time_fused(ops: FusedOps, times: FusedTimes, order: Any, start: Any, mate: Any) -> int:
    """Time a list of ops: each one starts behind the last one of its resource, or runs with it.

    Parameters
    ----------
    ops, times : FusedOps, FusedTimes
        n ops; room.
    order : int64[n]
        The list, in which each op comes after all that it waits for.
    start, mate : int64[n]
        Written: start of each op, and the row of its option, or -1.

    Returns
    -------
    int
        Makespan in ticks, `NEVER` where a pool would overflow.
    """
    length = _time(ops, times, order)
    for op in range(len(order)):
        start[op], mate[op] = times.start[op], times.mate[op]
    return length


@Kernel
def search_fused(
    ops: FusedOps, times: FusedTimes, pace: FusedPace, order: Any, best: Any, rng: Any
) -> int:
    """Move ops in a list by simulated annealing at one temperature.

    Parameters
    ----------
    ops, times : FusedOps, FusedTimes
        n ops; room.
    pace : FusedPace
        What steps are tried and taken.
    order : int64[n]
        The list; becomes the last one.
    best : int64[n]
        The best list; becomes a better one where one was found.
    rng : int64[1]
        State of the random numbers; written.

    Returns
    -------
    int
        Makespan of the best list in ticks.
    """
    known, current, count = _time(ops, times, best), _time(ops, times, order), len(order)
    for _ in range(pace.steps):
        if known <= pace.target:
            break
        place = draw(rng, count)
        to = place + draw(rng, 2 * pace.reach + 1) - pace.reach
        to = _farthest(ops, order, place, min(max(to, 0), count - 1))
        if to == place:
            continue
        _shift(order, place, to)
        length = _time(ops, times, order)
        worse, chance = length - current, ops.chance[draw(rng, len(ops.chance))]
        if length == NEVER or (worse > 0 and worse * 65_536 > pace.heat * chance):
            _shift(order, to, place)
            continue
        current = length
        if current < known:
            known = current
            for at in range(count):
                best[at] = order[at]
    return known

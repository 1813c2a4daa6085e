"""Lists of ops of which neighbours on a resource run as one where both end sooner, annealed."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.annealing import draw
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.order_state import OrderState
from ppsolve.solver.kernels.records import NEVER


class FusedOps(NamedTuple):
    """What is listed: n ops, and options of two ops or three."""

    state: OrderState
    options: Any  # int64[n + 1]: rows of the next four, by either of the first two ops
    partner: Any  # int64[...]: the other one
    ticks: Any  # int64[...]: duration of the option
    third: Any  # int64[...]: a further op that it covers, or -1
    extra: Any  # int64[...]: amount that it holds more


class FusedTimes(NamedTuple):
    """Room to time a list of n ops. Everything is written."""

    start: Any  # int64[n]
    end: Any  # int64[n]
    mate: Any  # int64[n]: row of the option that covers an op, or -1
    is_awaited: Any  # int64[n]: 1 where a later op of the list was timed by its end
    last: Any  # int64[R]: last op of each resource, or -1
    free: Any  # int64[R]: free amount of its pool behind it
    rng: Any  # int64[1]: state of the random numbers


class FusedPace(NamedTuple):
    """What steps a search tries and takes."""

    steps: int
    heat: int  # mean of the ticks by which a step that is taken may make the schedule longer
    reach: int  # most places by which an op moves
    target: int  # makespan in ticks at which the search ends


@part
def _option(ops: FusedOps, first: int, second: int) -> int:
    """Return the row of the option of two ops, or -1."""
    for row in range(ops.options[first], ops.options[first + 1]):
        if ops.partner[row] == second:
            return row
    return -1


@part
def _fuse(ops: FusedOps, times: FusedTimes, op: int, arrival: int) -> bool:
    """Let an op run with the last one of its resource if both so end no later than in turn."""
    state = ops.state
    resource = state.resource[op]
    last = times.last[resource] if resource >= 0 else -1
    if last < 0 or times.is_awaited[last] or times.mate[last] >= 0:
        return False
    row = _option(ops, op, last)
    if row < 0:
        return False
    start, third = max(times.start[last], arrival), ops.third[row]
    end = start + ops.ticks[row]
    need, freed = state.need[op], state.freed[op]
    if third >= 0:
        need, freed = need + state.need[third], freed + state.freed[third]
    is_sooner = end < max(times.end[last], arrival) + state.duration[op]
    if (
        not is_sooner
        or times.free[resource] - state.freed[last] < need + ops.extra[row]
    ):
        return False
    times.free[resource] += freed - need
    for member in (op, last, third):
        if member >= 0:
            times.start[member], times.end[member], times.mate[member] = start, end, row
    return True


@part
def _time(ops: FusedOps, times: FusedTimes, order: Any) -> int:
    """Time a list; return its makespan, or `NEVER` where a pool would overflow."""
    state, longest = ops.state, 0
    for op in range(len(order)):
        times.mate[op], times.is_awaited[op] = -1, 0
    for resource in range(len(state.room)):
        times.last[resource], times.free[resource] = -1, state.room[resource]
    for op in order:
        if times.mate[op] >= 0:
            continue
        arrival, resource = 0, state.resource[op]
        for row in range(state.into[op], state.into[op + 1]):
            times.is_awaited[state.source[row]] = 1
            arrival = max(arrival, times.end[state.source[row]] + state.wait[row])
        if not _fuse(ops, times, op, arrival):
            if resource >= 0:
                if times.free[resource] < state.need[op]:
                    return NEVER
                times.free[resource] += state.freed[op] - state.need[op]
                if times.last[resource] >= 0:
                    arrival = max(arrival, times.end[times.last[resource]])
                times.last[resource] = op
            times.start[op], times.end[op] = arrival, arrival + state.duration[op]
        longest = max(longest, times.end[op])
    return longest


@part
def _move(state: OrderState, order: Any, begin: int, to: int) -> int:
    """Move an op from place to place as far as precedences let it; return where it gets."""
    op, index, step = order[begin], begin, 1 if begin < to else -1
    while index != to:
        neighbour = order[index + step]
        earlier, later = (neighbour, op) if step > 0 else (op, neighbour)
        for row in range(state.into[earlier], state.into[earlier + 1]):
            if state.source[row] == later:
                return index
        order[index], order[index + step] = neighbour, op
        index += step
    return index


@Kernel
def search_fused(
    ops: FusedOps,
    times: FusedTimes,
    pace: FusedPace,
    order: Any,
    best: Any,
    result: Any,
) -> int:
    """Move ops in a list by simulated annealing at one temperature.

    In `order`, int64[n], each op comes after all that it waits for; it becomes the last list, and
    `best` a better one where one was found. `result`, int64[2 n + 1], becomes the start of each op
    in the best list, then the row of its option, or -1; at its end is the state of the random
    numbers. The makespan of the best list in ticks is returned, `NEVER` where a pool would
    overflow.
    """
    count = len(order)
    shortest, current, rng = (
        _time(ops, times, best),
        _time(ops, times, order),
        times.rng,
    )
    rng[0] = result[2 * count]
    for _ in range(pace.steps):
        if shortest <= pace.target:
            break
        index = draw(rng, count)
        to = index + draw(rng, 2 * pace.reach + 1) - pace.reach
        to = _move(ops.state, order, index, min(max(to, 0), count - 1))
        if to == index:
            continue
        length, chance = _time(ops, times, order), ops.state.chance
        worse, allowed = length - current, pace.heat * chance[draw(rng, len(chance))]
        if length == NEVER or worse * 65_536 > max(0, allowed):
            _move(ops.state, order, to, index)
            continue
        current = length
        if length < shortest:
            shortest = length
            for slot in range(count):
                best[slot] = order[slot]
    shortest = _time(ops, times, best)
    for op in range(count):
        result[op], result[count + op] = times.start[op], times.mate[op]
    result[2 * count] = rng[0]
    return shortest

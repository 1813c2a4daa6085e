"""Justification: passes that place all ops as late, then as early as they fit."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.longest_paths import Groups
from ppsolve.solver.kernels.records import NEVER, MemoryUse, ResourceUse, Sources
from ppsolve.solver.kernels.serial_sgs import (
    Gaps,
    Usage,
    change_use,
    free_from,
    occupy,
    roomy_from,
)


class Goal(NamedTuple):
    """What is minimised: the makespan, the largest device span, or weighted ends."""

    is_span: int  # 0 or 1
    is_completion: int  # 0 or 1
    devices: Groups  # ops of each device whose span counts; none for other objectives
    weight: Any  # int64[n]: weights of the ends


class Direction(NamedTuple):
    """The problem as a pass in one direction of time sees it: precedences and pools."""

    sources: Sources
    memory: MemoryUse


class JustificationProblem(NamedTuple):
    """The problem, n ops, forwards and backwards in time."""

    ahead: Direction
    back: Direction
    use: ResourceUse
    goal: Goal
    duration: Any  # int64[n]: ticks
    level: Any  # int64[n]: most precedences on a path into each op


class PassBuffers(NamedTuple):
    """Room for passes over n ops. Everything is written."""

    gaps: Gaps
    usage: Usage
    order: Any  # int64[n]: a permutation of all ops
    spare: Any  # int64[n], as all that follow
    first: Any
    second: Any
    lowest: Any
    end: Any
    current: Any


class SortKeys(NamedTuple):
    """Three keys by op; of equal keys the lower op number comes first."""

    first: Any
    second: Any
    third: Any
    sign: int  # 1, or -1: the largest third key first


@part
def _precedes(keys: SortKeys, a: int, b: int) -> bool:
    key_a, key_b = keys.first[a], keys.first[b]
    if key_a == key_b:
        key_a, key_b = keys.second[a], keys.second[b]
    if key_a == key_b:
        key_a, key_b = keys.sign * keys.third[a], keys.sign * keys.third[b]
    if key_a == key_b:
        key_a, key_b = a, b
    return key_a < key_b


@part
def _sort_by(keys: SortKeys, order: Any, spare: Any) -> None:
    """Sort `order`, a permutation of all ops, fast where it is nearly sorted."""
    count, width = len(order), 8  # blocks that are sorted by insertion, then merged
    for block in range(0, count, width):
        for index in range(block + 1, min(block + width, count)):
            op, hole = order[index], index
            while hole > block and _precedes(keys, op, order[hole - 1]):
                order[hole] = order[hole - 1]
                hole -= 1
            order[hole] = op
    while width < count:
        for begin in range(0, count - width, 2 * width):
            middle, right = begin + width, min(begin + 2 * width, count)
            if _precedes(keys, order[middle], order[middle - 1]):
                _merge(keys, order, spare, begin, middle, right)
        width *= 2


@part
def _merge(
    keys: SortKeys, order: Any, spare: Any, begin: int, middle: int, right: int
) -> None:
    # What precedes the first op on the right stays: where ops are nearly sorted, almost all.
    until = middle - 1
    while begin < until:
        half = (begin + until) >> 1
        if _precedes(keys, order[middle], order[half]):
            until = half
        else:
            begin = half + 1
    for index in range(begin, middle):
        spare[index] = order[index]
    low, high = begin, middle
    for index in range(begin, right):
        if low == middle:
            return
        if high < right and _precedes(keys, order[high], spare[low]):
            order[index] = order[high]
            high += 1
        else:
            order[index] = spare[low]
            low += 1


@part
def _place(direction: Direction, use: ResourceUse, buffers: PassBuffers) -> None:
    """Place all ops in order, each at the first moment that its rules allow; durations to ends."""
    sources, memory, end = direction.sources, direction.memory, buffers.end
    pointer, source, lag = sources.pointer, sources.source, sources.lag
    gaps, usage, lowest = buffers.gaps, buffers.usage, buffers.lowest
    for op in buffers.order:
        time, length = lowest[op], end[op]
        for row in range(pointer[op], pointer[op + 1]):
            moment = end[source[row]] + lag[row]
            if moment > time:
                time = moment
        time = roomy_from(usage, memory, memory.acquire_amount, op, time)
        time = free_from(gaps, use, op, time, length)
        end[op] = time + length
        occupy(gaps, use, op, time, time + length)
        change_use(usage, memory, op, time, time + length)


@part
def _clear(gaps: Gaps, usage: Usage) -> None:
    for resource in range(len(gaps.low)):
        slot = gaps.low[resource]
        gaps.begin[slot], gaps.end[slot], gaps.high[resource] = 0, NEVER, slot
    for pool in range(len(usage.low)):
        usage.high[pool], usage.final[pool] = usage.low[pool], 0


@part
def _first_start(start: Any, devices: Groups, device: int) -> int:
    first = NEVER
    for row in range(devices.pointer[device], devices.pointer[device + 1]):
        first = min(first, start[devices.op[row]])
    return first


@part
def _last_end(start: Any, duration: Any, devices: Groups, device: int) -> int:
    last = -NEVER
    for row in range(devices.pointer[device], devices.pointer[device + 1]):
        op = devices.op[row]
        last = max(last, start[op] + duration[op])
    return last


@part
def _value_of(goal: Goal, duration: Any, start: Any) -> int:
    """Return the objective of a schedule in ticks."""
    value = 0
    if goal.is_span:
        for device in range(len(goal.devices.pointer) - 1):
            last = _last_end(start, duration, goal.devices, device)
            value = max(value, last - _first_start(start, goal.devices, device))
        return value
    for op in range(len(start)):
        if goal.is_completion:
            value += goal.weight[op] * (start[op] + duration[op])
        else:
            value = max(value, start[op] + duration[op])
    return value


@part
def _aim_left(goal: Goal, duration: Any, buffers: PassBuffers, target: int) -> None:
    """Set keys and earliest starts of a pass to the left: ops by their starts."""
    start, lowest, devices = buffers.current, buffers.lowest, goal.devices
    for device in range(len(devices.pointer) - 1):
        floor = _last_end(start, duration, devices, device) - target
        for row in range(devices.pointer[device], devices.pointer[device + 1]):
            op = devices.op[row]
            lowest[op] = max(lowest[op], floor)
    for op in range(len(start)):
        buffers.first[op] = start[op]
        buffers.second[op] = start[op] + duration[op]


@part
def _aim_right(goal: Goal, duration: Any, buffers: PassBuffers, target: int) -> int:
    """Set keys and earliest starts of a pass that goes back from the moment it returns."""
    start, lowest, devices = buffers.current, buffers.lowest, goal.devices
    horizon = 0
    for op in range(len(start)):
        horizon = max(horizon, start[op] + duration[op])
    for device in range(len(devices.pointer) - 1):
        horizon = max(horizon, _first_start(start, devices, device) + target)
    for op in range(len(start)):
        buffers.first[op] = -start[op] - duration[op]
        buffers.second[op] = -start[op]
    for device in range(len(devices.pointer) - 1):
        floor = horizon - _first_start(start, devices, device) - target
        for row in range(devices.pointer[device], devices.pointer[device + 1]):
            lowest[devices.op[row]] = floor
    return horizon


@part
def _move_back(buffers: PassBuffers, horizon: int) -> None:
    """Turn ends before the horizon into starts of which the first is 0."""
    start, end, earliest = buffers.current, buffers.end, NEVER
    for op in range(len(start)):
        start[op] = horizon - end[op]
        earliest = min(earliest, start[op])
    for op in range(len(start)):
        start[op] -= earliest


@part
def _turn_round(order: Any) -> None:
    """Reverse the order: it is nearly sorted for the pass in the other direction."""
    for index in range(len(order) // 2):
        mirror = len(order) - 1 - index
        order[index], order[mirror] = order[mirror], order[index]


@Kernel
def justify(
    problem: JustificationProblem,
    buffers: PassBuffers,
    floor: Any,
    rounds: int,
    start: Any,
) -> int:
    """Shake a schedule where a floor asks for it, then improve it by pairs of passes.

    The floor has the earliest starts of a pass to the left that comes first; an empty one asks for
    no such pass. `start`, those of a feasible schedule, becomes the best schedule found after the
    shake, whose objective in ticks is returned.
    """
    goal, duration = problem.goal, problem.duration
    best = _value_of(goal, duration, start)
    shakes = len(floor) > 0
    for op in range(len(start)):
        buffers.current[op] = start[op]
    for step in range(-1 if shakes else 0, 2 * rounds):
        goes_back = step >= 0 and step % 2 == 0
        for op in range(len(start)):
            buffers.lowest[op] = floor[op] if step < 0 else 0
            buffers.end[op] = duration[op]
        sign, horizon, direction = 1, 0, problem.ahead
        if goes_back:
            sign, direction = -1, problem.back
            horizon = _aim_right(goal, duration, buffers, best)
        else:
            _aim_left(goal, duration, buffers, best)
        keys = SortKeys(buffers.first, buffers.second, problem.level, sign)
        _sort_by(keys, buffers.order, buffers.spare)
        _clear(buffers.gaps, buffers.usage)
        _place(direction, problem.use, buffers)
        _turn_round(buffers.order)
        if goes_back:
            _move_back(buffers, horizon)
        else:
            for op in range(len(start)):
                buffers.current[op] = buffers.end[op] - duration[op]
        value = _value_of(goal, duration, buffers.current)
        if value < best or step < 0:
            best = value
            for op in range(len(start)):
                start[op] = buffers.current[op]
    return best

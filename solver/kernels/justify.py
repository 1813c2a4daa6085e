"""Justification: passes that place all ops as late, then as early as they fit."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.chains import Groups
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.gaps import NEVER, Gaps
from ppsolve.solver.kernels.placement import place
from ppsolve.solver.kernels.records import MemoryUse, ResourceUse, Sources
from ppsolve.solver.kernels.sorting import sort_by
from ppsolve.solver.kernels.usage import Usage

MAKESPAN, SPAN, COMPLETION = 0, 1, 2
"""Objectives of `Goal`."""


class Goal(NamedTuple):
    """What is minimised.

    Attributes
    ----------
    objective : int
        `MAKESPAN`, `SPAN` or `COMPLETION`.
    devices : Groups
        Ops of each device whose span counts; none for other objectives.
    weight : int64[n]
        Weights of the ends, for `COMPLETION`.
    """

    objective: int
    devices: Groups
    weight: Any


class Direction(NamedTuple):
    """The problem as a pass in one direction of time sees it: precedences and pools."""

    sources: Sources
    memory: MemoryUse


class Scratch(NamedTuple):
    """Room for passes over n ops.

    Attributes
    ----------
    gaps, usage : Gaps, Usage
        Free time of resources and use of pools.
    order : int64[n]
        A permutation of all ops.
    spare, first, second, lowest, end, current : int64[n]
        Anything.
    """

    gaps: Gaps
    usage: Usage
    order: Any
    spare: Any
    first: Any
    second: Any
    lowest: Any
    end: Any
    current: Any


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
def value_of(goal: Goal, duration: Any, start: Any) -> int:
    """Return the objective of a schedule in ticks."""
    value = 0
    if goal.objective == SPAN:
        for device in range(len(goal.devices.pointer) - 1):
            last = _last_end(start, duration, goal.devices, device)
            value = max(value, last - _first_start(start, goal.devices, device))
        return value
    for op in range(len(start)):
        if goal.objective == COMPLETION:
            value += goal.weight[op] * (start[op] + duration[op])
        else:
            value = max(value, start[op] + duration[op])
    return value


@part
def _aim_left(goal: Goal, duration: Any, scratch: Scratch, target: int) -> None:
    """Set keys and earliest starts of a pass to the left: ops by their starts."""
    start, lowest, devices = scratch.current, scratch.lowest, goal.devices
    for device in range(len(devices.pointer) - 1):
        floor = _last_end(start, duration, devices, device) - target
        for row in range(devices.pointer[device], devices.pointer[device + 1]):
            op = devices.op[row]
            lowest[op] = max(lowest[op], floor)
    for op in range(len(start)):
        scratch.first[op] = start[op]
        scratch.second[op] = start[op] + duration[op]


@part
def _aim_right(goal: Goal, duration: Any, scratch: Scratch, target: int) -> int:
    """Set keys and earliest starts of a pass that goes back from the moment it returns."""
    start, lowest, devices = scratch.current, scratch.lowest, goal.devices
    horizon = 0
    for op in range(len(start)):
        horizon = max(horizon, start[op] + duration[op])
    for device in range(len(devices.pointer) - 1):
        horizon = max(horizon, _first_start(start, devices, device) + target)
    for op in range(len(start)):
        scratch.first[op] = -start[op] - duration[op]
        scratch.second[op] = -start[op]
    for device in range(len(devices.pointer) - 1):
        floor = horizon - _first_start(start, devices, device) - target
        for row in range(devices.pointer[device], devices.pointer[device + 1]):
            lowest[devices.op[row]] = floor
    return horizon


@part
def _move_back(scratch: Scratch, horizon: int) -> None:
    """Turn ends before the horizon into starts of which the first is 0."""
    start, end, earliest = scratch.current, scratch.end, NEVER
    for op in range(len(start)):
        start[op] = horizon - end[op]
        earliest = min(earliest, start[op])
    for op in range(len(start)):
        start[op] -= earliest


@part
def _turn_round(order: Any) -> None:
    """Reverse the order: it is nearly sorted for the pass in the other direction."""
    for place_of in range(len(order) // 2):
        other = len(order) - 1 - place_of
        order[place_of], order[other] = order[other], order[place_of]


@Kernel
def justify(
    ahead: Direction,
    back: Direction,
    use: ResourceUse,
    goal: Goal,
    duration: Any,
    level: Any,
    scratch: Scratch,
    floor: Any,
    rounds: int,
    start: Any,
) -> int:
    """Shake a schedule where a floor asks for it, then improve it by pairs of passes.

    Parameters
    ----------
    ahead, back : Direction
        The problem, n ops, forwards and backwards in time.
    use, goal : ResourceUse, Goal
        What ops occupy; what is minimised.
    duration, level : int64[n]
        Durations in ticks; lengths of the longest chains of precedences into each op.
    scratch : Scratch
        Written.
    floor : int64[n] or int64[0]
        Earliest starts in ticks of a pass to the left that comes first; empty: no such pass.
    rounds : int
        Number of passes to the right and to the left.
    start : int64[n]
        Starts of a feasible schedule in ticks; becomes the best schedule found after the shake.

    Returns
    -------
    int
        Objective of that schedule in ticks.
    """
    best = value_of(goal, duration, start)
    shakes = len(floor) > 0
    for op in range(len(start)):
        scratch.current[op] = start[op]
    for step in range(-1 if shakes else 0, 2 * rounds):
        goes_back = step >= 0 and step % 2 == 0
        for op in range(len(start)):
            scratch.lowest[op] = floor[op] if step < 0 else 0
            scratch.end[op] = duration[op]
        sign, horizon, tables = 1, 0, ahead
        if goes_back:
            sign, tables = -1, back
            horizon = _aim_right(goal, duration, scratch, best)
        else:
            _aim_left(goal, duration, scratch, best)
        sort_by(scratch.order, scratch.spare, scratch.first, scratch.second, level, sign)
        _clear(scratch.gaps, scratch.usage)
        place(
            tables.sources,
            use,
            tables.memory,
            scratch.gaps,
            scratch.usage,
            scratch.order,
            scratch.lowest,
            scratch.end,
        )
        _turn_round(scratch.order)
        if goes_back:
            _move_back(scratch, horizon)
        else:
            for op in range(len(start)):
                scratch.current[op] = scratch.end[op] - duration[op]
        value = value_of(goal, duration, scratch.current)
        if value < best or step < 0:
            best = value
            for op in range(len(start)):
                start[op] = scratch.current[op]
    return best

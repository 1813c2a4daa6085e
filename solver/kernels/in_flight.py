"""Kernel: walk through time on the devices of a pipeline whose micro-batches are alike.

Tables have one row per kind of op and stage: forwards first, then backwards (of inputs, where they
are split), then those of weights. Op k of row r is ``start[r * count + k]``; `done` counts the ops
of each row that are placed, always in the order of their micro-batches.
"""

from __future__ import annotations

from typing import Any

from ppsolve.solver.kernels.compilation import Kernel, part

NEVER = 2**62
"""A moment that does not come."""


@part
def _first_device(devices: int, wake: Any) -> int:
    """Return the device that looks next; the first of equals."""
    best = 0
    for device in range(1, devices):
        if wake[device] < wake[best]:
            best = device
    return best


@part
def _forward_arrival(stage: int, index: int, count: int, done: Any, start: Any, ahead: Any) -> int:
    """Return when the activation for a forward is there."""
    if index == count:
        return NEVER
    if stage == 0:
        return 0
    if done[stage - 1] <= index:
        return NEVER
    return start[(stage - 1) * count + index] + ahead[stage - 1]


@part
def _backward_arrival(
    stage: int, index: int, count: int, stages: int, done: Any, start: Any, ahead: Any
) -> int:
    """Return when the gradient for a backward is there."""
    if done[stage] <= index:
        return NEVER
    below = stages + stage + 1
    if below == 2 * stages:
        return 0
    if done[below] <= index:
        return NEVER
    return start[below * count + index] + ahead[below]


@part
def _backward(
    now: int,
    first: int,
    last: int,
    count: int,
    stages: int,
    own: Any,
    done: Any,
    start: Any,
    ahead: Any,
) -> tuple[int, int]:
    """Return the row of the oldest backward that can start, -1: none; and when the next one can."""
    row, index, soon = -1, count, NEVER
    for place in range(first, last):
        k = done[stages + own[place]]
        moment = _backward_arrival(own[place], k, count, stages, done, start, ahead)
        if moment > now:
            soon = min(soon, moment)
        elif k < index:
            row, index = stages + own[place], k
    return row, soon


@part
def _missing(first: int, last: int, own: Any, done: Any, held: Any) -> tuple[int, int]:
    """Return the oldest micro-batch without all its forwards, and what they still take."""
    oldest, amount = NEVER, 0
    for place in range(first, last):
        stage = own[place]
        if done[stage] < oldest:
            oldest, amount = done[stage], 0
        if done[stage] == oldest:
            amount += held[stage]
    return oldest, amount


@part
def _forward(
    now: int,
    first: int,
    last: int,
    count: int,
    stages: int,
    free: int,
    own: Any,
    done: Any,
    start: Any,
    ahead: Any,
    held: Any,
    most: Any,
) -> tuple[int, int, bool]:
    """Return the row of the last stage whose forward can start, when the next can, who lacks room.

    A micro-batch begins only where the oldest one on the device can still be finished: so the
    oldest of all never waits for memory, and nothing ever waits for good.
    """
    row, soon, is_full = -1, NEVER, False
    oldest, amount = _missing(first, last, own, done, held)
    for place in range(first, last):
        stage = own[place]
        k = done[stage]
        moment = _forward_arrival(stage, k, count, done, start, ahead)
        if moment == NEVER or k - done[stages + stage] >= most[stage]:
            continue
        if free < amount + (0 if k == oldest else held[stage]):
            is_full = is_full or moment <= now
        elif moment > now:
            soon = min(soon, moment)
        elif row < 0:
            row = stage
    return row, soon, is_full


@part
def _weight(first: int, last: int, count: int, stages: int, own: Any, done: Any) -> int:
    """Return the row of the oldest weight gradient that can be made; -1: none."""
    row, index = -1, count
    for place in range(first, last):
        this = 2 * stages + own[place]
        if done[this] < done[this - stages] and done[this] < index:
            row, index = this, done[this]
    return row


def _walk(
    shape: Any,
    own: Any,
    device: Any,
    duration: Any,
    ahead: Any,
    held: Any,
    freed: Any,
    most: Any,
    room: Any,
    done: Any,
    used: Any,
    wake: Any,
    idle: Any,
    start: Any,
) -> int:
    """Place every op; return 0, or -1 where all devices wait for good.

    `shape` holds the numbers of stages, micro-batches, rows per stage and devices, then the
    patience. `own` has D + 1 pointers, then the stages of each device, the last first. `ahead` is
    duration plus the lag to the neighbour, by row. `held` is taken by forwards, by stage, `freed`
    given back by all other rows; at most `most` micro-batches are between forward and backward of a
    stage; `room` is what each device has. All that follow are zeros: ops placed by row; by device
    memory in use, when it looks next, when its op ends; the starts that are to be found.
    """
    stages, count, rows, devices, patience = shape[0], shape[1], shape[2], shape[3], shape[4]
    left = rows * stages * count
    while left > 0:
        at = _first_device(devices, wake)
        now = wake[at]
        if now >= NEVER:
            return -1
        first, last = own[at], own[at + 1]
        row, soon = _backward(now, first, last, count, stages, own, done, start, ahead)
        is_full = False
        if row < 0:
            free = room[at] - used[at]
            row, later, is_full = _forward(
                now, first, last, count, stages, free, own, done, start, ahead, held, most
            )
            soon = min(soon, later)
        if row < 0 and rows == 3:
            row = _weight(first, last, count, stages, own, done)
            if row >= 0 and not is_full:
                delay = now + duration[row] - soon
                if delay > 0 and soon - now <= patience * delay:
                    row = -1
        if row < 0:
            wake[at] = soon
            continue
        stage = row % stages
        start[row * count + done[row]] = now
        done[row] += 1
        left -= 1
        used[at] += held[stage] if row < stages else -freed[row]
        wake[at] = idle[at] = now + duration[row]
        other = at
        if row < stages - 1:
            other = device[stage + 1]
        elif stages < row < 2 * stages:
            other = device[stage - 1]
        if other != at:  # a busy device looks again when it is idle
            wake[other] = min(wake[other], max(idle[other], now + ahead[row]))
    return 0


walk = Kernel(_walk)

"""List scheduling of a pipeline of alike micro-batches on counters instead of a graph.

Tables have one row per kind of op and stage: forwards first, then backwards (of inputs, where they
are split), then those of weights. Op k of row r is ``start[r * count + k]``; the ops of each row
are placed in the order of their micro-batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER


class InFlightPipeline(NamedTuple):
    """A pipeline of S stages on D devices."""

    stages: int
    microbatches: int
    rows: int  # 3 where backwards are split, else 2 per stage
    patience: int  # a weight gradient waits if idle time <= patience x the delay that it causes
    own_pointer: Any  # int64[D + 1]: rows of own
    own: Any  # int64[S]: stages of each device, the last first
    device: Any  # int64[S]
    duration: Any  # int64[rows * S]: ticks
    ahead: Any  # int64[rows * S]: duration plus the lag to the neighbour
    held: Any  # int64[S]: taken by forwards
    freed: Any  # int64[rows * S]: given back by all other rows
    most: Any  # int64[S]: most micro-batches between forward and backward of a stage
    room: Any  # int64[D]: memory of each device


class InFlightState(NamedTuple):
    """Zeros before any op. Everything is written."""

    done: Any  # int64[rows * S]: ops placed by row
    used: Any  # int64[D]: memory in use
    wake: Any  # int64[D]: when a device looks next
    idle: Any  # int64[D]: when its op ends


@part
def _forward_arrival(
    pipeline: InFlightPipeline, done: Any, start: Any, stage: int, index: int
) -> int:
    """Return when the activation for a forward is there."""
    if index == pipeline.microbatches:
        return NEVER
    if stage == 0:
        return 0
    if done[stage - 1] <= index:
        return NEVER
    return (
        start[(stage - 1) * pipeline.microbatches + index] + pipeline.ahead[stage - 1]
    )


@part
def _backward_arrival(
    pipeline: InFlightPipeline, done: Any, start: Any, stage: int, index: int
) -> int:
    """Return when the gradient for a backward is there."""
    if done[stage] <= index:
        return NEVER
    below = pipeline.stages + stage + 1
    if below == 2 * pipeline.stages:
        return 0
    if done[below] <= index:
        return NEVER
    return start[below * pipeline.microbatches + index] + pipeline.ahead[below]


@part
def _backward(
    pipeline: InFlightPipeline, done: Any, start: Any, device: int, now: int
) -> tuple[int, int]:
    """Return the row of the oldest backward that can start, -1: none; and when the next one can."""
    row, index, soon, by_device = -1, pipeline.microbatches, NEVER, pipeline.own
    for slot in range(pipeline.own_pointer[device], pipeline.own_pointer[device + 1]):
        k = done[pipeline.stages + by_device[slot]]
        moment = _backward_arrival(pipeline, done, start, by_device[slot], k)
        if moment > now:
            soon = min(soon, moment)
        elif k < index:
            row, index = pipeline.stages + by_device[slot], k
    return row, soon


@part
def _missing(pipeline: InFlightPipeline, done: Any, device: int) -> tuple[int, int]:
    """Return the oldest micro-batch without all its forwards, and what they still take."""
    oldest, amount = NEVER, 0
    for index in range(pipeline.own_pointer[device], pipeline.own_pointer[device + 1]):
        stage = pipeline.own[index]
        if done[stage] < oldest:
            oldest, amount = done[stage], 0
        if done[stage] == oldest:
            amount += pipeline.held[stage]
    return oldest, amount


@part
def _forward(
    pipeline: InFlightPipeline, state: InFlightState, start: Any, device: int, now: int
) -> tuple[int, int, bool]:
    """Return the row of the last stage whose forward can start, when the next can, who lacks room.

    A micro-batch begins only where the oldest one on the device can still be finished: so the
    oldest of all never waits for memory, and nothing ever waits for good.
    """
    row, soon, is_full, done = -1, NEVER, False, state.done
    free = pipeline.room[device] - state.used[device]
    oldest, amount = _missing(pipeline, done, device)
    for index in range(pipeline.own_pointer[device], pipeline.own_pointer[device + 1]):
        stage = pipeline.own[index]
        k = done[stage]
        moment = _forward_arrival(pipeline, done, start, stage, k)
        if moment == NEVER or k - done[pipeline.stages + stage] >= pipeline.most[stage]:
            continue
        if free < amount + (0 if k == oldest else pipeline.held[stage]):
            is_full = is_full or moment <= now
        elif moment > now:
            soon = min(soon, moment)
        elif row < 0:
            row = stage
    return row, soon, is_full


@part
def _weight(pipeline: InFlightPipeline, done: Any, device: int) -> int:
    """Return the row of the oldest weight gradient that can be made; -1: none."""
    row, index, stages = -1, pipeline.microbatches, pipeline.stages
    for slot in range(pipeline.own_pointer[device], pipeline.own_pointer[device + 1]):
        this = 2 * stages + pipeline.own[slot]
        if done[this] < done[this - stages] and done[this] < index:
            row, index = this, done[this]
    return row


@part
def _chosen(
    pipeline: InFlightPipeline, state: InFlightState, start: Any, device: int, now: int
) -> tuple[int, int]:
    """Return the row of the op that a device starts now, -1: none; and when it looks again."""
    row, soon = _backward(pipeline, state.done, start, device, now)
    is_full = False
    if row < 0:
        row, later, is_full = _forward(pipeline, state, start, device, now)
        soon = min(soon, later)
    if row < 0 and pipeline.rows == 3:
        row = _weight(pipeline, state.done, device)
        if row >= 0 and not is_full:
            delay = now + pipeline.duration[row] - soon
            if delay > 0 and soon - now <= pipeline.patience * delay:
                row = -1
    return row, soon


@Kernel
def schedule_in_flight(
    pipeline: InFlightPipeline, state: InFlightState, start: Any
) -> int:
    """Place every op: backwards first, then as many forwards as memory holds.

    `start`, int64[rows * S * count], becomes the starts in ticks. The answer is 0, or -1 where all
    devices wait for good.
    """
    stages, count, rows = pipeline.stages, pipeline.microbatches, pipeline.rows
    wake, idle, done = state.wake, state.idle, state.done
    remaining = rows * stages * count
    while remaining > 0:
        device = 0
        for peer in range(1, len(wake)):
            if wake[peer] < wake[device]:
                device = peer
        now = wake[device]
        if now >= NEVER:
            return -1
        row, soon = _chosen(pipeline, state, start, device, now)
        if row < 0:
            wake[device] = soon
            continue
        stage = row % stages
        start[row * count + done[row]] = now
        done[row] += 1
        remaining -= 1
        state.used[device] += (
            pipeline.held[stage] if row < stages else -pipeline.freed[row]
        )
        wake[device] = idle[device] = now + pipeline.duration[row]
        peer = device
        if row < stages - 1:
            peer = pipeline.device[stage + 1]
        elif row > stages and row < 2 * stages:
            peer = pipeline.device[stage - 1]
        if peer != device:  # a busy device looks again when it is idle
            wake[peer] = min(wake[peer], max(idle[peer], now + pipeline.ahead[row]))
    return 0


def starts_in_flight(
    device: IntArray,
    times: tuple[IntArray, IntArray],
    memory: tuple[IntArray, IntArray, IntArray],
    limits: IntArray,
    count: int,
    patience: int = 1,
) -> IntArray | None:
    """Return the starts of all ops by the list rule, None where all devices wait for good.

    Times are the fields `duration` and `ahead` of `InFlightPipeline`, memory its `held`, `freed`
    and `room`. Starts are int64[rows * S * count].
    """
    stages, rows, devices = len(device), len(times[0]) // len(device), len(memory[2])
    last_first = np.arange(stages)[::-1]
    by_device = last_first[np.argsort(device[last_first], kind="stable")]
    pointer = np.cumsum([0, *np.bincount(device, minlength=devices)], dtype=np.int64)
    head = (stages, count, rows, patience, pointer, by_device, device)
    pipeline = InFlightPipeline(*head, *times, *memory[:2], limits, memory[2])
    done, start = (
        np.zeros_like(times[0]),
        np.zeros(len(times[0]) * count, dtype=np.int64),
    )
    state = InFlightState(done, *np.zeros((3, devices), dtype=np.int64))
    return None if schedule_in_flight(pipeline, state, start) else start

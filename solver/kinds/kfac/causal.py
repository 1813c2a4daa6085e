"""PipeFisher's greedy repaired: causal refills, gates per module and pipe, no skipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.pattern import Member, RefreshPattern
from ppsolve.models.kinds.kfac.unrolling import Key, lower_refresh
from ppsolve.solver.heuristics.list_scheduling import generate_serial, ranked
from ppsolve.solver.kinds.kfac.placement import (
    DevicePlan,
    Order,
    greedy_order,
    plan_of_starts,
    recorded_start,
    work_class,
)
from ppsolve.solver.kinds.kfac.requirements import (
    coupled_devices,
    most_iterations,
    most_unrolled,
    refuse_missing_data,
    refuse_unplaceable,
    too_long,
)

Starts = dict[Key, int]
"""Start in ticks by device, index of its work entry, and part."""

Generator = Callable[[int], tuple[Starts, Member | None]]
"""From a number of iterations to starts, and the work that found no room in them."""


def pipefisher_causal(
    pattern: RefreshPattern, order: Order = greedy_order
) -> list[DevicePlan]:
    """Place K-FAC work by PipeFisher's greedy, repaired.

    Each device walks its holes in the order of time and puts the first work, in PipeFisher's order,
    that is ready and fits. Devices whose syncs meet, and those whose syncs run on a comm stream,
    are scheduled together: work by class, each op at its earliest. Raises `InputError` where work
    fits in no hole, or a curvature part has no op that makes its data.
    """
    refuse_missing_data(pattern)
    refuse_unplaceable(pattern)
    plans: dict[int, DevicePlan] = {}
    for devices in coupled_devices(pattern):
        generator: Generator = (
            _Chronological(pattern, devices[0], order)
            if len(devices) == 1 and pattern.syncs_in_holes
            else partial(_generate_together, pattern, devices)
        )
        starts, iterations = _fewest_iterations(pattern, devices, generator)
        for device in devices:
            device_starts = {
                key: start for key, start in starts.items() if key[0] == device
            }
            used = min(iterations, _used(pattern, device_starts))
            plans[device] = plan_of_starts(pattern, device, device_starts, used)
    return [plans[device.device] for device in pattern.devices]


def _fewest_iterations(
    pattern: RefreshPattern, devices: Sequence[int], generate: Generator
) -> tuple[Starts, int]:
    # Starts stay valid with fewer iterations: only the last hole changes, and it grows, since ops
    # of clocks that run ahead no longer follow. So one fewer is tried.
    enough = most_iterations(pattern, devices)
    servable = min(enough, most_unrolled(pattern, devices))
    iterations, failed = 1, 0
    starts, unplaced = generate(iterations)
    while unplaced is not None:
        if iterations >= enough:
            device, index = unplaced
            raise InputError(
                f"found no room on device {device} within {enough} iterations; "
                "expected larger bubbles in every iteration, or a smaller margin",
                field=pattern.devices[device].work[index].label.text,
            )
        if iterations >= servable:
            raise too_long(pattern, devices, iterations)
        failed, iterations = iterations, min(2 * iterations, servable)
        starts, unplaced = generate(iterations)
    iterations = min(iterations, _used(pattern, starts))
    while iterations - 1 > failed:
        shorter, unplaced = generate(iterations - 1)
        if unplaced is not None:
            break
        starts = shorter
        iterations = min(iterations - 1, _used(pattern, starts))
    return starts, iterations


def _used(pattern: RefreshPattern, starts: Starts) -> int:
    period, lengths = pattern.period, pattern.lengths
    pairs = (
        (start, start + lengths[device, index])
        for (device, index, _), start in starts.items()
    )
    return max(
        (max(-(-end // period), start // period + 1) for start, end in pairs), default=1
    )


def _generate_together(
    pattern: RefreshPattern, devices: Sequence[int], iterations: int
) -> tuple[Starts, Member | None]:
    lowered = lower_refresh(pattern, iterations, devices=devices)
    problem = replace(lowered.problem, pools=())

    def rank(key: Key) -> tuple[int, int, Key]:
        members = pattern.rendezvous[key[:2]]
        works = [pattern.devices[device].work[index] for device, index in members]
        return work_class(works[0]), min(map(recorded_start, works)), key

    order = sorted(lowered.op_of, key=rank)
    position = np.full(problem.num_ops, -1, dtype=np.int64)
    for number, key in reversed(list(enumerate(order))):
        position[lowered.op_of[key]] = number
    start = generate_serial(problem, ranked(position)).start.tolist()
    last = iterations * pattern.period - problem.duration
    for key in order:
        op = lowered.op_of[key]
        windows = problem.windows.get(op, np.array([[0, last[op]]]))
        if not np.any((windows[:, 0] <= start[op]) & (start[op] <= windows[:, 1])):
            return {}, key[:2]
    return {key: start[op] for key, op in lowered.op_of.items()}, None


class _Chronological:
    def __init__(self, pattern: RefreshPattern, device: int, order: Order) -> None:
        self.pattern = pattern
        self.device = device
        device_pattern = pattern.devices[device]
        self.work = device_pattern.work
        self.rooms = [pattern.room_for(work.length) for work in device_pattern.work]
        self.shortest = min(self.rooms, default=0)
        self.order = order(device_pattern)
        self.data = device_pattern.data_ends
        self.before = device_pattern.predecessors
        self.after: list[list[int]] = [[] for _ in device_pattern.work]
        for index, predecessors in enumerate(self.before):
            for predecessor in predecessors:
                self.after[predecessor].append(index)

    def __call__(self, iterations: int) -> tuple[Starts, Member | None]:
        """Return the starts within so many iterations, and the first work that fits nowhere."""
        self.left = list(self.order)
        self.done = [0] * len(self.work)
        self.missing = [len(predecessors) for predecessors in self.before]
        self.ready: list[int | None] = [
            None if predecessors else self._data(index)
            for index, predecessors in enumerate(self.before)
        ]
        self.starts: Starts = {}
        for cursor, end in self.pattern.holes(self.device, iterations):
            candidate = self._next(cursor, end)
            while candidate is not None:
                candidate = self._next(self._put(*candidate), end)
            if not self.left:
                return self.starts, None
        unplaced = next(
            (index for index in self.left if self.ready[index] is not None), None
        )
        return self.starts, None if unplaced is None else (self.device, unplaced)

    def _data(self, index: int) -> int:
        return self.data[index][self.done[index]] if self.data[index] else 0

    def _next(self, cursor: int, end: int) -> tuple[int, int] | None:
        """Return the earliest start in the rest of a hole, and the first that can start then."""
        candidate = None
        for position, index in enumerate(
            self.left if cursor + self.shortest <= end else ()
        ):
            release = self.ready[index]
            if release is None:
                continue
            start = max(release, cursor)
            if start + self.rooms[index] <= end and (
                candidate is None or start < candidate[0]
            ):
                candidate = start, position
                if start == cursor:
                    break
        return candidate

    def _put(self, start: int, position: int) -> int:
        index = self.left[position]
        self.starts[self.device, index, self.done[index]] = start
        self.done[index] += 1
        end = start + self.work[index].length
        if self.done[index] < self.work[index].parts:
            self.ready[index] = self._data(index)
            return end
        del self.left[position]
        for successor in self.after[index]:
            self.missing[successor] -= 1
            if self.missing[successor] == 0:
                self.ready[successor] = end
        return end

"""PipeFisher's greedy repaired: causal refills, gates per module and pipe, no skipping."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.pattern import (
    Hole,
    Member,
    RefreshPattern,
    Rendezvous,
    rendezvous_length,
    rendezvous_of,
)
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
    data_ends,
    most_iterations,
    most_unrolled,
    predecessors,
    refuse_missing_data,
    refuse_unplaceable,
    too_long,
)

Starts = dict[tuple[int, int, int], int]
"""Start in ticks by device, index of its work entry, and part."""

Room = Callable[[int], int]
"""From the length of an op to the ticks that it needs up to the end of its hole."""


@dataclass(frozen=True)
class _SerialGenerator:
    pattern: RefreshPattern
    devices: Sequence[int]
    rendezvous: Rendezvous

    def _rank(self, key: Key) -> tuple[int, int, Key]:
        works = [self.pattern.devices[d].work[index] for d, index in self.rendezvous[key[:2]]]
        return work_class(works[0]), min(map(recorded_start, works)), key

    def __call__(self, iterations: int) -> tuple[Starts, Member | None]:
        """Return the starts within so many iterations, and the first work that fits nowhere."""
        counts = [iterations] * len(self.pattern.devices)
        lowered = lower_refresh(self.pattern, counts, devices=self.devices)
        problem = replace(lowered.problem, pools=())
        order = sorted(lowered.op_of, key=self._rank)
        place = np.full(problem.num_ops, -1, dtype=np.int64)
        for number, key in reversed(list(enumerate(order))):
            place[lowered.op_of[key]] = number
        start = generate_serial(problem, ranked(place)).start.tolist()
        last = iterations * self.pattern.period - problem.duration
        for key in order:
            op = lowered.op_of[key]
            windows = problem.windows.get(op, np.array([[0, last[op]]]))
            if not np.any((windows[:, 0] <= start[op]) & (start[op] <= windows[:, 1])):
                return {}, key[:2]
        return {key: start[op] for key, op in lowered.op_of.items()}, None


Generator = Callable[[int], tuple[Starts, Member | None]]
"""From a number of iterations to starts, and the work that found no room in them."""

Lengths = dict[int, dict[int, int]]
"""Ticks that a part of each work entry takes, by device and index."""


def pipefisher_causal(pattern: RefreshPattern, order: Order = greedy_order) -> list[DevicePlan]:
    """Place K-FAC work by PipeFisher's greedy, repaired.

    Each device walks its holes in the order of time and puts the first work, in PipeFisher's order,
    that is ready and fits. Devices whose syncs meet, and those whose syncs run on a comm stream,
    are scheduled together: work by class, each op at its earliest.

    Parameters
    ----------
    pattern : RefreshPattern
    order : callable

    Returns
    -------
    list of DevicePlan

    Raises
    ------
    InputError
        Work fits in no hole, or a curvature part has no op that makes its data.
    """
    refuse_missing_data(pattern)
    rendezvous = rendezvous_of(pattern)
    refuse_unplaceable(pattern, rendezvous)
    room = cache(pattern.room_for)
    lengths: Lengths = {device.device: {} for device in pattern.devices}
    for (device, index), members in rendezvous.items():
        lengths[device][index] = rendezvous_length(pattern, members)
    plans: dict[int, DevicePlan] = {}
    for devices in coupled_devices(pattern, rendezvous):
        generator: Generator = (
            _Chronological(pattern, devices[0], room, order)
            if len(devices) == 1 and pattern.syncs_in_holes
            else _SerialGenerator(pattern, devices, rendezvous)
        )
        starts, iterations = _fewest_iterations(pattern, devices, generator, lengths)
        for device in devices:
            plans[device] = _plan(pattern, device, starts, lengths, iterations)
    return [plans[device.device] for device in pattern.devices]


def _fewest_iterations(
    pattern: RefreshPattern, devices: Sequence[int], generate: Generator, lengths: Lengths
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
    iterations = min(iterations, _used(pattern, starts, lengths))
    while iterations - 1 > failed:
        shorter, unplaced = generate(iterations - 1)
        if unplaced is not None:
            break
        starts = shorter
        iterations = min(iterations - 1, _used(pattern, starts, lengths))
    return starts, iterations


def _used(pattern: RefreshPattern, starts: Starts, lengths: Lengths) -> int:
    return max(
        (
            max(-(-(start + lengths[device][index]) // pattern.period), start // pattern.period + 1)
            for (device, index, _), start in starts.items()
        ),
        default=1,
    )


def _plan(
    pattern: RefreshPattern, device: int, starts: Starts, lengths: Lengths, iterations: int
) -> DevicePlan:
    own = {key: start for key, start in starts.items() if key[0] == device}
    parts = {(index, part): start for (_, index, part), start in own.items()}
    used = min(iterations, _used(pattern, own, lengths))
    return plan_of_starts(pattern, device, parts, lengths[device], used)


class _Chronological:
    def __init__(self, pattern: RefreshPattern, device: int, room: Room, order: Order) -> None:
        self.pattern = pattern
        self.device = device
        self.room = room
        self.work = pattern.devices[device].work
        self.order = order(pattern.devices[device])
        self.data = data_ends(pattern.devices[device])
        self.before = predecessors(pattern.devices[device])
        self.after: list[list[int]] = [[] for _ in self.work]
        for index, others in enumerate(self.before):
            for other in others:
                self.after[other].append(index)

    def __call__(self, iterations: int) -> tuple[Starts, Member | None]:
        """Return the starts within so many iterations, and the first work that fits nowhere."""
        self.left = list(self.order)
        self.done = [0] * len(self.work)
        self.missing = [len(others) for others in self.before]
        self.ready: list[int | None] = [
            None if others else self._data(index) for index, others in enumerate(self.before)
        ]
        # Lengths of the entries that wait for nothing but room and data.
        self.lengths = sorted(
            work.length for work, others in zip(self.work, self.before, strict=True) if not others
        )
        self.starts: Starts = {}
        for hole in self.pattern.holes(self.device, iterations):
            self._fill(hole)
            if not self.left:
                return self.starts, None
        unplaced = next((index for index in self.left if self.ready[index] is not None), None)
        return self.starts, None if unplaced is None else (self.device, unplaced)

    def _data(self, index: int) -> int:
        return self.data[index][self.done[index]] if self.data[index] else 0

    def _fill(self, hole: Hole) -> None:
        cursor: int | None = hole[0]
        while cursor is not None and self.left:
            if not self.lengths or hole[1] - self.room(self.lengths[0]) < cursor:
                return
            place = self._first_that_fits(hole, cursor)
            if place is None:
                cursor = self._next_ready(hole, cursor)
                continue
            index = self.left[place]
            cursor = self._put(index, cursor)
            if self.done[index] == self.work[index].parts:
                del self.left[place]

    def _first_that_fits(self, hole: Hole, cursor: int) -> int | None:
        for place, index in enumerate(self.left):
            ready = self.ready[index]
            if ready is None or ready > cursor:
                continue
            if hole[1] - self.room(self.work[index].length) >= cursor:
                return place
        return None

    def _next_ready(self, hole: Hole, cursor: int) -> int | None:
        times = [
            ready
            for index in self.left
            if (ready := self.ready[index]) is not None
            and cursor < ready <= hole[1] - self.room(self.work[index].length)
        ]
        return min(times, default=None)

    def _put(self, index: int, start: int) -> int:
        self.starts[self.device, index, self.done[index]] = start
        self.done[index] += 1
        end = start + self.work[index].length
        if self.done[index] < self.work[index].parts:
            self.ready[index] = self._data(index)
            return end
        del self.lengths[bisect_left(self.lengths, self.work[index].length)]
        for other in self.after[index]:
            self.missing[other] -= 1
            if self.missing[other] == 0:
                self.ready[other] = end
                insort(self.lengths, self.work[other].length)
        return end

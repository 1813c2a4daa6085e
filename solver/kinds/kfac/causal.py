"""PipeFisher's greedy repaired: causal refills, gates per module and pipe, no skipping."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.pattern import (
    Hole,
    Member,
    RefreshPattern,
    Rendezvous,
    rendezvous_length,
    rendezvous_of,
)
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
class _JointWork:
    members: tuple[Member, ...]
    parts: int
    length: int
    on_stream: bool


class _DeviceTimeline:
    def __init__(self, holes: Sequence[Hole], room: Room) -> None:
        self.free = [(start, end, (start, end)) for start, end in holes]
        self.ends = [end for _, end in holes]
        self.room = room

    def earliest(self, ready: int, length: int) -> int | None:
        """Return the first start at or after `ready` at which `length` is free, or None."""
        for place in range(bisect_left(self.ends, ready + length), len(self.free)):
            start, end, hole = self.free[place]
            start = max(start, ready)
            if start <= min(end - length, hole[1] - self.room(length)):
                return start
        return None

    def take(self, start: int, length: int) -> None:
        """Occupy [start, start + length), which must be free."""
        place = bisect_left(self.ends, start + length)
        while self.free[place][0] > start or start + length > self.free[place][1]:
            place += 1
        begin, end, hole = self.free[place]
        rest = [
            (low, high, hole) for low, high in ((begin, start), (start + length, end)) if low < high
        ]
        self.free[place : place + 1] = rest
        self.ends[place : place + 1] = [high for _, high, _ in rest]


@dataclass
class _SerialGenerator:
    pattern: RefreshPattern
    devices: Sequence[int]
    rendezvous: Rendezvous
    room: Room

    def __post_init__(self) -> None:
        patterns = {device: self.pattern.devices[device] for device in self.devices}
        self.before = {d: predecessors(own) for d, own in patterns.items()}
        self.data = {d: data_ends(own) for d, own in patterns.items()}
        found = {self.rendezvous[d, i] for d, own in patterns.items() for i in range(len(own.work))}
        self.items = [self._item(members) for members in sorted(found, key=self._rank)]

    def _rank(self, members: tuple[Member, ...]) -> tuple[int, int, Member]:
        works = [self.pattern.devices[device].work[index] for device, index in members]
        return work_class(works[0]), min(recorded_start(work) for work in works), members[0]

    def _item(self, members: tuple[Member, ...]) -> _JointWork:
        device, index = members[0]
        work = self.pattern.devices[device].work[index]
        on_stream = work.label.kind == "sync" and not self.pattern.syncs_in_holes
        return _JointWork(members, work.parts, rendezvous_length(self.pattern, members), on_stream)

    def __call__(self, iterations: int) -> tuple[Starts, Member | None]:
        """Return the starts within so many iterations, and the first work that fits nowhere."""
        whole = [(0, iterations * self.pattern.period)]
        self.lanes = {
            (device, on_stream): _DeviceTimeline(whole, lambda length: length)
            if on_stream
            else _DeviceTimeline(self.pattern.holes(device, iterations), self.room)
            for device in self.devices
            for on_stream in (False, True)
        }
        self.ended: dict[Member, int] = {}
        starts: Starts = {}
        for item in self.items:
            if not self._place(item, starts):
                return starts, item.members[0]
        return starts, None

    def _place(self, item: _JointWork, starts: Starts) -> bool:
        ready = max(
            (
                self.ended[device, other]
                for device, index in item.members
                for other in self.before[device][index]
            ),
            default=0,
        )
        for part in range(item.parts):
            device, index = item.members[0]
            data = self.data[device][index]
            start = self._earliest(item, max(ready, data[part]) if data else ready)
            if start is None:
                return False
            for device, index in item.members:
                self.lanes[device, item.on_stream].take(start, item.length)
                starts[device, index, part] = start
            ready = start + item.length
        self.ended.update(dict.fromkeys(item.members, ready))
        return True

    def _earliest(self, item: _JointWork, ready: int) -> int | None:
        lanes = [self.lanes[device, item.on_stream] for device, _ in item.members]
        while True:
            found = [lane.earliest(ready, item.length) for lane in lanes]
            times = [time for time in found if time is not None]
            if len(times) < len(found):
                return None
            if max(times) == min(times):
                return times[0]
            ready = max(times)


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
            else _SerialGenerator(pattern, devices, rendezvous, room)
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

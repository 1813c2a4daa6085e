"""Serial schedule generation for devices whose syncs meet: each op at its earliest, in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ppsolve.models.kfac.pattern import Hole, Member, RefreshPattern, Rendezvous, rendezvous_length
from ppsolve.solver.kfac.placement import recorded_start, work_class
from ppsolve.solver.kfac.requirements import data_ends, predecessors

Starts = dict[tuple[int, int, int], int]
"""Start in ticks by device, index of its work entry, and part."""

LatestStart = Callable[[Hole, int], int]
"""From a hole and the length of an op to its last start in the hole, in ticks."""


@dataclass(frozen=True)
class _JointWork:
    members: tuple[Member, ...]
    parts: int
    length: int
    on_stream: bool


class _DeviceTimeline:
    def __init__(self, holes: Sequence[Hole], latest_start: LatestStart) -> None:
        self.free = [(start, end, (start, end)) for start, end in holes]
        self.ends = [end for _, end in holes]
        self.latest_start = latest_start

    def earliest(self, ready: int, length: int) -> int | None:
        """Return the first start at or after `ready` at which `length` is free, or None."""
        for place in range(bisect_left(self.ends, ready + length), len(self.free)):
            start, end, hole = self.free[place]
            start = max(start, ready)
            if start <= min(end - length, self.latest_start(hole, length)):
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


class SerialGenerator:
    """Places the work of devices that are coupled by rendezvous, class by class.

    Parameters
    ----------
    pattern : RefreshPattern
        Pinned pipeline and K-FAC work.
    devices : sequence of int
        The coupled devices.
    rendezvous : mapping
        Members of the rendezvous of each work entry.
    latest_start : callable
        `pattern.latest_start`, remembered.
    """

    def __init__(
        self,
        pattern: RefreshPattern,
        devices: Sequence[int],
        rendezvous: Rendezvous,
        latest_start: LatestStart,
    ) -> None:
        self.pattern = pattern
        self.devices = devices
        self.latest_start = latest_start
        self.before = {d: predecessors(pattern.devices[d]) for d in devices}
        self.data = {d: data_ends(pattern.devices[d]) for d in devices}
        self.items = self._in_order(rendezvous)

    def _in_order(self, rendezvous: Rendezvous) -> list[_JointWork]:
        found = {
            rendezvous[device, index]
            for device in self.devices
            for index in range(len(self.pattern.devices[device].work))
        }
        return [self._item(members) for members in sorted(found, key=self._rank)]

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
            (device, on_stream): _DeviceTimeline(whole, lambda hole, length: hole[1] - length)
            if on_stream
            else _DeviceTimeline(self.pattern.holes(device, iterations), self.latest_start)
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

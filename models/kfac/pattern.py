"""One refresh of K-FAC around a pinned pipeline: the pattern, its holes, and the work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kfac.labels import Label

Hole = tuple[int, int]
"""Start and end of a stretch of time without a pipeline op, in ticks."""

Member = tuple[int, int]
"""A device and the index of one of its work entries."""

Rendezvous = dict[Member, tuple[Member, ...]]
"""For each work entry, the entries that run together with it, itself included."""

WORK_KINDS = ("cov", "sync", "inv")
"""Curvature, sync and inversion: the classes of K-FAC work, each after the one before it."""


@dataclass(frozen=True)
class PinnedOp:
    """An op of the pipeline in iteration 0; times in ticks from the start of the pipeline."""

    label: str  # label in timelines and schedules
    kind: str  # ``forward``, ``backward`` or ``precondition``
    pipe: int  # 0, or 1 for the second pipe of Chimera
    start: int  # measured or scheduled interval; starts may be negative where clocks differ
    end: int


@dataclass(frozen=True)
class Work:
    """One entry of K-FAC work of a device."""

    label: Label
    # Equal parts that are placed one by one: as many as micro-batches for curvature, else 1.
    parts: int
    length: int  # length of each part in ticks
    recorded: tuple[int, int] | None  # where it was measured, in ticks; None where nothing ran
    participants: tuple[int, ...]  # devices that meet in it (syncs of replicas), this one included
    number: int = 0  # tells entries of a device with the same label apart, from 0

    @property
    def name(self) -> str:
        """Name of the entry, different for each of a device."""
        return f"{self.label.text}~{self.number}" if self.number else self.label.text


@dataclass(frozen=True)
class DevicePattern:
    """Pinned ops and K-FAC work of one device."""

    device: int
    ops: tuple[PinnedOp, ...]  # forwards, backwards (and preconditioning) of iteration 0
    work: tuple[Work, ...]  # K-FAC work, in the order of the instance

    @property
    def num_microbatches(self) -> int:
        """Forwards of the first pipe: the parts that curvature is cut into."""
        return sum(op.kind == "forward" and op.pipe == 0 for op in self.ops)

    def data_of(self, label: Label) -> list[PinnedOp]:
        """Return the ops that make data for a curvature, of its own pipe, by start."""
        own = (op for op in self.ops if (op.kind, op.pipe) == (label.data_kind, label.pipe))
        return sorted(own, key=lambda op: op.start)


@dataclass(frozen=True)
class SavedTensors:
    """Memory that each saved input and error of a device takes, and the capacity for them."""

    capacity: Fraction
    input: Fraction
    error: Fraction


@dataclass(frozen=True)
class RefreshPattern:
    """A pinned pipeline, repeated every period, and the K-FAC work of one refresh."""

    name: str
    scale: TimeScale
    period: int  # length of an iteration in ticks, the same for every device
    margin: Fraction  # an op of length d needs more than (1 + margin) d before the end of its hole
    devices: tuple[DevicePattern, ...]
    saved: tuple[SavedTensors, ...] = ()  # memory of each device, empty where there is no limit
    # True if syncs occupy the device, as in measured timelines; False: its comm stream.
    syncs_in_holes: bool = True

    def holes(self, device: int, iterations: int) -> list[Hole]:
        """Return the holes of a device, by start.

        They are the maximal gaps between its pipeline ops in [0, iterations x period), cut at the
        end of every iteration; the pattern is repeated once per iteration.

        Parameters
        ----------
        device, iterations : int

        Returns
        -------
        list of (int, int)
        """
        spans = [(op.start, op.end) for op in self.devices[device].ops]
        last = iterations * self.period
        busy = [
            (start + k * self.period, end + k * self.period)
            for k in range(iterations)
            for start, end in spans
            if end > start
        ]
        cuts = [(k * self.period, k * self.period) for k in range(iterations + 1)]
        return [
            (start, end)
            for start, end in _gaps(sorted([*busy, *cuts]))
            if start >= 0 and end <= last
        ]

    def room_for(self, length: int) -> int:
        """Return the ticks that an op of `length` needs from its start to the end of its hole.

        The margin is PipeFisher's: (1 + margin) d ticks must lie strictly before the end.
        """
        over, parts = self.margin.as_integer_ratio()
        if over == 0:
            return length
        # In whole numbers: fractions are slow for every length. The limit itself is too late.
        return length * (parts + over) // parts + 1


def windows_in(holes: Iterable[Hole], room: int) -> list[Hole]:
    """Return the intervals of starts that leave an op enough room in a hole.

    Parameters
    ----------
    holes : iterable of (int, int)
        Start and end of each hole in ticks, by start.
    room : int
        Ticks that the op needs from its start to the end of the hole (`RefreshPattern.room_for`).

    Returns
    -------
    list of (int, int)
        Closed intervals of start ticks, by start.
    """
    return [(start, end - room) for start, end in holes if end - room >= start]


def _gaps(busy: Iterable[Hole]) -> Iterator[Hole]:
    reached: int | None = None
    for start, end in busy:
        if reached is not None and start > reached:
            yield reached, start
        reached = end if reached is None else max(reached, end)


def rendezvous_of(pattern: RefreshPattern) -> Rendezvous:
    """Return the members of each work entry's rendezvous, itself included.

    Only syncs have more than one. Several syncs of one factor and module on a device meet those of
    the other devices in the order of the instance.
    """
    groups: dict[tuple[object, ...], list[Member]] = defaultdict(list)
    for device in pattern.devices:
        seen: dict[tuple[object, ...], int] = defaultdict(int)
        for index, work in enumerate(device.work):
            key = (work.participants, work.label.factor, work.label.module)
            if len(work.participants) < 2:
                groups[device.device, index].append((device.device, index))
                continue
            groups[(*key, seen[key])].append((device.device, index))
            seen[key] += 1
    return {member: tuple(group) for group in groups.values() for member in group}


def rendezvous_length(pattern: RefreshPattern, members: Sequence[Member]) -> int:
    """Return the length of a rendezvous: that of its slowest member.

    Parameters
    ----------
    pattern : RefreshPattern
    members : sequence of (int, int)
        Device and index of each work entry.

    Returns
    -------
    int
        Ticks that it takes on each of the devices.
    """
    return max(pattern.devices[device].work[index].length for device, index in members)


def common_starts(first: Sequence[Hole], second: Sequence[Hole]) -> list[Hole]:
    """Intersect two lists of closed intervals.

    Parameters
    ----------
    first, second : sequence of (int, int)

    Returns
    -------
    list of (int, int)
        Intervals that lie in both, by start.
    """
    found = []
    i = j = 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if low <= high:
            found.append((low, high))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return found

"""One refresh of K-FAC around a pinned pipeline: its holes, its work, measured timelines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.labels import PROFILED_STEP, Label, parse_label
from ppsolve.models.kinds.pipeline.entries import entry_at

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


Pairs = list[tuple[Label, tuple[Decimal, Decimal] | tuple[None, None]]]


def measured_pattern(instance: KfacInstance) -> RefreshPattern:
    """Return the pattern that an instance's timelines describe.

    Times are relative to the start of node 0's first forward; the period is the time from
    there to the end of node 0's last backward. Of several profiled steps the last one counts.
    Curvature is cut into as many parts as the first pipe has forwards, each of the whole length
    divided by their number, rounded down (PipeFisher's rule).

    Raises
    ------
    InputError
        Node 0 has no forward or no backward, a device has no forward of the first pipe to cut
        its curvature by, a pipeline op is ``[null, null]``, or the times have no common tick.
    """
    assert instance.timelines is not None
    devices = [list(_last_step(timeline)) for timeline in instance.timelines]
    for number, pairs in enumerate(devices):
        _refuse_unmeasured(number, pairs)
    origin = min(_edges(devices[0], "forward", 0))
    period = Fraction(max(_edges(devices[0], "backward", 1))) - Fraction(origin)
    if period <= 0:
        raise InputError(
            "expected the last backward to end after the first forward starts",
            field="timelines[0].call_backward",
        )
    times = {
        abs(Fraction(time) - Fraction(origin))
        for pairs in devices
        for _, pair in pairs
        for time in pair
        if time is not None
    }
    scale = TimeScale.fit(times, instance.time_unit, exact=True)
    reader = _Reader(instance, scale, Fraction(origin), devices)
    return RefreshPattern(
        name=instance.name,
        scale=scale,
        period=scale.ticks(period),
        margin=Fraction(instance.margin_ratio),
        devices=tuple(reader.device(number) for number in range(len(devices))),
        saved=_saved(instance),
    )


def _last_step(timeline: dict[str, Any]) -> Iterator[Any]:
    # ``start_end`` has one pair per step; of several steps every list keeps its last len/steps.
    steps = len(timeline.get(PROFILED_STEP, ()))
    for text, pairs in timeline.items():
        label = parse_label(text)
        if label is None or label.kind == "step":
            continue
        kept = pairs[-(len(pairs) // steps) :] if steps > 1 else pairs
        for pair in kept:
            yield label, pair


def _refuse_unmeasured(number: int, pairs: Pairs) -> None:
    for label, (start, _) in pairs:
        if label.kind in {"forward", "backward"} and start is None:
            raise InputError(
                "expected [start, end] for an op of the pipeline, got [null, null]",
                field=f"timelines[{number}].{label.text}",
            )


def _edges(pairs: Pairs, kind: str, side: int) -> list[Decimal]:
    found = [pair[side] for label, pair in pairs if label.kind == kind]
    times = [time for time in found if time is not None]
    if not times:
        raise InputError(
            f"expected at least one call_{kind} (node 0 fixes the time axis)",
            field=f"timelines[0].call_{kind}",
        )
    return times


def _saved(instance: KfacInstance) -> tuple[SavedTensors, ...]:
    saved = instance.saved
    if saved is None:
        return ()
    amounts = Fraction(saved.input), Fraction(saved.error)
    devices = range(instance.num_devices)
    return tuple(SavedTensors(entry_at(saved.capacity, device), *amounts) for device in devices)


class _Reader:
    def __init__(
        self, instance: KfacInstance, scale: TimeScale, origin: Fraction, devices: list[Pairs]
    ) -> None:
        self.scale = scale
        self.origin = origin
        self.devices = devices
        self.group_of = {d: tuple(sorted(g)) for g in instance.sync_groups for d in g}
        self.syncs = [
            {
                (label.factor, label.module)
                for label, pair in pairs
                if label.kind == "sync" and pair[0] is not None
            }
            for pairs in devices
        ]

    def device(self, number: int) -> DevicePattern:
        ops: list[PinnedOp] = []
        work: list[Work] = []
        seen: Counter[str] = Counter()
        parts = sum(
            label.kind == "forward" and label.pipe == 0 for label, _ in self.devices[number]
        )
        for label, (start, end) in self.devices[number]:
            recorded = None
            if start is not None and end is not None:
                recorded = (self._ticks(start), self._ticks(end))
            if label.kind not in {"forward", "backward"}:
                entry = self._work(number, label, recorded, parts)
                work.append(replace(entry, number=seen[label.text]))
                seen[label.text] += 1
            elif recorded is not None:
                ops.append(PinnedOp(label.text, label.kind, label.pipe, *recorded))
        return DevicePattern(number, tuple(ops), tuple(work))

    def _ticks(self, time: Decimal) -> int:
        distance = Fraction(time) - self.origin
        return -self.scale.ticks(-distance) if distance < 0 else self.scale.ticks(distance)

    def _work(
        self, number: int, label: Label, recorded: tuple[int, int] | None, parts: int
    ) -> Work:
        if label.kind != "cov":
            parts = 1
        elif parts == 0:
            raise InputError(
                "expected call_forward entries: curvature has one part per forward",
                field=f"timelines[{number}].call_forward",
            )
        participants: tuple[int, ...] = (number,)
        if label.kind == "sync" and recorded is not None:
            key = (label.factor, label.module)
            group = self.group_of.get(number, participants)
            participants = tuple(device for device in group if key in self.syncs[device])
        length = 0 if recorded is None else recorded[1] - recorded[0]
        return Work(label, parts, length // parts, recorded, participants)

"""One refresh of K-FAC around a pinned pipeline: its holes, its work, measured timelines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.labels import PROFILED_STEP, Label, parse_label
from ppsolve.models.kinds.pipeline.entries import entry_at

Hole = tuple[int, int]
"""Start and end of a stretch of time without a pipeline op, in ticks."""

Member = tuple[int, int]
"""A device and the index of one of its work entries."""

Rendezvous = dict[Member, tuple[Member, ...]]
"""For each work entry, the entries that run together with it, itself included."""

PIPELINE_KINDS = ("forward", "backward")
"""Kinds of the ops of measured pipelines."""

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
    recorded: (
        tuple[int, int] | None
    )  # where it was measured, in ticks; None where nothing ran
    participants: tuple[
        int, ...
    ]  # devices that meet in it (syncs of replicas), this one included
    number: int = 0  # tells entries of a device with the same label apart, from 0

    @property
    def name(self) -> str:
        """Name of the entry, different for each of a device."""
        return f"{self.label.text}~{self.number}" if self.number else self.label.text


@dataclass(frozen=True)
class DevicePattern:
    """Pinned ops and K-FAC work of one device."""

    device: int
    ops: tuple[
        PinnedOp, ...
    ]  # forwards, backwards (and preconditioning) of iteration 0
    work: tuple[Work, ...]  # K-FAC work, in the order of the instance

    @property
    def num_microbatches(self) -> int:
        """Forwards of the first pipe: the parts that curvature is cut into."""
        return sum(op.kind == "forward" and op.pipe == 0 for op in self.ops)

    def data_of(self, label: Label) -> list[PinnedOp]:
        """Return the ops that make data for a curvature, of its own pipe, by start."""
        ops = (
            op for op in self.ops if (op.kind, op.pipe) == (label.data_kind, label.pipe)
        )
        return sorted(ops, key=lambda op: op.start)

    @cached_property
    def predecessors(self) -> list[tuple[int, ...]]:
        """For each work entry, the entries that must end before it.

        A sync waits for every curvature of its factor and module (both pipes), an inversion for the
        curvature of its own pipe and for every sync of its factor and module.
        """
        of_module: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for index, work in enumerate(self.work):
            of_module[work.label.kind, work.label.factor, work.label.module].append(
                index
            )
        predecessors = []
        for work in self.work:
            label = work.label
            before = (
                of_module["cov", label.factor, label.module]
                if label.kind != "cov"
                else []
            )
            if label.kind == "inv":
                before = [
                    index
                    for index in before
                    if self.work[index].label.pipe == label.pipe
                ]
                before += of_module["sync", label.factor, label.module]
            predecessors.append(tuple(before))
        return predecessors

    @cached_property
    def data_ends(self) -> list[tuple[int, ...]]:
        """For each work entry, the ticks at which the data of its parts is ready.

        Empty for work that is not curvature.
        """
        return [
            tuple(op.end for op in self.data_of(work.label))
            if work.label.kind == "cov"
            else ()
            for work in self.work
        ]


@dataclass(frozen=True)
class RefreshPattern:
    """A pinned pipeline, repeated every period, and the K-FAC work of one refresh."""

    name: str
    scale: TimeScale
    period: int  # length of an iteration in ticks, the same for every device
    margin: Fraction  # an op of length d needs more than (1 + margin) d before the end of its hole
    devices: tuple[DevicePattern, ...]
    # Memory that each saved input (``A``) and error (``B``) takes, and the capacity of each device
    # for them; no capacities where there is no limit.
    saved: Mapping[str, Fraction] = field(
        default_factory=lambda: dict.fromkeys("AB", Fraction(1))
    )
    capacities: tuple[Fraction, ...] = ()
    # True if syncs occupy the device, as in measured timelines; False: its comm stream.
    syncs_in_holes: bool = True

    def holes(self, device: int, iterations: int) -> list[Hole]:
        """Return the holes of a device, by start.

        They are the maximal gaps between its pipeline ops in [0, iterations x period), cut at the
        end of every iteration; the pattern is repeated once per iteration.
        """
        spans = [
            (op.start, op.end) for op in self.devices[device].ops if op.end > op.start
        ]
        last = iterations * self.period
        busy = [
            (start + begin, end + begin)
            for begin in range(0, last, self.period)
            for start, end in [(0, 0), *spans]
        ]
        busy = sorted([*busy, (last, last)])
        free_from = accumulate((end for _, end in busy), max)
        return [
            (begin, end)
            for begin, (end, _) in zip(free_from, busy[1:], strict=False)
            if 0 <= begin < end <= last
        ]

    @cached_property
    def rendezvous(self) -> Rendezvous:
        """The members of each work entry's rendezvous, itself included.

        Only syncs have more than one. Several syncs of one factor and module on a device meet those
        of the other devices in the order of the instance.
        """
        groups: dict[tuple[object, ...], list[Member]] = defaultdict(list)
        for device in self.devices:
            seen: Counter[tuple[object, ...]] = Counter()
            for index, work in enumerate(device.work):
                member = device.device, index
                key: tuple[object, ...] = member
                if len(work.participants) > 1:
                    key = work.participants, work.label.factor, work.label.module
                groups[*key, seen[key]].append(member)
                seen[key] += 1
        return {member: tuple(group) for group in groups.values() for member in group}

    @cached_property
    def lengths(self) -> dict[Member, int]:
        """Ticks of a part of each work entry: of a sync, those of its slowest member."""
        return {
            member: max(
                self.devices[device].work[index].length for device, index in members
            )
            for member, members in self.rendezvous.items()
        }

    def work_in_holes(self, device: int) -> int:
        """Return the ticks of work that a device does in its holes; syncs may have a stream."""
        return sum(
            work.parts * work.length
            for work in self.devices[device].work
            if self.syncs_in_holes or work.label.kind != "sync"
        )

    def room_for(self, length: int) -> int:
        """Return the ticks that an op of `length` needs from its start to the end of its hole.

        The margin is PipeFisher's: (1 + margin) d ticks must lie strictly before the end.
        """
        over, denominator = self.margin.as_integer_ratio()
        if over == 0:
            return length
        # In whole numbers: fractions are slow for every length. The limit itself is too late.
        return length * (denominator + over) // denominator + 1


def windows_in(holes: Iterable[Hole], room: int) -> list[Hole]:
    """Return the closed intervals of starts, in ticks, that leave an op enough room in a hole.

    Holes are sorted by start; `room` is what the op needs from its start to the end of the hole,
    see `RefreshPattern.room_for`.
    """
    return [(start, end - room) for start, end in holes if end - room >= start]


def common_starts(first: Sequence[Hole], second: Sequence[Hole]) -> list[Hole]:
    """Intersect two lists of closed intervals, both sorted by start."""
    overlaps = []
    i = j = 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if low <= high:
            overlaps.append((low, high))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return overlaps


Measured = tuple[Label, tuple[Any, Any] | None]
"""An op and where it ran, in the instance's unit or in ticks; None where nothing ran."""


def measured_pattern(instance: KfacInstance) -> RefreshPattern:
    """Return the pattern that an instance's timelines describe.

    Times are relative to the start of node 0's first forward; the period is the time from there to
    the end of node 0's last backward. Of several profiled steps the last one counts. Curvature is
    cut into as many parts as the first pipe has forwards, each of the whole length divided by their
    number, rounded down (PipeFisher's rule).

    Raises `InputError` where node 0 has no forward or no backward, a device has no forward of the
    first pipe to cut its curvature by, a pipeline op is ``[null, null]``, or the times have no
    common tick.
    """
    assert instance.timelines is not None
    devices = [
        list(_last_step(*timeline)) for timeline in enumerate(instance.timelines)
    ]
    origin = min(_edges(devices[0], "forward", 0))
    period = max(_edges(devices[0], "backward", 1)) - origin
    if period <= 0:
        raise InputError(
            "expected the last backward to end after the first forward starts",
            field="timelines[0].call_backward",
        )
    times = {
        abs(time - origin)
        for rows in devices
        for _, pair in rows
        for time in pair or ()
    }
    scale = TimeScale.fit(times, instance.time_unit, exact=True)

    def ticks(time: Fraction) -> int:
        return int((time - origin) / scale.tick)

    in_ticks: list[list[Measured]] = [
        [(label, pair and (ticks(pair[0]), ticks(pair[1]))) for label, pair in rows]
        for rows in devices
    ]
    syncs = [
        {_factor(label) for label, pair in rows if label.kind == "sync" and pair}
        for rows in in_ticks
    ]
    group_of = {
        device: sorted(group) for group in instance.sync_groups for device in group
    }
    pattern = RefreshPattern(
        name=instance.name,
        scale=scale,
        period=scale.ticks(period),
        margin=Fraction(instance.margin_ratio),
        devices=tuple(
            _measured_device(
                number, rows, {d: syncs[d] for d in group_of.get(number, [number])}
            )
            for number, rows in enumerate(in_ticks)
        ),
    )
    if instance.saved is None:
        return pattern
    return replace(
        pattern,
        saved={
            "A": Fraction(instance.saved.input),
            "B": Fraction(instance.saved.error),
        },
        capacities=tuple(
            entry_at(instance.saved.capacity, d) for d in range(len(devices))
        ),
    )


def _last_step(number: int, timeline: dict[str, Any]) -> Iterator[Measured]:
    # ``start_end`` has one pair per step; of several steps every list keeps its last len/steps.
    steps = len(timeline.get(PROFILED_STEP, ()))
    for text, pairs in timeline.items():
        label = parse_label(text)
        if label is None or label.kind == "step":
            continue
        for start, end in pairs[-(len(pairs) // steps) :] if steps > 1 else pairs:
            if start is not None:
                yield label, (Fraction(start), Fraction(end))
            elif label.kind in PIPELINE_KINDS:
                raise InputError(
                    "expected [start, end] for an op of the pipeline, got [null, null]",
                    field=f"timelines[{number}].{label.text}",
                    code=ErrorCode.TYPE,
                )
            else:
                yield label, None


def _edges(rows: Sequence[Measured], kind: str, side: int) -> list[Fraction]:
    times = [pair[side] for label, pair in rows if label.kind == kind and pair]
    if not times:
        raise InputError(
            f"expected at least one call_{kind} (node 0 fixes the time axis)",
            field=f"timelines[0].call_{kind}",
            code=ErrorCode.RANGE,
        )
    return times


def _factor(label: Label) -> tuple[str, str]:
    return label.factor, label.module


def _measured_device(
    number: int, rows: Sequence[Measured], syncs: Mapping[int, set[tuple[str, str]]]
) -> DevicePattern:
    """Return a device; `syncs` has the factors and modules that each device of its group syncs."""
    ops = tuple(
        PinnedOp(label.text, label.kind, label.pipe, *pair)
        for label, pair in rows
        if label.kind in PIPELINE_KINDS and pair
    )
    num_microbatches = DevicePattern(number, ops, ()).num_microbatches
    work: list[Work] = []
    seen: Counter[str] = Counter()
    for label, pair in rows:
        if label.kind in PIPELINE_KINDS:
            continue
        if label.kind == "cov" and num_microbatches == 0:
            raise InputError(
                "expected call_forward entries: curvature has one part per forward",
                field=f"timelines[{number}].call_forward",
                code=ErrorCode.MISSING,
            )
        count = num_microbatches if label.kind == "cov" else 1
        length = pair[1] - pair[0] if pair else 0
        meets = label.kind == "sync" and pair
        devices = (
            [d for d, factors in syncs.items() if _factor(label) in factors]
            if meets
            else [number]
        )
        work.append(
            Work(label, count, length // count, pair, tuple(devices), seen[label.text])
        )
        seen[label.text] += 1
    return DevicePattern(number, ops, tuple(work))

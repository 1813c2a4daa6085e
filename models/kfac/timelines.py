"""Measured timelines to a refresh pattern: last profiled step, common clock, equal parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.kfac.labels import PROFILED_STEP, Label, parse_label
from ppsolve.models.kfac.pattern import DevicePattern, PinnedOp, RefreshPattern, SavedTensors, Work
from ppsolve.models.pipeline.entries import entry_at

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

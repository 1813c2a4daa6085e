"""Plans of devices: pipeline ops and placed K-FAC work in list order, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

from ppsolve.models.kinds.kfac.labels import (
    END,
    SAVE_OFF,
    SAVE_ON,
    START,
    precondition_label,
)
from ppsolve.models.kinds.kfac.pattern import (
    WORK_KINDS,
    DevicePattern,
    RefreshPattern,
    Work,
)
from ppsolve.models.kinds.kfac.unrolling import Key

PIPELINE, FIRST, EXTRA = "pipeline", "first", "extra"
REFILL, UNPLACED = "refill", "unplaced"
"""Phases of entries, see `Placed`."""

Order = Callable[[DevicePattern], list[int]]
"""From a device to the indices of its work, in the order in which a rule looks at it."""

Part = tuple[int, int]
"""Index of a work entry of a device, and which of its parts."""


@dataclass(frozen=True)
class Placed:
    """One entry of a device's schedule."""

    label: str  # label of an op or marker
    # Ticks from the start of its iteration, as PipeFisher writes them: an op of a clock that runs
    # ahead has a negative start, and is listed before the start marker it belongs to.
    start: int
    end: int
    iteration: int  # start markers before it, minus 1; -1 before the first
    # ``pipeline`` (ops of the pipeline and markers), ``first`` (K-FAC work in the first
    # iteration), ``extra`` (in a later one), ``refill`` (put by PipeFisher's last pass into holes
    # that the list had left) or ``unplaced`` (kept at its recorded time).
    phase: str
    # Index into the device's work, None for ops of the pipeline and markers.
    work: int | None = None
    # Part of that work; None also for the rest of a curvature that was not placed.
    part: int | None = None

    @property
    def length(self) -> int:
        """Duration in ticks."""
        return self.end - self.start

    @property
    def copy(self) -> int:
        """Which repetition of the pattern its times are relative to."""
        return self.iteration + (self.start < 0 and self.phase != UNPLACED)


@dataclass(frozen=True)
class DevicePlan:
    """Schedule of one device over the iterations of a refresh."""

    device: int
    placed: tuple[Placed, ...]  # ops, K-FAC work and markers in list order

    @property
    def iterations(self) -> int:
        """Iterations that the refresh takes: start markers."""
        return sum(entry.label == START for entry in self.placed)

    def busy(self, pattern: RefreshPattern) -> int:
        """Return the ticks for which the device is busy.

        Syncs on a comm stream do not keep the device busy.
        """
        work = pattern.devices[self.device].work
        return sum(
            entry.length
            for entry in self.placed
            if pattern.syncs_in_holes
            or entry.work is None
            or work[entry.work].label.kind != "sync"
        )

    def usage(self, pattern: RefreshPattern) -> float:
        """Return the busy share of the iterations in percent."""
        return self.busy(pattern) / (pattern.period * self.iterations) * 100

    def labels(self) -> list[list[str]]:
        """Return the labels, split before each start marker.

        Entries before the first start marker are a list of their own, if there are any.
        """
        groups: list[list[str]] = [[]]
        for entry in self.placed:
            if entry.label == START:
                groups.append([])
            groups[-1].append(entry.label)
        return groups if groups[0] else groups[1:]


def common_interval(plans: Iterable[DevicePlan]) -> int:
    """Return the refresh interval in iterations that all devices can keep: the largest."""
    return max((plan.iterations for plan in plans), default=1)


def work_class(work: Work) -> int:
    """Return the class of `work`: curvature A and B, sync A and B, inversion A and B."""
    return 2 * WORK_KINDS.index(work.label.kind) + "AB".index(work.label.factor)


def recorded_start(work: Work) -> int:
    """Return the measured start of `work` in ticks; 0 where nothing ran."""
    return 0 if work.recorded is None else work.recorded[0]


def greedy_order(device: DevicePattern) -> list[int]:
    """Return the indices of the device's work by class, recorded start and instance order."""
    work = device.work
    return sorted(
        range(len(work)),
        key=lambda index: (work_class(work[index]), recorded_start(work[index])),
    )


def shortest_order(device: DevicePattern) -> list[int]:
    """Return the indices of the device's work: curvature by length, then syncs and inversions.

    The most saved tensors are given back soonest that way.
    """
    work = device.work
    return sorted(
        greedy_order(device),
        key=lambda index: (
            WORK_KINDS.index(work[index].label.kind),
            work[index].length,
        ),
    )


def freshest_order(device: DevicePattern) -> list[int]:
    """Return the indices of the device's work: factor after factor, the least work first.

    Inversions go before syncs and curvature of their factor, so that started factors are finished.
    """
    work = device.work
    total: dict[tuple[str, str], int] = {}
    for entry in work:
        factor = (entry.label.factor, entry.label.module)
        total[factor] = total.get(factor, 0) + entry.parts * entry.length

    def rank(index: int) -> tuple[int, str, str, int]:
        label = work[index].label
        factor = (label.factor, label.module)
        return total[factor], *factor, -WORK_KINDS.index(label.kind)

    return sorted(greedy_order(device), key=rank)


def pipeline_entries(device: DevicePattern, period: int) -> list[Placed]:
    """Return one iteration of the pipeline with its markers, stably sorted by start.

    PipeFisher's order before sorting decides ties: start marker, forwards, backwards, the rest, end
    marker.
    """
    kinds = {"forward": 0, "backward": 1}
    entries = [
        Placed(START, 0, 0, 0, PIPELINE),
        *(
            Placed(op.label, op.start, op.end, 0, PIPELINE)
            for op in sorted(device.ops, key=lambda op: kinds.get(op.kind, len(kinds)))
        ),
        Placed(END, period, period, 0, PIPELINE),
    ]
    return sorted(entries, key=lambda entry: entry.start)


def save_marker(label: str, entries: Sequence[Placed]) -> Placed:
    """Return a marker without length at the end of the last of some entries in list order."""
    return Placed(label, entries[-1].end, entries[-1].end, 0, PIPELINE)


def number_iterations(device: int, entries: Iterable[Placed]) -> DevicePlan:
    """Return the plan of a device, the iterations of its entries counted by their start markers."""
    iteration, placed = -1, []
    for entry in entries:
        iteration += entry.label == START
        placed.append(replace(entry, iteration=iteration))
    return DevicePlan(device, tuple(placed))


def absolute_starts(plan: DevicePlan, pattern: RefreshPattern) -> dict[Part, int]:
    """Return the start of each part of the device's work, in ticks from the start of iteration 0.

    Starts are by index of the work and part. The rest of a curvature that was not placed runs from
    its recorded start, one part after the other.
    """
    work = pattern.devices[plan.device].work
    starts: dict[Part, int] = {}
    for entry in plan.placed:
        if entry.work is None:
            continue
        start = entry.start + entry.copy * pattern.period
        if entry.part is not None:
            starts[entry.work, entry.part] = start
            continue
        missing = [
            part
            for part in range(work[entry.work].parts)
            if (entry.work, part) not in starts
        ]
        for position, part in enumerate(missing):
            starts[entry.work, part] = start + position * work[entry.work].length
    return starts


def plan_of_starts(
    pattern: RefreshPattern, device: int, starts: Mapping[Key, int], iterations: int
) -> DevicePlan:
    """Lay out the plan of a device from the starts of parts, in ticks from the first iteration.

    The starts may include those of other devices.
    """
    pinned = pipeline_entries(pattern.devices[device], pattern.period)
    rows: list[list[Placed]] = [list(pinned) for _ in range(iterations)]
    begins = sorted(op.start for op in pattern.devices[device].ops)
    work = pattern.devices[device].work
    for (owner, index, part), start in starts.items():
        if owner != device:
            continue
        copy = _copy_of(start, begins, pattern.period, iterations)
        begin = start - copy * pattern.period
        phase = EXTRA if copy > 0 else FIRST
        end = begin + pattern.lengths[device, index]
        rows[copy].append(
            Placed(work[index].label.text, begin, end, 0, phase, index, part)
        )
    for row in rows:
        row.sort(key=lambda entry: _list_place(entry, work))
    rows[0].append(save_marker(SAVE_OFF, rows[0]))
    rows[-1].append(save_marker(SAVE_ON, rows[-1]))
    return number_iterations(device, (entry for row in rows for entry in row))


def _copy_of(start: int, begins: Sequence[int], period: int, iterations: int) -> int:
    # It is the running repetition, unless ops of a later one have started already, or ops of an
    # earlier one are still to come.
    copy = min(start // period, iterations - 1)
    if not begins:
        return copy
    while copy + 1 < iterations and begins[0] + (copy + 1) * period < start:
        copy += 1
    while copy > 0 and begins[-1] + (copy - 1) * period > start:
        copy -= 1
    return copy


def _list_place(entry: Placed, work: Sequence[Work]) -> tuple[int, int, int, int]:
    # Work without length comes before what waits for it.
    if entry.work is None:
        return entry.start, 0 if entry.label == START else 2, 0, 0
    return entry.start, 1, entry.end, work_class(work[entry.work])


@dataclass(frozen=True)
class Refresh:
    """A refresh of all devices: the pattern and where each device does its work."""

    pattern: RefreshPattern
    plans: Sequence[DevicePlan]

    def figures(self) -> dict[str, Any]:
        """Return the fields of `ppsolve.models.kinds.kfac.result.RefreshFigures`."""
        plans, pattern = self.plans, self.pattern
        period, time = pattern.period, pattern.scale.time
        return {
            "iterations": common_interval(plans),
            "iterations_of": [plan.iterations for plan in plans],
            "usage_of": [round(plan.usage(pattern), 4) for plan in plans],
            "bubbles_of": [
                time(plan.iterations * period - plan.busy(pattern)) for plan in plans
            ],
            "peak_saved_of": [float(self._peak_saved(plan)) for plan in plans],
            "ages_of": [self._ages(plan) for plan in plans],
            "oldest_of": [self._oldest(plan) for plan in plans],
            "labels": [plan.labels() for plan in plans],
        }

    @property
    def usage(self) -> float:
        """Busy share of all devices over their iterations, from 0."""
        total = sum(plan.iterations for plan in self.plans) * self.pattern.period
        return sum(plan.busy(self.pattern) for plan in self.plans) / total

    def _peak_saved(self, plan: DevicePlan) -> Fraction:
        device = self.pattern.devices[plan.device]
        changes: list[tuple[int, Fraction]] = []
        for (index, part), start in absolute_starts(plan, self.pattern).items():
            work = device.work[index]
            data = device.data_of(work.label) if work.label.kind == "cov" else []
            if part < len(data):
                amount = self.pattern.saved[work.label.factor]
                since = max(data[part].start, 0)
                changes += [(since, amount), (start + work.length, -amount)]
        return max(
            accumulate((change for _, change in sorted(changes)), initial=Fraction(0))
        )

    def _ages(self, plan: DevicePlan) -> dict[str, int]:
        # Timelines have no preconditioning: there an inverse is used at the end of the iteration.
        device, period = self.pattern.devices[plan.device], self.pattern.period
        uses = {op.label: op.start for op in device.ops}
        ages: dict[str, int] = {}
        for (index, _), start in absolute_starts(plan, self.pattern).items():
            work = device.work[index]
            if work.label.kind == "inv":
                text = work.label.text
                late = (
                    start
                    + work.length
                    - uses.get(precondition_label(work.label.module), period)
                )
                ages[text] = max(ages.get(text, 0), -(-late // period))
        return ages

    def _oldest(self, plan: DevicePlan) -> int | None:
        ages = self._ages(plan).values()
        return max(ages) + plan.iterations - 1 if ages else None

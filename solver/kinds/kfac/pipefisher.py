"""PipeFisher's greedy as published, its quirks included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ppsolve.models.kinds.kfac.labels import SAVE_OFF, SAVE_ON
from ppsolve.models.kinds.kfac.pattern import DevicePattern, RefreshPattern, Work
from ppsolve.solver.kinds.kfac.placement import (
    EXTRA,
    FIRST,
    REFILL,
    UNPLACED,
    DevicePlan,
    Placed,
    greedy_order,
    number_iterations,
    pipeline_entries,
    save_marker,
)
from ppsolve.solver.kinds.kfac.requirements import most_unrolled, too_long

COUNTED = {"call_forward": "A", "call_backward": "B"}
"""Ops that release a curvature part, and of which factor: the second pipe's do not count."""


@dataclass
class _Entry:
    index: int
    work: Work
    done: int = 0

    @property
    def is_queue(self) -> bool:
        return self.work.label.kind == "cov"


def pipefisher(pattern: RefreshPattern) -> list[DevicePlan]:
    """Return PipeFisher's schedule of each device, exactly as its own tool makes it.

    It ignores causality in its refills, waits for all modules at once, counts data of the first
    pipe only, skips an entry after each one it removes, and appends all other work at its
    recorded time; see `pipefisher_causal` for the repaired rule.
    """
    return [_plan(device, pattern) for device in pattern.devices]


def _plan(device: DevicePattern, pattern: RefreshPattern) -> DevicePlan:
    pending = [_Entry(index, device.work[index]) for index in greedy_order(device)]
    pipeline = pipeline_entries(device, pattern.period)
    stretch = 1 + float(pattern.margin)
    saved = device.num_microbatches
    placed = _Fill(pending, stretch, 0, FIRST).walk(pipeline)
    placed.append(save_marker(SAVE_OFF, placed))
    room, counted = 0, 0
    limit, iterations = most_unrolled(pattern, [device.device]), 1
    while pending:
        room += sum(max(b.start - a.end, 0) for a, b in pairwise(placed[counted:]))
        counted = len(placed) - 1
        if sum(map(_ticks, pending)) <= room:
            trial = [replace(entry) for entry in pending]
            refilled = _Fill(trial, stretch, saved, REFILL).walk(placed)
            if not trial:
                placed = refilled
                break
        if iterations >= limit:
            raise too_long(pattern, [device.device], iterations)
        iterations += 1
        before = len(pending)
        placed += _Fill(pending, stretch, saved, EXTRA).walk(pipeline)
        # PipeFisher gives up when no entry is finished, even if parts of one were placed.
        if len(pending) == before:
            placed += [_as_recorded(entry) for entry in pending]
            pending.clear()
    placed.append(save_marker(SAVE_ON, placed))
    return number_iterations(device.device, placed)


def _ticks(entry: _Entry) -> int:
    return (entry.work.parts - entry.done if entry.is_queue else 1) * entry.work.length


def _as_recorded(entry: _Entry) -> Placed:
    start, end = entry.work.recorded or (0, 0)
    part = None if entry.is_queue else 0
    return Placed(entry.work.label.text, start, end, 0, UNPLACED, entry.index, part)


class _Fill:
    def __init__(
        self, pending: list[_Entry], stretch: float, saved: int, phase: str
    ) -> None:
        self.left = pending
        self.stretch = stretch
        self.saved = {"A": saved, "B": saved}
        self.phase = phase
        self.waiting = Counter(
            (e.work.label.kind, e.work.label.factor) for e in pending
        )
        self.shortest = min((entry.work.length for entry in pending), default=0)
        self.placed: list[Placed] = []

    def walk(self, entries: Sequence[Placed]) -> list[Placed]:
        """Return `entries` with work put between each one and its right neighbour."""
        for entry, following in zip(entries, [*entries[1:], None], strict=True):
            self.placed.append(entry)
            if entry.label in COUNTED:
                self.saved[COUNTED[entry.label]] += 1
            if following is not None and entry.end < following.start:
                self._fill(entry.end, following.start)
        return self.placed

    def _fill(self, cursor: int, end: int) -> None:
        count = -1
        while count < len(self.placed) and cursor + self.stretch * self.shortest < end:
            count = len(self.placed)
            cursor = self._scan(cursor, end)

    def _is_held(self, kind: str, factor: str) -> bool:
        if kind == "cov":
            return False
        waits = self.waiting["cov", factor] > 0
        return waits or (kind == "inv" and self.waiting["sync", factor] > 0)

    def _scan(self, cursor: int, end: int) -> int:
        index = 0
        while index < len(self.left):
            entry = self.left[index]
            needed = entry.work.parts if entry.is_queue else 1
            while (
                self._may_run(entry) and cursor + self.stretch * entry.work.length < end
            ):
                cursor = self._put(entry, cursor)
                if entry.done == needed:
                    self._remove(index)
                    break
            # Also after a removal: this skips the right-hand neighbour, as the original does.
            index += 1
        return cursor

    def _may_run(self, entry: _Entry) -> bool:
        factor = entry.work.label.factor
        if entry.is_queue:
            return self.saved[factor] > entry.done
        return not self._is_held(entry.work.label.kind, factor)

    def _put(self, entry: _Entry, cursor: int) -> int:
        end = cursor + entry.work.length
        self.placed.append(
            Placed(
                entry.work.label.text,
                cursor,
                end,
                0,
                self.phase,
                entry.index,
                entry.done,
            )
        )
        entry.done += 1
        return end

    def _remove(self, index: int) -> None:
        label = self.left.pop(index).work.label
        self.waiting[label.kind, label.factor] -= 1

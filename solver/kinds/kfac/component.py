"""Components: devices whose refreshes are solved together, their schedules and tie-breaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.kfac.instance import TieBreak
from ppsolve.models.kinds.kfac.labels import Label
from ppsolve.models.kinds.kfac.pattern import DevicePattern, Hole, RefreshPattern
from ppsolve.models.kinds.kfac.unrolling import LoweredRefresh


@dataclass(frozen=True)
class ComponentSchedule:
    """A schedule of some devices, and the iterations that it takes."""

    lowered: LoweredRefresh
    schedule: Schedule
    by: str

    def iterations_of(self, devices: Sequence[int]) -> int:
        """Return the iterations of `devices`, the same for all of them."""
        return max(self.lowered.iterations[device] for device in devices)


@dataclass(frozen=True)
class ComponentResult:
    """The best schedule of one component, and its proved bound."""

    devices: tuple[int, ...]  # its devices, coupled by syncs (usually one)
    best: ComponentSchedule | None
    lower: int  # proved: fewer iterations are impossible
    by: str  # name of the rule or search that proved the bound
    stop_reason: StopReason  # why the search ended
    tie_break: TieBreak | None = (
        None  # secondary objective minimised at this number of iterations
    )
    tie: tuple[int, int] | None = None  # its value and bound, in ticks

    @property
    def iterations(self) -> int | None:
        """Iterations of the best schedule."""
        return self.best.iterations_of(self.devices) if self.best else None

    @property
    def is_proved(self) -> bool:
        """Whether no schedule takes fewer iterations than the best."""
        return self.iterations == self.lower

    def improved_by(self, candidate: ComponentSchedule) -> ComponentResult:
        """Return the result with a schedule of fewer iterations, or a fresher one in as many."""
        if self.best is not None:
            pair = (candidate, self.best)
            keys = [
                (schedule.iterations_of(self.devices), schedule.schedule.value)
                for schedule in pair
            ]
            if keys[0] >= keys[1]:
                return self
        better = replace(self, best=candidate)
        proved = StopReason.PROVED if better.is_proved else StopReason.TIME
        return replace(better, stop_reason=proved)


def end_weights(tie_break: TieBreak) -> Callable[[Label], int]:
    """Return the weight of each K-FAC op's end in a tie-break, as a function of its label.

    Staleness weighs inversions, usage all K-FAC work.
    """
    if tie_break is TieBreak.STALENESS:
        return lambda label: int(label.kind == "inv")
    return lambda label: int(tie_break is TieBreak.USAGE)


def completion_bound(
    pattern: RefreshPattern,
    devices: Sequence[int],
    iterations: int,
    tie_break: TieBreak,
) -> int:
    """Bound the sum of the ends that a tie-break counts from below, in ticks.

    By the k-th end at least the k smallest jobs are done, each with the work that only it requires:
    an inversion with the curvature (and sync) before it. Work is poured into the holes as if it
    could be cut anywhere.
    """
    if tie_break is TieBreak.NONE:
        return 0
    jobs = _inversions if tie_break is TieBreak.STALENESS else _every_op
    return sum(
        _poured(
            pattern.holes(device, iterations), jobs(pattern, pattern.devices[device])
        )
        for device in devices
    )


def _every_op(pattern: RefreshPattern, device: DevicePattern) -> list[int]:
    return [
        work.length
        for work in device.work
        if work.label.kind != "sync"
        for _ in range(work.parts)
    ]


def _inversions(pattern: RefreshPattern, device: DevicePattern) -> list[int]:
    # Each with the work that counts for no other inversion.
    before: dict[tuple[str, str, int], int] = defaultdict(int)
    for work in device.work:
        label = work.label
        if label.kind == "cov":
            before[label.factor, label.module, label.pipe] += work.parts * work.length
        elif label.kind == "sync" and pattern.syncs_in_holes:
            before[label.factor, label.module, 0] += work.length
    jobs = []
    for work in device.work:
        label = work.label
        if label.kind == "inv":
            curvature = before.pop((label.factor, label.module, label.pipe), 0)
            jobs.append(curvature + work.length)
    return jobs


def _poured(holes: Sequence[Hole], jobs: Iterable[int]) -> int:
    total, index, full = 0, 0, 0
    for need in accumulate(sorted(jobs)):
        while index < len(holes) and full + holes[index][1] - holes[index][0] < need:
            full += holes[index][1] - holes[index][0]
            index += 1
        if index == len(holes):
            return total
        total += holes[index][0] + need - full
    return total

"""Lower bounds on the tie-breaks: total completion time when work may be cut at will."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from ppsolve.models.kfac.instance import TieBreak
from ppsolve.models.kfac.pattern import DevicePattern, Hole, RefreshPattern


def completion_bound(
    pattern: RefreshPattern, devices: Sequence[int], iterations: int, tie_break: TieBreak
) -> int:
    """Bound the sum of the ends that a tie-break counts from below.

    By the k-th end at least the k smallest jobs are done, each with the work that only it requires:
    an inversion with the curvature (and sync) before it. Work is poured into the holes as if it
    could be cut anywhere.

    Parameters
    ----------
    pattern : RefreshPattern
    devices : sequence of int
        Devices of the component.
    iterations : int
        Iterations of the refresh.
    tie_break : TieBreak

    Returns
    -------
    int
        Sum of ends in ticks.
    """
    if tie_break is TieBreak.NONE:
        return 0
    jobs = _inversions if tie_break is TieBreak.STALENESS else _every_op
    return sum(
        _poured(pattern.holes(device, iterations), jobs(pattern, pattern.devices[device]))
        for device in devices
    )


def _every_op(pattern: RefreshPattern, device: DevicePattern) -> list[int]:
    return [
        work.length for work in device.work if work.label.kind != "sync" for _ in range(work.parts)
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
    found = []
    for work in device.work:
        label = work.label
        if label.kind == "inv":
            own = before.pop((label.factor, label.module, label.pipe), 0)
            found.append(own + work.length)
    return found


def _poured(holes: Sequence[Hole], jobs: Iterable[int]) -> int:
    total, place, full = 0, 0, 0
    for need in accumulate(sorted(jobs)):
        while place < len(holes) and full + holes[place][1] - holes[place][0] < need:
            full += holes[place][1] - holes[place][0]
            place += 1
        if place == len(holes):
            return total
        total += holes[place][0] + need - full
    return total

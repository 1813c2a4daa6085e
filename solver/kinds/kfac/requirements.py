"""Requirements of K-FAC work: its data, curvature and syncs, and the devices that it couples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import ceil

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.kfac import unrolling
from ppsolve.models.kinds.kfac.pattern import (
    Member,
    RefreshPattern,
    common_starts,
    windows_in,
)

MOST_ITERATIONS = 10_000
"""Most iterations of one refresh that are searched: the same as of `refresh_interval`."""


def coupled_devices(pattern: RefreshPattern) -> list[list[int]]:
    """Return the groups of devices that are linked by rendezvous, each ascending."""
    group_of = {device.device: {device.device} for device in pattern.devices}
    for members in pattern.rendezvous.values():
        linked = set().union(*(group_of[device] for device, _ in members))
        for device in linked:
            group_of[device] = linked
    return [
        list(group) for group in sorted({tuple(sorted(g)) for g in group_of.values()})
    ]


def iterations_until_steady(pattern: RefreshPattern) -> int:
    """Return the iterations after which all data is ready and holes repeat (but for the last).

    Raises `InputError` where an op of the pipeline is further than `MOST_ITERATIONS` periods from
    the first iteration.
    """
    steady = 1
    for device in pattern.devices:
        for op in device.ops:
            away = ceil(Fraction(max(op.end, -op.start), pattern.period))
            if away > MOST_ITERATIONS:
                raise InputError(
                    f"expected ops within {MOST_ITERATIONS} pipeline times of node 0's first "
                    f"forward, got one {away} away on device {device.device}",
                    field=op.label,
                    code=ErrorCode.RANGE,
                )
            steady = max(steady, away + 1)
    return steady


def steady_iterations(pattern: RefreshPattern) -> int:
    """Return iterations with holes that do not repeat at either end, and one of those that do."""
    return 2 * iterations_until_steady(pattern) + 1


def refuse_missing_data(pattern: RefreshPattern) -> None:
    """Refuse a curvature part without an op that makes its data.

    The `InputError` names the curvature's label and its device.
    """
    for device in pattern.devices:
        counts = Counter((op.kind, op.pipe) for op in device.ops)
        for work in device.work:
            label = work.label
            have = counts[label.data_kind, label.pipe]
            if label.kind == "cov" and have < work.parts:
                raise InputError(
                    f"expected a {label.data_kind} of the same pipe for each of the {work.parts} "
                    f"curvature parts, got {have} on device {device.device}",
                    field=label.text,
                )


def refuse_unplaceable(pattern: RefreshPattern) -> None:
    """Refuse work with an op that fits in no hole of any iteration, even alone.

    The `InputError` names the op's label, its length and its devices.
    """
    hardest: dict[tuple[int, ...], tuple[int, Member]] = {}
    for members in pattern.rendezvous.values():
        device, index = members[0]
        kind = pattern.devices[device].work[index].label.kind
        if kind != "sync" or pattern.syncs_in_holes:
            devices = tuple(device for device, _ in members)
            candidate = pattern.lengths[members[0]], members[0]
            hardest[devices] = max(hardest.get(devices, candidate), candidate)
    enough = steady_iterations(pattern)
    for devices, (length, (device, index)) in hardest.items():
        room = pattern.room_for(length)
        windows = [
            windows_in(pattern.holes(number, enough), room) for number in devices
        ]
        if not reduce(common_starts, windows):
            names = " and ".join(f"device {number}" for number in devices)
            raise InputError(
                f"an op of {pattern.scale.time(length)} {pattern.scale.unit} fits no hole of "
                f"{names}, even alone (margin {float(pattern.margin):g}); "
                "expected shorter ops, a smaller margin, or larger bubbles",
                field=pattern.devices[device].work[index].label.text,
            )


def most_iterations(pattern: RefreshPattern, devices: Sequence[int]) -> int:
    """Return the iterations beyond which more never help, at most `MOST_ITERATIONS`.

    An iteration in which no work is done, among those with repeating holes, can be cut out, and all
    later work be done one iteration earlier. So no more than one per part is needed there.
    """
    items = sum(
        work.parts for device in devices for work in pattern.devices[device].work
    )
    return min(steady_iterations(pattern) + items, MOST_ITERATIONS)


def most_unrolled(pattern: RefreshPattern, devices: Sequence[int]) -> int:
    """Return the most iterations that have at most `unrolling.MAX_UNROLLED` ops in all, or 1."""
    pinned = sum(len(pattern.devices[device].ops) for device in devices)
    num_parts = sum(
        work.parts for device in devices for work in pattern.devices[device].work
    )
    return max(1, (unrolling.MAX_UNROLLED - num_parts) // max(pinned, 1))


def too_long(
    pattern: RefreshPattern, devices: Sequence[int], iterations: int
) -> InputError:
    """Return the error that a refresh needs more iterations than can be lowered.

    `iterations`: the largest number of iterations that was tried.
    """
    pinned = sum(len(pattern.devices[device].ops) for device in devices)
    return InputError(
        f"needs more than {iterations} iterations of {pinned} ops; expected at most "
        f"{unrolling.MAX_UNROLLED} ops in all iterations",
        field="iterations",
        code=ErrorCode.RANGE,
    )


def fits_one_period(pattern: RefreshPattern, devices: Sequence[int]) -> bool:
    """Whether all pipeline ops of the devices lie within one period.

    They do not where clocks run ahead or a device takes longer than the period.
    """
    return all(
        op.start >= 0 and op.end <= pattern.period
        for device in devices
        for op in pattern.devices[device].ops
    )

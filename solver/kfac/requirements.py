"""What K-FAC work waits for: data, its own curvature and syncs, and replicas that meet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac import unrolling
from ppsolve.models.kfac.pattern import (
    DevicePattern,
    Meetings,
    Member,
    RefreshPattern,
    Work,
    common_starts,
    longest,
    uneven_data,
)

MOST_ITERATIONS = 10_000
"""Most iterations that are searched for one refresh."""


def predecessors(device: DevicePattern) -> list[tuple[int, ...]]:
    """Return, for each work entry of the device, the entries that must end before it.

    A sync waits for every curvature of its factor and module (both pipes), an inversion for the
    curvature of its own pipe and for every sync of its factor and module.
    """
    of_module: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, work in enumerate(device.work):
        of_module[work.label.kind, work.label.factor, work.label.module].append(index)
    found = []
    for work in device.work:
        label = work.label
        curvature = of_module["cov", label.factor, label.module]
        if label.kind == "sync":
            found.append(tuple(curvature))
        elif label.kind == "inv":
            own = [index for index in curvature if device.work[index].label.pipe == label.pipe]
            found.append((*own, *of_module["sync", label.factor, label.module]))
        else:
            found.append(())
    return found


def data_ends(device: DevicePattern) -> list[tuple[int, ...]]:
    """Return, for each work entry, when the data of each of its parts is there, in ticks.

    Empty for work that is not curvature.
    """
    known: dict[tuple[str, int], tuple[int, ...]] = {}
    found: list[tuple[int, ...]] = []
    for work in device.work:
        label = work.label
        if label.kind != "cov":
            found.append(())
            continue
        if (label.factor, label.pipe) not in known:
            ends = tuple(op.end for op in device.data_of(label))
            known[label.factor, label.pipe] = ends
        found.append(known[label.factor, label.pipe])
    return found


def coupled_devices(pattern: RefreshPattern, met: Meetings) -> list[list[int]]:
    """Return the devices in groups that are linked by rendezvous, each group by number."""
    group_of = {device.device: {device.device} for device in pattern.devices}
    for members in met.values():
        linked = set().union(*(group_of[device] for device, _ in members))
        for device in linked:
            group_of[device] = linked
    return [list(group) for group in sorted({tuple(sorted(g)) for g in group_of.values()})]


def settled_after(pattern: RefreshPattern) -> int:
    """Return iterations after which all data is there and the holes repeat (but for the last).

    Raises
    ------
    InputError
        An op of the pipeline is further than `MOST_ITERATIONS` periods from the first iteration.
    """
    settled = 1
    for device in pattern.devices:
        for op in device.ops:
            away = ceil(Fraction(max(op.end, -op.start), pattern.period))
            if away > MOST_ITERATIONS:
                raise InputError(
                    f"expected ops within {MOST_ITERATIONS} pipeline times of node 0's first "
                    f"forward, got one {away} away on device {device.device}",
                    field=op.label,
                )
            settled = max(settled, away + 1)
    return settled


def refuse_missing_data(pattern: RefreshPattern) -> None:
    """Raise an InputError where a curvature part has no op that makes its data."""
    for device, label, have in uneven_data(pattern):
        parts = max(w.parts for w in pattern.devices[device].work if w.label == label)
        if have < parts:
            op = "forward" if label.factor == "A" else "backward"
            raise InputError(
                f"expected a {op} of the same pipe for each of the {parts} curvature parts, "
                f"got {have} on device {device}",
                field=label.text,
            )


def refuse_hopeless(pattern: RefreshPattern, met: Meetings) -> None:
    """Raise an InputError where an op fits in no hole of any iteration, even alone."""
    hardest: dict[tuple[int, ...], tuple[int, Member]] = {}
    for members in met.values():
        device, index = members[0]
        kind = pattern.devices[device].work[index].label.kind
        if kind != "sync" or pattern.syncs_in_holes:
            devices = tuple(device for device, _ in members)
            candidate = longest(pattern, members), members[0]
            hardest[devices] = max(hardest.get(devices, candidate), candidate)
    enough = 2 * settled_after(pattern) + 1
    for devices, (length, (device, index)) in hardest.items():
        if not _has_window(pattern, devices, length, enough):
            raise _no_room(pattern, devices, pattern.devices[device].work[index], length)


def _has_window(
    pattern: RefreshPattern, devices: Sequence[int], length: int, iterations: int
) -> bool:
    common = pattern.windows(devices[0], length, iterations)
    for device in devices[1:]:
        others = pattern.windows(device, length, iterations)
        common = common_starts(common, others)
    return bool(common)


def _no_room(
    pattern: RefreshPattern, devices: Sequence[int], work: Work, length: int
) -> InputError:
    where = " and ".join(f"device {device}" for device in devices)
    return InputError(
        f"an op of {pattern.scale.time(length)} {pattern.scale.unit} fits no hole of {where}, "
        f"even alone (margin {float(pattern.margin):g}); "
        "expected shorter ops, a smaller margin, or larger bubbles",
        field=work.label.text,
    )


def most_iterations(pattern: RefreshPattern, devices: Sequence[int]) -> int:
    """Return iterations of which `devices` never need more, if any number is enough.

    An iteration between the first and the last ones, where the holes repeat, in which no work is
    done could be left out and all that comes later be done one iteration earlier.
    """
    items = sum(work.parts for device in devices for work in pattern.devices[device].work)
    return min(2 * settled_after(pattern) + items + 1, MOST_ITERATIONS)


def most_unrolled(pattern: RefreshPattern, devices: Sequence[int]) -> int:
    """Return the largest number of iterations of `devices` that can be lowered, at least 1."""
    pinned = sum(len(pattern.devices[device].ops) for device in devices)
    parts = sum(work.parts for device in devices for work in pattern.devices[device].work)
    return max(1, (unrolling.MAX_UNROLLED - parts) // max(pinned, 1))


def too_long(pattern: RefreshPattern, devices: Sequence[int], iterations: int) -> InputError:
    """Return the error that a refresh needs more iterations than can be lowered."""
    pinned = sum(len(pattern.devices[device].ops) for device in devices)
    return InputError(
        f"needs more than {iterations} iterations of {pinned} ops; expected at most "
        f"{unrolling.MAX_UNROLLED} ops in all iterations",
        field="iterations",
    )


def is_tidy(pattern: RefreshPattern, devices: Sequence[int]) -> bool:
    """Whether all pipeline ops of `devices` lie within one period.

    All iterations have the same holes then, and more of them never make a refresh harder.
    """
    return all(
        op.start >= 0 and op.end <= pattern.period
        for device in devices
        for op in pattern.devices[device].ops
    )

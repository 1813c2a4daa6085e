"""PipeFisher's greedy repaired: causal refills, gates per module and pipe, no skipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.pattern import (
    Member,
    RefreshPattern,
    rendezvous_length,
    rendezvous_of,
)
from ppsolve.models.kinds.kfac.unrolling import lower_refresh
from ppsolve.solver.heuristics.list_scheduling import generate_serial, ranked
from ppsolve.solver.kinds.kfac.placement import (
    DevicePlan,
    Order,
    greedy_order,
    plan_of_starts,
)
from ppsolve.solver.kinds.kfac.requirements import (
    coupled_devices,
    most_iterations,
    most_unrolled,
    refuse_missing_data,
    refuse_unplaceable,
    too_long,
)

Starts = dict[tuple[int, int, int], int]
"""Start in ticks by device, index of its work entry, and part."""


@dataclass(frozen=True)
class _SerialGenerator:
    pattern: RefreshPattern
    devices: Sequence[int]
    place: dict[Member, int]  # place of each work entry in the order of its device

    def __call__(self, iterations: int) -> tuple[Starts, Member | None]:
        """Return the starts within so many iterations, and the first work that fits nowhere."""
        counts = [iterations] * len(self.pattern.devices)
        lowered = lower_refresh(self.pattern, counts, devices=self.devices)
        problem = replace(lowered.problem, pools=())
        order = sorted(lowered.op_of, key=lambda key: (self.place[key[:2]], key))
        rank = np.full(problem.num_ops, -1, dtype=np.int64)
        for number, key in reversed(list(enumerate(order))):
            rank[lowered.op_of[key]] = number
        start = generate_serial(problem, ranked(rank)).start.tolist()
        last = iterations * self.pattern.period - problem.duration
        for key in order:
            op = lowered.op_of[key]
            windows = problem.windows.get(op, np.array([[0, last[op]]]))
            if not np.any((windows[:, 0] <= start[op]) & (start[op] <= windows[:, 1])):
                return {}, key[:2]
        return {key: start[op] for key, op in lowered.op_of.items()}, None


Lengths = dict[int, dict[int, int]]
"""Ticks that a part of each work entry takes, by device and index."""


def pipefisher_causal(pattern: RefreshPattern, order: Order = greedy_order) -> list[DevicePlan]:
    """Place K-FAC work by PipeFisher's greedy, repaired.

    Work is placed one by one, in PipeFisher's order once it is ready, each op at its earliest.
    Devices whose syncs meet are scheduled together.

    Parameters
    ----------
    pattern : RefreshPattern
    order : callable

    Returns
    -------
    list of DevicePlan

    Raises
    ------
    InputError
        Work fits in no hole, or a curvature part has no op that makes its data.
    """
    refuse_missing_data(pattern)
    rendezvous = rendezvous_of(pattern)
    refuse_unplaceable(pattern, rendezvous)
    lengths: Lengths = {device.device: {} for device in pattern.devices}
    for (device, index), members in rendezvous.items():
        lengths[device][index] = rendezvous_length(pattern, members)
    plans: dict[int, DevicePlan] = {}
    for devices in coupled_devices(pattern, rendezvous):
        place = {
            (device, index): place
            for device in devices
            for place, index in enumerate(order(pattern.devices[device]))
        }
        generator = _SerialGenerator(pattern, devices, place)
        starts, iterations = _fewest_iterations(pattern, devices, generator, lengths)
        for device in devices:
            plans[device] = _plan(pattern, device, starts, lengths, iterations)
    return [plans[device.device] for device in pattern.devices]


def _fewest_iterations(
    pattern: RefreshPattern, devices: Sequence[int], generate: _SerialGenerator, lengths: Lengths
) -> tuple[Starts, int]:
    # Starts stay valid with fewer iterations: only the last hole changes, and it grows, since ops
    # of clocks that run ahead no longer follow. So one fewer is tried.
    enough = most_iterations(pattern, devices)
    servable = min(enough, most_unrolled(pattern, devices))
    iterations, failed = 1, 0
    starts, unplaced = generate(iterations)
    while unplaced is not None:
        if iterations >= enough:
            device, index = unplaced
            raise InputError(
                f"found no room on device {device} within {enough} iterations; "
                "expected larger bubbles in every iteration, or a smaller margin",
                field=pattern.devices[device].work[index].label.text,
            )
        if iterations >= servable:
            raise too_long(pattern, devices, iterations)
        failed, iterations = iterations, min(2 * iterations, servable)
        starts, unplaced = generate(iterations)
    iterations = min(iterations, _used(pattern, starts, lengths))
    while iterations - 1 > failed:
        shorter, unplaced = generate(iterations - 1)
        if unplaced is not None:
            break
        starts = shorter
        iterations = min(iterations - 1, _used(pattern, starts, lengths))
    return starts, iterations


def _used(pattern: RefreshPattern, starts: Starts, lengths: Lengths) -> int:
    return max(
        (
            max(-(-(start + lengths[device][index]) // pattern.period), start // pattern.period + 1)
            for (device, index, _), start in starts.items()
        ),
        default=1,
    )


def _plan(
    pattern: RefreshPattern, device: int, starts: Starts, lengths: Lengths, iterations: int
) -> DevicePlan:
    own = {key: start for key, start in starts.items() if key[0] == device}
    parts = {(index, part): start for (_, index, part), start in own.items()}
    used = min(iterations, _used(pattern, own, lengths))
    return plan_of_starts(pattern, device, parts, lengths[device], used)

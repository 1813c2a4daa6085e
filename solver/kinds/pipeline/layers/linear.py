"""Times and memory of a split of layers, as sums over the layers of each type and stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.entries import TIME_FIELDS, entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_WEIGHT,
    COMPUTE_KINDS,
    FORWARD,
)
from ppsolve.solver.structure.holds import whole_units

InFlight = Sequence[IntArray]
"""For each device rows of micro-batches in flight, one number for each of its stages."""


@dataclass(frozen=True)
class SplitTimes:
    """Ticks of the ops of a stage: those of its layers and of the first or last one."""

    fields: tuple[str, ...]  # as in the times of a pipeline
    each: IntArray  # int64[fields, types, S]: of a layer
    fixed: IntArray  # int64[fields, S]

    @classmethod
    def of(cls, instance: PipelineInstance, scale: TimeScale) -> SplitTimes:
        """Return the times of the layers of a pipeline in ticks, on the device of each stage."""
        layers = instance.layers
        assert layers is not None
        fields = tuple(TIME_FIELDS[kind] for kind in layers.body.by_kind())
        shape = len(fields), len(layers.names), instance.num_stages
        each = np.zeros(shape, dtype=np.int64)
        fixed = np.zeros((len(fields), instance.num_stages), dtype=np.int64)
        speeds = instance.stage_speeds
        for row, field in enumerate(fields):
            time = Fraction(getattr(layers.body, field))
            each[row] = [scale.ticks(time / speed) for speed in speeds]
            for other, place in ((layers.first, 0), (layers.last, -1)):
                if other is not None:
                    time = Fraction(getattr(other, field)) / speeds[place]
                    fixed[row, place] += scale.ticks(time)
        for number, time in enumerate(map(Fraction, layers.extra)):
            each[1, number] += [scale.ticks(time / speed) for speed in speeds]
        return cls(fields, each, fixed)

    def ticks(self, counts: IntArray) -> IntArray:
        """Return the ticks of the ops of a split, int64[fields, S]."""
        return np.einsum("fts,ts->fs", self.each, counts) + self.fixed


def rounding_of(instance: PipelineInstance, scale: TimeScale) -> int:
    """Return the ticks by which sums over layers may be too long, 0 where no time is rounded.

    A stage is rounded once, its layers one by one.
    """
    layers = instance.layers
    if scale.is_exact or layers is None:
        return 0
    return (instance.num_units * instance.steps + 1) * 3 * (layers.body.count + 2)


def least_times(instance: PipelineInstance, scale: TimeScale) -> SplitTimes:
    """Return the times that layers at least keep their devices busy: in blocks they share them."""
    times, blocks = SplitTimes.of(instance, scale), instance.overlap
    if blocks is None or blocks.ratio is None:
        return times
    share = Fraction(blocks.ratio)
    return replace(
        times,
        each=times.each * share.numerator // share.denominator,
        fixed=times.fixed * share.numerator // share.denominator,
    )


def mean_work(instance: PipelineInstance, scale: TimeScale) -> int:
    """Return ticks that some device is busy in any split, if all layers are kept.

    Devices do their work together, each so fast.
    """
    layers, blocks = instance.layers, instance.overlap
    assert layers is not None
    work = Fraction(0)
    for cost, count in (
        (layers.body, layers.body.count),
        (layers.first, 1),
        (layers.last, 1),
    ):
        if cost is not None:
            work += count * sum(map(Fraction, cost.by_kind().values()))
    if blocks is not None and blocks.ratio is not None:
        work *= Fraction(blocks.ratio)
    time = instance.num_microbatches * work / sum(instance.device_speeds)
    return math.ceil(time / scale.tick)


@dataclass(frozen=True)
class SplitAnswer:
    """The best split, if there is any, and a bound on the value of every split.

    `units`: deterministic time that it took.
    """

    counts: IntArray | None  # int64[types, S]
    bound: int
    is_infeasible: bool = False
    is_proved: bool = False
    units: float = 0.0


class DeviceMemory(NamedTuple):
    """What a device holds of its stages at several moments: sums that must be within limits."""

    stages: list[int]
    amounts: Any  # int64 or object[rows, types, stages]: of a layer
    limits: Any  # int64 or object[rows]


def memory_of_devices(
    instance: PipelineInstance, in_flight: InFlight | None = None
) -> list[DeviceMemory]:
    """Return the memory of each device as sums over layers.

    `instance`: a pipeline with layers.
    `in_flight`: sequence of int64[rows, stages of a device], optional, micro-batches in
        flight under an order; by default one, as in any order.
    Returns: empty without a limit of memory.
    """
    memory, layers = instance.memory, instance.layers
    if memory is None or layers is None:
        return []
    found = []
    ends = {0: layers.first, instance.num_stages - 1: layers.last}
    held = [Fraction(amount) for amount in layers.held]
    for device in range(instance.num_devices):
        stages = [s for s, d in enumerate(instance.stage_to_device) if d == device]
        rows = (
            np.eye(len(stages), dtype=np.int64)
            if in_flight is None
            else in_flight[device]
        )
        room = [entry_at(memory.capacity, device) for _ in rows]
        for place, stage in enumerate(stages):
            if (end := ends.get(stage)) is not None:
                static, activation = Fraction(end.static), Fraction(end.activation)
                counts = rows[:, place].tolist()
                room = [
                    a - static - n * activation
                    for a, n in zip(room, counts, strict=True)
                ]
        each = [
            n * amount + Fraction(layers.body.static)
            for row in rows.tolist()
            for amount in held
            for n in row
        ]
        whole, _ = whole_units([*room, *each], layers.body.count + 1)
        amounts = whole[len(room) :].reshape(len(room), len(held), len(stages))
        found.append(DeviceMemory(stages, amounts, whole[: len(room)]))
    return found


def peaks_of_order(
    stage_to_device: Sequence[int], orders: Sequence[Any]
) -> list[IntArray]:
    """Return the micro-batches in flight at the forwards of each device under an order.

    `stage_to_device`: device of each stage.
    Returns: list of int64[rows, stages of the device], rows that no other row exceeds
        everywhere.
    """
    return list(map(fullest_rows, in_flight_of(stage_to_device, orders)))


def fullest_rows(table: IntArray) -> IntArray:
    """Return the rows of int64[rows, stages] that no other row exceeds everywhere."""
    return table[[(table >= row).all(axis=1).sum() == 1 for row in table]]


def in_flight_of(
    stage_to_device: Sequence[int],
    orders: Sequence[Any],
    at: Sequence[int] | None = None,
) -> list[IntArray]:
    """Return all numbers of micro-batches in flight at the forwards of each device.

    `at`: stages whose forwards count; all by default.
    Returns: list of int64[rows, stages of the device], rows that differ.
    """
    tables = in_flight_at_forwards(stage_to_device, orders, at)
    return [np.unique(table, axis=0) for table in tables]


def in_flight_at_forwards(
    stage_to_device: Sequence[int],
    orders: Sequence[Any],
    at: Sequence[int] | None = None,
) -> Iterator[IntArray]:
    """Yield the micro-batches in flight at each forward of a device, as of `in_flight_of`.

    Yields: int64[forwards, stages of the device] for each device.
    """
    devices = np.array(stage_to_device)
    last = COMPUTE_KINDS.index(BACKWARD_WEIGHT), COMPUTE_KINDS.index(BACKWARD)
    for device, order in enumerate(orders):
        is_own = order.stage[:, None] == np.flatnonzero(devices == device)
        is_forward = order.kind == COMPUTE_KINDS.index(FORWARD)
        change = is_forward.astype(np.int64) - np.isin(order.kind, last)
        held = np.cumsum(is_own * change[:, None], axis=0)
        counts = is_forward if at is None else is_forward & np.isin(order.stage, at)
        yield held[counts]


def common_rows(rows: IntArray, table: IntArray) -> IntArray:
    """Return the rows of int64[rows, stages] that some row of another table reaches everywhere."""
    return rows[(table[:, None] >= rows).all(axis=2).any(axis=0)]

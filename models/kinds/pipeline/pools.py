"""Memory pools of a pipeline: what each device holds, from ops that take to ops that give back."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import IntArray, Pool
from ppsolve.models.kinds.pipeline.entries import entry_at, row_of

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.fields import Memory
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance


@dataclass
class UsesOfMemory:
    """Pairs of ops int64[S, m] and, for each stage, an array of one or m fractions."""

    acquires: list[tuple[IntArray, list[Any]]]
    releases: list[tuple[IntArray, list[Any]]]


def exact(row: tuple[Decimal, ...]) -> Any:
    """Return an array of fractions: one for all micro-batches broadcasts with one for each."""
    return np.array([Fraction(number) for number in row], dtype=object)


def stored_of(memory: Memory, stage: int) -> Any:
    """Return the activation of a stage as fractions: one for all micro-batches, or one for each.

    The memory is that of a pipeline in numbers.
    """
    return exact(row_of(memory.activation, stage))


def left_of(memory: Memory, stage: int) -> Any:
    """Return the amounts that weight-gradient backwards of a stage give back.

    The memory is that of a pipeline in numbers, whose backwards are split.
    """
    if memory.left_to_weight is not None:
        return exact(row_of(memory.left_to_weight, stage))
    return stored_of(memory, stage) * entry_at(
        memory.released_by_backward_weight, stage
    )


def pools_of(
    instance: PipelineInstance, memory: Memory, uses: UsesOfMemory, devices: IntArray
) -> list[Pool]:
    """Return the memory pool of each device, given the device of each stage and micro-batch."""
    static = [Fraction(0)] * instance.num_devices
    # Where both pipes cross, they share the weights of the stage.
    pipes = instance.stage_devices_of_pipes()
    for stage, device in {pair for pipe in pipes for pair in enumerate(pipe)}:
        static[device] += entry_at(memory.static, stage)
    pools = []
    for device, used in enumerate(static):
        numbers: dict[Fraction, int] = {}
        here = devices == device
        acquired = [_events(ops, rows, here, numbers) for ops, rows in uses.acquires]
        released = [_events(ops, rows, here, numbers) for ops, rows in uses.releases]
        pools.append(
            Pool(
                key=DeviceName("device", (device,)),
                capacity=entry_at(memory.capacity, device),
                initial=used,
                amounts=tuple(numbers),
                acquire_op=np.concatenate([ops for ops, _ in acquired]),
                acquire_amount=np.concatenate([indices for _, indices in acquired]),
                release_op=np.concatenate([ops for ops, _ in released]),
                release_amount=np.concatenate([indices for _, indices in released]),
                unit=instance.unit_of_memory,
            )
        )
    return pools


def _events(
    ops: IntArray, rows: list[Any], here: IntArray, numbers: dict[Fraction, int]
) -> tuple[IntArray, IntArray]:
    # `numbers` numbers distinct amounts as they are met; zeros are left out.
    ops_by_stage, indices = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for stage in np.flatnonzero(here.any(axis=1)).tolist():
        row = [
            numbers.setdefault(amount, len(numbers)) if amount else -1
            for amount in rows[stage]
        ]
        index = np.broadcast_to(np.array(row, dtype=np.int64), here.shape[1])
        used = here[stage] & (index >= 0)
        ops_by_stage.append(ops[stage, used])
        indices.append(index[used])
    return np.concatenate(ops_by_stage), np.concatenate(indices)

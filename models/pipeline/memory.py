"""Memory pools of a lowered pipeline: what forwards acquire, and what each op gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import IntArray, Pool
from ppsolve.models.pipeline.collectives import OpGrid
from ppsolve.models.pipeline.entries import entry_at, row_of
from ppsolve.models.pipeline.instance import Memory, PipelineInstance

Row = tuple[Fraction, ...]
"""Amounts of one stage: one for all micro-batches, or one for each of m."""


@dataclass(frozen=True)
class _Changes:
    acquired: list[Row]
    released: dict[str, list[Row]]


def pools_of(
    instance: PipelineInstance, grid: Mapping[str, OpGrid], devices: IntArray
) -> list[Pool]:
    """Return the memory pool of every device.

    A forward acquires its peak at the start of its first piece, and gives back what it does not
    store at the end of its last piece. Backwards give back at the end of their last piece.

    Parameters
    ----------
    instance : PipelineInstance
    grid : mapping of str to OpGrid
        Ops by kind.
    devices : int64[S, m]
        Device of each stage and micro-batch.

    Returns
    -------
    list of Pool
        One per device, none where the instance has no memory.
    """
    memory = instance.memory
    if memory is None:
        return []
    changes = _changes(memory, instance.num_stages, is_split=instance.times.is_split)
    static = [Fraction(0)] * instance.num_devices
    # Where both pipes cross, they share the weights of the stage.
    pipes = instance.stage_devices_of_pipes()
    for stage, device in {place for places in pipes for place in enumerate(places)}:
        static[device] += entry_at(memory.static, stage)
    return [
        _pool(device, entry_at(memory.capacity, device), used, changes, grid, devices == device)
        for device, used in enumerate(static)
    ]


def _changes(memory: Memory, num_stages: int, *, is_split: bool) -> _Changes:
    share = Fraction(memory.released_by_backward_weight)
    stored = [_exact(row_of(memory.activation, stage)) for stage in range(num_stages)]
    shares = {"I": 1 - share, "W": share} if is_split else {"B": Fraction(1)}
    released = {
        kind: [tuple(amount * part for amount in row) for row in stored]
        for kind, part in shares.items()
    }
    if memory.forward_peak is None:
        return _Changes(stored, released)
    peak = [_exact(row_of(memory.forward_peak, stage)) for stage in range(num_stages)]
    excess = [_minus(high, low) for high, low in zip(peak, stored, strict=True)]
    return _Changes(peak, {"F": excess, **released})


def _exact(row: tuple[Decimal, ...]) -> Row:
    return tuple(map(Fraction, row))


def _minus(high: Row, low: Row) -> Row:
    size = max(len(high), len(low))
    long = [row * (size // len(row)) for row in (high, low)]
    return tuple(a - b for a, b in zip(*long, strict=True))


def _pool(
    device: int,
    capacity: Fraction,
    static: Fraction,
    changes: _Changes,
    grid: Mapping[str, OpGrid],
    here: IntArray,
) -> Pool:
    numbers: dict[Fraction, int] = {}
    acquire_op, acquire_amount = _events(grid["F"].first, changes.acquired, here, numbers)
    parts = [
        _events(grid[kind].last, rows, here, numbers) for kind, rows in changes.released.items()
    ]
    return Pool(
        name=f"device {device}",
        capacity=capacity,
        initial=static,
        amounts=tuple(numbers),
        acquire_op=acquire_op,
        acquire_amount=acquire_amount,
        release_op=np.concatenate([ops for ops, _ in parts]),
        release_amount=np.concatenate([indices for _, indices in parts]),
    )


def _events(
    ops: IntArray, rows: list[Row], here: IntArray, numbers: dict[Fraction, int]
) -> tuple[IntArray, IntArray]:
    # `numbers` numbers distinct amounts as they are met; zeros are left out.
    found, indices = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for stage in np.flatnonzero(here.any(axis=1)).tolist():
        row = [numbers.setdefault(amount, len(numbers)) if amount else -1 for amount in rows[stage]]
        index = np.broadcast_to(np.array(row, dtype=np.int64), here.shape[1])
        used = here[stage] & (index >= 0)
        found.append(ops[stage, used])
        indices.append(index[used])
    return np.concatenate(found), np.concatenate(indices)

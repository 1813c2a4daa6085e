"""Orders of sequence slices: Seq1F1B, SlimPipe, and published orders with a micro-batch's together.

What an order counts are the slices of all micro-batches, one after the other. Backwards of a
micro-batch run from its last slice to its first one. The rules of Seq1F1B (Sun et al. 2024) are
those of its repository (MayDomine/Seq1F1B, f54b286: `schedules.py`, `sp_utils.sp_queue`): warm-ups
of 1F1B and Megatron's interleaved 1F1B with slices - 1 forwards more, as the first backward is that
of the last slice. SlimPipe (Li et al. 2025) keeps the slices of a micro-batch together on a chunk
and goes two forwards further from device to device, so that the first one holds
slices x chunks + 2 (devices - 1) of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.kinds.pipeline.one_stage import zb_handmade


def in_slices(orders: Sequence[Order], slices: int) -> list[Order]:
    """Return orders of micro-batches with all slices of one in place of each of its ops.

    None has pairs that are launched together.
    """
    sliced = []
    for order in orders:
        stage, kind = np.repeat(order.stage, slices), np.repeat(order.kind, slices)
        units = (order.microbatch[:, None] * slices + np.arange(slices)).ravel()
        sliced.append(Order(stage, kind, units))
    return _backwards_reversed(sliced, slices)


def _backwards_reversed(orders: Sequence[Order], slices: int) -> list[Order]:
    reversed_orders = []
    for order in orders:
        units = order.microbatch
        behind = units - units % slices + slices - 1 - units % slices
        reversed_orders.append(
            replace(order, microbatch=np.where(order.kind == 0, units, behind))
        )
    return reversed_orders


def seq1f1b(devices: int, chunks: int, microbatches: int, slices: int) -> list[Order]:
    """Return the orders of Seq1F1B for one stage per device, so that there is one chunk."""
    units = microbatches * slices
    orders = interleaved_1f1b(devices, chunks, units, units, slope=1, ahead=slices - 1)
    return _backwards_reversed(orders, slices)


def interleaved_seq1f1b(
    devices: int, chunks: int, microbatches: int, slices: int
) -> list[Order]:
    """Return the orders of interleaved Seq1F1B."""
    units = microbatches * slices
    ahead = units * chunks if microbatches == devices else slices - 1
    orders = interleaved_1f1b(devices, chunks, units, devices, ahead=ahead)
    return _backwards_reversed(orders, slices)


def seq1f1b_zb(
    devices: int, chunks: int, microbatches: int, slices: int
) -> list[Order]:
    """Return ZB-H1 by slices."""
    orders = zb_handmade(devices * chunks, microbatches * slices, 1, ahead=slices - 1)
    return _backwards_reversed(orders, slices)


def slimpipe(devices: int, chunks: int, microbatches: int, slices: int) -> list[Order]:
    """Return the orders of SlimPipe."""
    units = microbatches * slices
    orders = interleaved_1f1b(devices, chunks, units, slices, ahead=slices - 1)
    return _backwards_reversed(orders, slices)

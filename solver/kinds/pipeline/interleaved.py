"""Orders for looped placements: interleaved 1F1B, looped BFS, interleaved zero bubble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.documents.errors import ErrorCode, InputError, NotApplicableError
from ppsolve.solver.kinds.pipeline.actions import FULL, Order
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
)


def torch_group_size(num_devices: int, num_microbatches: int) -> int:
    """Return the micro-batches that PyTorch runs through a chunk before the next one.

    A `NotApplicableError` says that its rule has no such number.
    """
    rounds = max(1, num_microbatches // num_devices)
    if num_microbatches % rounds:
        raise NotApplicableError(
            f"needs micro-batches divisible by the {rounds} rounds of PyTorch's rule "
            f"(micro-batches // devices), or a group size; got {num_microbatches}"
        )
    return num_microbatches // rounds


def _chunks_in_order(
    chunks: Sequence[int], num_microbatches: int, group_size: int
) -> IntArray:
    numbers = np.asarray(chunks, dtype=np.int64)
    sizes = [
        min(group_size, num_microbatches - first)
        for first in range(0, num_microbatches, group_size)
    ]
    return np.concatenate([np.repeat(numbers, size) for size in sizes])


def _merged(
    device: int, num_devices: int, *streams: tuple[str, IntArray, int]
) -> Order:
    # Streams have a kind, the chunks of its ops and the turn of the first; each runs one op a turn.
    chunks = np.concatenate([chunk for _, chunk, _ in streams])
    turns = np.concatenate(
        [first + np.arange(len(chunk)) for _, chunk, first in streams]
    )
    kinds = np.repeat(
        [kind for kind, _, _ in streams], [len(chunk) for _, chunk, _ in streams]
    )
    order = np.argsort(turns, kind="stable")
    return Order.by_index(
        chunks[order] * num_devices + device, "".join(kinds[order].tolist())
    )


def interleaved_1f1b(
    num_devices: int,
    num_chunks: int,
    num_microbatches: int,
    group_size: int | None = None,
    slope: int = 2,
    ahead: int = 0,
    *,
    combined: bool = False,
) -> list[Order]:
    """Return Megatron's interleaved 1F1B (Narayanan et al. 2021), one order per device.

    Stage = chunk x devices + device. Micro-batches run in groups, by default of PyTorch's size. The
    zero-bubble visualizer takes the number of devices, which deadlocks for some partial last
    groups.

    The warm-up of a device is longer by `slope` forwards than that of the next one. With 1 it holds
    less memory and waits more, as MindFormers' order with less memory does. All warm-ups are longer
    by `ahead` forwards. If `combined`, each forward behind the warm-up is launched together with
    the backward of its turn, after one forward more, so that the two never wait for each other.

    An `InputError` says that the group size is below 1, a `NotApplicableError` that none is given
    and PyTorch's rule has none.
    """
    if group_size is not None and group_size < 1:
        raise InputError(
            f"expected a group size of at least 1, got {group_size}",
            code=ErrorCode.RANGE,
        )
    size = group_size or torch_group_size(num_devices, num_microbatches)
    forwards = _chunks_in_order(range(num_chunks), num_microbatches, size)
    backwards = _chunks_in_order(range(num_chunks)[::-1], num_microbatches, size)
    orders = []
    for device in range(num_devices):
        ahead_here = slope * (num_devices - device - 1) + ahead + combined
        warmup = ahead_here + (num_chunks - 1) * size
        warmup = min(warmup, len(forwards))
        streams = (FORWARD, forwards, 0), (BACKWARD, backwards, warmup)
        order = _merged(device, num_devices, *streams)
        if combined:
            order = replace(
                order, overlaps=warmup + 2 * np.arange(len(forwards) - warmup)
            )
        orders.append(order)
    return orders


def looped_bfs(
    stages_of_devices: Sequence[Sequence[int]], num_microbatches: int
) -> list[Order]:
    """Return breadth-first looping (Lamy-Poirier 2023), one order per device.

    Chunks ascending, all forwards; then chunks and micro-batches descending, all backwards. The
    stages on each device are given in ascending order.
    """
    orders = []
    for stages in stages_of_devices:
        stage = np.repeat(np.asarray(stages, dtype=np.int64), num_microbatches)
        kinds = FORWARD * len(stage) + BACKWARD * len(stage)
        rising = Order.by_index(np.concatenate([stage, stage[::-1]]), kinds)
        falling = num_microbatches - 1 - rising.microbatch
        microbatch = np.where(rising.kind == FULL, falling, rising.microbatch)
        orders.append(replace(rising, microbatch=microbatch))
    return orders


def interleaved_zero_bubble(
    num_devices: int, num_chunks: int, num_microbatches: int
) -> list[Order]:
    """Return PyTorch's interleaved zero-bubble orders, one per device.

    As interleaved 1F1B with PyTorch's groups and a shorter warm-up. From input gradient d on,
    device d runs the next weight gradient after each input gradient. A `NotApplicableError` says
    that the micro-batches cannot be divided into PyTorch's rounds.
    """
    size = torch_group_size(num_devices, num_microbatches)
    forwards = _chunks_in_order(range(num_chunks), num_microbatches, size)
    backwards = _chunks_in_order(range(num_chunks)[::-1], num_microbatches, size)
    orders = []
    for device in range(num_devices):
        warmup = min(
            (num_chunks - 1) * size + (num_devices - 1 - device), len(forwards)
        )
        streams = (
            (FORWARD, forwards, 0),
            (BACKWARD_INPUT, backwards, warmup),
            (BACKWARD_WEIGHT, backwards, warmup + device),
        )
        orders.append(_merged(device, num_devices, *streams))
    return orders

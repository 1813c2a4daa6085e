"""Orders for looped placements: interleaved 1F1B, looped BFS, interleaved zero bubble."""

from __future__ import annotations

from collections.abc import Sequence

from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.solver.pipeline.actions import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Action,
    Order,
)


def torch_group_size(num_devices: int, num_microbatches: int) -> int:
    """Return the micro-batches that PyTorch runs through a chunk before the next one.

    Parameters
    ----------
    num_devices : int
        Devices.
    num_microbatches : int
        Micro-batches.

    Returns
    -------
    int
        Micro-batches per group.

    Raises
    ------
    NotApplicableError
        The micro-batches cannot be divided into PyTorch's rounds.
    """
    rounds = max(1, num_microbatches // num_devices)
    if num_microbatches % rounds:
        raise NotApplicableError(
            f"needs micro-batches divisible by the {rounds} rounds of PyTorch's rule "
            f"(micro-batches // devices), or a group size; got {num_microbatches}"
        )
    return num_microbatches // rounds


def _interleaved_order(
    chunks: Sequence[int], num_microbatches: int, group_size: int
) -> list[tuple[int, int]]:
    """Return (chunk, micro-batch) in order: group by group, chunk by chunk."""
    return [
        (chunk, microbatch)
        for first in range(0, num_microbatches, group_size)
        for chunk in chunks
        for microbatch in range(first, min(first + group_size, num_microbatches))
    ]


def interleaved_1f1b(
    num_devices: int, num_chunks: int, num_microbatches: int, group_size: int | None = None
) -> list[Order]:
    """Return Megatron's interleaved 1F1B (Narayanan et al. 2021), one order per device.

    Parameters
    ----------
    num_devices, num_chunks, num_microbatches : int
        Size of the pipeline; stage = chunk x devices + device.
    group_size : int, optional
        Micro-batches per group; PyTorch's choice by default. The zero-bubble visualizer takes the
        number of devices, which deadlocks for some partial last groups.

    Returns
    -------
    list of Order
        One order per device, ascending.

    Raises
    ------
    InputError
        The group size is below 1.
    NotApplicableError
        No group size is given and PyTorch's rule has none.
    """
    if group_size is not None and group_size < 1:
        raise InputError(f"expected a group size of at least 1, got {group_size}")
    size = group_size or torch_group_size(num_devices, num_microbatches)
    forwards = _interleaved_order(range(num_chunks), num_microbatches, size)
    backwards = _interleaved_order(range(num_chunks)[::-1], num_microbatches, size)
    orders = []
    for device in range(num_devices):
        warmup = min(2 * (num_devices - device - 1) + (num_chunks - 1) * size, len(forwards))
        order: Order = []
        for step in range(warmup + len(backwards)):
            if step < len(forwards):
                chunk, microbatch = forwards[step]
                order.append(Action(chunk * num_devices + device, FORWARD, microbatch))
            if step >= warmup:
                chunk, microbatch = backwards[step - warmup]
                order.append(Action(chunk * num_devices + device, BACKWARD, microbatch))
        orders.append(order)
    return orders


def looped_bfs(stages_of_devices: Sequence[Sequence[int]], num_microbatches: int) -> list[Order]:
    """Return breadth-first looping (Lamy-Poirier 2023), one order per device.

    Chunks ascending, all forwards; then chunks and micro-batches descending, all backwards.

    Parameters
    ----------
    stages_of_devices : sequence of sequence of int
        Stages on each device, ascending.
    num_microbatches : int
        Number of micro-batches.

    Returns
    -------
    list of Order
        One order per device, in the order of `stages_of_devices`.
    """
    indices = range(num_microbatches)
    orders = []
    for stages in stages_of_devices:
        order: Order = [Action(stage, FORWARD, i) for stage in stages for i in indices]
        order += [Action(stage, BACKWARD, i) for stage in stages[::-1] for i in indices[::-1]]
        orders.append(order)
    return orders


def interleaved_zero_bubble(
    num_devices: int, num_chunks: int, num_microbatches: int
) -> list[Order]:
    """Return PyTorch's interleaved zero-bubble orders, one per device.

    As interleaved 1F1B with PyTorch's groups and a shorter warm-up. From input gradient d on,
    device d runs the next weight gradient after each input gradient.

    Parameters
    ----------
    num_devices, num_chunks, num_microbatches : int
        Size of the pipeline; stage = chunk x devices + device.

    Returns
    -------
    list of Order
        One order per device, ascending.

    Raises
    ------
    NotApplicableError
        The micro-batches cannot be divided into PyTorch's rounds.
    """
    size = torch_group_size(num_devices, num_microbatches)
    forwards = _interleaved_order(range(num_chunks), num_microbatches, size)
    backwards = _interleaved_order(range(num_chunks)[::-1], num_microbatches, size)
    orders = []
    for device in range(num_devices):
        warmup = min((num_chunks - 1) * size + (num_devices - 1 - device), len(forwards))
        order: Order = []
        for step in range(warmup + len(backwards)):
            if step < len(forwards):
                chunk, microbatch = forwards[step]
                order.append(Action(chunk * num_devices + device, FORWARD, microbatch))
            number = step - warmup
            if number >= 0:
                chunk, microbatch = backwards[number]
                order.append(Action(chunk * num_devices + device, BACKWARD_INPUT, microbatch))
            if number >= device:
                chunk, microbatch = backwards[number - device]
                order.append(Action(chunk * num_devices + device, BACKWARD_WEIGHT, microbatch))
        for chunk, microbatch in backwards[max(0, len(backwards) - device) :]:
            order.append(Action(chunk * num_devices + device, BACKWARD_WEIGHT, microbatch))
        orders.append(order)
    return orders

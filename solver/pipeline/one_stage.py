"""GPipe and 1F1B: orders for pipelines with one stage per device."""

from __future__ import annotations

from ppsolve.solver.pipeline.actions import Order
from ppsolve.solver.pipeline.grammar import BACKWARD, FORWARD


def gpipe(num_stages: int, num_microbatches: int) -> list[Order]:
    """Return GPipe's orders (Huang et al. 2019): all forwards, then all backwards, by index.

    Parameters
    ----------
    num_stages : int
        Stages, one per device.
    num_microbatches : int
        Micro-batches.

    Returns
    -------
    list of Order
    """
    kinds = FORWARD * num_microbatches + BACKWARD * num_microbatches
    return [Order.by_index(stage, kinds) for stage in range(num_stages)]


def one_forward_one_backward(num_stages: int, num_microbatches: int) -> list[Order]:
    """Return 1F1B's orders (PipeDream-Flush, Narayanan et al. 2021).

    Warm-up of stages - stage - 1 forwards, then forward and backward in turn, then the rest.

    Parameters
    ----------
    num_stages : int
        Stages, one per device.
    num_microbatches : int
        Micro-batches.

    Returns
    -------
    list of Order
    """
    orders = []
    for stage in range(num_stages):
        warmup = min(num_stages - stage - 1, num_microbatches)
        pairs = (FORWARD + BACKWARD) * (num_microbatches - warmup)
        orders.append(Order.by_index(stage, FORWARD * warmup + pairs + BACKWARD * warmup))
    return orders

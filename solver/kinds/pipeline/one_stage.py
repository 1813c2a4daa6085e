"""Orders for one stage per device: GPipe, 1F1B, and zero bubble."""

from __future__ import annotations

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
)


def gpipe(num_stages: int, num_microbatches: int) -> list[Order]:
    """Return GPipe's orders (Huang et al. 2019): all forwards, then all backwards, by index."""
    kinds = FORWARD * num_microbatches + BACKWARD * num_microbatches
    return [Order.by_index(stage, kinds) for stage in range(num_stages)]


def one_forward_one_backward(num_stages: int, num_microbatches: int) -> list[Order]:
    """Return 1F1B's orders (PipeDream-Flush, Narayanan et al. 2021).

    Warm-up of stages - stage - 1 forwards, then forward and backward in turn, then the rest.
    """
    orders = []
    for stage in range(num_stages):
        warmup = min(num_stages - stage - 1, num_microbatches)
        pairs = (FORWARD + BACKWARD) * (num_microbatches - warmup)
        orders.append(
            Order.by_index(stage, FORWARD * warmup + pairs + BACKWARD * warmup)
        )
    return orders


def zb_1p(num_stages: int, num_microbatches: int) -> list[Order]:
    """Return the orders of the zero-bubble visualizer within 1F1B's memory (Qi et al. 2024)."""
    orders = []
    for stage in range(num_stages):
        warmup = min(num_stages - stage - 1, num_microbatches)
        steps, weights = [FORWARD * warmup], 0
        for forward in range(warmup, num_microbatches):
            steps.append(FORWARD + BACKWARD_INPUT)
            if forward - weights >= num_stages - 1:
                steps.append(BACKWARD_WEIGHT)
                weights += 1
        steps.append((BACKWARD_INPUT + BACKWARD_WEIGHT) * warmup)
        steps.append(BACKWARD_WEIGHT * (num_microbatches - warmup - weights))
        orders.append(Order.by_index(stage, "".join(steps)))
    return orders


def zb_handmade(
    num_stages: int, num_microbatches: int, depth: int, ahead: int = 0
) -> list[Order]:
    """Return the hand-made zero-bubble orders of Qi et al. 2024.

    The depth is 1 for ZB-H1 (peak of `num_stages` activations), 2 for ZB-H2 (2 num_stages - 1). All
    warm-ups are longer by `ahead` forwards. The paper has num_microbatches >= 2 num_stages; below
    that the same rule holds while any op of a kind is left.
    """
    orders = []
    delay = depth * (num_stages - 1) + ahead
    for stage in range(num_stages):
        warmup = depth * (num_stages - stage - 1) + ahead
        steps = [FORWARD * min(warmup, num_microbatches)]
        for turn in range(warmup, warmup + num_microbatches):
            forward = FORWARD if turn < num_microbatches else ""
            weight = BACKWARD_WEIGHT if turn >= delay else ""
            steps.append(forward + BACKWARD_INPUT + weight)
        late = min(delay - warmup, num_microbatches)
        orders.append(Order.by_index(stage, "".join([*steps, BACKWARD_WEIGHT * late])))
    return orders

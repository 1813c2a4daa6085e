"""Orders for one stage per device: GPipe, 1F1B, and zero bubble."""

from __future__ import annotations

from ppsolve.solver.pipeline.actions import Order
from ppsolve.solver.pipeline.grammar import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD


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


class DeviceOrderWriter:
    """Writer of one device's order: each kind of each stage in index order, while any is left.

    Parameters
    ----------
    num_microbatches : int
        Micro-batches of each kind and stage.
    """

    def __init__(self, num_microbatches: int) -> None:
        self.num_microbatches = num_microbatches
        self._stages: list[int] = []
        self._kinds: list[str] = []
        self._next: dict[tuple[int, str], int] = {}

    @property
    def order(self) -> Order:
        """What was written so far."""
        return Order.by_index(self._stages, "".join(self._kinds))

    def requested(self, stage: int, kind: str) -> int:
        """Return the number of ops requested so far.

        Parameters
        ----------
        stage : int
            Stage of the ops.
        kind : str
            ``F``, ``I`` or ``W``.

        Returns
        -------
        int
        """
        return self._next.get((stage, kind), 0)

    def emit(self, stage: int, *kinds: str) -> None:
        """Append the next op of each kind; past the last micro-batch nothing is appended.

        Parameters
        ----------
        stage : int
            Stage of the ops.
        kinds : str
            ``F``, ``I`` or ``W``, in order.
        """
        for kind in kinds:
            index = self.requested(stage, kind)
            if index < self.num_microbatches:
                self._stages.append(stage)
                self._kinds.append(kind)
            self._next[stage, kind] = index + 1

    def emit_rest(self, stage: int, kind: str) -> None:
        """Append all ops of a kind that are left.

        Parameters
        ----------
        stage : int
            Stage of the ops.
        kind : str
            ``F``, ``I`` or ``W``.
        """
        while self.requested(stage, kind) < self.num_microbatches:
            self.emit(stage, kind)


def zb_1p(num_stages: int, num_microbatches: int) -> list[Order]:
    """Return the order of the zero-bubble visualizer within 1F1B's memory (Qi et al. 2024).

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
    return [_zb_1p_order(num_stages, num_microbatches, stage) for stage in range(num_stages)]


def _zb_1p_order(num_stages: int, num_microbatches: int, stage: int) -> Order:
    warmup = min(num_stages - stage - 1, num_microbatches)
    steps, weights = [FORWARD * warmup], 0
    for forward in range(warmup, num_microbatches):
        steps.append(FORWARD + BACKWARD_INPUT)
        if forward - weights >= num_stages - 1:
            steps.append(BACKWARD_WEIGHT)
            weights += 1
    steps.append((BACKWARD_INPUT + BACKWARD_WEIGHT) * warmup)
    steps.append(BACKWARD_WEIGHT * (num_microbatches - warmup - weights))
    return Order.by_index(stage, "".join(steps))


def zb_handmade(num_stages: int, num_microbatches: int, depth: int) -> list[Order]:
    """Return the hand-made zero-bubble orders of Qi et al. 2024.

    Parameters
    ----------
    num_stages, num_microbatches : int
        Size of the pipeline. The paper has num_microbatches >= 2 num_stages; below that the same
        rule holds while any op of a kind is left.
    depth : int
        1 for ZB-H1 (peak of `num_stages` activations), 2 for ZB-H2 (2 num_stages - 1).

    Returns
    -------
    list of Order
    """
    orders = []
    delay = depth * (num_stages - 1)
    for stage in range(num_stages):
        warmup = depth * (num_stages - stage - 1)
        steps = [FORWARD * min(warmup, num_microbatches)]
        for turn in range(warmup, warmup + num_microbatches):
            forward = FORWARD if turn < num_microbatches else ""
            weight = BACKWARD_WEIGHT if turn >= delay else ""
            steps.append(forward + BACKWARD_INPUT + weight)
        late = min(delay - warmup, num_microbatches)
        orders.append(Order.by_index(stage, "".join([*steps, BACKWARD_WEIGHT * late])))
    return orders

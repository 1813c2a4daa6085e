"""Orders for V placements: ZB-V and DualPipeV; chunk a is stage d, chunk b stage 2p - 1 - d."""

from __future__ import annotations

from ppsolve.solver.pipeline.actions import Order
from ppsolve.solver.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Action,
    Overlap,
)
from ppsolve.solver.pipeline.one_stage import DeviceOrderWriter

_BACKWARD_HALVES = (BACKWARD_INPUT, BACKWARD_WEIGHT)


def zbv(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return the ZB-V orders (Qi et al. 2024) as PyTorch emits them.

    Parameters
    ----------
    num_devices : int
        Devices; device d holds stages d and 2 num_devices - 1 - d.
    num_microbatches : int
        Micro-batches.

    Returns
    -------
    list of Order
    """
    return [_zbv_order(num_devices, num_microbatches, device) for device in range(num_devices)]


def _zbv_order(num_devices: int, num_microbatches: int, device: int) -> Order:
    a, b = device, 2 * num_devices - 1 - device
    padded = max(2 * num_devices - 1, num_microbatches)
    out = DeviceOrderWriter(num_microbatches)
    for _ in range(2 * (num_devices - device) - 1):
        out.emit(a, FORWARD)
    for _ in range(device):
        out.emit(b, FORWARD)
        out.emit(a, FORWARD)
    for _ in range(num_devices - device):
        out.emit(b, FORWARD, *_BACKWARD_HALVES)
    while (
        out.requested(b, FORWARD) < out.requested(a, FORWARD) or out.requested(a, FORWARD) < padded
    ):
        if out.requested(a, FORWARD) < padded:
            out.emit(a, FORWARD)
        out.emit(a, *_BACKWARD_HALVES)
        out.emit(b, FORWARD, *_BACKWARD_HALVES)
    for _ in range(device):
        out.emit(a, BACKWARD_INPUT)
        out.emit(b, BACKWARD_INPUT)
    for _ in range(num_devices - device):
        out.emit(a, *_BACKWARD_HALVES)
    out.emit_rest(b, BACKWARD_WEIGHT)
    out.emit_rest(a, BACKWARD_WEIGHT)
    return out.order


def dualpipe_v(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return DualPipeV's orders (DeepSeek 2025) as PyTorch emits them.

    Parameters
    ----------
    num_devices : int
        Devices; device d holds stages d and 2 num_devices - 1 - d.
    num_microbatches : int
        Micro-batches, at least 2 num_devices.

    Returns
    -------
    list of Order
    """
    return [
        _DualPipeV(num_devices, num_microbatches, device).order() for device in range(num_devices)
    ]


class _DualPipeV:
    def __init__(self, num_devices: int, num_microbatches: int, device: int) -> None:
        self.num_devices, self.num_microbatches, self.device = num_devices, num_microbatches, device
        self.a, self.b = device, 2 * num_devices - 1 - device
        self.steps: list[Action | Overlap] = []
        self.forwards = {self.a: 0, self.b: 0}
        self.backwards = {self.a: 0, self.b: 0}
        self.pending: list[Action] = []

    def order(self) -> Order:
        devices, device = self.num_devices, self.device
        ahead = devices - device - 1
        for _ in range(2 * ahead):
            self.steps.append(self._forward(self.a))
        for _ in range(device + 1):
            self.steps += [self._forward(self.a), self._forward(self.b)]
        for _ in range(ahead):
            self._backward_input(self.b)
            self._backward_weight()
            self.steps.append(self._forward(self.b))
        self._overlapped_phase(self.num_microbatches - 2 * devices + device + 1)
        for _ in range(ahead):
            self.steps.append(self._backward(self.b))
            self.steps.append(Overlap(self._forward(self.b), self._backward(self.a)))
        self._drain_pairs()
        for _ in range(ahead):
            self._backward_weight()
            self._backward_input(self.a)
        for _ in range(device + 1):
            self._backward_weight()
        return Order.of(self.steps)

    def _overlapped_phase(self, rounds: int) -> None:
        last = self.device == self.num_devices - 1
        for number in range(rounds):
            pair = Overlap(self._forward(self.a), self._backward(self.b))
            # PyTorch launches the last device's first pair one after the other.
            self.steps += list(pair) if last and number == 0 else [pair]
            self.steps.append(Overlap(self._forward(self.b), self._backward(self.a)))

    def _drain_pairs(self) -> None:
        half, odd = (self.device + 1) // 2, self.device % 2 == 1
        for number in range(self.device + 1):
            if number > half or (number == half and odd):
                self._backward_input(self.b)
            else:
                self.steps.append(self._backward(self.b))
            if number >= half:
                self._backward_input(self.a)
            else:
                self.steps.append(self._backward(self.a))

    def _forward(self, stage: int) -> Action:
        self.forwards[stage] += 1
        return Action(stage, FORWARD, self.forwards[stage] - 1)

    def _backward(self, stage: int, kind: str = BACKWARD) -> Action:
        self.backwards[stage] += 1
        return Action(stage, kind, self.backwards[stage] - 1)

    def _backward_input(self, stage: int) -> None:
        action = self._backward(stage, BACKWARD_INPUT)
        self.steps.append(action)
        self.pending.append(action._replace(kind=BACKWARD_WEIGHT))

    def _backward_weight(self) -> None:
        self.steps.append(self.pending.pop(0))

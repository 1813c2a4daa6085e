"""Orders for V placements: ZB-V and DualPipeV; chunk a is stage d, chunk b stage 2p - 1 - d.

DualPipe is DualPipeV on half of the devices, unfolded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ppsolve.solver.kinds.pipeline.actions import Order
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Action,
    Overlap,
)

_HALVES = (BACKWARD_INPUT, BACKWARD_WEIGHT)


def zbv(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return the ZB-V orders (Qi et al. 2024) as PyTorch emits them."""
    orders = []
    for device in range(num_devices):
        out = _ZBV(num_devices, num_microbatches, device)
        out.write()
        orders.append(Order.by_index(out.stages, "".join(out.kinds)))
    return orders


class _ZBV:
    # Each kind of each stage goes in index order; what is emitted past the last micro-batch is
    # counted, and left out.
    def __init__(self, num_devices: int, num_microbatches: int, device: int) -> None:
        self.num_devices, self.num_microbatches, self.device = (
            num_devices,
            num_microbatches,
            device,
        )
        self.stages: list[int] = []
        self.kinds: list[str] = []
        self.emitted: Counter[tuple[int, str]] = Counter()

    def _emit(self, stage: int, *kinds: str) -> None:
        for kind in kinds:
            if self.emitted[stage, kind] < self.num_microbatches:
                self.stages.append(stage)
                self.kinds.append(kind)
            self.emitted[stage, kind] += 1

    def write(self) -> None:
        devices, device, emit = self.num_devices, self.device, self._emit
        a, b = device, 2 * devices - 1 - device
        padded = max(2 * devices - 1, self.num_microbatches)
        forwards = self.emitted
        for _ in range(2 * (devices - device) - 1):
            emit(a, FORWARD)
        for _ in range(device):
            emit(b, FORWARD)
            emit(a, FORWARD)
        for _ in range(devices - device):
            emit(b, FORWARD, *_HALVES)
        while (
            forwards[b, FORWARD] < forwards[a, FORWARD] or forwards[a, FORWARD] < padded
        ):
            if forwards[a, FORWARD] < padded:
                emit(a, FORWARD)
            emit(a, *_HALVES)
            emit(b, FORWARD, *_HALVES)
        for _ in range(device):
            emit(a, BACKWARD_INPUT)
            emit(b, BACKWARD_INPUT)
        for _ in range(devices - device):
            emit(a, *_HALVES)
        for stage in (b, a):
            for _ in range(self.emitted[stage, BACKWARD_WEIGHT], self.num_microbatches):
                emit(stage, BACKWARD_WEIGHT)


def dualpipe_v(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return DualPipeV's orders (DeepSeek 2025) as PyTorch emits them.

    There are at least 2 micro-batches for each device.
    """
    return [
        _DualPipeV(num_devices, num_microbatches, device).order()
        for device in range(num_devices)
    ]


def dualpipe(num_devices: int, num_microbatches: int) -> list[Order]:
    """Return DualPipe's orders (DeepSeek 2024) for pipes in both directions.

    The first half of the devices run DualPipeV, micro-batches of chunk b being those of the pipe
    from the other end; the second half do the same with both pipes exchanged. Devices and
    micro-batches are even in number, with at least 2 micro-batches for each device.
    """
    middle, half = num_devices // 2, num_microbatches // 2
    orders = dualpipe_v(middle, half)
    near, far = (
        [
            replace(o, microbatch=o.microbatch + half * ((o.stage >= middle) ^ is_far))
            for o in orders
        ]
        for is_far in (False, True)
    )
    return near + far[::-1]


class _DualPipeV:
    def __init__(self, num_devices: int, num_microbatches: int, device: int) -> None:
        self.num_devices, self.num_microbatches, self.device = (
            num_devices,
            num_microbatches,
            device,
        )
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

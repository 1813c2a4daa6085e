"""Measure the stages of a model: the times and bytes of an instance, as the runtime has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.formats.torch.runtime import require_tested_torch


@dataclass(frozen=True)
class Repeats:
    """How often each op is run: uncounted runs, and runs of which the median is taken.

    The first run allocates gradients, which later ones add to.
    """

    warm: int = 2
    counted: int = 5


def profile_stages(
    modules: Sequence[Any],
    example: Any,
    *,
    num_microbatches: int,
    loss_fn: Callable[[Any, Any], Any],
    target: Any,
    stage_to_device: Sequence[int] | None = None,
    is_split: bool = True,
    capacity: float | Sequence[float] | None = None,
    latency: float = 0,
    repeats: Repeats = Repeats(),
    name: str = "profile",
) -> PipelineInstance:
    """Return the instance of a model whose stages are run here, one after the other.

    Each op is what the runtime does: the loss is part of the last forward, gradients are split by
    the runtime's own functions, and on stage 0 a split backward is all in its weight gradient. A
    stage holds the bytes of its input, its output and what autograd saves (parameters and buffers
    left out) until its weight gradient. Gradients of parameters are left as they were. Times are
    medians, in microseconds. Raises `InputError` where the version of torch is not one that was
    tested, there is no stage, or an output is none that can be sent.

    `modules`: the stages in order, each with one tensor or a tuple of tensors as output.
    `example`: input of the first stage for one micro-batch, on the device where the stages are.
    `num_microbatches`: micro-batches of a step.
    `loss_fn`: loss of the last output and a target.
    `target`: target of one micro-batch.
    `stage_to_device`: device of each stage; one device per stage by default.
    `is_split`: split backwards in input and weight gradients.
    `capacity`: bytes of each device for activations; by default those of all micro-batches at once.
    `latency`: microseconds of a transfer.
    `repeats`: how often each op is run.
    """
    require_tested_torch()
    if not modules:
        raise InputError(
            "expected at least one stage, got none",
            field="modules",
            code=ErrorCode.LENGTH,
        )
    measured, held, inputs = [], [], _as_tuple(example, "example")
    for number, module in enumerate(modules):
        loss = (
            (lambda output: loss_fn(output, target))
            if number == len(modules) - 1
            else None
        )
        stage = _Stage(module, inputs, loss, is_first=number == 0, is_split=is_split)
        with _own_gradients(module):
            held.append(stage.held_bytes())
            measured.append(stage.measured(repeats))
        inputs = tuple(output.detach() for output in stage.outputs)
    devices = (
        list(range(len(modules))) if stage_to_device is None else list(stage_to_device)
    )
    room: Any = capacity if isinstance(capacity, int | float | None) else list(capacity)
    if room is None:
        room = [0] * (max(devices) + 1)
        for size, device in zip(held, devices, strict=True):
            room[device] += num_microbatches * size
    return PipelineInstance.parse(
        {
            "name": name,
            "time_unit": "us",
            "num_devices": max(devices) + 1,
            "num_microbatches": num_microbatches,
            "placement": {"stage_to_device": devices},
            "times": {
                kind: [round(1e6 * times[kind]) for times in measured]
                for kind in measured[0]
            },
            "p2p": {"latency": latency},
            "memory": {"capacity": room, "activation": held},
        },
        name,
    )


def _as_tuple(value: Any, field: str) -> tuple[Any, ...]:
    import torch

    values = value if isinstance(value, tuple | list) else (value,)
    if not values or not all(isinstance(entry, torch.Tensor) for entry in values):
        kinds = ", ".join(type(entry).__name__ for entry in values)
        raise InputError(
            f"expected a tensor or a tuple of tensors, got {kinds}",
            field=field,
            code=ErrorCode.TYPE,
        )
    return tuple(values)


@contextmanager
def _own_gradients(module: Any) -> Iterator[None]:
    # Gradients of parameters are given back as they were.
    before = [parameter.grad for parameter in module.parameters()]
    for parameter in module.parameters():
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(module.parameters(), before, strict=True):
            parameter.grad = gradient


@dataclass
class _Stage:
    """A stage with one micro-batch of its inputs, and the loss of the last stage's output."""

    module: Any
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Any] | None
    is_first: bool
    is_split: bool
    outputs: tuple[Any, ...] = ()

    def measured(self, repeats: Repeats) -> dict[str, float]:
        """Run the ops of the stage and return the median seconds of each kind."""
        runs = [self._run_once() for _ in range(repeats.warm + repeats.counted)][
            repeats.warm :
        ]
        return {kind: median(run[kind] for run in runs) for kind in runs[0]}

    def _run_once(self) -> dict[str, float]:
        import torch
        from torch.distributed.pipelining._backward import (
            stage_backward,
            stage_backward_input,
            stage_backward_weight,
        )

        inputs = self._fresh_inputs()
        outputs, forward = self._clocked(lambda: self._forward(inputs))
        gradients = (
            None if self.loss else [torch.ones_like(output) for output in outputs]
        )
        if not self.is_split or self.is_first:
            # A list of losses without gradients would be passed over.
            begin = outputs[0] if self.loss else outputs
            _, backward = self._clocked(
                lambda: stage_backward(begin, gradients, inputs)
            )
            if not self.is_split:
                return {"forward": forward, "backward": backward}
            return {
                "forward": forward,
                "backward_input": 0.0,
                "backward_weight": backward,
            }
        parameters = self.module.parameters
        (_, groups), first = self._clocked(
            lambda: stage_backward_input(outputs, gradients, inputs, parameters())
        )
        _, second = self._clocked(lambda: stage_backward_weight(parameters(), groups))
        return {"forward": forward, "backward_input": first, "backward_weight": second}

    def _fresh_inputs(self) -> list[Any]:
        """Return the inputs as leaves, with gradients where the runtime takes them."""
        if self.is_first:
            return list(self.inputs)
        return [
            tensor.detach().requires_grad_(tensor.is_floating_point())
            for tensor in self.inputs
        ]

    def _forward(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the tensors at which the backward begins: the outputs, or the loss."""
        output = self.module(*inputs)
        self.outputs = _as_tuple(
            output, f"modules: output of {type(self.module).__name__}"
        )
        return [self.loss(output)] if self.loss else list(self.outputs)

    def _clocked(self, run: Callable[[], Any]) -> tuple[Any, float]:
        self._synchronise()
        begin = time.perf_counter()
        result = run()
        self._synchronise()
        return result, time.perf_counter() - begin

    def _synchronise(self) -> None:
        import torch

        if self.inputs[0].device.type != "cpu":
            torch.accelerator.synchronize(self.inputs[0].device)

    def held_bytes(self) -> int:
        """Return the bytes that a forward leaves behind for the backward."""
        import torch

        saved: list[Any] = []

        def keep(tensor: Any) -> Any:
            # Detached: an output that its own node held would never be freed.
            saved.append(tensor.detach())
            return saved[-1]

        inputs = self._fresh_inputs()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = self._forward(inputs)
        parameters = {
            *map(_storage, (*self.module.parameters(), *self.module.buffers()))
        }
        held = {*map(_storage, (*inputs, *outputs, *self.outputs, *saved))}
        return sum(size for _, size in held - parameters)


def _storage(tensor: Any) -> tuple[int, int]:
    # Where a tensor lies, and the bytes of all that lies there.
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()

"""Stages whose ops last as long as they are told: they sleep where real ones compute."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.solver.formats.program import FORMATS, Format
from ppsolve.solver.formats.torch.checkpoint import checkpointed
from ppsolve.solver.formats.torch.runtime import (
    build_schedule,
    feeding_order,
    record_steps,
)

AWAKE = {"is": False}
"""Whether ops sleep; the first step, in which the runtime finds out shapes, need not."""


class Stretch(NamedTuple):
    """Seconds of the forward, input-gradient and weight-gradient backward of a stage."""

    forward: float
    inputs: float
    weights: float


def _sleep(seconds: float) -> None:
    if AWAKE["is"]:
        time.sleep(seconds)


class _Compute(torch.autograd.Function):
    """The identity; sleeps in its forward, and where the gradient of its input is taken."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, stretch: Stretch) -> torch.Tensor:
        ctx.seconds = stretch.inputs
        ctx.save_for_backward(x)
        _sleep(stretch.forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        _ = ctx.saved_tensors  # what was not kept is recomputed here
        _sleep(ctx.seconds)
        return gradients[0], None


class _Weight(torch.autograd.Function):
    """The identity; sleeps where the gradient of its input, a weight, is taken."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, stretch: Stretch) -> torch.Tensor:
        ctx.seconds = stretch.weights
        ctx.save_for_backward(weight)
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        _ = ctx.saved_tensors
        _sleep(ctx.seconds)
        return gradients[0], None


class Emulated(nn.Module):
    """A stage that adds its weight, taking the time that its ops are said to take.

    The input gradient passes the sum and `_Compute`, the weight gradient the sum and `_Weight`:
    the runtime, which splits the graph where both paths meet, sleeps in each by itself.
    """

    def __init__(self, stretch: Stretch) -> None:
        super().__init__()
        self.stretch = stretch
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Compute.apply(x, self.stretch) + _Weight.apply(
            self.weight, self.stretch
        )


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).sum()


Sent = tuple[type[Result | HeuristicEntry], str]
"""A result on its way to another process."""


class _Ready(NamedTuple):
    """A schedule on the stages of a rank, with the arguments of its steps."""

    runtime: Any
    inputs: tuple[Any, ...]
    target: dict[str, Any]


def _ready(
    rank: int,
    group: Any,
    result: Sent,
    stretches: list[Stretch],
    places: list[int],
    form: Format = FORMATS[0],
) -> _Ready:
    kind, text = result
    read = kind.model_validate_json(text)
    stages = [
        PipelineStage(
            checkpointed(read, s, Emulated(stretches[s])),
            s,
            len(places),
            torch.device("cpu"),
            group=group,
        )
        for s, place in enumerate(places)
        if place == rank
    ]
    batch = torch.zeros(len(feeding_order(read)), 4)
    return _Ready(
        build_schedule(read, stages, loss, form=form),
        (batch,) if places[0] == rank else (),
        {"target": batch} if places[-1] == rank else {},
    )


def seconds_of_step(
    rank: int,
    group: Any,
    *,
    result: Sent,
    stretches: list[Stretch],
    places: list[int],
    form: Format,
) -> tuple[float, float]:
    """Run a schedule once and return the moments of its beginning and end on this rank.

    The clock is that of the machine, the same for all ranks.
    """
    ready = _ready(rank, group, result, stretches, places, form)
    AWAKE["is"] = False
    ready.runtime.step(*ready.inputs, **ready.target)
    AWAKE["is"] = True
    dist.barrier(group)
    begin = time.monotonic()
    ready.runtime.step(*ready.inputs, **ready.target)
    return begin, time.monotonic()


def recorded(
    rank: int,
    group: Any,
    *,
    results: list[Sent],
    stretches: list[Stretch],
    places: list[int],
    folder: str,
    steps: int = 3,
) -> str:
    """Run schedules in turn under the profiler and return the file of this rank."""
    ready = [_ready(rank, group, result, stretches, places) for result in results]
    AWAKE["is"] = True
    runtimes = [one.runtime for one in ready]
    schedule = runtimes if len(runtimes) > 1 else runtimes[0]
    given = ready[0]
    return str(
        record_steps(schedule, folder, *given.inputs, steps=steps, **given.target)
    )

"""Measured stages: what is clocked, what is counted, and what the runtime does on stage 0."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.torch.profile import Repeats, profile_stages

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROWS, WIDTH = 3, 4
TENSOR = 4 * ROWS * WIDTH
"""Bytes of an activation of float32."""


def loss(output: Any, target: Any) -> Any:
    return ((output - target) ** 2).mean()


def layer() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())


def profile(modules: list[Any], **more: Any) -> Any:
    x = torch.zeros(ROWS, WIDTH)
    given: dict[str, Any] = {
        "num_microbatches": 2,
        "loss_fn": loss,
        "target": x,
        **more,
    }
    return profile_stages(modules, x, repeats=Repeats(1, 3), **given)


def test_ops_are_clocked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.formats.torch import emulation

    monkeypatch.setitem(emulation.AWAKE, "is", True)
    stretches = [
        emulation.Stretch(0.02, 0.05, 0.03),
        emulation.Stretch(0.04, 0.01, 0.06),
    ]
    times = profile([emulation.Emulated(stretch) for stretch in stretches]).times
    # A sleep is never shorter than it was told; ops of others would make it far longer.
    for row, told in (
        (times.forward, (20_000, 40_000)),
        (times.backward_input, (0, 10_000)),
        (times.backward_weight, (30_000, 60_000)),
    ):
        assert all(one >= wanted for one, wanted in zip(row, told, strict=True))
    assert times.backward_input[0] == 0
    assert times.backward_input[1] < 60_000 <= times.backward_weight[1]


def test_fused_backwards_are_one_op(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.formats.torch import emulation

    monkeypatch.setitem(emulation.AWAKE, "is", True)
    stages = [emulation.Emulated(emulation.Stretch(0, 0.02, 0.03)) for _ in range(2)]
    times = profile(stages, is_split=False).times
    # Nobody needs the gradient of the first stage's input.
    assert times.backward[0] >= 30_000
    assert times.backward[1] >= 50_000
    assert times.backward_input is None


def test_held_bytes_are_inputs_outputs_and_what_autograd_saves() -> None:
    # A linear layer saves its input, tanh its output; parameters are there anyway. The loss
    # saves the difference and is a number itself.
    instance = profile([layer(), layer()])
    assert instance.memory.activation == (2 * TENSOR, 3 * TENSOR + 4)
    assert instance.memory.capacity == (4 * TENSOR, 6 * TENSOR + 8)
    assert instance.memory.released_by_backward_weight == 1


def test_stages_of_a_device_share_its_memory() -> None:
    instance = profile([layer(), layer(), layer()], stage_to_device=[0, 1, 0])
    assert instance.stage_to_device == (0, 1, 0)
    assert instance.memory.capacity == (2 * (5 * TENSOR + 4), 4 * TENSOR)
    assert profile([layer()], capacity=1000).memory.capacity == 1000


def test_gradients_are_left_as_they_were() -> None:
    modules = [layer(), layer()]
    kept = torch.ones(WIDTH)
    modules[1][0].bias.grad = kept
    profile(modules)
    assert modules[1][0].bias.grad is kept
    assert bool((kept == 1).all())
    assert modules[0][0].weight.grad is None


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(
        InputError, match="modules: expected at least one stage, got none"
    ):
        profile([])
    with pytest.raises(
        InputError, match="example: expected a tensor or a tuple of tensors"
    ):
        profile_stages([layer()], 3, num_microbatches=1, loss_fn=loss, target=None)

    class Wordy(torch.nn.Module):
        def forward(self, x: Any) -> str:
            return "activations"

    with pytest.raises(
        InputError, match=r"output of Wordy: expected a tensor .* got str"
    ):
        profile([Wordy(), layer()])


class Held:
    """A tensor that autograd holds, detached so that it does not hold its own node."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor.detach()


@pytest.mark.parametrize(
    ("stage", "freed"),
    [
        (torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)), 0),
        (torch.nn.TransformerEncoderLayer(WIDTH, 2, 8), 0),
        (layer(), 1),
    ],
)
def test_the_runtime_holds_activations_until_the_weight_gradient(
    stage: Any, freed: int
) -> None:
    # All but what lies behind the last weight of the stage, as the tanh of `layer`.
    from torch.distributed.pipelining._backward import (
        stage_backward_input,
        stage_backward_weight,
    )

    held = []

    def keep(tensor: Any) -> Held:
        one = Held(tensor)
        held.append(weakref.ref(one))
        return one

    x = torch.zeros(ROWS, WIDTH, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one.tensor):
        output = stage(x)
    _, groups = stage_backward_input((output,), [output], [x], stage.parameters())
    assert [one() is None for one in held].count(True) == freed
    stage_backward_weight(stage.parameters(), groups)
    assert all(one() is None for one in held)

"""Schedules run by PyTorch's runtime give the gradients of the model in one piece."""

from __future__ import annotations

from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.kinds.pipeline.runtime import as_torch_runs
from ppsolve.solver.formats.program import FORMATS
from ppsolve.solver.formats.torch.runtime import feeding_order
from tests.formats.torch.world import World

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CLOSE = 1e-6
"""Relative difference of gradients in float64; orders of sums differ, nothing else may."""

UNEVEN = [[7, 4, 9, 5], [5, 8, 3, 6], [3, 6, 4, 8]]
"""Times of four stages: forward, input gradient, weight gradient."""


def pipeline(
    ranks: int, microbatches: int, times: list[Any] | None = None, **more: Any
) -> Any:
    forward, inputs, weights = times or (4, 4, 3)
    return as_torch_runs(
        ppsolve.PipelineInstance(
            num_devices=ranks,
            num_microbatches=microbatches,
            times={
                "forward": forward,
                "backward_input": inputs,
                "backward_weight": weights,
            },
            **more,
        )
    )


def check(
    world: World,
    result: Result | HeuristicEntry,
    ranks: int,
    *,
    is_transformer: bool = False,
) -> None:
    given = type(result), result.model_dump_json()
    for form in FORMATS:
        found = world.run(
            differences_job(),
            ranks,
            result=given,
            form=form,
            is_transformer=is_transformer,
        )
        assert max(max(pair) for pair in found) <= CLOSE, (form, found)


def differences_job() -> Any:
    from tests.formats.torch.gradients import differences

    return differences


PUBLISHED = {
    "gpipe": pipeline(3, 4),
    "1f1b": pipeline(4, 8),
    "zb-h1": pipeline(4, 8),
    "interleaved-1f1b": pipeline(2, 4, stages_per_device=2, placement="interleaved"),
    "looped-bfs": pipeline(2, 4, stages_per_device=2, placement="interleaved"),
    "zbv": pipeline(3, 6, placement="vshape"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_schedules(world: World, name: str) -> None:
    instance = PUBLISHED[name]
    result = ppsolve.simulate(instance, name)
    check(world, result, instance.num_devices)


OPTIMA = {
    "uneven stages": pipeline(4, 6, UNEVEN),
    "tight memory": pipeline(4, 6, UNEVEN, memory={"capacity": 2, "activation": 1}),
    "V": pipeline(2, 5, UNEVEN, placement="vshape"),
    "any map": pipeline(3, 4, UNEVEN, placement={"stage_to_device": [1, 0, 1, 2]}),
    "unequal micro-batches": pipeline(
        2, 4, [[[9, 2, 6, 3], [2, 9, 3, 6]], [[9, 3, 6, 3], [2, 8, 3, 6]], [2, 3]]
    ),
    "fused": ppsolve.PipelineInstance(
        num_devices=3,
        num_microbatches=5,
        times={"forward": [4, 6, 3], "backward": [7, 9, 8]},
    ),
}


@pytest.mark.parametrize("name", OPTIMA)
def test_optima(world: World, name: str) -> None:
    instance = OPTIMA[name]
    result = ppsolve.optimize(instance, time_limit=10, deterministic=True)
    assert result.status == "OPTIMAL"
    # The best order begins with the short forward of micro-batch 1.
    assert (feeding_order(result)[0] == 1) == (name == "unequal micro-batches")
    check(world, result, instance.num_devices)


def test_a_transformer(world: World) -> None:
    # Residual connections give the halves of a backward paths that meet more than once.
    instance = OPTIMA["uneven stages"]
    result = ppsolve.optimize(instance, time_limit=10, deterministic=True)
    check(world, result, instance.num_devices, is_transformer=True)


def test_forwards_of_the_last_stage_out_of_order_give_wrong_gradients(
    world: World,
) -> None:
    # The runtime does not notice: this is why micro-batches are numbered in that order.
    from tests.formats.torch.gradients import out_of_order

    assert max(world.run(out_of_order, 2)) > 0.01

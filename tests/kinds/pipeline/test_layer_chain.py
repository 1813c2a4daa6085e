"""The bound of chains of devices that share layers out: by hand, and below every optimum."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.problem import IntArray
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import split_by
from ppsolve.models.kinds.pipeline.lowering import lower_split
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.layers.chain import LayerChain, fronts, is_chain
from ppsolve.solver.kinds.pipeline.layers.linear import SplitTimes
from ppsolve.solver.kinds.pipeline.layers.ordered import even_counts
from tests.marks import first

BY_HAND: dict[str, Any] = {
    "kind": "pipeline",
    "name": "by hand",
    "num_devices": 2,
    "num_microbatches": 8,
    "layers": {"body": {"count": 2, "forward": 1, "backward": 2, "activation": 1}},
    "p2p": {"latency": 3},
    "memory": {"capacity": 2},
}


def chain_bound(instance: PipelineInstance, least: int = 1) -> int | float:
    """Return the bound in the unit of the pipeline."""
    assert is_chain(instance)
    scale = lower_split(instance, even_counts(instance)).scale
    chain = LayerChain(instance, scale, SplitTimes.of(instance, scale))
    return scale.time(chain.bound(least, Clock()))


def test_rounds_of_what_fits_by_hand() -> None:
    """Two of eight micro-batches fit device 0, and each is away for 3 + 1 + 2 + 3.

    A round takes 1 + 9 + 2 = 12: the seventh forward starts at 36, the eighth at 37, and its
    backward ends 12 after that.
    """
    assert chain_bound(PipelineInstance.parse(BY_HAND)) == 49


def test_idle_ends_by_hand() -> None:
    """Five of eight fit device 0: it idles while the first one is away, and the last one.

    It works for 8 x 3. Micro-batches are away for 6 + 1 + 2 + 6 = 15. Before the first backward it
    runs four more forwards of 1, after the last forward at most four backwards of 2: 11 and 7 are
    idle.
    """
    roomy = BY_HAND | {"p2p": {"latency": 6}, "memory": {"capacity": 5}}
    assert chain_bound(PipelineInstance.parse(roomy)) == 24 + 11 + 7


def test_weight_gradients_wait_within_the_memory() -> None:
    """Backwards of 1 + 1 that hold all until the weight gradient: two at most wait for it.

    A round takes 1 + 8 + 1 + 1, as micro-batches are away for 8; without anything left to weight
    gradients none of these is counted, and device 0 works for 24 beside 8 - 1 idle.
    """
    body = {"count": 2, "forward": 1, "backward_input": 1, "backward_weight": 1}
    split = BY_HAND | {"layers": {"body": body | {"activation": 1}}}
    assert chain_bound(PipelineInstance.parse(split)) == 3 * 11 + 1 + 10
    free = split | {"memory": {"capacity": 2, "released_by_backward_weight": 0}}
    assert chain_bound(PipelineInstance.parse(free)) == 24 + 7


def test_loads_that_others_are_better_than_are_left_out() -> None:
    layers = ppsolve.PipelineInstance.parse(
        BY_HAND
        | {
            "layers": {
                "body": BY_HAND["layers"]["body"] | {"activation": 4},
                "recompute": [
                    {"name": "half", "time": 1, "held": 2},
                    {"name": "full", "time": 4, "held": 1},
                    {"name": "worse", "time": 5, "held": 1},
                ],
            }
        }
    ).layers
    assert layers is not None
    # keep and full hold 5 and take 4 more, half twice holds 4 and takes 2 more.
    two = [(2, 0, 0, 0), (1, 1, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 0, 2, 0)]
    *_, front = fronts(layers, 2)
    assert [tuple(row) for row in front] == two


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": "vshape"},
        {"memory": None},
        {"num_devices": 1},
        {"steps": 2},
        {"slices": {"count": 2}},
    ],
)
def test_what_is_no_chain(fields: Any) -> None:
    layers = {"body": BY_HAND["layers"]["body"] | {"count": 4}}
    assert not is_chain(PipelineInstance.parse(BY_HAND | {"layers": layers} | fields))


def drawn(seed: int) -> PipelineInstance:
    """Return a tiny random chain in little memory."""
    draw = Random(seed)
    halves = (
        ["backward"] if draw.random() < 0.4 else ["backward_input", "backward_weight"]
    )

    def cost(least: int) -> dict[str, Any]:
        times = {name: draw.randint(least, 4) for name in ["forward", *halves]}
        return times | {
            "activation": draw.choice([0, 1, 2]),
            "static": draw.choice([0, 1]),
        }

    devices = draw.choice([2, 2, 3])
    body = cost(draw.choice([0, 1])) | {"count": devices + draw.randint(0, 1)}
    body["activation"] = draw.choice([1, 2, 3])
    layers: dict[str, Any] = {"body": body}
    for name in ("first", "last"):
        if draw.random() < 0.5:
            layers[name] = cost(0)
    if draw.random() < 0.7:
        held = draw.randint(0, body["activation"])
        layers["recompute"] = [
            {"name": "full", "time": draw.randint(0, 3), "held": held}
        ]
    memory: dict[str, Any] = {"capacity": draw.randint(4, 12)}
    if len(halves) > 1 and draw.random() < 0.5:
        memory["released_by_backward_weight"] = draw.choice([0, 0.25, 0.5])
    return PipelineInstance.parse(
        {
            "name": f"drawn-{seed}",
            "num_devices": devices,
            "num_microbatches": draw.randint(2, 5),
            "layers": layers,
            "p2p": {"latency": draw.choice([0, 1, 3])},
            "memory": memory,
        }
    )


def every_split(instance: PipelineInstance) -> list[IntArray]:
    """Return all splits of few layers by type and stage."""
    assert instance.layers is not None
    count, shape = instance.layers.body.count, (len(instance.layers.names), -1)
    rows = product(range(count + 1), repeat=shape[0] * instance.num_stages)
    splits = (np.array(row).reshape(shape) for row in rows if sum(row) == count)
    return [counts for counts in splits if (counts.sum(axis=0) >= 1).all()]


def check_below_every_optimum(seed: int) -> None:
    instance = drawn(seed)
    bound = chain_bound(instance)
    for counts in every_split(instance):
        result = ppsolve.optimize(split_by(instance, counts), workers=1, time_limit=20)
        assert result.value is None or result.value >= bound, (seed, counts.tolist())


@pytest.mark.parametrize("seed", first(1, range(20)))
def test_the_bound_is_below_every_optimum(seed: int) -> None:
    check_below_every_optimum(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(10))
def test_many_bounds_are_below_every_optimum(block: int) -> None:
    for seed in range(100 + 30 * block, 130 + 30 * block):
        check_below_every_optimum(seed)

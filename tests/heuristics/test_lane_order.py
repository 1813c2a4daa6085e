"""Lanes of list rules: how long the memory of a micro-batch is held, and by what."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.heuristics.lane_order import Burst, Lanes
from tests.small import holding, op, small


def test_excess_of_a_forward_does_not_end_its_lane() -> None:
    memory = {"capacity": 9, "activation": 1, "forward_peak": 2}
    shape = {"num_devices": 1, "num_microbatches": 2, "memory": memory}
    problem = lower_pipeline(
        PipelineInstance(**shape, times={"forward": 2, "backward": 3})
    )
    (lane,) = Lanes(problem).each
    assert problem.op_names(lane.acquire) == ["F0.0", "F0.1"]
    assert problem.op_names(lane.first_release) == ["B0.0", "B0.1"]
    assert problem.op_names(lane.last_release) == ["B0.0", "B0.1"]
    assert lane.lifetime == 2 + 3


def test_ops_without_a_microbatch_have_no_lane() -> None:
    assert (
        Lanes(small([holding("a", 1, 1, "r"), op("b", 1, "r")], capacity=1)).each == []
    )


def test_a_warm_up_ends_when_the_first_backward_can_begin() -> None:
    memory = {"capacity": 8, "activation": 1, "released_by_backward_weight": 0.4}
    shape = {
        "num_devices": 3,
        "num_microbatches": 6,
        "memory": memory,
        "p2p": {"latency": 1},
    }
    times = {"forward": 2, "backward_input": [2, 2, 4], "backward_weight": 1}
    problem = lower_pipeline(PipelineInstance.parse({**shape, "times": times}))
    lanes = Lanes(problem)
    # The first backward of the last stage begins 2 after its first forward; in front of it, two
    # transfers, the stage's own forward and a backward of 4 come on top: 2 + 1 + 2 + 4 + 1 = 10.
    # Then 2 + 1 + 10 + 2 + 1 = 16.
    assert lanes.warm_up_limits().tolist() == [16 // 2, 10 // 2, 1]
    # Of 8, the weight gradients of 20 micro-batches hold 0.4 each.
    assert lanes.most_kept == 20


@pytest.mark.parametrize(
    ("forwards", "waits"),
    [
        # The first four fill the lane; then two are in flight.
        (0, ["I0.2 F0.4", "I0.3 F0.5"]),
        # The last one may be the fourth in flight again.
        (1, ["I0.2 F0.4", "I0.1 F0.5"]),
        (2, ["I0.0 F0.4", "I0.1 F0.5"]),
        (9, ["I0.0 F0.4", "I0.1 F0.5"]),
    ],
)
def test_lanes_are_full_at_the_beginning_and_in_the_burst(
    forwards: int, waits: list[str]
) -> None:
    assert (
        _waits(limit=4, burst=Burst(np.array([2]), forwards, kept=6, free=0)) == waits
    )


@pytest.mark.parametrize(
    ("kept", "free", "waits"),
    [
        (1, 0, ["W0.0 I0.1", "W0.1 I0.2", "W0.2 I0.3", "W0.3 I0.4", "W0.4 I0.5"]),
        (2, 0, ["W0.0 I0.2", "W0.1 I0.3", "W0.2 I0.4", "W0.3 I0.5"]),
        (1, 3, ["W0.0 I0.1", "W0.1 I0.2"]),
        (2, 4, []),
        (6, 9, []),
    ],
)
def test_weight_gradients_come_soon_except_the_last_ones(
    kept: int, free: int, waits: list[str]
) -> None:
    assert _waits(limit=6, burst=Burst(np.array([6]), 0, kept, free)) == waits


def _waits(limit: int, burst: Burst) -> list[str]:
    """What waits for what on one device with six micro-batches."""
    memory = {"capacity": 6, "activation": 1, "released_by_backward_weight": 0.4}
    shape = {"num_devices": 1, "num_microbatches": 6, "memory": memory}
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    problem = lower_pipeline(PipelineInstance.parse({**shape, "times": times}))
    edges = Lanes(problem).edges_before_burst(np.array([limit]), burst)
    assert not edges[2].any()
    names = (problem.op_names(ops) for ops in edges[:2])
    return [" ".join(pair) for pair in zip(*names, strict=True)]


def test_the_lanes_of_a_pool_share_it() -> None:
    memory = {"capacity": 5, "activation": 0.5, "released_by_backward_weight": 0.2}
    shape = {
        "num_devices": 2,
        "num_microbatches": 6,
        "placement": "vshape",
        "memory": memory,
    }
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    problem = lower_pipeline(PipelineInstance.parse({**shape, "times": times}))
    # A micro-batch takes 0.5 twice.
    assert Lanes(problem).most_in_flight == 5

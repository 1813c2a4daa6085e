"""Lanes of list rules: how long the memory of a micro-batch is held, and by what."""

from __future__ import annotations

from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.heuristics.lane_order import lanes_of, most_kept, warm_up_limits
from tests.small import holding, op, small


def test_excess_of_a_forward_does_not_end_its_lane() -> None:
    memory = {"capacity": 9, "activation": 1, "forward_peak": 2}
    shape = {"num_devices": 1, "num_microbatches": 2, "memory": memory}
    problem = lower_pipeline(PipelineInstance(**shape, times={"forward": 2, "backward": 3}))
    (lane,) = lanes_of(problem)
    assert problem.op_names(lane.acquire) == ["F0.0", "F0.1"]
    assert problem.op_names(lane.first_release) == ["B0.0", "B0.1"]
    assert problem.op_names(lane.last_release) == ["B0.0", "B0.1"]
    assert lane.lifetime == 2 + 3


def test_ops_without_a_microbatch_have_no_lane() -> None:
    assert lanes_of(small([holding("a", 1, 1, "r"), op("b", 1, "r")], capacity=1)) == []


def test_a_warm_up_ends_when_the_first_backward_can_begin() -> None:
    memory = {"capacity": 8, "activation": 1, "released_by_backward_weight": 0.4}
    shape = {"num_devices": 3, "num_microbatches": 6, "memory": memory, "p2p": {"latency": 1}}
    times = {"forward": 2, "backward_input": [2, 2, 4], "backward_weight": 1}
    problem = lower_pipeline(PipelineInstance.parse({**shape, "times": times}))
    lanes = lanes_of(problem)
    # The first backward of the last stage begins 2 after its first forward; in front of it, two
    # transfers, the stage's own forward and a backward of 4 come on top: 2 + 1 + 2 + 4 + 1 = 10.
    # Then 2 + 1 + 10 + 2 + 1 = 16.
    assert warm_up_limits(problem, lanes).tolist() == [16 // 2, 10 // 2, 1]
    # Of 8, the weight gradients of 20 micro-batches hold 0.4 each.
    assert most_kept(problem, lanes) == 20

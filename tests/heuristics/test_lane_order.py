"""Lanes of list rules: how long the memory of a micro-batch is held, and by what."""

from __future__ import annotations

from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.heuristics.lane_order import lanes_of
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

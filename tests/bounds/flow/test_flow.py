"""A pipeline as a flow: rows are micro-batches, columns the positions that all of them pass."""

from __future__ import annotations

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.flow import flow_of

UNEQUAL = {
    "num_devices": 2,
    "num_microbatches": 3,
    "times": {"forward": [[1, 2, 3], 4], "backward": [5, [6, 7, 8]]},
    "memory": {"capacity": 3, "activation": 1},
    "optimizer": 9,
}


def test_every_microbatch_has_its_own_durations_and_all_share_precedences():
    flow = flow_of(lower(PipelineInstance(**UNEQUAL)))
    assert flow is not None
    # By kind and stage: backward 0 and 1, then forward 0 and 1, as the kinds are numbered.
    columns = {
        (int(kind), int(stage)): flow.duration[:, position].tolist()
        for position, (kind, stage) in enumerate(
            zip(flow.kind, flow.stage, strict=True)
        )
    }
    assert sorted(columns.values()) == [[1, 2, 3], [4, 4, 4], [5, 5, 5], [6, 7, 8]]
    assert flow.num_microbatches == 3
    assert len(flow.before) == 4  # F0 F1, F1 B1, B1 B0 and, on stage 0, F0 B0
    assert sorted(flow.resource.tolist()) == [0, 0, 1, 1]


def test_forwards_acquire_and_backwards_release_in_the_pool_of_their_device():
    flow = flow_of(lower(PipelineInstance(**UNEQUAL)))
    assert flow is not None
    assert (flow.acquire.sum(axis=1) == flow.release.sum(axis=1)).all()
    assert ((flow.acquire > 0).sum(axis=1) == 2).all()
    assert (flow.room // flow.acquire.max()).tolist() == [3, 3]
    assert flow.pool.tolist() == flow.resource.tolist()


def test_a_position_has_the_pool_that_any_micro_batch_uses_there():
    memory = {"capacity": 3, "activation": [[0, 1, 2], 1]}
    flow = flow_of(lower(PipelineInstance(**UNEQUAL | {"memory": memory})))
    assert flow is not None
    assert flow.pool.tolist() == flow.resource.tolist()


def test_bidirectional_pipes_are_no_flow():
    two_ways = {**UNEQUAL, "num_microbatches": 4, "placement": "bidirectional"}
    two_ways["times"] = {"forward": 1, "backward": 2}
    assert flow_of(lower(PipelineInstance(**two_ways))) is None

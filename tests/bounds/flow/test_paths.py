"""Ways between positions of a flow by hand: forwards, transfers and backwards of three stages."""

from __future__ import annotations

import numpy as np

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.drain import _passage
from ppsolve.solver.bounds.exchange import _least
from ppsolve.solver.bounds.flow.flow import Flow, Paths, flow_of

FORWARD, BACKWARD = [[4, 1], [7, 8], [3, 3]], [[1, 1], [2, 2], [5, 6]]


def three_stages() -> Flow:
    """Two micro-batches, 2 ticks between stages: positions F0, F1, F2, B0, B1, B2."""
    found = flow_of(
        lower(
            PipelineInstance(
                num_devices=3,
                num_microbatches=2,
                times={"forward": FORWARD, "backward": BACKWARD},
                p2p={"latency": 2},
            )
        )
    )
    assert found is not None
    return found


def test_a_way_counts_transfers_and_what_runs_between() -> None:
    gap = Paths(three_stages()).gap(0)
    assert gap[0].tolist() == [
        0, 2, 2 + 7 + 2, 2 + 7 + 2 + 3 + 5 + 2 + 2 + 2, 2 + 7 + 2 + 3 + 5 + 2, 2 + 7 + 2 + 3
    ]  # fmt: skip


def test_a_chain_is_as_deep_as_it_has_ops_before() -> None:
    assert Paths(three_stages()).rank.tolist() == [0, 1, 2, 5, 4, 3]


def test_what_passes_a_resource_comes_from_the_busiest_position_before() -> None:
    # Stage 2 follows F1: from its end 2 ticks, then 3 + 5 or 3 + 6; F1 begins at 4 + 2 or 1 + 2.
    flow = three_stages()
    passage, rest, begin = _passage(Paths(flow), np.array([2, 5]), flow.resource != 2)
    assert passage.tolist() == [7, 8]
    assert rest.tolist() == [2 + 3 + 5, 2 + 3 + 6]
    assert begin == 3


def test_nothing_is_sure_before_an_op_that_may_have_no_length() -> None:
    times, lengths = np.array([[3, 4], [6, 5]]), np.array([[0, 1], [2, 2]])
    assert _least(times, lengths).tolist() == [0, 5]

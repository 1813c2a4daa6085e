"""Exchange between replicas: the same steps compiled or not, and figures that stay true."""

from __future__ import annotations

import numpy as np
import pytest

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.bounds.flow.microbatch_exchange import MicrobatchExchange, sizes_of
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.microbatch_exchange import EXCHANGE, MOVE, REORDER, TOO_LONG
from ppsolve.solver.kinds.pipeline.replicas.shape import ReplicaShape
from tests.marks import first

UNEQUAL = {
    "num_devices": 2,
    "num_microbatches": 6,
    "times": {"forward": [[5, 1, 4, 2, 3, 9], 2], "backward": [[2, 7, 1, 8, 2, 8], 3]},
    "memory": {"capacity": [6, 3], "activation": [[1, 2, 3, 1, 2, 3], 1]},
    "optimizer": 4,
}


def search(
    way: int, members: list[list[int]], counts: str = "any"
) -> MicrobatchExchange:
    replicas = {"count": 2, "assignment": "free", "counts": counts}
    instance = PipelineInstance.parse(UNEQUAL | {"replicas": replicas})
    shape = ReplicaShape(instance, TimeScale.fit([], "us"))
    return MicrobatchExchange(
        shape.sample,
        shape.ways[0],
        sizes_of(shape.flow, shape.alone),
        members,
        way,
        seed=7,
    )


@pytest.mark.parametrize("way", first(1, [MOVE, REORDER, EXCHANGE]))
def test_values_are_those_of_the_members_after_every_walk(way):
    walked = search(way, [[0, 1, 2], [3, 4, 5]])
    for heat in (5, 3, 1):
        walked.walk(10, 0, heat)
        again = search(way, walked.members)
        assert again.best == walked.best == int(again.value.max())
        rows = walked.member.reshape(2, -1).tolist()
        now = search(
            way,
            [
                row[:count]
                for row, count in zip(rows, walked.count.tolist(), strict=True)
            ],
        )
        assert now.value.tolist() == walked.value.tolist()
        everyone = sorted(number for those in walked.members for number in those)
        assert everyone == [0, 1, 2, 3, 4, 5]


def test_reordering_keeps_members_and_exchange_keeps_counts():
    walked = search(REORDER, [[0, 1, 2], [3, 4, 5]])
    walked.walk(300, 0, 3)
    assert [sorted(those) for those in walked.members] == [[0, 1, 2], [3, 4, 5]]
    walked = search(EXCHANGE, [[0, 1], [2, 3, 4, 5]])
    walked.walk(300, 0, 3)
    assert [len(those) for those in walked.members] == [2, 4]


def test_a_walk_stops_where_its_target_is_met():
    walked = search(EXCHANGE, [[0, 1, 2], [3, 4, 5]])
    assert walked.walk(100, walked.best, 1) == 100
    assert walked.walk(100, TOO_LONG, 1) == 100


def test_compiled_or_not_a_walk_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch):
    found = []
    for compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", False)
        walked = search(MOVE, [[0, 1, 2], [3, 4, 5]])
        monkeypatch.setitem(compilation._state, "compiled", compiled)
        left = walked.walk(400, 0, 4)
        found.append((left, walked.members, walked.best, walked.value.tolist()))
    assert found[0] == found[1]


def test_an_order_that_overruns_a_pool_is_too_long():
    tight = UNEQUAL | {"memory": {"capacity": [100, 100], "activation": 1}}
    instance = PipelineInstance.parse(
        tight | {"replicas": {"count": 2, "assignment": "free"}}
    )
    shape = ReplicaShape(instance, TimeScale.fit([], "us"))
    sizes = sizes_of(shape.flow, shape.alone)
    short = sizes._replace(room=np.zeros_like(sizes.room))
    members = [[0, 1, 2], [3, 4, 5]]
    assert (
        MicrobatchExchange(shape.sample, shape.ways[0], sizes, members, EXCHANGE).best
        < TOO_LONG
    )
    assert (
        MicrobatchExchange(shape.sample, shape.ways[0], short, members, EXCHANGE).best
        == TOO_LONG
    )

"""Exchange of micro-batches among replicas: tables, first orders, and heat that falls."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.bounds.flow.microbatch_exchange import (
    Heat,
    MicrobatchExchange,
    arrangements,
    sizes_of,
)
from ppsolve.solver.kernels.microbatch_exchange import EXCHANGE
from ppsolve.solver.kinds.pipeline.replicas.shape import ReplicaShape

UNEQUAL = {
    "num_devices": 2,
    "num_microbatches": 6,
    "times": {
        "forward": [[5, 1, 4, 2, 3, 9], [2, 6, 1, 3, 8, 2]],
        "backward": [[2, 7, 1, 8, 2, 8], [3, 1, 7, 2, 2, 9]],
    },
    "optimizer": 4,
    "replicas": {"count": 2, "assignment": "free"},
}
SHAPE = ReplicaShape(PipelineInstance.parse(UNEQUAL), TimeScale.fit([], "us"))
SIZES = sizes_of(SHAPE.flow, SHAPE.alone)
WORK = SHAPE.flow.duration.sum(axis=1)


def search(*members: list[int]) -> MicrobatchExchange:
    return MicrobatchExchange(SHAPE.sample, SHAPE.ways[0], SIZES, members, EXCHANGE)


def test_tables_have_a_row_for_each_micro_batch_and_one_for_ops_of_none() -> None:
    duration = SIZES.duration.reshape(7, 4 + 2)
    assert duration[:6, :4].tolist() == SHAPE.flow.duration.tolist()
    assert not duration[:6, 4:].any()
    assert duration[6].tolist() == [0, 0, 0, 0, 4, 4]
    assert len(SIZES.acquire) == len(SIZES.release) == 7 * 6
    # A forward and a backward of each; device 0 ends with its optimizer, and around the work of
    # device 1 there are the shortest forward and backward of device 0 as well.
    assert SIZES.load.reshape(6, 2).T.tolist() == [
        [7, 8, 5, 10, 5, 17],
        [5, 7, 8, 5, 10, 11],
    ]
    assert SIZES.edge.tolist() == [4, 1 + 1 + 4]


def test_each_replica_starts_in_the_best_of_a_few_orders() -> None:
    """As given [42, 40], by rising work [39, 40], by falling work [42, 31], short ends [45, 35]."""
    found = search([5, 0, 3], [2, 4, 1])
    assert found.value.tolist() == [42, 40]
    found.arrange(WORK)
    assert (found.value.tolist(), found.best) == ([39, 31], 39)
    assert found.members == [[0, 3, 5], [1, 4, 2]]
    given = zip(
        *(arrangements(WORK, those) for those in ([5, 0, 3], [2, 4, 1])), strict=True
    )
    assert [search(*orders).value.tolist() for orders in given] == [
        *([42, 40], [39, 40], [42, 31], [45, 35])
    ]


def test_an_offer_is_kept_if_it_is_better() -> None:
    found = search([5, 0, 3], [2, 4, 1])
    found.offer([[3, 5, 0], [1, 4, 2]])
    assert (found.best, found.members) == (38, [[3, 5, 0], [1, 4, 2]])
    found.offer([[5, 0, 3], [2, 4, 1]])
    assert (found.best, found.members) == (38, [[3, 5, 0], [1, 4, 2]])
    assert found.value.tolist() == [38, 31]


def test_heat_falls_with_the_square_of_what_is_left_of_a_round() -> None:
    """Of 4 walks each may lose 0.3 % of the best at first; the next round has 8."""
    found = search([0, 1, 2], [3, 4, 5])
    found.best_value[:], heat = 100_000, Heat()
    assert [heat.next(found) for _ in range(4)] == [301, 169, 76, 19]
    found.best_member[:] = np.flip(found.best_member)
    assert [heat.next(found) for _ in range(2)] == [301, 230]
    assert found.members == [[5, 4, 3], [2, 1, 0]]
    assert found.member.tolist() == found.best_member.tolist()

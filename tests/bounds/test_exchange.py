"""Bounds on the slowest replica: by hand, and never above the best assignment of tiny steps."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.exchange import apart_sum, exchange_bound
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from tests.bruteforce import brute_force
from tests.marks import first

Table = list[list[int]]


def instance(
    forward: Table, backward: Table, capacity: list[int] | None
) -> PipelineInstance:
    memory = None if capacity is None else {"capacity": capacity, "activation": 1}
    data: dict[str, Any] = {
        "times": {"forward": forward, "backward": backward},
        "memory": memory,
    }
    count = len(forward[0])
    return PipelineInstance(num_devices=len(forward), num_microbatches=count, **data)


def flow(forward: Table, backward: Table, capacity: list[int] | None = None) -> Flow:
    found = flow_of(lower(instance(forward, backward, capacity)))
    assert found is not None
    return found


def best_exchange(
    forward: Table,
    backward: Table,
    capacity: list[int] | None,
    replicas: int,
    *,
    equal: bool,
) -> int:
    """Return the least makespan of the slowest replica over all assignments."""
    count = len(forward[0])

    @cache
    def alone(members: frozenset[int]) -> int:
        if not members:
            return 0
        picked = [
            [[row[i] for i in sorted(members)] for row in t]
            for t in (forward, backward)
        ]
        value = brute_force(lower(instance(picked[0], picked[1], capacity)))
        assert value is not None
        return value

    best = []
    for owners in product(range(replicas), repeat=count):
        shares = [
            frozenset(np.flatnonzero(np.array(owners) == r).tolist())
            for r in range(replicas)
        ]
        if not equal or {len(share) for share in shares} == {count // replicas}:
            best.append(max(map(alone, shares)))
    return min(best)


def test_the_mean_counts_a_head_and_a_tail_of_every_replica() -> None:
    # Stage 1 works 4 x 10 + 4 x 10 and holds one micro-batch. Two replicas: heads 1 + 2 and tails
    # 7 + 8, or any other four of different micro-batches, no less than 1 + 2 + 7 + 8.
    found = flow([[1, 2, 3, 4], [10] * 4], [[5, 6, 7, 8], [10] * 4], [2, 1])
    assert exchange_bound(found, 2) == (80 + 1 + 2 + 7 + 8) // 2


def test_any_count_may_leave_a_replica_empty_but_not_faster() -> None:
    found = flow([[1, 1]], [[1, 1]])
    assert exchange_bound(found, 4, equal=False) == 2
    assert exchange_bound(found, 2) == 2


def test_of_the_heaviest_some_replica_takes_two() -> None:
    # Three of weight 9 on two replicas: one takes two of them and, with equal counts, a light one.
    found = flow([[8, 8, 8, 1, 1, 1]], [[1] * 6])
    assert exchange_bound(found, 2) == 9 + 9 + 2
    assert exchange_bound(found, 2, equal=False) == 9 + 9


def test_memory_of_all_replicas_holds_every_microbatch() -> None:
    # Four micro-batches, each held for 1 + 1 + 1 + 5 on stage 0, which has room for one of them.
    found = flow([[1] * 4, [1] * 4], [[5] * 4, [1] * 4], [1, 4])
    assert exchange_bound(found, 2) == 4 * 8 // 2


def test_heads_and_tails_of_different_microbatches() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        size, count = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        if 2 * count > size:
            continue
        head, tail = rng.integers(0, 9, (2, size))
        best = min(
            head[list(heads)].sum() + tail[list(tails)].sum()
            for heads in combinations(range(size), count)
            for tails in combinations(sorted(set(range(size)) - set(heads)), count)
        )
        assert apart_sum(head, tail, count) == best


def test_who_shares_a_replica_with_a_long_one_passes_it() -> None:
    # The long one takes 4 x 20; the other of its replica costs 5 or more, if there must be one.
    found = flow([[20, 5, 5, 6]] * 2, [[20, 5, 5, 6]] * 2)
    assert exchange_bound(found, 2, equal=True) == 80 + 5
    assert exchange_bound(found, 2, equal=False) == 80


@pytest.mark.parametrize("seed", first(8, range(40)))
@pytest.mark.parametrize("equal", [True, False])
def test_no_bound_is_above_the_best_assignment(seed: int, equal: bool) -> None:
    rng = np.random.default_rng(seed)
    stages, count, replicas = [(2, 4, 2), (1, 4, 2), (2, 3, 3), (2, 3, 2)][seed % 4]
    if equal and count % replicas:
        count += 1
    most = 3 if stages == 2 else 4
    forward, backward = rng.integers(
        0 if seed % 5 == 0 else 1, 9, (2, stages, count)
    ).tolist()
    capacity = rng.integers(1, most, stages).tolist() if seed % 3 else None
    if not equal and stages * count > 6:
        count = 3
        forward, backward = (
            [row[:3] for row in table] for table in (forward, backward)
        )
    best = best_exchange(forward, backward, capacity, replicas, equal=equal)
    assert (
        exchange_bound(flow(forward, backward, capacity), replicas, equal=equal) <= best
    )

"""What follows a resource: by hand, and against all orders of a few micro-batches."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.drain import drain_bound
from ppsolve.solver.bounds.flow.flow import Flow, Paths, flow_of

Table = list[list[int]]

NODES = 1000


def flow(forward: Table, backward: Table) -> Flow:
    times = {"forward": forward, "backward": backward}
    size = {"num_devices": len(forward), "num_microbatches": len(forward[0])}
    found = flow_of(lower(PipelineInstance(**size, times=times)))
    assert found is not None
    return found


def least_over_orders(forward: Table, backward: Table) -> int:
    """Return the bound of two devices by trying every order in which stage 1 finishes."""
    count = len(forward[0])
    work = [forward[1][i] + backward[1][i] for i in range(count)]
    path = [forward[0][i] + work[i] for i in range(count)]
    least = []
    for order in permutations(range(count)):
        ready = []
        for place, member in enumerate(order):
            done = order[: place + 1]
            end = sum(forward[0][i] for i in done) + min(work[i] for i in done)
            heads = [(forward[0][i], forward[1][i]) for i in done]
            heads += [(forward[0][i] + forward[1][i], backward[1][i]) for i in done]
            for cut, _ in heads:
                end = max(
                    end, cut + sum(length for head, length in heads if head >= cut)
                )
            ready.append((max(end, path[member]), backward[0][member]))
        ends = [
            cut + sum(length for time, length in ready if time >= cut)
            for cut, _ in ready
        ]
        least.append(max(ends))
    return min(least)


def test_backwards_queue_on_the_first_device() -> None:
    # Stage 1 takes 1 + 1 for each, stage 0 has backwards of 10: the first one starts at 1 + 1 + 1.
    found = flow([[1] * 3, [1] * 3], [[10] * 3, [1] * 3])
    assert drain_bound(Paths(found), [1], NODES) == 3 + 30


def test_only_the_order_of_finishing_is_free() -> None:
    # Heads leave stage 1 idle for one tick; then it works 12 ticks. The one finished first may be
    # the short one, 1 + 6, or the long one, 1 + 6 too: backwards take 9 and 2, one after another.
    found = flow([[1, 1], [3, 3]], [[9, 2], [3, 3]])
    assert drain_bound(Paths(found), [1], NODES) == 1 + 6 + 9 + 2


@pytest.mark.parametrize("seed", range(25))
def test_the_tree_of_orders_finds_the_least(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most = int(rng.integers(3, 12))
    forward, backward = rng.integers(1, most, (2, 2, 5)).tolist()
    bound = drain_bound(Paths(flow(forward, backward)), [1], NODES)
    assert bound == least_over_orders(forward, backward)


def test_with_few_nodes_the_bound_is_lower() -> None:
    rng = np.random.default_rng(3)
    paths = Paths(flow(*rng.integers(1, 30, (2, 2, 7)).tolist()))
    found = [drain_bound(paths, [1], nodes) for nodes in (2000, 40, 15, 2)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0


def test_time_may_run_backwards() -> None:
    times = [[1, 2, 3], [4, 5, 6]], [[3, 1, 2], [1, 1, 5]]
    turned = times[1], times[0]
    paths = Paths(flow(*times)).reversed
    assert drain_bound(paths, [1], NODES) == drain_bound(
        Paths(flow(*turned)), [1], NODES
    )

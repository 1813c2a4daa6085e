"""The benchmark of splits: its requests, its moves, and a small plan that no other split beats."""

from __future__ import annotations

import random
from itertools import pairwise

import plan_splits
import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.studies.plan.request import parse_request


def test_there_are_24_requests_all_different() -> None:
    names = [request.name for request in plan_splits.requests()]
    assert len(set(names)) == len(names) == plan_splits.REQUESTS == 24


@pytest.mark.parametrize("seed", range(20))
def test_moves_keep_all_layers_and_every_stage(seed: int) -> None:
    rng, split = random.Random(seed), (0, 1, 4, 5, 9)
    for _ in range(50):
        split = plan_splits.moved(split, rng)
        assert split[0] == 0
        assert split[-1] == 9
        assert all(first < last for first, last in pairwise(split))


def test_all_splits_of_a_small_winner_are_tried() -> None:
    # The split 2 + 1 + 1 reaches 60, the bound of its first device; the two others take longer.
    layers = [
        {"forward": f, "backward": b} for f, b in ((3, 5), (3, 4), (3, 6), (1, 4))
    ]
    request = parse_request(
        {
            "model": {"microbatch_sizes": [1], "layers": layers},
            "cluster": {"devices_per_node": 3, "within_node": {"bandwidth": 1}},
            "goodput": {"init_batch_size": 4},
            "search": {"pipeline_depths": [3], "replicas": [1], "microbatches": [4]},
        }
    )
    plan = ppsolve.plan(request, deterministic=True)
    assert plan.status is Status.OPTIMAL
    found = plan_splits.other_splits(request, plan, 0.0)
    assert (found.splits, found.tried, found.is_exhaustive) == (3, 3, True)
    assert found.step > 60
    said = plan_splits.line(request, 10.0, 0.0)
    assert "all 3 splits" in said
    assert "BETTER" not in said
    assert "WRONG" not in said

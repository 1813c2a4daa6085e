"""Bounds over all splits: never above the best schedule of any, and no split left out of lists."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.api.kinds import lower as lower_instance
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.list_scheduling import FIRST_RULE, QuickScheduler
from ppsolve.solver.studies.plan.params import PlanParams
from ppsolve.solver.studies.plan.space import enumerate_space
from ppsolve.solver.studies.plan.split_search import SplitBounds, SplitEffort
from tests.bruteforce import brute_force
from tests.marks import first
from tests.studies.plan.cases import document, reduced_document, splits, tiny_document


def configurations(data: dict[str, Any]) -> list[tuple[PlanRequest, Configuration]]:
    request = parse_request(data)
    return [(request, each) for each in enumerate_space(request).configurations]


@pytest.mark.parametrize("seed", first(6, range(40)))
def test_no_schedule_of_any_split_is_below_the_bound(seed: int) -> None:
    for request, chosen in configurations(tiny_document(random.Random(seed))):
        builder = PipelineBuilder(request)
        tick = builder.layers(1).tick
        bounds = SplitBounds(builder, chosen)
        steps = {}
        for split in splits(request.model.num_layers, chosen.pipeline_depth):
            problem = lower_instance(builder.pipeline(chosen, split).instance())
            ticks = brute_force(problem)
            if ticks is not None:
                steps[split] = ticks * problem.scale.tick / tick
        if steps:
            assert bounds.bound <= min(steps.values())
            for limit in {
                int(step) + more for step in steps.values() for more in (0, 1)
            }:
                better = {split for split, step in steps.items() if step < limit}
                assert better <= set(bounds.below(limit) or ())


@pytest.mark.parametrize("placement", ["linear", "interleaved", "vshape", "wave"])
@pytest.mark.parametrize("buckets", ["stage", "layer"])
@pytest.mark.parametrize("released", first(1, [0.3, 0, 1]))
def test_no_quick_schedule_is_below_the_bound(
    placement: str, buckets: str, released: float
) -> None:
    data = reduced_document(int(released * 10) + len(placement))
    data["model"]["layers"] += data["model"]["layers"][:1]
    data["model"]["released_by_backward_weight"] = released
    data["cluster"] |= {"gradient_buckets": buckets, "memory": 100}
    data["search"] |= {"placements": [placement], "pipeline_depths": [2]}
    for request, chosen in configurations(data):
        builder = PipelineBuilder(request)
        quick, bounds = QuickScheduler(builder), SplitBounds(builder, chosen)
        stages = chosen.pipeline_depth * chosen.virtual_stages
        steps = {}
        for split in splits(request.model.num_layers, stages):
            arrays = quick.arrays(chosen, split)
            ticks = quick.makespan(arrays, (FIRST_RULE, *PlanParams().rules[::4]))
            assert (ticks is None) == arrays.stages.lacks_room().any()
            if ticks is not None:
                assert max(bounds.bound, arrays.bound) <= ticks
                steps[split] = ticks
        for limit in sorted(steps.values())[:3]:
            better = {split for split, step in steps.items() if step < limit + 1}
            assert better <= set(bounds.below(limit + 1) or ())


def test_the_bound_of_linear_stages_is_that_of_the_best_split() -> None:
    # Without transfers, tables know all that a stage takes.
    rng = random.Random(5)
    layers = [
        {"forward": rng.randint(1, 9), "backward": rng.randint(1, 9)} for _ in range(9)
    ]
    data = document(pipeline_depths=[4], replicas=[1], microbatches=[8])
    data["model"]["layers"] = layers
    for link in ("within_node", "between_nodes"):
        data["cluster"][link] = {"bandwidth": 1}
    for request, chosen in configurations(data):
        builder = PipelineBuilder(request)
        quick, bounds = QuickScheduler(builder), SplitBounds(builder, chosen)
        every = {
            split: quick.arrays(chosen, split).bound
            for split in splits(9, chosen.pipeline_depth)
        }
        least = min(every.values())
        assert bounds.bound == least
        assert bounds.below(least) == []
        assert set(bounds.below(least + 1) or ()) == {
            s for s, b in every.items() if b == least
        }
        assert (
            len(bounds.below(2**60) or ())
            == len(every)
            == len(list(combinations(range(8), 3)))
        )


def test_lists_and_tables_have_an_end() -> None:
    search = {"pipeline_depths": [4], "replicas": [1], "microbatch_sizes": [1]}
    ((request, chosen),) = configurations(
        document(rank_orders=["stages_first"], **search)
    )
    builder = PipelineBuilder(request)
    assert len(SplitBounds(builder, chosen).below(2**60) or ()) == 35
    assert SplitBounds(builder, chosen, SplitEffort(most=34)).below(2**60) is None
    assert SplitBounds(builder, chosen, SplitEffort(most_nodes=20)).below(2**60) is None
    small = SplitBounds(builder, chosen, SplitEffort(most_entries=10))
    assert small.below(2**60) is None
    # 8 micro-batches x 24 on four devices, and the first device waits for nothing.
    assert small.bound * builder.layers(1).tick >= 48

"""Quick schedules: outlines say what instances lower to, walks keep every rule."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.api.kinds import lower as lower_instance
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.bounds import work_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.studies.plan.arrays import (
    PipelineArrays,
    lowered,
)
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.list_scheduling import (
    FIRST_RULE,
    QuickScheduler,
    best_schedule,
    result_of,
    start_by_rule,
)
from ppsolve.solver.studies.plan.params import PlanParams, WarmUpRule
from ppsolve.solver.studies.plan.space import enumerate_space
from ppsolve.solver.studies.plan.split import SplitUndecidedError
from tests.bruteforce import brute_force
from tests.marks import first
from tests.running import run_heuristic
from tests.studies.plan.cases import reduced_document, tiny_document

Case = tuple[
    PlanRequest, PipelineBuilder, Configuration, tuple[int, ...], PipelineArrays
]


def outlines(data: dict[str, Any]) -> list[Case]:
    """Return every configuration of a request that has a quick split."""
    request = parse_request(data)
    builder, found = PipelineBuilder(request), list[Case]()
    for chosen in enumerate_space(request).configurations:
        try:
            split = builder.split(chosen, quick=True)
        except SplitUndecidedError:
            continue
        if split is not None:
            arrays = PipelineArrays.of(builder.pipeline(chosen, split[0]))
            found.append((request, builder, chosen, split[0], arrays))
    return found


DOCUMENTS = [
    *(reduced_document(seed) for seed in range(12)),
    *(tiny_document(random.Random(seed)) for seed in range(20)),
]


@pytest.fixture(params=first(2, range(len(DOCUMENTS))))
def data(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return one request after the other."""
    return DOCUMENTS[request.param * 5 % len(DOCUMENTS)]


def test_outlines_are_what_instances_lower_to(data: dict[str, Any]) -> None:
    for _, builder, chosen, boundaries, arrays in outlines(data):
        real = lower_instance(builder.pipeline(chosen, boundaries).instance())
        quick = lowered(arrays)[1]
        factor = quick.scale.tick / real.scale.tick
        for name in ("duration", "lag"):
            exact = [int(ticks) * factor for ticks in getattr(quick, name)]
            assert exact == getattr(real, name).tolist()
        for name in (
            "before",
            "after",
            "resource_ptr",
            "resource_idx",
            "kind",
            "stage",
        ):
            assert np.array_equal(getattr(quick, name), getattr(real, name))
        assert len(quick.pools) == len(real.pools)
        for one, other in zip(quick.pools, real.pools, strict=True):
            assert (one.capacity, one.initial) == (other.capacity, other.initial)
            for event in ("acquire", "release"):
                assert amounts(one, event) == amounts(other, event)


def amounts(pool: Any, event: str) -> dict[int, Any]:
    """Return the amount of every op but those of nothing."""
    ops, index = getattr(pool, f"{event}_op"), getattr(pool, f"{event}_amount")
    pairs = zip(ops.tolist(), index.tolist(), strict=True)
    return {op: pool.amounts[place] for op, place in pairs if pool.amounts[place]}


def test_walks_keep_every_rule_of_the_instance(data: dict[str, Any]) -> None:
    for _, builder, chosen, boundaries, arrays in outlines(data):
        instance = builder.pipeline(chosen, boundaries).instance()
        real = lower_instance(instance)
        factor = lowered(arrays)[1].scale.tick / real.scale.tick
        for rule in (FIRST_RULE, *PlanParams.rules):
            found = best_schedule(arrays, (rule,))
            if found is None:
                continue
            walked = found[1]
            start = np.array(
                [int(tick) * factor for tick in walked.start], dtype=np.int64
            )
            schedule = Schedule(real, start)
            assert check_schedule(real, schedule) == []
            assert real.scale.time(schedule.makespan) == walked.problem.scale.time(
                walked.makespan
            )


def test_floors_are_true_and_no_weaker_than_the_work_bound_of_compute(
    data: dict[str, Any],
) -> None:
    for _, _, _, _, arrays in outlines(data):
        found = best_schedule(arrays, (FIRST_RULE, *PlanParams.rules))
        if found is not None:
            assert arrays.bound <= found[1].makespan
        if not arrays.tails:
            assert arrays.fast.bounds()["work"] >= work_bound(lowered(arrays)[1])


def test_a_walk_by_hand() -> None:
    data = {
        "model": {
            "microbatch_sizes": [1],
            "layers": [
                {"count": 2, "forward": 1, "backward": 2, "activation_bytes": 3}
            ],
        },
        "cluster": {
            "devices_per_node": 2,
            "within_node": {"bandwidth": 1},
            "memory": 3,
        },
        "goodput": {"init_batch_size": 2},
        "search": {"pipeline_depths": [2], "microbatches": [2]},
    }
    ((_, builder, chosen, boundaries, arrays),) = outlines(data)
    # Each device has room for one micro-batch, so the second one begins when the first has ended.
    rule = WarmUpRule(0, None)
    start = start_by_rule(arrays, rule) * arrays.pipeline.layers.tick
    assert start.tolist() == [0, 6, 1, 7, 4, 10, 2, 8]  # F0 twice, F1, B0, B1
    result = result_of(
        builder.pipeline(chosen, boundaries).instance(),
        arrays,
        start_by_rule(arrays, rule),
        "walk",
    )
    assert (result.makespan, result.best_by) == (12, "walk")
    # Each of them is on the first device for 1 + 1 + 2 + 2, where no other can be meanwhile.
    assert arrays.fast.bounds()["memory-time"] == 12 * unit_ticks(arrays)
    assert arrays.fast.bounds()["work"] == 9 * unit_ticks(arrays)


def unit_ticks(arrays: PipelineArrays) -> int:
    """Return the ticks of one unit of time."""
    return int(1 / arrays.pipeline.layers.tick)


@pytest.mark.parametrize("seed", first(8, range(60)))
def test_no_schedule_is_below_a_floor(seed: int) -> None:
    for *_, arrays in outlines(tiny_document(random.Random(seed))):
        problem = lowered(arrays)[1]
        best = brute_force(problem) if problem.num_ops <= 12 else None
        assert best is None or arrays.bound <= best


def test_a_device_without_room_for_one_micro_batch_has_no_walk() -> None:
    data = {
        "model": {
            "microbatch_sizes": [1],
            "layers": [
                {"count": 4, "forward": 1, "backward": 2, "activation_bytes": 3}
            ],
        },
        "cluster": {
            "devices_per_node": 2,
            "within_node": {"bandwidth": 1},
            "memory": 5,
        },
        "goodput": {"init_batch_size": 2},
        "search": {
            "pipeline_depths": [2],
            "microbatches": [2],
            "layer_splits": ["even"],
        },
    }
    ((_, builder, _, _, arrays),) = outlines(data)
    assert QuickScheduler(builder).by_rules(arrays, (FIRST_RULE,)) is None


@pytest.mark.parametrize("seed", first(1, [1, 0, 2]))
def test_sweeps_are_the_same_every_time_and_never_worse_than_what_is_known(
    seed: int,
) -> None:
    for _, builder, _, _, arrays in outlines(reduced_document(seed)):
        quick = QuickScheduler(builder)
        known = quick.by_rules(arrays, (FIRST_RULE,))
        if known is None:
            continue
        start = start_by_rule(arrays, FIRST_RULE)
        one, other = (quick.swept(arrays, start, 8, Clock()) for _ in (1, 2))
        assert one is not None
        assert other is not None
        assert one.makespan <= known.makespan
        assert one.start is not None
        assert np.array_equal(one.start, other.start)


def test_justified_walks_are_never_worse(data: dict[str, Any]) -> None:
    for *_, arrays in outlines(data):
        for rule in PlanParams.rules:
            plain, better = (
                best_schedule(arrays, (r,))
                for r in (rule, PlanParams().justified(rule))
            )
            if plain is not None:
                assert better is not None
                assert better[1].makespan <= plain[1].makespan


def test_a_walk_is_justified_by_hand() -> None:
    data = {
        "model": {
            "microbatch_sizes": [1],
            "layers": [{"count": 2, "forward": 1, "backward": 2}],
        },
        "cluster": {"devices_per_node": 2, "within_node": {"bandwidth": 1}},
        "goodput": {"init_batch_size": 2},
        "search": {"pipeline_depths": [2], "microbatches": [2]},
    }
    ((*_, arrays),) = outlines(data)
    # One micro-batch at a time takes 12; with the gaps filled the second device works without a
    # pause: 1 before it, 2 x 3 on it, 2 after it.
    serial = WarmUpRule(0, 0.5)
    assert (
        start_by_rule(arrays, serial).max()
        > start_by_rule(arrays, PlanParams().justified(serial)).max()
    )


NAMES = (
    "interleaved-zb",
    "zbv",
    "zb-h2",
    "zb-1p",
    "1f1b",
    "looped-bfs",
    "gpipe",
    "list-tail",
)


def test_named_schedules_are_those_of_the_first_heuristic_that_is_feasible(
    data: dict[str, Any],
) -> None:
    for _, builder, _, _, arrays in outlines(data):
        quick, (instance, problem) = QuickScheduler(builder), lowered(arrays)
        for names in (NAMES, NAMES[:3], NAMES[-2:]):
            in_turn = [
                heuristic.name for heuristic in chosen_heuristics(instance, names)
            ]
            outcomes = (run_heuristic(name, instance, problem) for name in in_turn)
            wanted = next(
                (o for o in outcomes if o.status is HeuristicStatus.FEASIBLE), None
            )
            found = quick.named(arrays, names)
            assert (found is None) == (wanted is None)
            if found is not None and wanted is not None and wanted.schedule is not None:
                assert found.method == wanted.name
                assert np.array_equal(found.start, wanted.schedule.start)

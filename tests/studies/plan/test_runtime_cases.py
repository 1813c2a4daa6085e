"""Plans for a runtime: what is said to fit no memory, or to be the best, over all that is open."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.studies.plan.request import PlanRequest, parse_request
from ppsolve.models.studies.plan.result import Rule
from ppsolve.solver.kinds.pipeline.actions import resolved
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape
from ppsolve.solver.kinds.pipeline.runtimes.families import family_of
from ppsolve.solver.studies.goodput.step import StepTime
from ppsolve.solver.studies.plan.arrays import lowered
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.candidate import Candidate
from ppsolve.solver.studies.plan.fixed_orders import (
    OrderScheduler,
    orders_of_runtime,
)
from ppsolve.solver.studies.plan.list_scheduling import QuickScheduler
from ppsolve.solver.studies.plan.order_memory import moments_of_orders
from ppsolve.solver.studies.plan.space import enumerate_space
from ppsolve.solver.studies.plan.split import SplitProblem, least_peak
from tests.marks import first
from tests.paths import ROOT
from tests.studies.plan.runtime_oracle import random_request

CASES = ROOT / "tests" / "data" / "plan_runtime"
EXPECTED = json.loads((CASES / "expected.json").read_text())
MEGATRON = family_of("megatron")


def case(name: str, **cluster: Any) -> PlanRequest:
    """Return a request of the cases with this in its cluster."""
    data = json.loads((CASES / f"{name}.plan.json").read_text())
    data["cluster"] |= cluster
    return parse_request(data)


@pytest.mark.parametrize("name", EXPECTED)
def test_no_order_of_one_split_fits_but_other_splits_do(name: str) -> None:
    plan = ppsolve.plan(case(name), runtime="megatron", time_limit=10)
    assert plan.status is Status.OPTIMAL
    assert plan.winner is not None
    assert plan.winner.step_time is not None
    assert plan.winner.step_time.high == pytest.approx(EXPECTED[name]["step_time"])
    assert plan.winner.configuration.virtual_stages == EXPECTED[name]["virtual_stages"]


@pytest.mark.parametrize(("memory", "step"), [(8e9, 1278), (9e9, 1248)])
def test_memory_is_asked_of_every_split(memory: float, step: int) -> None:
    plan = ppsolve.plan(case("tight", memory=memory), runtime="megatron", time_limit=10)
    assert plan.status is Status.OPTIMAL
    assert plan.winner is not None
    assert plan.winner.step_time is not None
    assert plan.winner.step_time.high == pytest.approx(step)


@pytest.mark.parametrize("name", first(1, ["llama70", "infeasible_said"]))
def test_a_split_that_fits_is_found_among_billions(name: str) -> None:
    """Even splits do not fit: first stages hold most micro-batches and have to be short."""
    plan = ppsolve.plan(case(name), runtime="megatron", time_limit=1)
    assert plan.status is Status.FEASIBLE
    assert ppsolve.check(plan.instance, plan.result) == []


def test_a_refusal_shows_the_least_peak_that_it_rests_on() -> None:
    """1F1B on two ranks holds two micro-batches of stage 0, one of stage 1; blocks take 1 each.

    Of 9 blocks stage 0 has a, so that devices hold 2 a and 9 - a: 6 at the least, by a = 3.
    """
    request = case("tight", memory=5e9)
    search = request.search.model_copy(update={"placements": ("linear",)})
    plan = ppsolve.plan(
        request.model_copy(update={"search": search}), runtime="deepspeed"
    )
    assert plan.status is Status.INFEASIBLE
    row = plan.table[0]
    assert row.lost_by is Rule.MEMORY
    assert row.memory is not None
    assert (row.memory.needed, row.memory.available) == (6e9, 5e9)
    assert "none of the orders that DeepSpeed runs fits, under any split" in row.reason


def test_an_even_split_is_refused_for_its_own_peak() -> None:
    """Of 11 layers, the first 6 have 5 blocks, of which the first rank holds two micro-batches."""
    request = case("tight", memory=9e9)
    fields = {"placements": ("linear",), "layer_splits": ("even",)}
    search = request.search.model_copy(update=fields)
    plan = ppsolve.plan(
        request.model_copy(update={"search": search}), runtime="deepspeed"
    )
    shortage = plan.table[0].memory
    assert shortage is not None
    assert (shortage.device, shortage.needed, shortage.available) == (0, 10e9, 9e9)


def test_what_stages_hold_under_groups_of_two() -> None:
    """Two ranks of two chunks, four micro-batches in groups of two; one group of four holds more.

    Rank 0 runs F0 F0 F2 F2 F0, where it holds three of stage 0 and two of stage 2, then B2 F0: four
    and one. Rank 1 runs F1 F1 F3: two and one, then B3 F3 B3 F1: three and none.
    """
    shape = PipelineShape(4, (0, 1, 0, 1), is_split=False)
    assert moments_of_orders(MEGATRON, shape, (0, 1, 2, 3)) == (
        ((3, 2, 2, 1), (4, 3, 1, 0)),
    )
    # Whatever the order in which they are listed.
    assert MEGATRON.orders is not None
    turned = replace(MEGATRON, orders=lambda shape: list(MEGATRON.orders(shape))[::-1])
    assert moments_of_orders(turned, shape, (0, 1, 2, 3)) == (
        ((3, 2, 2, 1), (4, 3, 1, 0)),
    )
    # Where only forwards of stage 2 and 3 take time: the fullest of rank 1 is (2, 1).
    assert moments_of_orders(MEGATRON, shape, (2, 3)) == (((3, 2, 2, 1), (4, 2, 1, 1)),)


def test_all_of_many_ranks_hold_what_the_only_order_says() -> None:
    """1F1B has a micro-batch more in flight on each earlier rank, at most all 10."""
    shape = PipelineShape(10, tuple(range(12)), False)
    in_flight = (10, 10, 10, *range(9, 0, -1))
    assert moments_of_orders(MEGATRON, shape, tuple(range(12))) == ((in_flight,),)


@pytest.mark.parametrize("seed", range(6))
def test_orders_are_timed_with_what_follows_the_last_backward(seed: int) -> None:
    data, runtime = random_request(seed)
    rng = random.Random(seed)
    data["cluster"] |= {"devices_per_node": 6, "memory": 10**6}
    data["cluster"]["gradient_buckets"] = rng.choice(["stage", "layer"])
    data["search"] |= {"replicas": [2], "batch_sizes": [12]}
    for layer in data["model"]["layers"]:
        layer |= {
            "parameter_bytes": rng.randint(0, 30),
            "optimizer": rng.choice([0, 1, 7]),
        }
    request, family = parse_request(data | {"variants": []}), family_of(runtime)
    builder = PipelineBuilder(request, family)
    scheduler = OrderScheduler(orders_of_runtime(family))
    for configuration in enumerate_space(request).configurations:
        split = builder.split(configuration)
        assert split is not None
        arrays = QuickScheduler(builder).arrays(configuration, split[0])
        problem = lowered(arrays)[1]
        schedule = scheduler.schedule(arrays)
        assert schedule is not None
        orders = family.orders(PipelineShape(6, builder.stage_to_device(configuration)))
        times = [resolved(problem, o.orders).timed(problem).makespan for o in orders]
        assert scheduler.makespan(arrays) == min(times)
        assert Fraction(schedule.makespan) == min(times) * problem.scale.tick


@pytest.mark.parametrize("seed", range(20))
def test_the_least_peak_is_that_of_all_splits(seed: int) -> None:
    rng = random.Random(seed)
    layers = rng.randint(4, 8)
    static, activation = ([rng.randint(0, 9) for _ in range(layers)] for _ in range(2))
    in_flight = tuple(tuple(rng.randint(0, 4) for _ in range(4)) for _ in range(3))
    # Large amounts are counted in a unit: the sums of the first are multiples of it, the others
    # are rounded down.
    factor, rest = rng.choice([(1, 0), (10**10, 0), (10**10, 1)])
    static, activation = (
        [a * factor + rest for a in amounts] for amounts in (static, activation)
    )
    problem = SplitProblem(
        (1,) * layers, tuple(static), tuple(activation), (0, 1, 0, 1), None, in_flight
    )
    peaks = []
    for cuts in combinations(range(1, layers), 3):
        ends = (0, *cuts, layers)
        held = [
            sum(
                static[layer] + counts[stage] * activation[layer]
                for stage in (device, device + 2)
                for layer in range(ends[stage], ends[stage + 1])
            )
            for device in (0, 1)
            for counts in in_flight
        ]
        peaks.append(max(held))
    least = least_peak(problem)[1]
    assert min(peaks) * (1 - 1e-7) <= least <= min(peaks)
    assert rest or least == min(peaks)


def test_a_split_that_fits_no_order_leaves_the_others_open() -> None:
    data, _ = random_request(0)
    configuration = enumerate_space(parse_request(data)).configurations[0]
    candidate = Candidate(
        0, configuration, 1.0, 1.0, StepTime(Fraction(1)), is_final=True
    )
    candidate.rest = Fraction(1)
    assert not candidate.is_exhausted
    candidate.rest = math.inf
    assert candidate.is_exhausted


NAMES = {"megatron": ["1f1b", "interleaved-1f1b"], "deepspeed": ["1f1b"]}
"""Heuristics that say what a runtime runs."""


def planned_three_ways(
    data: dict[str, Any], runtime: str, seconds: float
) -> list[float]:
    """Return the goodput of plans for a runtime, by its orders' names, and of any schedule."""
    data["search"].pop("schedules", None)
    plans = [ppsolve.plan(parse_request(data), runtime=runtime, time_limit=seconds)]
    for names in (NAMES[runtime], None):
        data["search"]["schedules"] = names
        plans.append(ppsolve.plan(parse_request(data), time_limit=seconds))
    return [0.0 if plan.goodput is None else plan.goodput.low for plan in plans]


@pytest.mark.parametrize("seed", first(2, [0, 2, 3, 4, 1, *range(5, 12)]))
def test_two_ways_to_one_question_agree_and_more_schedules_are_no_worse(
    seed: int,
) -> None:
    own, named, free = planned_three_ways(*random_request(seed), 5)
    assert named == pytest.approx(own, rel=1e-12)
    assert free >= own * (1 - 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_larger_plans_with_more_schedules_are_no_worse(seed: int) -> None:
    own, named, free = planned_three_ways(uneven_request(seed), "megatron", 10)
    assert named == pytest.approx(own, rel=1e-3)
    assert free >= own * (1 - 1e-12)


def uneven_request(seed: int) -> dict[str, Any]:
    """Return a request of 10 to 24 uneven blocks on four devices of two stages."""
    rng = random.Random(seed)
    data = json.loads((CASES / "uneven.plan.json").read_text())
    kinds = [
        (rng.choice([10, 12, 15]), rng.choice([20, 26, 30]))
        for _ in range(rng.choice([1, 2, 3]))
    ]
    times = [(rng.choice([1, 4]), rng.choice([1, 4]))]
    times += [kinds[n % len(kinds)] for n in range(rng.choice([10, 14, 18, 24]))]
    times.append((rng.choice([5, 12, 20]), rng.choice([10, 25, 40])))
    data["model"]["layers"] = [
        {"forward": [there], "backward": [back], "output_bytes": 0}
        | {"activation_bytes": 1, "parameter_bytes": 0}
        for there, back in times
    ]
    count = rng.choice([8, 16])
    data["goodput"] |= {"init_batch_size": count, "max_batch_size": count}
    data["search"]["batch_sizes"] = [count]
    return data


@pytest.mark.slow
def test_larger_groups_are_tried_under_every_split() -> None:
    data = json.loads((CASES / "uneven.plan.json").read_text())
    own = ppsolve.plan(parse_request(data), runtime="megatron", time_limit=4)
    data["search"]["schedules"] = ["interleaved-1f1b"]
    named = ppsolve.plan(parse_request(data), time_limit=4)
    assert own.winner is not None
    assert named.winner is not None
    assert own.winner.step_time is not None
    assert named.winner.step_time is not None
    assert own.winner.step_time.high <= min(4322, named.winner.step_time.high)

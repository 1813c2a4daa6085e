"""The sweep reaches published figures; its parts keep every rule."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.lane_order import Lanes, MemoryShare
from ppsolve.solver.heuristics.list_scheduling import generate_parallel
from ppsolve.solver.heuristics.rules import Recipe, RuleBook
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.structure.implied import ImpliedOrder, index_order
from tests.clocks import CountingClock
from tests.marks import first
from tests.paths import DATA
from tests.running import run_heuristic
from tests.strategies import tiny_instance

PUBLISHED = json.loads((DATA / "zero_bubble_published.json").read_text())["rows"]
CURVE = json.loads((DATA / "zero_bubble_memory_curve.json").read_text())["curves"][0]
V = {"placement": "vshape"}


def pipeline(
    row: dict[str, Any], capacity: float, chunks: int = 1, **fields: Any
) -> Any:
    share = row.get("memory", {}).get(
        "released_at_backward_weight_end", 0.43243243243243246
    )
    base: dict[str, Any] = {
        "num_devices": row["num_devices"],
        "num_microbatches": row["num_microbatches"],
        "times": {
            "forward": row["forward_us"] / chunks,
            "backward_input": row["backward_input_us"] / chunks,
            "backward_weight": row["backward_weight_us"] / chunks,
        },
        "p2p": {"latency": row["p2p_us"]},
        "memory": {
            "capacity": capacity,
            "activation": 1,
            "released_by_backward_weight": share,
        },
        "objective": "device_span",
    }
    return PipelineInstance.parse(base | fields)


def reached(instance: Any) -> tuple[float, float]:
    """The sweep's value and the bound, in the units of the instance."""
    problem = lower(instance)
    schedule = list_sweep(problem)
    assert check_schedule(problem, schedule.normalised()) == []
    bound = best_bound(lower_bounds(ImpliedOrder(problem))).value
    tick = problem.scale.time(1)
    return schedule.value * tick, bound * tick


@pytest.mark.parametrize("row", first(1, [0, 2, 1, 3, 7, 4, 5, 6]))
def test_published_device_spans_are_reached(row: int) -> None:
    case = PUBLISHED[row]
    span = case["measured_heuristic"]["2p/zb"]["device_span_us"]
    assert reached(pipeline(case, 2 * case["num_devices"]))[0] <= span


@pytest.mark.parametrize("index", first(0, range(1, 8)))
def test_memory_curve_is_met_and_proved(index: int) -> None:
    instance = pipeline(CURVE, CURVE["memory_limit_over_p"][index] * 16)
    value, bound = reached(instance)
    work = 48 * (
        CURVE["forward_us"] + CURVE["backward_input_us"] + CURVE["backward_weight_us"]
    )
    assert (value - work) / value <= CURVE["zb_bubble_rate"][index] + 1e-12
    assert value == bound


@pytest.mark.slow
@pytest.mark.parametrize("index", [2, 4, 6, 8])
def test_memory_curve_of_v_placements_is_beaten(index: int) -> None:
    capacity = CURVE["memory_limit_over_p"][index] * 32
    value, _ = reached(pipeline(CURVE, capacity, 2, placement="vshape"))
    work = 48 * (
        CURVE["forward_us"] + CURVE["backward_input_us"] + CURVE["backward_weight_us"]
    )
    assert (value - work) / value < CURVE["zbv_bubble_rate"][index]


def test_small_v_placement_with_tight_memory() -> None:
    row = {**PUBLISHED[2], "num_devices": 4, "num_microbatches": 8}
    instance = pipeline(row, 8, 2, placement="vshape", objective="makespan")
    zbv = run_heuristic("zbv", instance, lower(instance)).schedule
    assert zbv is not None
    value, bound = reached(instance)
    assert 681621 <= bound <= value <= 684301
    assert value <= 1.001 * zbv.value * lower(instance).scale.time(1)


@pytest.mark.parametrize(
    ("capacity", "most"), first(1, [(4, 535), (8, 400), (5, 480), (6, 440)])
)
def test_bidirectional_pipes_with_tight_memory(capacity: int, most: int) -> None:
    row = {"num_devices": 8, "num_microbatches": 16, "p2p_us": 1}
    row |= {"forward_us": 9, "backward_input_us": 8, "backward_weight_us": 5}
    instance = pipeline(row, capacity, placement="bidirectional", objective="makespan")
    assert reached(instance)[0] <= most


def test_for_device_spans_weight_gradients_wait_only_where_all_that_are_left_fit() -> (
    None
):
    row = {"num_devices": 4, "num_microbatches": 32, "p2p_us": 4}
    row |= {"forward_us": 104, "backward_input_us": 102, "backward_weight_us": 77}
    problem = lower(pipeline(row, 8))
    book = RuleBook(problem)
    rule, edges = book.rule(next(book.recipes()))
    schedule = generate_parallel(problem, rule, index_order(problem), edges)
    last = np.flatnonzero(problem.device == 3)
    order = problem.op_names(last[np.argsort(schedule.start[last])])
    # 8 units hold the weight gradients of 18 micro-batches, 0.4324 each.
    assert "".join(name[0] for name in order).startswith("FIW" * 14 + "FI" * 4)
    assert (
        next(RuleBook(lower(pipeline(row, 8, objective="makespan"))).recipes()).late
        == 0
    )


def with_burst(book: RuleBook) -> Recipe:
    return next(recipe for recipe in book.recipes() if recipe.burst is not None)


def test_a_burst_lets_memory_fill_with_the_last_forwards() -> None:
    """Before the last 8 micro-batches a stage holds a weight gradient or two, and few forwards."""
    problem = lower(
        pipeline(CURVE | {"num_devices": 4, "num_microbatches": 24}, 10, **V)
    )
    book = RuleBook(problem)
    recipe = with_burst(book)
    assert recipe.burst is not None
    assert recipe.limits is not None
    steady = np.maximum(recipe.limits // 2, 1)
    recipe = replace(
        recipe, burst=replace(recipe.burst, steady=steady, forwards=8, kept=1, free=8)
    )
    rule, edges = book.rule(recipe)
    start = generate_parallel(problem, rule, index_order(problem), edges).start
    end = start + problem.duration
    for lane, limit, few in zip(
        book.lanes.each, recipe.limits.tolist(), steady.tolist(), strict=True
    ):
        between = np.arange(limit, 16)
        assert (
            start[lane.acquire[between]] >= end[lane.first_release[between - few]]
        ).all()
        assert (start[lane.first_release[1:16]] >= end[lane.last_release[:15]]).all()
    inner = book.lanes.each[4]
    assert start[inner.acquire[23]] < end[inner.first_release[23 - steady[4]]]


@pytest.mark.parametrize(
    "other",
    [
        {"objective": "makespan"},
        {"placement": "linear"},
        {
            "times": {"forward": 2, "backward": 3},
            "memory": {"capacity": 10, "activation": 1},
        },
    ],
)
def test_no_bursts_where_spans_do_not_hang_on_an_inner_device(
    other: dict[str, Any],
) -> None:
    problem = lower(
        pipeline(CURVE | {"num_devices": 4, "num_microbatches": 8}, 10, **(V | other))
    )
    recipes = islice(RuleBook(problem).recipes(), 60)
    assert all(recipe.burst is None for recipe in recipes)


def test_same_schedule_every_time() -> None:
    problem = lower(tiny_instance(3))
    assert list_sweep(problem).start.tolist() == list_sweep(problem).start.tolist()


def test_lanes_share_memory_by_lifetime() -> None:
    row = {"num_devices": 4, "num_microbatches": 8, "p2p_us": 0}
    row |= {"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1}
    problem = lower(pipeline(row, 4))
    lanes = Lanes(problem)
    assert [lane.lifetime for lane in lanes.each] == [8, 6, 4, 2]
    limits = lanes.limits(MemoryShare())
    assert limits.tolist() == [4, 3, 2, 1]
    before, after, lag = lanes.edges_within(limits, wait_for_last=False)
    # Stage s holds 4 - s micro-batches, so that its forward 4 - s waits for backward 0.
    names = [
        (problem.op_name(b), problem.op_name(a))
        for b, a in zip(before, after, strict=True)
    ]
    assert [pair for pair in names if pair[0].endswith(".0")] == [
        (f"I{stage}.0", f"F{stage}.{4 - stage}") for stage in range(4)
    ]
    assert not lag.any()
    last, _, _ = lanes.edges_within(limits, wait_for_last=True)
    assert {problem.op_name(int(op))[0] for op in last} == {"W"}


@pytest.mark.parametrize("seed", first(24, range(60)))
def test_justification_keeps_every_rule_and_is_never_worse(seed: int) -> None:
    instance = tiny_instance(seed)
    problem = lower(instance)
    schedule = run_heuristic("list-work", instance, problem).schedule
    if schedule is None or problem.is_anchored:
        assert problem.pools or problem.is_anchored
        return
    better = Justifier(problem).improve(schedule, 3)
    assert better.value <= schedule.value
    assert check_schedule(problem, better.normalised()) == []


def test_justification_moves_work_into_gaps() -> None:
    row = {"num_devices": 2, "num_microbatches": 2, "p2p_us": 0}
    row |= {"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1}
    problem = lower(pipeline(row, 2, objective="makespan"))
    grids = [problem.grid(kind)[stage] for stage in (0, 1) for kind in "FIW"]
    order = np.concatenate([grids[i] for i in (0, 3, 4, 1, 5, 2)])
    slow = np.zeros(problem.num_ops, dtype=np.int64)
    slow[order] = np.arange(problem.num_ops)
    schedule = type(list_sweep(problem))(problem, slow * int(problem.duration.max()))
    assert check_schedule(problem, schedule) == []
    justified = Justifier(problem).improve(schedule, 3)
    assert justified.value < schedule.value
    assert justified.value <= 8 * int(problem.duration.max())


@pytest.mark.parametrize("questions", [0, 1, 5, 9])
def test_the_sweep_returns_its_best_when_its_clock_is_over(questions: int) -> None:
    problem = lower(tiny_instance(3))
    stopped = list_sweep(problem, Effort(CountingClock(questions), uses_all=True))
    assert check_schedule(problem, stopped.normalised()) == []
    assert stopped.value >= list_sweep(problem).value
    assert (
        list_sweep(problem, Effort(CountingClock(10_000), uses_all=True)).value
        == list_sweep(problem).value
    )


def test_limits_that_precedences_contradict_are_passed_over() -> None:
    instance = KfacInstance.parse(
        {
            "pipeline": {
                "num_devices": 1,
                "num_microbatches": 2,
                "placement": "vshape",
                "times": {"forward": 3, "backward_input": 1, "backward_weight": 5},
                "memory": {
                    "activation": [3, [2, 1]],
                    "forward_peak": [5, [2, 1]],
                    "capacity": 8,
                },
                "allreduce": [2, 3],
            },
            "modules": [
                {
                    **{"stage": 0, "name": "m0", "curvature_a": 1, "curvature_b": 0.5},
                    **{"inverse_a": 3, "inverse_b": 0, "sync_a": 0, "sync_b": 1},
                    **{"precondition": 2, "error_bytes": 0.5},
                }
            ],
            "max_age": 0,
        }
    )
    outcome = run_heuristic("list-sweep", instance, lower(instance))
    assert outcome.schedule is not None
    assert check_schedule(outcome.schedule.problem, outcome.schedule) == []

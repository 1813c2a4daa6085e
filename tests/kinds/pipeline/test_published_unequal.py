"""Published schedules of unequal micro-batches, made anew: time, memory and order as recorded."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.heuristic import Request
from ppsolve.solver.kinds.pipeline.event_driven.route import RouteRun, route_of
from ppsolve.solver.kinds.pipeline.event_driven.schedulers import (
    cyclic,
    fifo,
    interleaved_cyclic_1f1b,
    relaxed_1f1b,
    strict_1f1b,
    wait_free_cyclic,
)
from ppsolve.solver.kinds.pipeline.microbatch_orders import PATTERNS, work_of
from ppsolve.solver.run.entries import figures
from tests.marks import first
from tests.running import run_heuristic
from tests.unequal_cases import NAMES, pipeline_of, read_case, recorded_of

RULES = {
    "1F1B": strict_1f1b,
    "relaxed-1F1B": relaxed_1f1b,
    "fifo": fifo,
    "cyclic": cyclic,
    "wait-free-cyclic": wait_free_cyclic,
    "interleaved-1F1B": strict_1f1b,
    "interleaved-cyclic-1F1B": interleaved_cyclic_1f1b,
}
BY_NAME = {heuristic.name: heuristic for heuristic in PATTERNS}
NEVER_ENDS = ("relaxed-1F1B", "interleaved-relaxed-1F1B")
"""Schedulers that stop half-way where there are more micro-batches than devices."""


def computed(run: RouteRun, given: list[int]) -> list[list[tuple[str, int, int]]]:
    """Return kind, stage and micro-batch of what each device computes."""
    route, shape = run.route, run.route.shape
    return [
        [
            ("BF"[shape.is_forward(v)], shape.stage(v), given[k])
            for v, k in run.served[route.compute_queue(device)]
        ]
        for device in range(route.num_devices)
    ]


@pytest.mark.parametrize("name", first(10, NAMES))
def test_simulators_do_what_was_published(name: str) -> None:
    """218 schedules in all: makespan, peak memory and the order of every device."""
    case = read_case(name)
    instance = pipeline_of(case, memory=True)
    problem = lower_pipeline(instance)
    whole = route_of(instance, problem)
    for record in recorded_of(case):
        run = RULES[record.scheduler](whole.permuted(np.array(record.given)))
        peak = case["memory"]["static_per_device"] + int(run.levels().max())
        found = problem.scale.time(run.makespan), peak, computed(run, record.given)
        assert found == (record.makespan, record.peak_memory, record.orders), record[:2]


@pytest.mark.parametrize("name", first(10, NAMES))
def test_heuristics_schedule_what_was_published(name: str) -> None:
    """The schedule of the whole problem takes the same time and memory, and breaks no rule."""
    case = read_case(name)
    instance = pipeline_of(case, memory=True)
    problem = lower_pipeline(instance)
    for record in recorded_of(case):
        if record.scheduler == "cyclic" and any(case["transfer"]):
            continue
        pattern = BY_NAME[record.scheduler.lower()]
        assert pattern.obstacle(instance) is None
        given = np.array(record.given)
        schedule = pattern.propose(Request(instance, problem), given).schedule
        assert check_schedule(problem, schedule) == []
        shown = figures(schedule)
        assert Fraction(str(shown["makespan"])) == Fraction(str(record.makespan)), (
            record[:2]
        )
        assert max(shown["peak_memory"].values()) == record.peak_memory


@pytest.mark.parametrize("name", [name for name in NAMES if "_memory" in name])
def test_rules_that_know_no_memory_are_infeasible_for_it(name: str) -> None:
    instance = pipeline_of(read_case(name))
    problem = lower_pipeline(instance)
    for rule in ("fifo", "cyclic"):
        outcome = run_heuristic(rule, instance, problem)
        assert outcome.status is HeuristicStatus.INFEASIBLE
        assert (outcome.reason or "").startswith("memory:")


def test_all_that_was_published_is_covered() -> None:
    """What failed when it was published has no rule here, or one that does not end."""
    cases = [json.dumps(read_case(name)["schedulers"]) for name in NAMES]
    schedulers = {scheduler for case in cases for scheduler in json.loads(case)}
    assert schedulers - set(RULES) <= set(NEVER_ENDS)
    assert sum(1 for name in NAMES for _ in recorded_of(read_case(name))) == 218


@pytest.mark.parametrize(
    "name", ["p4_m8_sigma04_seed48", "p8_m16_sigma04_seed48_transfer"]
)
def test_relaxed_stops_where_it_did(name: str) -> None:
    case = read_case(name)
    assert case["schedulers"]["relaxed-1F1B"]["given_order"]["status"] == "failed"
    instance = pipeline_of(case)
    run = relaxed_1f1b(route_of(instance, lower_pipeline(instance)))
    assert not run.is_complete


@pytest.mark.parametrize(
    "name",
    first(1, (name for name in NAMES if "m8" in name or "p4_m16_sigma04" in name)),
)
def test_clusters_beat_the_given_order(name: str) -> None:
    """The planner tries the given order too: it is never worse under any of its rules."""
    instance = pipeline_of(read_case(name))
    problem = lower_pipeline(instance)
    outcome = run_heuristic("clusters", instance, problem)
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule is not None
    assert outcome.pattern in BY_NAME
    for rule in ("1f1b", "interleaved-1f1b", "fifo", "wait-free-cyclic"):
        alone = run_heuristic(rule, instance, problem)
        if alone.status is HeuristicStatus.FEASIBLE and alone.schedule is not None:
            assert outcome.schedule.makespan <= alone.schedule.makespan


@pytest.mark.parametrize(("rule", "sign"), [("ascending", 1), ("descending", -1)])
def test_orders_by_size_run_as_their_pattern_says(rule: str, sign: int) -> None:
    instance = pipeline_of(read_case("p4_m16_sigma04_seed48"))
    problem = lower_pipeline(instance)
    outcome = run_heuristic(rule, instance, problem)
    assert outcome.schedule is not None
    assert outcome.pattern is not None
    order = np.argsort(sign * work_of(problem), kind="stable")
    request = Request(instance, problem)
    own = BY_NAME[outcome.pattern].propose(request, order).schedule
    assert outcome.schedule.makespan == own.makespan
    others = ("gpipe", "1f1b", "fifo", "wait-free-cyclic")
    for other in others:
        found = BY_NAME[other].propose(request, order).schedule
        assert outcome.schedule.makespan <= found.makespan

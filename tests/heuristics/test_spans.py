from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.spans import compact_spans, right_shift
from tests.marks import first
from tests.running import run_heuristic
from tests.strategies import tiny_instance


def pipeline(devices: int, microbatches: int, **fields: Any) -> PipelineInstance:
    base = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {"forward": 4, "backward_input": 4, "backward_weight": 2},
        "p2p": {"latency": 1},
        "objective": "device_span",
    }
    return PipelineInstance.parse(base | fields)


def busy_orders(schedule: Schedule) -> list[list[int]]:
    return [order.tolist() for order in schedule.resource_orders()]


def two_devices(**fields: Any) -> Problem:
    return lower(
        parse_instance(
            {
                "kind": "graph",
                "resources": ["r", "s"],
                "ops": [
                    {"id": "early", "duration": 1, "resources": ["r"], **fields},
                    {"id": "slow", "duration": 9, "resources": ["s"]},
                    {"id": "late", "duration": 1, "resources": ["r"]},
                ],
                "precedences": [{"before": "slow", "after": "late"}],
                "objective": "device_span",
            }
        )
    )


def schedule_of(problem: Problem, *starts: int) -> Schedule:
    return Schedule(problem, problem.duration * 0 + list(starts))


def test_first_op_moves_next_to_the_others() -> None:
    problem = two_devices()
    spread = schedule_of(problem, 0, 0, 9)
    assert spread.spans.tolist() == [10, 9]
    compact = compact_spans(spread)
    assert compact.device_span == 9
    assert right_shift(spread).start.tolist() == [8, 0, 9]


def test_pinned_ops_keep_the_schedule_as_it_is() -> None:
    problem = two_devices(start=0)
    spread = schedule_of(problem, 0, 0, 9)
    assert compact_spans(spread) is spread


def test_memory_shared_over_resources_keeps_the_schedule_as_it_is() -> None:
    ops = [
        {"id": "a", "duration": 1, "resources": ["r"], "acquire": {"m": 1}},
        {"id": "b", "duration": 1, "resources": ["s"], "release_at_end": {"m": 1}},
    ]
    data = {"kind": "graph", "resources": ["r", "s"], "ops": ops}
    problem = lower(parse_instance({**data, "pools": [{"name": "m", "capacity": 1}]}))
    schedule = schedule_of(problem, 0, 3)
    assert compact_spans(schedule) is schedule


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2", "gpipe"])
@pytest.mark.parametrize(("devices", "microbatches"), [(2, 3), (4, 8), (5, 6)])
def test_orders_and_memory_are_kept(name: str, devices: int, microbatches: int) -> None:
    memory = {
        "capacity": 2 * devices,
        "activation": 1,
        "released_by_backward_weight": 0.4,
    }
    instance = pipeline(devices, microbatches, memory=memory)
    problem = lower(instance)
    schedule = run_heuristic(name, instance, problem).schedule
    assert schedule is not None
    compact = compact_spans(schedule)
    assert compact.device_span <= schedule.device_span
    assert busy_orders(compact) == busy_orders(schedule)
    assert len(check_schedule(problem, compact)) <= len(
        check_schedule(problem, schedule)
    )


def test_smallest_span_of_given_orders_by_exhaustion() -> None:
    instance = pipeline(2, 2, times={"forward": [1, 3], "backward": [2, 1]})
    problem = lower(instance)
    schedule = run_heuristic("1f1b", instance, problem).schedule
    assert schedule is not None
    compact = compact_spans(schedule)
    # Device 1 works 8 ticks; device 0 has to wait for F1.0, then B1.0, then B1.1 behind its F0.1.
    assert compact.start.tolist().count(0) >= 1
    assert compact.device_span == 13
    assert check_schedule(problem, compact) == []


@pytest.mark.parametrize("seed", first(48, range(120)))
def test_never_worse_on_tiny_problems(seed: int) -> None:
    instance = tiny_instance(seed)
    problem = lower(instance)
    schedule = run_heuristic("list-work", instance, problem).schedule
    if schedule is None or check_schedule(problem, schedule):
        assert problem.pools or (problem.pinned >= 0).any()
        return
    compact = compact_spans(schedule)
    assert compact.device_span <= schedule.device_span
    assert check_schedule(problem, compact) == []
    assert busy_orders(compact) == busy_orders(schedule)

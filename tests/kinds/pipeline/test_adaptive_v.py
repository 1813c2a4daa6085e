"""The search over building blocks: what the published program finds within a limit of chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.api.registry import find_heuristic
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, HeuristicOutcome, Request
from ppsolve.solver.heuristics.params import AdaptiveVParams, HeuristicParams
from ppsolve.solver.kinds.pipeline.actions import schedule_actions
from ppsolve.solver.kinds.pipeline.adaptive_v import adaptive_orders
from tests.marks import first
from tests.paths import DATA
from tests.running import run_heuristic

CASES = json.loads((DATA / "controllable_memory.json").read_text())["adaptive"]
UNIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}
NAME = "v-adaptive"


def folded(devices: int, microbatches: int, **fields: Any) -> PipelineInstance:
    base = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "placement": "vshape",
        "times": UNIT,
    }
    return PipelineInstance.parse(base | fields)


def whole_chunks(capacity: float) -> dict[str, Any]:
    return {"capacity": capacity, "activation": 1, "released_by_backward_weight": 1}


def run(instance: PipelineInstance, name: str = NAME) -> HeuristicOutcome:
    return run_heuristic(name, instance, lower(instance))


def value_of(outcome: HeuristicOutcome) -> int:
    assert outcome.schedule is not None
    return outcome.schedule.value


@pytest.mark.parametrize(
    "case",
    first(4, CASES),
    ids=lambda c: f"{c['devices']}x{c['microbatches']}-{c['limit']}",
)
def test_published_spans_and_orders(case: dict[str, Any]) -> None:
    times = {
        "forward": case["F"],
        "backward_input": case["I"],
        "backward_weight": case["W"],
    }
    instance = folded(
        case["devices"],
        case["microbatches"],
        times=times,
        p2p={"latency": case["comm"]},
        memory=whole_chunks(case["limit"]),
        objective="device_span",
    )
    outcome = run(instance)
    assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason
    assert value_of(outcome) == case["span"]
    if case["orders"] is not None:
        assert outcome.orders == [order.split() for order in case["orders"]]


@pytest.mark.parametrize("devices", first(2, [2, 4, 3]))
@pytest.mark.parametrize("microbatches", first(2, [1, 4, 2, 9, 20]))
def test_all_blocks_run_within_the_limit(devices: int, microbatches: int) -> None:
    for limit in {devices + 1, 2 * devices}:
        memory = whole_chunks(limit)
        instance = folded(devices, microbatches, memory=memory)
        problem = lower(instance)
        for orders in adaptive_orders(devices, microbatches, limit, 200):
            assert check_schedule(problem, schedule_actions(problem, orders)) == []


@pytest.mark.parametrize("limit", first(2, [4, 6, 5, 7, 8]))
def test_no_worse_than_the_fixed_blocks_where_they_fit(limit: int) -> None:
    instance = folded(4, 10, memory=whole_chunks(limit), objective="device_span")
    best = run(instance)
    for name in ("v-half", "v-min"):
        fixed = run(instance, name)
        if fixed.status is HeuristicStatus.FEASIBLE:
            assert value_of(best) <= value_of(fixed)


def test_too_little_memory_is_said() -> None:
    outcome = run(folded(4, 10, memory=whole_chunks(3)))
    assert outcome.status is HeuristicStatus.FAILED
    assert outcome.reason == "no building block that was tried holds 3 chunks or fewer"


def within(effort: int) -> int:
    instance = folded(4, 10, memory=whole_chunks(6))
    params = HeuristicParams(adaptive_v=AdaptiveVParams(effort))
    request = Request(instance, lower(instance), effort=Effort(params=params))
    value: int = find_heuristic(NAME).propose(request).schedule.value
    return value


def test_effort_is_ops_of_the_blocks_tried() -> None:
    """A block of 4 x 10 has 240 ops; one is tried in any case."""
    assert [within(effort) for effort in (1, 240, 479)] == [71, 71, 71]
    assert within(480) == 66
    assert within(10**9) == 65


def test_a_stopped_clock_ends_it_after_the_first_that_fits() -> None:
    instance = folded(4, 10, memory=whole_chunks(6))
    clock = Clock()
    clock.stop()
    request = Request(instance, lower(instance), effort=Effort(clock))
    assert find_heuristic(NAME).propose(request).schedule.value == 71


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"placement": "linear"}, "needs a V placement: 2 stages per device"),
        ({"placement": "bidirectional"}, "needs one pipe (not bidirectional)"),
        ({"times": {"forward": 1, "backward": 2}}, "needs split backwards"),
        ({"num_devices": 1}, "needs 2 devices or more"),
        ({"slices": 2}, "needs no slices"),
    ],
)
def test_what_it_needs_is_said(fields: dict[str, Any], reason: str) -> None:
    outcome = run(folded(4, 8, **fields))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason is not None
    assert outcome.reason.startswith(reason)


def test_without_memory_all_chunks_fit() -> None:
    outcome = run(folded(4, 8))
    assert outcome.schedule is not None
    assert check_schedule(outcome.schedule.problem, outcome.schedule) == []

"""Stretched schedules keep every rule, and the idle time of the schedule that was stretched."""

from __future__ import annotations

from typing import Any

import pytest

from ppsolve.models.documents.errors import HeuristicFailedError, NotApplicableError
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.periodic import steady_schedule, stretched
from ppsolve.solver.exact.periodic.steady_state import rows_of
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.exact.periodic.cases import pipeline, short_schedule

CASES: list[tuple[int, int, int, dict[str, Any]]] = [
    (2, 4, 9, {}),
    (3, 6, 14, {"capacity": 3}),
    (4, 10, 20, {"capacity": 6, "p2p": {"latency": 1}}),
    (3, 8, 20, {"placement": "vshape", "capacity": 6}),
    (4, 12, 30, {"placement": "vshape", "capacity": 9, "p2p": {"latency": 1}}),
    (2, 8, 16, {"placement": "interleaved", "capacity": 6}),
    (3, 9, 18, {"placement": "vshape", "capacity": 7, "objective": "device_span"}),
]


@pytest.mark.parametrize(("devices", "count", "microbatches", "fields"), CASES)
def test_stretched_schedules_keep_every_rule(
    devices: int, count: int, microbatches: int, fields: dict[str, Any]
) -> None:
    problem = pipeline(devices, microbatches, **fields)
    rows = rows_of(problem)
    short = short_schedule(rows, count)
    found = stretched(rows, short)
    assert found is not None
    assert check_schedule(problem, found) == []
    assert found.value >= best_bound(lower_bounds(ImpliedOrder(problem))).value


@pytest.mark.parametrize("microbatches", [24, 25, 100])
def test_idle_time_does_not_grow_with_micro_batches(microbatches: int) -> None:
    rows = rows_of(pipeline(3, microbatches, capacity=3))
    short = short_schedule(rows, 12)
    found = stretched(rows, short)
    assert found is not None
    assert found.makespan - short.makespan == 9 * (microbatches - 12)


@pytest.mark.parametrize(("devices", "microbatches"), [(4, 400), (8, 48)])
def test_uniform_pipelines_stay_optimal(devices: int, microbatches: int) -> None:
    # 3 m + p - 1 with unit times and room for p: of 3 p micro-batches, then many, or the fewest.
    unit = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    problem = pipeline(devices, microbatches, times=unit, capacity=devices)
    found = steady_schedule(problem, Effort())
    assert check_schedule(problem, found) == []
    assert found.makespan == 3 * microbatches + devices - 1


def test_the_same_problem_gets_the_same_schedule() -> None:
    problem = pipeline(4, 48, placement="vshape", capacity=9)
    first, second = (steady_schedule(problem, Effort()) for _ in range(2))
    assert check_schedule(problem, first) == []
    assert first.start.tolist() == second.start.tolist()


def test_few_ops_few_micro_batches_and_uneven_devices_are_left_to_others() -> None:
    with pytest.raises(NotApplicableError, match="needs at least 1,000 ops"):
        steady_schedule(pipeline(4, 12), Effort())
    with pytest.raises(NotApplicableError, match="needs at least 120 micro-batches"):
        steady_schedule(pipeline(20, 60), Effort())
    times = {"forward": [3, 3, 9], "backward_input": 4, "backward_weight": 2}
    with pytest.raises(NotApplicableError, match="about as much work"):
        steady_schedule(pipeline(3, 200, times=times), Effort())


def test_a_pipeline_with_room_for_one_has_no_cycle_without_idle_time() -> None:
    with pytest.raises(HeuristicFailedError, match="found no cut with a cycle"):
        steady_schedule(pipeline(3, 120, capacity=1), Effort())

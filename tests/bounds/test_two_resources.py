"""The bound by two resources never exceeds an optimum, and says what tails and heads cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import optimize
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.flow import Flow, Paths, flow_of, rows_of
from ppsolve.solver.bounds.flow.states import solve_states
from ppsolve.solver.bounds.registry import flow_bounds
from ppsolve.solver.bounds.two_resources import end_resources, reduced_to, two_resources
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.task import PipelineTask, raise_flow_bounds
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.step import Turn
from tests.bounds.flow.drawn import drawn
from tests.clocks import CountingClock
from tests.marks import first
from tests.outside.plain_model import plain_optimum
from tests.unequal_cases import pipeline_of, read_case

FAR = 10**6


def random_pipeline(seed: int) -> Flow:
    """Return 2 to 4 stages and 2 to 4 micro-batches of any durations, with little memory."""
    rng = np.random.default_rng(seed)
    stages, count = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    times = {
        kind: rng.integers(1, 6, (stages, count)).tolist()
        for kind in ("forward", "backward")
    }
    activation = rng.integers(1, 4, (stages, count))
    room = activation.max(axis=1) + rng.integers(0, 4, stages)
    found = flow_of(
        lower(
            PipelineInstance(
                num_devices=stages,
                num_microbatches=count,
                times=times,
                p2p={"latency": int(rng.integers(0, 3))},
                memory={"activation": activation.tolist(), "capacity": room.tolist()},
            )
        )
    )
    assert found is not None
    return found


def bound_of(flow: Flow, upper: int = FAR, **fields: Any) -> int:
    return two_resources(Paths(flow), upper, **{"max_placed": 2_000_000} | fields)


def optimum(flow: Flow) -> int:
    answer = solve_states(flow, FAR)
    assert answer is not None
    assert answer.proved
    assert answer.value is not None
    return answer.value


@pytest.mark.parametrize("seed", first(20, range(80)))
def test_it_is_never_above_the_optimum(seed):
    flow = random_pipeline(seed)
    assert 0 < bound_of(flow) <= optimum(flow)


@pytest.mark.parametrize("seed", first(30, range(120)))
def test_nor_with_other_placements_splits_transfers_and_pools(seed):
    flow = drawn(seed)
    assert bound_of(flow) <= optimum(flow)


@pytest.mark.parametrize("seed", range(20))
def test_cut_short_it_is_lower_but_a_bound(seed):
    flow = random_pipeline(seed)
    assert 0 < bound_of(flow, max_placed=1) <= bound_of(flow)


@pytest.mark.parametrize("seed", range(20))
def test_of_two_stages_it_is_the_optimum(seed):
    rng = np.random.default_rng(seed)
    times = {
        kind: rng.integers(1, 9, (2, 4)).tolist() for kind in ("forward", "backward")
    }
    data = {
        "num_devices": 2,
        "num_microbatches": 4,
        "memory": {"activation": 1, "capacity": [2, 1]},
    }
    flow = flow_of(lower(PipelineInstance(**data, times=times)))
    assert flow is not None
    assert bound_of(flow) == optimum(flow)


def test_a_known_makespan_that_nothing_beats_is_the_bound():
    flow = random_pipeline(0)
    whole = bound_of(flow)
    assert bound_of(flow, whole) == whole


TAIL = PipelineInstance(
    num_devices=2,
    num_microbatches=2,
    times={"forward": [[2, 1], 1], "backward": 1},
    allreduce=[0, 5],
)
"""Stage 1 begins at 1, works for 4, and its all-reduce takes 5: 10. All ops take 9 in turn."""


def test_a_known_bound_above_all_schedules_of_the_pair_proves_no_more():
    flow = flow_of(lower(TAIL))
    assert flow is not None
    for upper in (10, 11, 2**62):
        assert bound_of(flow, upper, lower=10) == 10
    assert bound_of(flow, 11) <= 10


@pytest.mark.parametrize("names", [["looped-bfs"], []])
def test_a_run_does_not_call_the_schedule_that_it_has_optimal_for_that(names):
    # Micro-batch 0 first, as looped-bfs has it, takes one more.
    result = optimize(TAIL, heuristics=names, workers=1)
    assert (result.status, result.makespan) == ("OPTIMAL", 10)


def test_nor_where_an_optimizer_follows_a_middle_stage_and_ops_take_no_time():
    instance = {
        "num_devices": 4,
        "num_microbatches": 2,
        "times": {
            "forward": [[4, 1], [8, 1], [0, 4], [1, 4]],
            "backward": [[1, 1], [0, 0], [10, 2], [1, 6]],
        },
        "optimizer": [0, 19, 0, 0],
        "memory": {"capacity": 1, "activation": [[0, 0], [0, 0], [0.5, 0], [1, 1]]},
    }
    result = optimize(PipelineInstance(**instance), workers=1)
    assert (result.status, result.makespan) == ("OPTIMAL", 46)
    assert plain_optimum(instance) == 46


def test_the_way_through_other_resources_is_a_delay():
    times = {"forward": [[1, 2], [3, 5], [1, 1]], "backward": [[1, 1], [4, 9], [1, 1]]}
    data = {"num_devices": 3, "num_microbatches": 2, "times": times}
    flow = flow_of(lower(PipelineInstance(**data)))
    assert flow is not None
    paths = Paths(flow)
    assert end_resources(paths) == (0, 2)
    reduced = reduced_to(paths, (0, 2))
    assert reduced is not None
    # Forward 0, forward 2, backward 2, backward 0: 3 or 5 ticks, none, 4 or 9 ticks.
    assert reduced.flow.lag.tolist() == [3, 0, 4]
    assert reduced.delay.tolist() == [[0, 0, 0, 0], [2, 0, 5, 0]]


def test_few_residents_of_unequal_length_leave_devices_idle():
    flow = flow_of(lower(pipeline_of(read_case("p4_m16_sigma04_seed48_memory"))))
    assert flow is not None
    first = rows_of(flow, range(5))
    # CP-SAT proves that the five take 411,328 on all devices; every other bound leaves 2.7 %.
    assert bound_of(first) == 411_328
    assert flow_bounds(first)[0].value == 400_384


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_run_raises_its_bound_by_it(is_compiled, monkeypatch):
    task = PIPELINE.task(pipeline_of(read_case("p4_m8_sigma04_seed48")))
    assert isinstance(task, PipelineTask)
    monkeypatch.setitem(compilation._state, "compiled", is_compiled)
    monkeypatch.setattr("ppsolve.solver.kinds.pipeline.task.expect", lambda _: None)
    task.find_bounds()
    raise_flow_bounds(Turn(task, Options(time_limit=600), Clock(600)))
    # The best that is known of it, 491,296, is the least that its first and last device allow.
    best = task.board.bound
    assert (best.name, best.value) == ("two-resources", 491_296)


def test_without_time_nothing_is_raised():
    flow = random_pipeline(0)
    assert bound_of(flow, lower=3, clock=CountingClock(0)) == 3

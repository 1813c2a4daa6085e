"""The search through states proves optima, and says what it has not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsolve.models.core.problem import FREE
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from ppsolve.solver.bounds.flow.states import StatesParams, solve_states
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from tests.bounds.flow.drawn import drawn, problem_of
from tests.bruteforce import brute_force
from tests.clocks import CountingClock
from tests.marks import first

FAR = 10**6


def pipeline(
    forward: list[list[int]], backward: list[list[int]], **fields: object
) -> Flow:
    """Return a flow; durations by stage and micro-batch."""
    times = {"forward": forward, "backward": backward}
    size = {"num_devices": len(forward), "num_microbatches": len(forward[0])}
    flow = flow_of(lower(PipelineInstance(**size, times=times, **fields)))
    assert flow is not None
    return flow


@pytest.mark.parametrize("seed", first(24, range(60)))
def test_it_finds_and_proves_what_exhaustive_search_finds(seed):
    flow = drawn(seed)
    problem = problem_of(flow)
    if problem.num_ops > 14:
        pytest.skip("too large for exhaustive search")
    best, answer = brute_force(problem), solve_states(flow, FAR)
    assert best is not None
    assert answer is not None
    assert answer.starts is not None
    assert (answer.value, answer.bound, answer.proved) == (best, best, True)
    schedule = Schedule(problem, answer.starts.ravel())
    assert not check_schedule(problem, schedule)
    assert schedule.value == best


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("width", [1, 2, 5])
def test_states_left_out_bound_what_was_not_seen(seed, width):
    flow = drawn(seed)
    best, answer = (
        solve_states(flow, FAR),
        solve_states(flow, FAR, params=StatesParams(max_states=width)),
    )
    assert best is not None
    assert answer is not None
    assert best.value is not None
    assert answer.bound <= best.value
    assert answer.value is None or answer.value >= best.value
    assert not answer.proved or answer.value == best.value


def test_the_order_of_microbatches_is_free():
    # Johnson's rule on two machines: 1 first (forward 1, then 9), 0 last: 1 + 9 + 9 + 1.
    flow = pipeline([[9, 1], [1, 1]], [[1, 1], [9, 9]])
    answer = solve_states(flow, FAR)
    assert answer is not None
    assert answer.value == 1 + 1 + 9 + 1 + 9 + 1


def test_an_optimum_that_is_known_is_proved_without_a_schedule():
    flow = drawn(3)
    first = solve_states(flow, FAR)
    assert first is not None
    assert first.value is not None
    again = solve_states(flow, first.value)
    assert again is not None
    assert (again.value, again.starts, again.bound, again.proved) == (
        None,
        None,
        first.value,
        True,
    )


def test_a_schedule_that_meets_a_known_bound_ends_the_search():
    flow = drawn(3)
    known = solve_states(flow, FAR)
    assert known is not None
    assert known.value is not None
    again = solve_states(
        flow, FAR, lower=known.value, params=StatesParams(max_states=16)
    )
    assert again is not None
    assert (again.value, again.bound, again.proved) == (known.value, known.value, True)
    assert again.placed <= known.placed


def test_a_known_bound_beyond_all_ops_in_turn_ends_the_search_and_stays_as_it_is():
    flow = drawn(3)
    everything = int(flow.duration.sum() + flow.lag.sum() * flow.num_microbatches)
    answer = solve_states(flow, FAR, lower=everything + 1)
    assert answer is not None
    assert (answer.value, answer.bound, answer.proved) == (None, everything + 1, False)


def test_no_room_for_any_micro_batch_leaves_nothing():
    flow = pipeline([[1, 2]], [[1, 2]], memory={"capacity": 1, "activation": 1})
    answer = solve_states(replace(flow, room=flow.room * 0), 50)
    assert answer is not None
    assert (answer.value, answer.bound) == (None, 50)


def test_microbatches_that_are_alike_are_not_permuted():
    alike = pipeline([[2] * 5, [3] * 5], [[4] * 5, [2] * 5])
    unlike = replace(alike, duration=alike.duration + np.arange(5)[:, None])
    answers = [
        solve_states(flow, FAR, params=StatesParams(max_states=64))
        for flow in (alike, unlike)
    ]
    assert answers[0] is not None
    assert answers[1] is not None
    assert answers[0].proved
    assert answers[0].placed < answers[1].placed / 4


@pytest.mark.parametrize("questions", [1, 5, 12])
def test_a_clock_that_ends_leaves_a_valid_bound(questions):
    flow = drawn(1)
    best = solve_states(flow, FAR)
    answer = solve_states(flow, FAR, clock=CountingClock(questions))
    assert best is not None
    assert answer is not None
    assert best.value is not None
    assert 0 < answer.bound <= best.value
    assert answer.value is None or answer.value >= best.value


def test_a_clock_that_is_over_leaves_no_bound():
    answer = solve_states(drawn(1), FAR, clock=Clock(0.0))
    assert answer is not None
    assert (answer.value, answer.bound, answer.proved) == (None, 0, False)


def test_flows_without_such_states_are_refused():
    flow = pipeline(
        [[1, 2], [3, 4]], [[5, 6], [7, 8]], memory={"capacity": 2, "activation": 1}
    )
    nowhere = np.where(np.arange(flow.num_positions) == 0, FREE, flow.resource)
    one_pool = np.zeros_like(flow.pool)
    assert solve_states(flow, FAR) is not None
    for other in (
        replace(flow, resource=nowhere),
        replace(flow, duration=flow.duration * 0),
        replace(flow, pool=one_pool),
        replace(flow, acquire=flow.release, release=flow.acquire),
    ):
        assert solve_states(other, FAR) is None

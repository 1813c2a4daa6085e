"""Replayed orders end when the exact timing of the same durations says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core.dag import CycleError
from ppsolve.models.core.problem import FREE
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.heuristics.stress.replay import FixedOrders
from ppsolve.solver.structure.timing import time_orders
from tests.strategies import problems, serial_schedule


def schedule_of(instance):
    kind = kind_of(instance)
    entry = ppsolve.simulate(instance, "list-tail")
    return kind.read(instance, lower(instance), entry.model_dump(mode="json"))[0]


@given(problems(), st.integers(0, 2**32 - 1))
def test_a_replay_equals_the_event_simulation(problem, seed):
    random = np.random.default_rng(seed)
    problem = replace(problem, pools=(), pinned=np.full_like(problem.pinned, FREE))
    schedule = serial_schedule(problem, random)
    assume(schedule is not None)
    durations = random.integers(1, 50, (problem.num_ops, 3))
    durations[problem.duration == 0] = 0
    found = FixedOrders.of(schedule).makespans(durations.astype(float))
    for run in range(3):
        drawn = replace(schedule.problem, duration=durations[:, run])
        timed = time_orders(drawn, schedule.resource_orders())
        assert found[run] == timed.normalised().makespan


def test_an_op_is_not_held_back_to_its_planned_start():
    pipeline = ppsolve.PipelineInstance(
        num_devices=2, num_microbatches=1, times={"forward": 10, "backward": 20}
    )
    orders = FixedOrders.of(schedule_of(pipeline))
    durations = np.array([[10.0, 1.0], [10.0, 1.0], [20.0, 1.0], [20.0, 1.0]])
    assert orders.makespans(durations).tolist() == [60.0, 4.0]


def test_orders_that_contradict_precedences_are_a_cycle():
    pipeline = ppsolve.PipelineInstance(
        num_devices=1, num_microbatches=1, times={"forward": 1, "backward": 1}
    )
    problem = lower(pipeline)
    with pytest.raises(CycleError):
        FixedOrders(problem, [np.array([1, 0])])


def test_pinned_ops_are_refused():
    pipeline = ppsolve.PipelineInstance(
        num_devices=1, num_microbatches=1, times={"forward": 1, "backward": 1}
    )
    problem = lower(pipeline)
    pinned = replace(problem, pinned=np.array([0, -1]))
    with pytest.raises(InputError, match="pinned to moments"):
        FixedOrders(pinned, [])


def test_memory_that_no_resource_orders_is_refused():
    shared = ppsolve.GraphInstance(
        resources=["a", "b"],
        ops=[
            {"id": "x", "duration": 1, "resources": ["a"], "acquire": {"m": 1}},
            {"id": "y", "duration": 1, "resources": ["b"], "release_at_end": {"m": 1}},
        ],
        precedences=[{"before": "x", "after": "y"}],
        pools=[{"name": "m", "capacity": 1}],
    )
    with pytest.raises(
        InputError, match="pool m is shared by ops whose order no resource fixes"
    ):
        FixedOrders(lower(shared), [])

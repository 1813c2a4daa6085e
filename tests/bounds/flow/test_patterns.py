"""Patterns: the order of slots on every resource, timed with any micro-batches in the slots."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.evaluator import Evaluator, Timed
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.timing import time_orders
from tests.bounds.flow.drawn import every_outcome

UNEQUAL = {
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {
        "forward": [[1, 2, 3, 9], 4],
        "backward_input": [[5, 1, 4, 1], [6, 7, 8, 2]],
        "backward_weight": [[2, 7, 1, 8], [2, 8, 1, 8]],
    },
}


def _patterns(instance, problem, flow):
    for outcome in every_outcome(instance, problem):
        if outcome.schedule is not None:
            yield Pattern.of(flow, outcome.schedule)[0]


@pytest.mark.parametrize("mode", ["delay", "link"])
def test_a_permutation_is_timed_as_its_orders_are_on_the_whole_problem(mode):
    p2p = (
        {"latency": 3}
        if mode == "delay"
        else {"mode": mode, "bytes": 5, "bandwidth": 1}
    )
    instance = PipelineInstance(**UNEQUAL, p2p=p2p)
    problem = lower(instance)
    flow = flow_of(problem)
    evaluator = Evaluator(flow)
    permutations = np.array(list(itertools.permutations(range(4))))
    count = 0
    for pattern in _patterns(instance, problem, flow):
        values = evaluator.values(pattern, permutations)
        for permutation, value in zip(permutations, values.tolist(), strict=True):
            schedule = time_orders(problem, pattern.orders(flow, permutation))
            assert value == schedule.makespan
            starts = evaluator.starts(Timed(value, pattern, permutation))
            assert (starts == schedule.start[flow.ops]).all()
            count += 1
    assert count >= 24 * 5


def test_pools_are_overrun_exactly_where_the_checker_says_so():
    memory = {"capacity": 2, "activation": 1, "released_by_backward_weight": 0.5}
    instance = PipelineInstance(**UNEQUAL, memory=memory)
    problem = lower(instance)
    flow = flow_of(problem)
    evaluator = Evaluator(flow)
    seen = set()
    for pattern in _patterns(instance, problem, flow):
        for permutation in map(np.array, itertools.permutations(range(4))):
            timed = evaluator.timed(pattern, permutation)
            schedule = time_orders(problem, pattern.orders(flow, permutation))
            assert timed.is_feasible == (not check_schedule(problem, schedule))
            assert timed.value in {schedule.makespan, NEVER}
            seen.add(timed.is_feasible)
    assert seen == {True, False}


def _one_after_another(flow, order):
    """Start all ops of a micro-batch, then all of the next."""
    chain = [0, 1, 3, 2, 5, 4]  # F0 F1 I1 I0 W1 W0
    start = np.zeros_like(flow.ops)
    for place, (microbatch, position) in enumerate(itertools.product(order, chain)):
        start[microbatch, position] = 99 * place
    return start


def test_slots_are_numbered_by_first_starts():
    problem = lower(PipelineInstance(**UNEQUAL))
    flow = flow_of(problem)
    _, permutation = Pattern.of_starts(flow, _one_after_another(flow, [1, 3, 2, 0]))
    assert permutation.tolist() == [1, 3, 2, 0]


def test_work_that_follows_a_position_is_part_of_the_makespan():
    problem = lower(PipelineInstance(**UNEQUAL, optimizer=[50, 0]))
    flow = flow_of(problem)
    assert flow.behind.tolist() == [0, 0, 0, 0, 50, 0]  # W0
    pattern, permutation = Pattern.of_starts(
        flow, _one_after_another(flow, [0, 1, 2, 3])
    )
    plain = Evaluator(replace(flow, behind=0 * flow.behind)).timed(pattern, permutation)
    schedule = time_orders(problem, pattern.orders(flow, permutation))
    assert plain.value < schedule.makespan
    assert Schedule(problem, schedule.start).makespan == (
        Evaluator(flow).timed(pattern, permutation).value
    )

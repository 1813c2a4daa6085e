"""Annealing of lines: any order that it returns is one, no worse than the one that was given."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.evaluator import Evaluator
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.bounds.flow.search import Annealer
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kernels import compilation
from ppsolve.solver.structure.timing import time_orders
from tests.running import run_heuristic

TIMES = {
    "forward": [[1, 2, 3, 9, 1], 4, [3, 3, 1, 1, 2]],
    "backward_input": [[5, 1, 4, 1, 3], [6, 7, 8, 2, 1], 2],
    "backward_weight": [[2, 7, 1, 8, 2], [2, 8, 1, 8, 2], 1],
}


def _case(**changes):
    fields = {"num_devices": 3, "num_microbatches": 5, "times": TIMES} | changes
    instance = PipelineInstance(**fields)
    problem = lower(instance)
    flow = flow_of(problem)
    evaluator = Evaluator(flow)
    schedule = run_heuristic("zb-1p", instance, problem).schedule
    return problem, flow, evaluator, evaluator.timed(*Pattern.of(flow, schedule))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "memory": {
                "capacity": 3,
                "activation": 1,
                "released_by_backward_weight": 0.5,
            }
        },
        {"p2p": {"mode": "link", "bytes": 2, "bandwidth": 1, "latency": 1}},
        {"p2p": {"latency": 2}},
    ],
)
@pytest.mark.parametrize("shifts", [0, 500, 1000])
def test_orders_stay_orders_and_their_makespan_is_true(changes, shifts):
    problem, flow, evaluator, first = _case(**changes)
    annealer = Annealer(evaluator)
    for heat in (0, 2, 20):
        found = annealer.improve(first, 200, heat=heat, shifts=shifts)
        assert sorted(found.permutation.tolist()) == list(range(5))
        schedule = time_orders(problem, found.pattern.orders(flow, found.permutation))
        assert not check_schedule(problem, schedule)
        assert schedule.makespan == found.value <= first.value


def test_without_shifts_only_the_micro_batches_change_places():
    _, _, evaluator, first = _case()
    found = Annealer(evaluator).improve(first, 2000, heat=3, shifts=0)
    permutations = np.array(list(itertools.permutations(range(5))))
    assert found.value == evaluator.values(first.pattern, permutations).min()


def test_it_stops_at_the_target_and_steps_decide_what_is_found():
    _, _, evaluator, first = _case()
    unchanged = Annealer(evaluator).improve(
        first, 500, heat=3, shifts=500, target=first.value
    )
    assert unchanged.value == first.value
    values = {
        tuple(
            annealer.improve(first, 100, heat=3, shifts=500).value
            for annealer in [Annealer(evaluator)] * 3
        )
        for _ in range(2)
    }
    assert len(values) == 1


def test_compiled_or_not_the_same_line_is_found(monkeypatch):
    found = []
    for is_compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        _, _, evaluator, first = _case()
        found.append(Annealer(evaluator).improve(first, 150, heat=4, shifts=600))
    plain, compiled = found
    assert plain.value == compiled.value
    assert (plain.pattern.line == compiled.pattern.line).all()
    assert (plain.permutation == compiled.permutation).all()

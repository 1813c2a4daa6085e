"""Search over permutations under patterns, held against all permutations and all orders."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow import search as module
from ppsolve.solver.bounds.flow.evaluator import Evaluator, Timed, follows_orders
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.bounds.flow.search import FlowSearchParams, PermutationSearch
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.structure.timing import time_orders
from tests.bounds.flow.drawn import every_outcome

FUSED = {"forward": [[1, 2, 3, 9], 4], "backward": [[5, 1, 4, 1], [6, 7, 8, 2]]}


def _case(**changes):
    instance = PipelineInstance(
        **{"num_devices": 2, "num_microbatches": 4, "times": FUSED} | changes
    )
    problem = lower(instance)
    flow = flow_of(problem)
    evaluator = Evaluator(flow)
    outcomes = every_outcome(instance, problem)
    patterns = [
        Pattern.of(flow, o.schedule) for o in outcomes if o.schedule is not None
    ]
    return problem, flow, evaluator, [evaluator.timed(*pattern) for pattern in patterns]


def _best_of_all(evaluator, starts):
    permutations = np.array(list(itertools.permutations(range(4))))
    return min(evaluator.values(start.pattern, permutations).min() for start in starts)


@pytest.mark.parametrize(
    "memory",
    [
        None,
        {"capacity": 2, "activation": 1},
        {"capacity": 9, "activation": [[1, 2, 3, 4], 3]},
    ],
)
def test_it_is_no_worse_than_all_permutations_under_all_patterns(memory):
    problem, flow, evaluator, starts = _case(memory=memory)
    found = PermutationSearch(evaluator, steps=20_000).run(starts)
    assert found.value <= _best_of_all(evaluator, starts)
    schedule = time_orders(problem, found.pattern.orders(flow, found.permutation))
    assert schedule.makespan == found.value
    assert not check_schedule(problem, schedule)


def test_steps_decide_what_is_found():
    _, _, evaluator, starts = _case()
    first, second = (
        PermutationSearch(evaluator, steps=900).run(starts) for _ in range(2)
    )
    assert (first.pattern.line == second.pattern.line).all()
    assert (first.permutation == second.permutation).all()


def test_a_clock_that_is_over_gets_the_best_drawn_permutation_of_the_first_pattern():
    _, _, evaluator, starts = _case()
    found = PermutationSearch(evaluator, Clock(0.0)).run(starts)
    assert found.pattern is starts[0].pattern
    assert found.value <= starts[0].value


TIGHT = {"capacity": 2, "activation": 1}
"""Room for two of four micro-batches."""


def test_rounds_begin_anew_until_some_in_a_row_find_nothing(monkeypatch):
    _, _, evaluator, starts = _case(memory=TIGHT)
    params = FlowSearchParams(fresh_rounds=2)
    search = module.PermutationSearch(evaluator, Clock(1000.0), params=params)
    # The second finds nothing, the third something, the fourth and the fifth nothing.
    values = [9, 9, 7, 8, 7, 1]
    left = iter(values)
    monkeypatch.setattr(
        search,
        "_round",
        lambda _: search._note(
            Timed(next(left), starts[0].pattern, starts[0].permutation)
        ),
    )
    assert search.run(starts).value == 7
    assert list(left) == [1]


def test_a_round_begins_with_every_pattern_though_they_are_made_only_once(monkeypatch):
    _, _, evaluator, starts = _case(memory=TIGHT)
    params = FlowSearchParams(least_steps=5)
    begun, begin = [], module.PermutationSearch._begin

    def noted(self, patterns):
        begun.append(begin(self, patterns))
        return begun[-1]

    monkeypatch.setattr(module.PermutationSearch, "_begin", noted)
    found = PermutationSearch(evaluator, Clock(1000.0), params=params).run(iter(starts))
    assert found.value <= _best_of_all(evaluator, starts)
    assert len(begun) > params.fresh_rounds
    assert {len(pool) for pool in begun} == {sum(start.is_feasible for start in starts)}


@pytest.mark.parametrize("memory", [None, {"capacity": 4, "activation": 1}])
def test_where_memory_holds_everything_there_is_one_round(memory, monkeypatch):
    _, _, evaluator, starts = _case(memory=memory)
    params = FlowSearchParams(least_steps=5)
    rounds, each = [], module.PermutationSearch._round
    monkeypatch.setattr(
        module.PermutationSearch,
        "_round",
        lambda self, patterns: rounds.append(each(self, patterns)),
    )
    PermutationSearch(evaluator, Clock(1000.0), params=params).run(starts)
    assert len(rounds) == 1


def test_nothing_is_sought_below_the_target_and_better_lines_are_told():
    _, _, evaluator, starts = _case()
    told = []
    found = PermutationSearch(evaluator, target=10**6, tell=told.append).run(starts)
    assert [each.value for each in told] == [found.value]
    told.clear()
    found = PermutationSearch(evaluator, steps=500, tell=told.append).run(starts)
    values = [each.value for each in told]
    assert values == sorted(set(values), reverse=True)
    assert values[-1] == found.value


def test_without_any_pattern_that_keeps_its_pools_there_is_no_line():
    instance = PipelineInstance(
        num_devices=2,
        num_microbatches=4,
        times=FUSED,
        memory={"capacity": 1, "activation": 1},
    )
    problem = lower(instance)
    flow = flow_of(problem)
    evaluator = Evaluator(flow)
    outcomes = every_outcome(instance, problem)
    gpipe = next(outcome.schedule for outcome in outcomes if outcome.name == "gpipe")
    start = evaluator.timed(*Pattern.of(flow, gpipe))
    assert not start.is_feasible
    assert PermutationSearch(evaluator, steps=500).run([start]) is None


def test_pools_that_several_resources_use_follow_no_order():
    flow = flow_of(
        lower(PipelineInstance(num_devices=2, num_microbatches=4, times=FUSED))
    )
    assert follows_orders(flow)
    shared = replace(flow, pool=np.zeros_like(flow.pool), room=np.array([9]))
    assert not follows_orders(shared)
    with pytest.raises(ValueError, match="one resource"):
        Evaluator(shared)


def test_a_first_run_that_waited_long_does_not_end_the_search():
    # As when a kernel was compiled within it: a second for each change.
    _, _, evaluator, _ = _case()
    search = module.PermutationSearch(evaluator, Clock(1000.0))
    search.pace = 1e6
    first = search.params.first_steps
    assert search._allowed(5 * first) == first
    assert search._allowed(1) == 1


def test_a_clock_that_stands_still_during_a_run_gives_a_pace(monkeypatch):
    # A coarse clock shows one moment before and after a short run.
    _, _, evaluator, starts = _case()
    search = module.PermutationSearch(evaluator, Clock(1000.0))
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)
    search._anneal(starts[0], 10, heat=0.0, shifts=0)
    assert search.pace > 0
    assert search._allowed(10) > 0

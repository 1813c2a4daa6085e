"""Lower bounds on flows: rules by hand, and never above the optimum of tiny pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds import registry
from ppsolve.solver.bounds.drain import drain, larger_drains
from ppsolve.solver.bounds.exchange import exchange_bound
from ppsolve.solver.bounds.flow.flow import Flow, Paths, flow_of
from ppsolve.solver.bounds.flow.states import solve_states
from ppsolve.solver.bounds.params import DEFAULT_PARAMS, BoundsParams
from ppsolve.solver.bounds.registry import BOUNDS, flow_bounds
from ppsolve.solver.bounds.two_resources import two_resources
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.task import PipelineTask
from tests.bruteforce import brute_force
from tests.clocks import CountingClock
from tests.marks import first


def problem_of(times: dict[str, Any], count: int, **fields: Any) -> Problem:
    stages = len(times["forward"])
    data = {"num_devices": stages, "num_microbatches": count, "times": times, **fields}
    return lower(PipelineInstance(**data))


def flow(times: dict[str, Any], count: int, **fields: Any) -> Flow:
    found = flow_of(problem_of(times, count, **fields))
    assert found is not None
    return found


def values(found: Flow) -> dict[str, int]:
    return {bound.name: bound.value for bound in flow_bounds(found)}


def random_problem(seed: int) -> Problem:
    """Return a tiny pipeline of unequal micro-batches, with memory, transfers, or split work."""
    rng = np.random.default_rng(seed)
    shapes = [(2, 2, True), (2, 3, False), (3, 2, False), (1, 3, True), (2, 2, False)]
    stages, count, split = shapes[int(rng.integers(len(shapes)))]
    kinds = [
        "forward",
        *(["backward_input", "backward_weight"] if split else ["backward"]),
    ]
    least = 0 if rng.random() < 0.2 else 1
    times = {kind: rng.integers(least, 7, (stages, count)).tolist() for kind in kinds}
    fields: dict[str, Any] = {"p2p": {"latency": int(rng.integers(0, 3))}}
    if stages * count < 6 and not split and rng.random() < 0.4:
        fields["p2p"] |= {
            "mode": "link",
            "bytes": int(rng.integers(1, 4)),
            "bandwidth": 1,
        }
    if rng.random() < 0.7:
        fields["memory"] = {
            "capacity": rng.integers(1, 4, stages).tolist(),
            "activation": 1,
            "released_by_backward_weight": float(rng.choice([0, 0.5, 1])),
        }
    return problem_of(times, count, **fields)


@pytest.mark.parametrize("seed", first(24, range(120)))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    problem = random_problem(seed)
    found = flow_of(problem)
    assert found is not None
    best = brute_force(problem)
    if best is not None:
        assert {
            name: value for name, value in values(found).items() if value > best
        } == {}


def test_bounds_are_the_same_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = [flow_of(random_problem(seed)) for seed in range(30)]
    found = []
    for compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", compiled)
        found.append([values(each) for each in flows if each is not None])
    assert found[0] == found[1]


def test_without_time_the_first_rule_is_left() -> None:
    times = {"forward": [[1, 2], 1], "backward": [1, 1]}
    (found,) = flow_bounds(flow(times, 2), CountingClock(0))
    assert found.name == "one-machine"


def test_larger_trees_of_orders_raise_the_bound_while_there_is_time() -> None:
    rng = np.random.default_rng(8)
    forward = rng.integers(1, 90, 12).tolist()
    times = {"forward": [forward] * 4, "backward": [[2 * time for time in forward]] * 4}
    paths, params = (
        Paths(flow(times, 12)),
        BoundsParams(drain_nodes=1000, more_nodes=(2000, 4000)),
    )
    found = list(larger_drains(paths, params, Clock()))
    assert found == [drain(paths, params, nodes) for nodes in (1000, 2000, 4000)]
    assert found == sorted(found)
    assert list(larger_drains(paths, params, Clock(0.0))) == []


def test_a_pipeline_of_unequal_microbatches_is_bounded_as_a_flow() -> None:
    alike = {"forward": [1] * 3, "backward": [10, 1, 1]}
    unequal = {"forward": [1] * 3, "backward": [[10, 10, 9], 1, 1]}
    for times, expected in ((alike, False), (unequal, True)):
        data = {"num_devices": 3, "num_microbatches": 3, "times": times}
        task = PIPELINE.task(PipelineInstance(**data))
        assert isinstance(task, PipelineTask)
        task.find_bounds()
        assert (task.flow is not None) is expected
        assert task.board.bound.value == brute_force(task.problem)


def test_bounds_found_before_a_rule_is_broken_off_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken_off(paths: Paths, params: BoundsParams) -> int:
        raise ArithmeticError

    times = {"forward": [1] * 3, "backward": [[10, 10, 9], 1, 1]}
    data = {"num_devices": 3, "num_microbatches": 3, "times": times}
    tasks = [PIPELINE.task(PipelineInstance(**data)) for _ in range(2)]
    tasks[0].find_bounds()
    cut = [
        replace(rule, flow=broken_off) if rule.name == "drain" else rule
        for rule in BOUNDS
    ]
    monkeypatch.setattr(registry, "BOUNDS", cut)
    with pytest.raises(ArithmeticError):
        tasks[1].find_bounds()
    whole, cut_short = ([(b.name, b.value) for b in task.bounds] for task in tasks)
    assert cut_short == [bound for bound in whole if bound[0] != "drain"]


@pytest.mark.parametrize("seed", first(5, range(12)))
def test_bounds_with_work_that_follows_are_below_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = {
        kind: rng.integers(1, 9, (2, 3)).tolist() for kind in ("forward", "backward")
    }
    after = {
        kind: rng.integers(0, 20, 2).tolist() for kind in ("optimizer", "allreduce")
    }
    problem = problem_of(times, 3, **after)
    whole, optimum = flow_of(problem), brute_force(problem)
    assert whole is not None
    assert optimum is not None
    assert whole.behind.any()
    states = solve_states(whole, optimum + 1)
    pair = two_resources(
        Paths(whole), optimum + 1, max_placed=DEFAULT_PARAMS.placed_ops
    )
    assert states is not None
    found = [*values(whole).values(), exchange_bound(whole, 1), states.bound, pair]
    assert max(found) <= optimum
    bare = values(replace(whole, behind=0 * whole.behind))
    assert all(value <= values(whole)[name] for name, value in bare.items())

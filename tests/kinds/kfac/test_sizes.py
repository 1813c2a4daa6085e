"""Refreshes of very many iterations: served, or refused with the number of their ops."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus, StopReason
from ppsolve.models.kinds.kfac import unrolling
from ppsolve.models.kinds.kfac.cycle import LoweredCycle
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.models.kinds.kfac.unrolling import lower_refresh
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.kfac import bounds, exact
from ppsolve.solver.kinds.kfac.bounds import iterations_bound
from ppsolve.solver.kinds.kfac.heuristics import CAUSAL, run_refresh_heuristic
from ppsolve.solver.kinds.kfac.pattern import simulated_pattern
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.solve_run import SolveRun
from tests.kinds.kfac.cases import Timeline, pattern_of
from tests.kinds.kfac.described_instances import described_instance

MODULE = {
    "name": "m",
    "curvature_a": 1,
    "curvature_b": 1,
    "inverse_a": 1,
    "inverse_b": 1,
}


def narrow(modules: int, *, skew: int = 0) -> Timeline:
    """A device of two micro-batches with one bubble of 5 in each period, for parts of 3."""
    timeline: dict[str, list[tuple[Any, Any]]] = {
        "call_forward": [(skew, skew + 10), (skew + 10, skew + 20)],
        "call_backward": [(skew + 25, skew + 45), (skew + 45, skew + 65)],
    }
    for module in range(modules):
        timeline[f"cov_kron_A:m{module}"] = [(1000, 1006)]
        timeline[f"inv_kron_A:m{module}"] = [(1000, 1004)]
    return timeline


@pytest.mark.parametrize("modules", [1, 2, 7])
def test_each_bubble_takes_one_op(modules):
    # Of two parts of 3 and an inversion of 4, one fits into each bubble of 5.
    outcome = run_refresh_heuristic(CAUSAL, pattern_of(narrow(modules)))
    assert outcome.plans is not None
    assert outcome.plans[0].iterations == 3 * modules
    assert outcome.status is HeuristicStatus.FEASIBLE


@pytest.mark.parametrize("modules", [1, 2, 7])
def test_a_bound_that_doubles_its_steps_finds_the_first_number_not_refuted(modules):
    pattern = pattern_of(narrow(modules))
    found = iterations_bound(pattern, [0])
    climb = bounds._Climb(pattern, [0], found.value, Clock(), 150_000)
    refuted = [
        climb._refuted(count)[0] is not None for count in range(1, found.value + 1)
    ]
    assert refuted == [True] * (found.value - 1) + [False]


def test_a_bound_with_no_ops_to_try_is_what_the_sums_prove():
    found = iterations_bound(pattern_of(narrow(2)), [0], most_tried=0)
    # 2 x (3 + 3 + 4) = 20 ticks of work, 5 of bubble in each iteration.
    assert (found.value, found.by, found.infeasible_reason) == (4, "work", None)


@pytest.mark.parametrize("name", ["pipefisher", "pipefisher-causal", "freshest-first"])
def test_a_heuristic_that_needs_too_many_ops_fails_with_their_number(name, monkeypatch):
    monkeypatch.setattr(unrolling, "MAX_UNROLLED", 15)
    task = task_of(narrow(2))
    task.find_bounds()
    heuristic = next(
        h for h in task.kind.heuristics_of(task.instance) if h.name == name
    )
    task.run_heuristic(heuristic)
    outcome = task.outcomes[name]
    # 6 K-FAC ops leave room for 9 pinned ones: two iterations of 4.
    assert outcome.status is HeuristicStatus.FAILED
    assert outcome.reason == (
        "iterations: needs more than 2 iterations of 4 ops; expected at most 15 ops in all "
        "iterations"
    )


def test_a_plan_of_all_devices_that_has_too_many_ops_fails_too(monkeypatch):
    monkeypatch.setattr(unrolling, "MAX_UNROLLED", 20)
    outcome = run_refresh_heuristic(CAUSAL, pattern_of(narrow(1), narrow(1)))
    assert outcome.status is HeuristicStatus.FAILED
    assert outcome.reason == (
        "by hand: iterations: expected a refresh of at most 20 ops, got 30 in 3 iterations"
    )


def test_an_exact_model_with_too_many_places_is_not_built(monkeypatch):
    small = partial(
        exact.ComponentSearch, params=exact.RefreshSearchParams(max_places=10)
    )
    monkeypatch.setattr(exact, "ComponentSearch", small)
    task = task_of(narrow(2), tie_break="none")
    result = SolveRun(task, [CAUSAL], Options(time_limit=5)).execute()
    assert result.value == 6
    assert result.stop_reason is StopReason.TOO_LARGE
    component = exact.ComponentSearch(
        task.pattern, [0], task.instance.tie_break, task.budget
    )
    # 6 ops, one bubble in each iteration.
    assert [component.is_too_large(count) for count in (1, 2)] == [False, True]


def test_lowering_numbers_ops_by_start_and_keeps_what_runs_before_time_0():
    pattern = pattern_of(narrow(1), narrow(1, skew=-30))
    problem = lower_refresh(pattern, [2, 2]).problem
    assert problem.op_names(range(8)) == [
        "0/call_forward#0@0", "0/call_forward#1@0", "0/call_backward#0@0", "0/call_backward#1@0",
        "0/call_forward#0@1", "0/call_forward#1@1", "0/call_backward#0@1", "0/call_backward#1@1",
    ]  # fmt: skip
    assert problem.pinned[:16].tolist() == [
        *(0, 10, 25, 45, 65, 75, 90, 110),
        *(0, 0, 0, 15, 35, 45, 60, 80),
    ]


@pytest.mark.parametrize("shape", ["linear", "bidirectional"])
@pytest.mark.parametrize("lower", [simulated_pattern, LoweredCycle])
def test_the_ops_of_an_iteration_are_gone_through_as_often_for_any_number_of_devices(
    lower, shape, monkeypatch
):
    looks: list[str] = []
    kind_mask = Problem.kind_mask
    monkeypatch.setattr(
        Problem,
        "kind_mask",
        lambda self, *names: looks.append("") or kind_mask(self, *names),
    )

    def looks_of(devices: int) -> int:
        looks.clear()
        pattern = "chimera" if shape == "bidirectional" else "1f1b"
        of_pipeline = {"placement": shape, "allreduce": 1, "optimizer": 1}
        lower(
            described_instance(MODULE, devices, 4, None, of_pipeline, pattern=pattern)
        )
        return len(looks)

    assert looks_of(8) == looks_of(4) > 0


def task_of(*timelines: Timeline, **fields: Any) -> Any:
    data = {
        "name": "narrow",
        "kind": "kfac",
        "time_unit": "ns",
        "timelines": list(timelines),
    }
    instance = KfacInstance.parse({**data, **fields})
    return kind_of(instance).task(instance)

"""The long proofs and the large instances; run with ``pytest -m slow``."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve import PipelineInstance, Status
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.studies.generate.instances import generate
from tests.paths import ROOT
from tests.running import run_heuristic

pytestmark = pytest.mark.slow

PLANS = ROOT / "instances" / "plans"
UNIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}


@pytest.mark.parametrize("seed", range(40))
def test_random_uneven_instances_are_proved(seed: int) -> None:
    instance = generate(seed=seed)
    result = ppsolve.optimize(instance, time_limit=60)
    assert result.status is Status.OPTIMAL
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize(("devices", "microbatches"), [(16, 128), (32, 96), (32, 256)])
def test_large_uniform_pipelines_are_proved(
    devices: int, microbatches: int, factor: int
) -> None:
    instance = PipelineInstance(
        num_devices=devices,
        num_microbatches=microbatches,
        times=UNIT,
        memory={"capacity": factor * devices, "activation": 1},
    )
    result = ppsolve.optimize(instance)
    assert result.status is Status.OPTIMAL
    assert result.value == 3 * microbatches + devices - 1


def test_uneven_16x32_is_within_ten_percent() -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        times: dict[str, Any] = {
            "forward": rng.integers(50, 151, 16).tolist(),
            "backward_input": rng.integers(50, 151, 16).tolist(),
            "backward_weight": rng.integers(30, 101, 16).tolist(),
        }
        instance = PipelineInstance(
            num_devices=16,
            num_microbatches=32,
            times=times,
            p2p={"latency": 10},
            memory={"capacity": 16, "activation": 1},
        )
        result = ppsolve.optimize(instance, time_limit=60)
        assert result.gap is not None
        assert result.gap <= 0.1


@pytest.mark.parametrize(
    ("forward", "backward_input", "backward_weight", "latency"),
    [(14859, 14722, 9963.5, 527), (100, 100, 70, 10), (1, 1, 1, 0), (1, 1, 1, 1)],
)
def test_v_placement_is_proved(
    forward: float, backward_input: float, backward_weight: float, latency: float
) -> None:
    instance = PipelineInstance(
        num_devices=4,
        num_microbatches=8,
        placement="vshape",
        times={
            "forward": forward,
            "backward_input": backward_input,
            "backward_weight": backward_weight,
        },
        p2p={"latency": latency},
        memory={"capacity": 8, "activation": 1, "released_by_backward_weight": 0.43},
    )
    assert ppsolve.optimize(instance, time_limit=120).status is Status.OPTIMAL


def test_64x1024_is_scheduled_and_checked_within_two_gigabytes() -> None:
    instance = PipelineInstance(
        num_devices=64,
        num_microbatches=1024,
        times=UNIT,
        memory={"capacity": 64, "activation": 1},
    )
    problem = lower(instance)
    assert problem.num_ops == 196_608
    outcome = run_heuristic("list-tail", instance, problem)
    assert outcome.schedule is not None
    assert check_schedule(problem, outcome.schedule) == []
    assert outcome.schedule.makespan >= 3 * 1024 + 63
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2_000_000


@pytest.mark.xfail(
    strict=True, reason="three configurations stay undecided: gap 0.12 %"
)
def test_48_layers_on_32_devices_are_planned() -> None:
    request = ppsolve.load_request(PLANS / "gpt-48x32.plan.json")
    found = ppsolve.plan(request)
    assert found.counts.enumerated >= 200
    assert found.status is Status.OPTIMAL
    assert found.winner is not None
    assert found.winner.goodput is not None
    assert found.winner.goodput.low == found.winner.goodput.high
    assert found.instance is not None
    assert found.result is not None
    assert ppsolve.check(found.instance, found.result) == []


def test_pruning_loses_nothing_on_the_small_request() -> None:
    request = ppsolve.load_request(PLANS / "small-12x4.plan.json")
    pruned, every = (
        ppsolve.plan(request),
        ppsolve.plan(request, exhaustive=True, time_limit=60),
    )
    assert pruned.status is every.status is Status.OPTIMAL
    assert pruned.goodput == every.goodput
    assert pruned.winner is not None
    assert every.winner is not None
    assert pruned.winner.configuration == every.winner.configuration
    assert pruned.counts.exact_runs < every.counts.exact_runs

"""Small pipelines with several micro-batches: the whole program against a plain model.

The exhaustive search of `test_exact.py` ends at two micro-batches; index order and what memory
implies show their faults only beyond that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.graph import GraphInstance
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds import lower_bounds
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.marks import first
from tests.plain_model import plain_optimum, plain_range

CHUNKED = ("vshape", "interleaved", "wave")


def small_pipeline(seed: int) -> PipelineInstance:
    """Return a random pipeline of 2-3 devices and 2-5 micro-batches."""
    rng = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    placement = pick("linear", "linear", *CHUNKED, "bidirectional")
    devices = 2 if placement in CHUNKED else pick(2, 3)
    microbatches = {"linear": pick(3, 4, 5), "bidirectional": pick(2, 4)}.get(
        placement, pick(2, 3)
    )
    stages = devices * (2 if placement in CHUNKED else 1)

    def times(low: int, high: int) -> Any:
        return (
            rng.integers(low, high, stages).tolist()
            if rng.random() < 0.7
            else pick(low, high)
        )

    low = pick(0, 1, 1)
    fields: dict[str, Any] = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "placement": placement,
        "stages_per_device": 2 if placement in CHUNKED else 1,
        "times": {"forward": times(low, 6), "backward": times(low, 8)},
        "objective": pick("makespan", "makespan", "device_span"),
    }
    if rng.random() < 0.75:
        split = {"backward_input": times(low, 6), "backward_weight": times(0, 5)}
        fields["times"] = {"forward": fields["times"]["forward"], **split}
    mode = pick("delay", "delay", "link", "nic")
    size = {} if mode == "delay" else {"bytes": pick(1, 2), "bandwidth": 1}
    fields["p2p"] = {"mode": mode, "latency": pick(0, 1, 2), **size}
    if rng.random() < 0.9:
        fields["memory"] = {
            "capacity": pick(1, 1.5, 2, 2.5, 3) * (stages // devices) + pick(0, 0.3),
            "activation": pick(1, [pick(0.5, 0.8, 1) for _ in range(stages)]),
            "released_by_backward_weight": pick(0, 0.25, 0.43, 1),
            "static": pick(0, 0, 0.2),
        }
    fields |= pick({}, {}, {}, {"allreduce": 2}, {"optimizer": 1})
    return PipelineInstance(**fields)


def assert_agrees(seed: int, *, proved: bool = True) -> None:
    """Compare with the plain model's optimum, or where it proves none with what it knows of it."""
    instance = small_pipeline(seed)
    problem = lower(instance)
    known = plain_range(problem)
    result = ppsolve.optimize(instance, time_limit=30)
    if known is None:
        assert result.status is Status.INFEASIBLE
        return
    least, most = known
    assert least == most or not proved
    assert result.status is Status.OPTIMAL
    assert result.value == result.bound
    assert problem.scale.time(least) <= result.value <= problem.scale.time(most)
    optimum = round(result.value / problem.scale.time(1))
    assert ppsolve.check(instance, result) == []
    try:
        bounds = lower_bounds(ImpliedOrder(problem))
    except MemoryInfeasible:
        pytest.fail("an instance with a schedule was called infeasible")
    assert all(bound.value <= optimum for bound in bounds)


SLOW_FOR_THE_PLAIN_MODEL = {13}
"""The seed below 30 whose optimum the plain model does not prove."""


@pytest.mark.parametrize(
    "seed", first(4, sorted(set(range(30)) - SLOW_FOR_THE_PLAIN_MODEL))
)
def test_agrees_with_the_plain_model(seed: int) -> None:
    assert_agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(30, 300), *SLOW_FOR_THE_PLAIN_MODEL])
def test_agrees_with_the_plain_model_on_many(seed: int) -> None:
    assert_agrees(seed, proved=False)


def test_stages_without_length_hold_nothing_at_one_moment() -> None:
    instance = PipelineInstance(
        num_devices=2,
        num_microbatches=2,
        placement="vshape",
        times={"forward": [1, 0, 1, 0], "backward": [4, 4, 1, 0]},
        p2p={"mode": "link", "bytes": 2, "bandwidth": 1},
        memory={"capacity": 2, "activation": 1},
    )
    result = ppsolve.optimize(instance, time_limit=30)
    assert result.value == result.bound == plain_optimum(lower(instance)) == 29


def test_memory_in_use_before_anything_runs_is_infeasible() -> None:
    memory = {"capacity": 1, "activation": 0, "static": 2}
    instance = PipelineInstance(
        num_devices=2,
        num_microbatches=2,
        times={"forward": 1, "backward": 1},
        memory=memory,
    )
    result = ppsolve.optimize(instance)
    assert result.status is Status.INFEASIBLE
    assert result.reason is not None
    assert "holds 2 before anything runs" in result.reason


def test_what_is_acquired_for_ever_counts_at_the_very_end() -> None:
    op = {"id": "a", "duration": 0, "acquire": {"m": 2}}
    graph = GraphInstance(
        resources=(), ops=(op,), pools=({"name": "m", "capacity": 1},)
    )
    assert ppsolve.optimize(graph).status is Status.INFEASIBLE


def without_length(stage: int) -> PipelineInstance:
    """Return two micro-batches on two stages, one of them without length or memory."""
    times = [1, 1]
    times[stage] = 0
    return PipelineInstance(
        num_devices=2,
        num_microbatches=2,
        times={"forward": times, "backward": times},
        memory={"capacity": [2 * t for t in times], "activation": 1},
    )


def test_last_stage_without_length_needs_no_memory_at_all() -> None:
    # Its forward and backward run at one moment, so nothing is ever held there.
    instance = without_length(1)
    result = ppsolve.optimize(instance, time_limit=30)
    assert result.status is Status.OPTIMAL
    assert result.value == plain_optimum(lower(instance)) == 4


def test_first_stage_without_length_holds_until_its_gradient_returns() -> None:
    instance = without_length(0)
    assert ppsolve.optimize(instance, time_limit=30).status is Status.INFEASIBLE
    assert plain_optimum(lower(instance)) is None

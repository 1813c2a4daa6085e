"""Pipelines as PyTorch's runtime runs them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import ppsolve
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.runtime import as_torch_runs


def pipeline(**more: Any) -> ppsolve.PipelineInstance:
    data = {"num_devices": 2, "num_microbatches": 2, **more}
    return ppsolve.PipelineInstance.parse(data)


SPLIT = {"forward": [1, 2], "backward_input": 3, "backward_weight": [4, 5]}


def test_first_stage_does_its_backward_at_the_weight_gradient() -> None:
    run = as_torch_runs(pipeline(times=SPLIT))
    assert run.times.forward == (1, 2)
    assert run.times.backward_input == (0, 3)
    assert run.times.backward_weight == (7, 5)


def test_times_per_microbatch_are_added_one_by_one() -> None:
    times = {"forward": 1, "backward_input": [[1, 2], 3], "backward_weight": 4}
    run = as_torch_runs(pipeline(times=times))
    assert run.times.backward_input == (0, 3)
    assert run.times.backward_weight == ((5, 6), 4)


def test_costs_over_lengths_are_worked_out_first() -> None:
    times = {"forward": 1, "backward_input": {"per_token": 2}, "backward_weight": 4}
    run = as_torch_runs(pipeline(times=times, lengths=[10, 20]))
    assert run.times.backward_weight == ((24, 44), 4)


def test_activations_are_held_until_the_weight_gradient() -> None:
    memory = {"capacity": 2, "activation": 1, "released_by_backward_weight": 0.5}
    run = as_torch_runs(pipeline(times=SPLIT, memory=memory))
    assert run.memory is not None
    assert run.memory.released_by_backward_weight == Decimal(1)
    assert run.memory.capacity == 2


def test_fused_backwards_stay_as_they_are() -> None:
    instance = pipeline(times={"forward": 1, "backward": 2})
    assert as_torch_runs(instance) == instance


def test_the_checker_knows_the_times_of_the_runtime() -> None:
    instance = pipeline(num_microbatches=1, times=SPLIT)
    run = as_torch_runs(instance)
    assert lower_pipeline(run).duration.tolist() == [1, 2, 0, 3, 7, 5]
    starts = {"F0.0": 0, "F1.0": 1, "I1.0": 3, "I0.0": 6, "W1.0": 6, "W0.0": 6}
    document = {
        "time_unit": "us",
        "ops": [{"id": op, "start": start} for op, start in starts.items()],
    }
    assert ppsolve.check(run, document) == []
    assert ppsolve.check(instance, document) != []


@pytest.mark.parametrize("name", ["zb-h1", "1f1b"])
def test_published_schedules_run_on_these_times(name: str) -> None:
    entry = ppsolve.simulate(as_torch_runs(pipeline(times=SPLIT)), name)
    assert entry.makespan is not None

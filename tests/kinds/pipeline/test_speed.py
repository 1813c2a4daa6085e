"""Devices of unequal speed: what their stages compute takes its time divided by the speed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.runtime import as_torch_runs

FULL = {"name": "full", "time": 3}


def pipeline(**fields: Any) -> dict[str, Any]:
    """Return a pipeline of two devices, two stages each, and three micro-batches."""
    return {
        "num_devices": 2,
        "num_microbatches": 3,
        "placement": "interleaved",
        "times": {"forward": [2, 3, 4, 5], "backward": 6},
        "p2p": {"latency": 1},
        **fields,
    }


def times_of(problem: Problem) -> dict[str, Fraction]:
    """Return the time of each op by its name, in the unit of the instance."""
    names = problem.op_names(np.arange(problem.num_ops))
    durations = problem.duration.tolist()
    pairs = zip(names, durations, strict=True)
    return {name: ticks * problem.scale.tick for name, ticks in pairs}


def test_stages_take_the_time_of_their_devices() -> None:
    speed = {"speed": [2, 0.3], "optimizer": 6, "allreduce": 5}
    times = times_of(lower_pipeline(PipelineInstance.parse(pipeline(**speed))))
    forwards = [times[f"F{stage}.0"] for stage in range(4)]
    assert forwards == [1, 10, 2, Fraction(50, 3)]
    assert [times[f"B{stage}.2"] for stage in range(4)] == [3, 20, 3, 20]
    assert [times[f"OPT{stage}"] for stage in range(4)] == [3, 20, 3, 20]
    assert {times[f"AR{stage}"] for stage in range(4)} == {5}


@pytest.mark.parametrize(
    ("fields", "twice"),
    [
        ({"times": {"forward": [[1, 2, 3]] * 4, "backward": 2}}, {}),
        (
            {"overlap": {"time": 4}},
            {"overlap": {"time": [[8, None, 8, None], [None, 8] * 2] * 2}},
        ),
        ({"overlap": {"ratio": 0.5}}, {"overlap": {"ratio": 0.5}}),
    ],
)
def test_half_the_speed_is_twice_the_time(fields: Any, twice: Any) -> None:
    """Transfers and capacities stay; results of both are the same."""
    slow = pipeline(speed=0.5, **fields)
    plain = pipeline(**fields)
    plain["times"] = {
        kind: [
            _doubled(row) for row in (rows if isinstance(rows, list) else [rows] * 4)
        ]
        for kind, rows in plain["times"].items()
    }
    results = [
        ppsolve.optimize(PipelineInstance.parse(data), workers=1, time_limit=20)
        for data in (slow, plain | twice)
    ]
    assert results[0].status is results[1].status is Status.OPTIMAL
    assert results[0].value == results[1].value


def _doubled(row: Any) -> Any:
    return [2 * time for time in row] if isinstance(row, list) else 2 * row


def test_recomputing_takes_longer_on_a_slow_device() -> None:
    recompute = {"modes": [FULL], "decide": ["full"] * 4}
    memory = {"capacity": 9, "activation": 1, "recompute": recompute}
    data = pipeline(speed=[1, 0.5], memory=memory)
    times = times_of(lower_pipeline(PipelineInstance.parse(data)))
    assert [times[f"B{stage}.0"] for stage in range(4)] == [9, 18, 9, 18]
    recompute["place"] = "anytime"
    times = times_of(lower_pipeline(PipelineInstance.parse(data)))
    assert [times[f"R{stage}.0"] for stage in range(4)] == [3, 6, 3, 6]


def test_a_fast_device_gets_more_layers() -> None:
    """Of 9 layers the device that is twice as fast takes 6."""
    layers = {"body": {"count": 9, "forward": 1, "backward": 2}}
    data = {
        "num_devices": 2,
        "num_microbatches": 8,
        "placement": "linear",
        "layers": layers,
        "speed": [1, 0.5],
    }
    instance = PipelineInstance.parse(data)
    for runtime in (None, "megatron"):
        options = {} if runtime is None else {"runtime": runtime}
        result = ppsolve.optimize(instance, workers=1, time_limit=10, **options)
        assert result.layers == ({"keep": 6}, {"keep": 3})
        # Stage 1 works for 8 x 3 x 6 after the first forward of 6, before a backward of 12.
        assert (result.value, result.status) == (6 + 144 + 12, Status.OPTIMAL)
        document = result.model_dump(by_alias=True, exclude_none=True)
        assert ppsolve.check(instance, document) == []


def test_a_runtime_keeps_the_times_of_devices() -> None:
    times = {"forward": 3, "backward_input": 2, "backward_weight": 1}
    run = as_torch_runs(PipelineInstance.parse(pipeline(speed=[1, 0.5], times=times)))
    assert run.times.forward == (3, 6, 3, 6)
    # Stage 0 has no input gradient.
    assert run.times.backward_input == (0, 4, 2, 4)
    assert run.times.backward_weight == (3, 2, 1, 2)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"speed": [1, 2, 3]}, "speed", "2 entries (one per device)"),
        ({"speed": [1, 0]}, "speed", "above 0"),
        (
            {
                "placement": "bidirectional",
                "stages_per_device": 1,
                "times": {"forward": 1, "backward": 1},
            },
            "speed",
            "one speed for the two devices of each stage",
        ),
    ],
)
def test_what_has_no_speed_is_refused(fields: Any, field: str, words: str) -> None:
    data = pipeline(speed=[1, 2], num_microbatches=4)
    with pytest.raises(InputError) as error:
        PipelineInstance.parse(data | fields)
    assert error.value.field == field
    assert words in str(error.value)


def test_quick_answers_and_curvature_know_one_speed() -> None:
    with pytest.raises(InputError) as error:
        ppsolve.quick(PipelineInstance.parse(pipeline(speed=2)))
    assert error.value.field == "speed"
    data = pipeline(speed=2) | {"kind": "pipeline"}
    work = ("curvature_a", "curvature_b", "inverse_a", "inverse_b")
    module = {"stage": 0, "name": "mlp", **dict.fromkeys(work, 1)}
    with pytest.raises(InputError) as error:
        ppsolve.parse_instance(
            {"kind": "kfac", "pattern": "1f1b", "pipeline": data, "modules": [module]}
        )
    assert error.value.field == "pipeline.speed"

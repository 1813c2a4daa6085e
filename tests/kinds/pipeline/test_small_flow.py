"""Small pipelines of unequal micro-batches are proved by their states."""

from __future__ import annotations

import json

import pytest

from ppsolve.models.core.result import StopReason
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import optimize
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.bounds.flow.states import solve_states
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.kind import PIPELINE
from ppsolve.solver.kinds.pipeline.small_flow import StateSearchParams, search_states
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.step import Turn
from tests.paths import DATA

STEPS = json.loads((DATA / "recorded" / "steps.json").read_text())


def instance_of(step: dict, **fields: object) -> PipelineInstance:
    """Return a recorded replica; the last stage holds one activation, the first two."""
    given = {
        "num_devices": 2,
        "num_microbatches": 8,
        "time_unit": "us",
        "times": {"forward": step["forward"], "backward": step["backward"]},
        "memory": {"capacity": 2, "activation": [1, 2]},
    }
    return PipelineInstance(**(given | fields))


@pytest.mark.parametrize(
    "step", STEPS, ids=lambda step: f"{step['step']}-{step['replica']}"
)
def test_recorded_steps_have_the_makespan_that_was_proved_otherwise(step):
    flow = flow_of(lower(instance_of(step)))
    assert flow is not None
    answer = solve_states(flow, 2**62)
    assert answer is not None
    assert (answer.value, answer.bound, answer.proved) == (
        step["optimum"],
        step["optimum"],
        True,
    )


def test_a_run_is_ended_by_the_proof():
    result = optimize(instance_of(STEPS[1]), time_limit=60, workers=1)
    assert (result.value, result.bound) == (STEPS[1]["optimum"], STEPS[1]["optimum"])
    assert result.stop_reason is StopReason.PROVED


def searched(instance: PipelineInstance, **params: int) -> tuple[int | None, int]:
    """Return value and bound of a task after the search through states alone."""
    task = PIPELINE.task(instance)
    assert task.flow is not None
    search_states(
        Turn(task, Options(time_limit=60), Clock()), StateSearchParams(**params)
    )
    return task.board.value, task.board.bound.value


def test_the_schedule_and_the_bound_are_kept():
    assert searched(instance_of(STEPS[1])) == (STEPS[1]["optimum"], STEPS[1]["optimum"])


def test_larger_flows_and_ops_beside_the_flow_are_left_alone():
    assert searched(instance_of(STEPS[1], optimizer=5)) == (None, 0)
    assert searched(instance_of(STEPS[1]), most_ops=31) == (None, 0)

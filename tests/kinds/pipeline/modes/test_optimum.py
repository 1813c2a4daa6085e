"""Optima of pipelines with memory modes, against proved ones and a plain model."""

from __future__ import annotations

from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from tests.kinds.pipeline.joint import joint_optimum
from tests.kinds.pipeline.modes.drawn import (
    CASES,
    drawn,
    of_case,
    optimum,
    without_some_times,
)
from tests.marks import first


@pytest.mark.parametrize("case", first(3, CASES), ids=lambda case: case["name"])
def test_cases_are_solved_to_their_proved_optimum(case: dict[str, Any]) -> None:
    """The optima were proved by a plain model elsewhere."""
    instance = PipelineInstance.parse(of_case(case))
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.value == case["expected"]["makespan"]
    assert ppsolve.check(instance, result) == []


def _agrees(data: dict[str, Any], heuristics: list[str] | None = None) -> None:
    instance = PipelineInstance.parse(data)
    result = ppsolve.optimize(instance, time_limit=20, heuristics=heuristics)
    best = optimum(data)
    if best is None:
        assert result.status is Status.INFEASIBLE
        return
    assert (result.status, result.value) == (Status.OPTIMAL, best)
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("seed", first(2, range(24)))
def test_drawn_pipelines_are_solved_to_their_optimum(seed: int) -> None:
    """Modes of all sorts of decisions, shared links, host memory, windows."""
    _agrees(drawn(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 330))
def test_many_drawn_pipelines_are_solved_to_their_optimum(seed: int) -> None:
    """The same on many more."""
    _agrees(drawn(seed))


@pytest.mark.parametrize("seed", first(2, range(24)))
def test_ops_of_no_time_change_no_claim(seed: int) -> None:
    """Forwards, backwards, weight gradients, copies and recomputing; without any heuristic too."""
    for heuristics in (None, []):
        _agrees(without_some_times(seed), heuristics)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(24, 600))
def test_many_with_ops_of_no_time_are_solved_to_their_optimum(seed: int) -> None:
    for heuristics in (None, ["1f1b"], []):
        _agrees(without_some_times(seed), heuristics)


@pytest.mark.parametrize("decide", ["stage", "microbatch"])
def test_recomputing_before_a_backward_of_no_time_occupies_the_device(
    decide: str,
) -> None:
    """Where stage 0 keeps, its forwards alternate with the backwards of stage 1: 2 x (4 + 4 + 4).

    Where it recomputes, stage 1 works from 4 to 20; room for one activation is left to the last
    backward when the other one is done, so that the last one recomputes: 20 + 3.
    """
    mode = {"name": "full", "time": 3}
    data = {
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 4, "backward": [0, 4]},
        "memory": {
            "capacity": [1, 2],
            "activation": 1,
            "recompute": {
                "modes": [mode],
                "decide": decide,
                "place": "before_backward",
            },
        },
    }
    assert joint_optimum(PipelineInstance.parse(data)) == 23


@pytest.mark.parametrize(("place", "best"), [("before_backward", 12), ("anytime", 9)])
def test_a_mode_takes_its_time_though_it_gives_nothing_back(
    place: str, best: int
) -> None:
    """Forwards of 1, backwards of 2, and 3 to recompute, on stage 1 what is held all the same.

    All in turn take 1 + 1 + 5 + 5; any time, stage 0 recomputes beside stage 1: 1 + 1 + 5 + 2.
    """
    mode = {"name": "full", "time": 3, "held": [0, 1]}
    recompute = {"modes": [mode], "decide": ["full", "full"], "place": place}
    data = {
        "num_devices": 2,
        "num_microbatches": 1,
        "times": {"forward": 1, "backward": 2},
        "memory": {"capacity": 1, "activation": 1, "recompute": recompute},
    }
    instance = PipelineInstance.parse(data)
    result = ppsolve.optimize(instance, workers=1)
    assert (result.status, result.value) == (Status.OPTIMAL, best)
    assert ppsolve.check(instance, result) == []

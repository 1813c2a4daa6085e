"""Optima of pipelines with memory modes, against proved ones and a plain model."""

from __future__ import annotations

from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from tests.kinds.pipeline.modes.drawn import CASES, drawn, of_case, optimum
from tests.marks import first


@pytest.mark.parametrize("case", first(6, CASES), ids=lambda case: case["name"])
def test_cases_are_solved_to_their_proved_optimum(case: dict[str, Any]) -> None:
    """The optima were proved by a plain model elsewhere."""
    instance = PipelineInstance.parse(of_case(case))
    result = ppsolve.optimize(instance, time_limit=20)
    assert result.status is Status.OPTIMAL
    assert result.value == case["expected"]["makespan"]
    assert ppsolve.check(instance, result) == []


def _agrees(seed: int) -> None:
    data = drawn(seed)
    instance = PipelineInstance.parse(data)
    result = ppsolve.optimize(instance, time_limit=20)
    best = optimum(data)
    if best is None:
        assert result.status is Status.INFEASIBLE
        return
    assert (result.status, result.value) == (Status.OPTIMAL, best)
    assert ppsolve.check(instance, result) == []


@pytest.mark.parametrize("seed", first(4, range(24)))
def test_drawn_pipelines_are_solved_to_their_optimum(seed: int) -> None:
    """Modes of all sorts of decisions, shared links, host memory, windows."""
    _agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 330))
def test_many_drawn_pipelines_are_solved_to_their_optimum(seed: int) -> None:
    """The same on many more."""
    _agrees(seed)

"""What a problem says of its ops."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ppsolve.models.core.builder import ProblemBuilder
from ppsolve.models.core.problem import FREE, Objective
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from tests.small import op, small


@pytest.mark.parametrize("field", [{"release": 1}, {"start": 0}])
def test_one_op_with_a_time_of_its_own_fixes_time_0(field: dict[str, int]) -> None:
    assert small([op("a", 1, **field), op("b", 1)]).is_anchored
    assert small([op("a", 1), op("b", 1)], windows={"b": [[0, 3]]}).is_anchored
    assert not small([op("a", 1), op("b", 1)]).is_anchored


def test_a_grid_has_a_row_per_stage_and_a_column_per_micro_batch() -> None:
    times = {"forward": 1, "backward": 2}
    problem = lower(PipelineInstance(num_devices=1, num_microbatches=1, times=times))
    assert problem.grid("F").tolist() == [[0]]
    assert replace(problem, microbatch=np.full(2, FREE)).grid("F").tolist() == [[]]


def test_weights_of_a_builder_are_those_of_its_problem() -> None:
    builder = ProblemBuilder("x", TimeScale(Fraction(1), "ms"), Objective.COMPLETION)
    builder.add_ops("op", np.array([1, 2]), np.zeros((2, 0), dtype=np.int64))
    builder.weight = np.array([3, 0])
    assert builder.build().weight.tolist() == [3, 0]

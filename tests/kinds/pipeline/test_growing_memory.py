"""Input gradients that keep more for the weight gradient than the forward stored."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import ppsolve
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.frontier_beam import frontier_beam
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.params import FrontierBeamParams, HeuristicParams
from tests.marks import later
from tests.outside.generators import drawn
from tests.outside.plain_model import plain_optimum

MANY = later("fuzz", range(1, 120))

ONE_STAGE: dict[str, Any] = {
    "num_devices": 1,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward_input": 1, "backward_weight": 1},
}


def one_stage(capacity: float, left: float) -> PipelineInstance:
    memory = {"capacity": capacity, "activation": 1, "left_to_weight": left}
    return PipelineInstance(**ONE_STAGE, memory=memory)


def is_allowed(instance: PipelineInstance, order: str) -> bool:
    """Whether a device may run ops of one tick in an order such as ``F0.0 I0.0``."""
    problem = lower(instance)
    start = np.zeros(problem.num_ops, dtype=np.int64)
    for moment, name in enumerate(order.split()):
        start[problem.op_names(np.arange(problem.num_ops)).index(name)] = moment
    return not check_schedule(problem, Schedule(problem, start))


def test_the_rest_is_taken_when_the_input_gradient_starts() -> None:
    # One activation, then 2 from I0.0 to the end of W0.0: 3 beside a second activation.
    in_turn = "F0.0 I0.0 W0.0 F0.1 I0.1 W0.1"
    forwards_first = "F0.0 F0.1 I0.0 W0.0 I0.1 W0.1"
    late_weights = "F0.0 F0.1 I0.0 I0.1 W0.0 W0.1"
    for capacity, orders in (
        (2, [in_turn]),
        (3, [in_turn, forwards_first]),
        (4, [in_turn, forwards_first, late_weights]),
    ):
        for order in (in_turn, forwards_first, late_weights):
            is_one = order in orders
            assert is_allowed(one_stage(capacity, 2), order) is is_one, (
                order,
                capacity,
            )


def test_what_is_left_to_the_weight_gradient_has_to_fit() -> None:
    assert ppsolve.optimize(one_stage(1.9, 2), time_limit=5).status == "INFEASIBLE"
    assert ppsolve.optimize(one_stage(2, 2), time_limit=5).status == "OPTIMAL"


@pytest.mark.parametrize("number", [0, *MANY])
def test_the_optimum_is_that_of_the_plain_model(number: int) -> None:
    for seed in range(2 * number, 2 * number + 2):
        for objective in ("makespan", "device_span"):
            instance = drawn("growing", seed) | {"objective": objective}
            optimum = plain_optimum(instance)
            result = ppsolve.optimize(PipelineInstance(**instance), time_limit=30)
            value = None if result.value is None else Fraction(str(result.value))
            assert value == optimum, (seed, objective)
            assert result.status == ("INFEASIBLE" if optimum is None else "OPTIMAL")


@pytest.mark.parametrize("number", [0, *MANY])
def test_beams_bound_all_schedules_and_reach_the_best_of_lines(number: int) -> None:
    """Where devices have one stage each, wide beams are exact: rows end in turn on each."""
    wide = FrontierBeamParams(first_width=100_000, most_width=100_000)
    applied = 0
    for seed in range(15 * number, 15 * number + 15):
        instance = drawn("growing", seed)
        problem = lower(PipelineInstance(**instance))
        spent = Effort(board=Board(), params=HeuristicParams(beam=wide))
        try:
            schedule = frontier_beam(problem, spent)
        except NotApplicableError:
            continue
        applied += 1
        optimum, tick = plain_optimum(instance), problem.scale.tick
        if optimum is None:
            assert schedule is None, seed
            continue
        assert spent.board.bound.value * tick <= optimum, seed
        if schedule is not None:
            assert not check_schedule(problem, schedule), seed
            assert schedule.value * tick >= optimum, seed
        if instance["placement"] == "linear":
            assert schedule is not None, seed
            assert schedule.value * tick == spent.board.bound.value * tick == optimum
    assert applied > 1 or number


def test_rows_of_several_stages_need_not_end_in_turn() -> None:
    """If each had to end alone, the one that has come furthest first, 32 would be the best."""
    instance: dict[str, Any] = {
        "num_devices": 2,
        "num_microbatches": 2,
        "placement": "interleaved",
        "stages_per_device": 2,
        "times": {
            "forward": [3, 3, 1, 2],
            "backward_input": [1, 3, 3, 1],
            "backward_weight": [2, 1, 1, 3],
        },
        "memory": {
            "capacity": 8,
            "activation": [2, 1, 1, 1],
            "left_to_weight": [6, 2, 0.5, 3],
        },
    }
    assert plain_optimum(instance) == 29
    spent = Effort(board=Board())
    frontier_beam(lower(PipelineInstance(**instance)), spent)
    assert spent.board.bound.value <= 29
    result = ppsolve.optimize(PipelineInstance(**instance), time_limit=20)
    assert (result.value, result.status) == (29, "OPTIMAL")

"""Choices of least bound get beams over frontiers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.open.beams import ChoiceBeams
from ppsolve.solver.kinds.pipeline.open.space import PipelineSpace
from ppsolve.solver.run.params import ModesParams
from tests.outside.combined_model import combined_optimum

TIGHT = {
    "num_devices": 2,
    "num_microbatches": 4,
    "placement": "interleaved",
    "times": {"forward": [2, 3, 1, 2], "backward": [4, 5, 3, 3]},
    "p2p": {"latency": 1},
    "memory": {
        "activation": 1,
        "capacity": 2.5,
        "recompute": {
            "modes": [{"name": "full", "time": [2, 3, 1, 2], "held": 0.25}],
            "decide": "stage",
        },
    },
}


def searched(data: dict, **params: int) -> Board:
    space, board = PipelineSpace(PipelineInstance.parse(data)), Board()
    ChoiceBeams(space, board, 0, ModesParams(**params)).run(Clock())
    return board


OPTIMUM = 74


@pytest.mark.slow
def test_the_optimum_is_that_of_the_plain_model() -> None:
    assert combined_optimum(TIGHT) == OPTIMUM


def test_the_best_choice_is_found_by_its_bound() -> None:
    schedule = searched(TIGHT).schedule
    assert schedule is not None
    assert check_schedule(schedule.problem, schedule) == []
    value = schedule.value * schedule.problem.scale.tick
    assert OPTIMUM <= value <= OPTIMUM * Fraction(11, 10)


def test_more_beams_find_no_less() -> None:
    few, many = searched(TIGHT, beams=1).value, searched(TIGHT, beams=16).value
    assert few is not None and many is not None
    assert many <= few


def test_choices_that_memory_does_not_delay_get_none() -> None:
    roomy = TIGHT | {"memory": TIGHT["memory"] | {"capacity": 100}}
    assert searched(roomy).schedule is None

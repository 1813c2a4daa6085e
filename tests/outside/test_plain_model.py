"""The plain model: rules by hand, and the optima of exhaustive search over lowered problems."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ppsolve.models.core.problem import Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from tests.bruteforce import brute_force
from tests.outside.generators import drawn
from tests.outside.plain_model import Instance, plain_optimum

LINE = {
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 2},
}


def problem_of(instance: Instance) -> Problem:
    return lower(PipelineInstance(**instance))


def test_a_line_of_two_stages_by_hand() -> None:
    # F0 F0 . . B0 . B0: stage 1 works from 1 to 7, and the last backward of stage 0 takes 2 more.
    assert plain_optimum(LINE) == 1 + 2 * 3 + 2
    # With room for one activation each micro-batch takes 1 + 1 + 2 + 2 alone.
    assert plain_optimum(LINE | {"memory": {"capacity": 1, "activation": 1}}) == 2 * 6
    # Stage 0 begins at 0 and ends at 9, stage 1 takes 6.
    assert plain_optimum(LINE | {"objective": "device_span"}) == 9


def test_nothing_is_below_the_optimum() -> None:
    assert plain_optimum(LINE, below=Fraction(9)) is None
    assert plain_optimum(LINE, below=Fraction(19, 2)) == 9
    assert plain_optimum(LINE, below=Fraction(0)) is None


def test_an_optimizer_follows_the_all_reduce_of_its_stage() -> None:
    # Stage 1 is done at 7, then 5 for all-reduce and 6 for the optimizer.
    assert plain_optimum(LINE | {"allreduce": [0, 5], "optimizer": [0, 6]}) == 7 + 5 + 6


def test_a_link_takes_size_over_bandwidth_and_a_delay_is_unlimited() -> None:
    one = LINE | {"num_microbatches": 1}
    link = {"mode": "link", "bytes": 3, "bandwidth": 2, "latency": 1}
    assert plain_optimum(one | {"p2p": link}) == 6 + 2 * (Fraction(3, 2) + 1)
    assert plain_optimum(one | {"p2p": {"latency": 0.5}}) == 6 + 2 * Fraction(1, 2)


def test_no_room_for_one_activation_leaves_no_schedule() -> None:
    assert plain_optimum(LINE | {"memory": {"capacity": 1, "activation": 2}}) is None


@pytest.mark.parametrize(("objective", "most"), [("makespan", 9), ("device_span", 6)])
def test_it_finds_the_optima_of_exhaustive_search(objective: str, most: int) -> None:
    instances = (
        drawn("heavy_tail", seed) | {"objective": objective} for seed in range(60)
    )
    pairs = [(instance, problem_of(instance)) for instance in instances]
    small = [pair for pair in pairs if pair[1].num_ops <= most]
    assert len(small) > 6
    for instance, problem in small:
        best, optimum = brute_force(problem), plain_optimum(instance)
        assert (None if best is None else best * problem.scale.tick) == optimum

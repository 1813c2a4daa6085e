"""Frontiers with ops that run as one: no set of devices claims more than a plain model reaches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import pytest

from ppsolve.models.kinds.pipeline.fused import fused_problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.bounds.frontier_blocks import BlockRelaxations
from ppsolve.solver.bounds.frontier_chains import chain_of, device_ops
from ppsolve.solver.bounds.frontier_search import (
    NOTHING_AHEAD,
    BeamLimits,
    FrontierSearch,
)
from ppsolve.solver.bounds.params import BoundsEffort, BoundsParams
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.frontier import DeviceChain
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible
from tests.bounds.frontier_cases import drawn_pipeline
from tests.bounds.test_frontier_devices import ahead_of, least
from tests.marks import later
from tests.outside.combined_model import combined_optimum
from tests.outside.plain_model import Instance

MANY = later("fuzz", range(1, 80))


def drawn_blocks(draw: Random, *, ops: int) -> Instance:
    """Return a pipeline of few ops in tight memory, some of whose pairs of ops may be fused."""
    instance = drawn_pipeline(draw, ops=ops)
    times = instance["times"]
    backward = "backward" if "backward" in times else "backward_input"
    stages = range(len(times["forward"]))
    with_weight = draw.random() < 0.7
    table: list[list[int | None]] = []
    for s in stages:
        row: list[int | None] = []
        for t in stages:
            least = max(times["forward"][s], times[backward][t])
            if with_weight and "backward_weight" in times:
                least = max(least, times["backward_weight"][t])
            row.append(least + draw.randint(0, 10) if draw.random() < 0.9 else None)
        table.append(row)
    overlap: dict[str, Any] = {"time": table, "with_weight": with_weight}
    if draw.random() < 0.2:
        overlap["memory"] = draw.choice([0.25, 1])
    return instance | {"overlap": overlap}


def relaxations_of(instance: Instance) -> BlockRelaxations:
    return BlockRelaxations(fused_problem(PipelineInstance(**instance)))


def parts_of(instance: Instance) -> Iterator[tuple[DeviceChain, int]]:
    """Yield the chains of all sets of devices of a pipeline, and how many devices these are."""
    relaxations = relaxations_of(instance)
    try:
        devices = list(device_ops(relaxations))
        for count in range(1, len(devices) + 1):
            for part in combinations(devices, count):
                chain = chain_of(relaxations, part)
                if chain is not None:
                    yield chain, count
    except MemoryInfeasible:
        return


@pytest.mark.parametrize("number", [0, *MANY])
def test_no_makespan_is_below_any_part(number: int) -> None:
    raised = equal = 0
    for seed in range(5 * number, 5 * (number + 1)):
        instance = drawn_blocks(Random(seed), ops=18)
        tick = relaxations_of(instance).problem.scale.tick
        optimum = combined_optimum(instance)
        for chain, devices in parts_of(instance):
            bound = least(chain)
            assert optimum is None or bound * tick <= optimum, seed
            raised += optimum is None or bound * tick == optimum
            has_memory = "memory" in instance["overlap"]
            is_all = devices == instance["num_devices"]
            is_whole = "backward" in instance["times"] and "optimizer" not in instance
            if is_all and is_whole and not has_memory:
                assert bound == (NEVER if optimum is None else optimum / tick), seed
                equal += 1
    assert raised or number
    assert equal or number


def test_looking_ahead_changes_no_bound_of_a_whole_search() -> None:
    for seed in range(8):
        for chain, _ in parts_of(drawn_blocks(Random(seed), ops=24)):
            bound = least(chain)
            for rows in (1, 2, 24):
                assert least(chain, ahead_of(chain, rows)) == bound, seed


@pytest.mark.parametrize("width", [1, 4])
def test_no_narrow_beam_is_above_the_whole_search(width: int) -> None:
    lower = 0
    for seed in range(15):
        for chain, _ in parts_of(drawn_blocks(Random(seed), ops=24)):
            bound = least(chain)
            for ahead in (NOTHING_AHEAD, ahead_of(chain, rows=2)):
                narrow = least(chain, ahead, width)
                assert narrow <= bound, seed
                lower += narrow < bound
    assert lower


@pytest.mark.parametrize("steps", [0, 1, 10, 100])
def test_a_search_that_is_cut_is_no_higher(steps: int) -> None:
    for seed in range(8):
        for chain, _ in parts_of(drawn_blocks(Random(seed), ops=24)):
            search = FrontierSearch(chain, NEVER, BeamLimits(most_steps=steps))
            search.run()
            assert search.lower <= least(chain), seed
            assert search.is_over == (search.steps < steps), seed


def test_room_for_labels_grows() -> None:
    small = BoundsEffort(params=BoundsParams(frontier_states=1, frontier_labels=1))
    for seed in range(8):
        for chain, _ in parts_of(drawn_blocks(Random(seed), ops=24)):
            search = FrontierSearch(chain, NEVER, BeamLimits(), small)
            search.run()
            assert search.lower == least(chain), seed


def test_compiled_bounds_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [
        chain
        for seed in range(4)
        for chain, _ in parts_of(drawn_blocks(Random(seed), ops=24))
    ]
    answers = []
    for is_compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        answers.append([least(chain, ahead_of(chain, 2), 5) for chain in chains])
    assert answers[0] == answers[1]


def one_device(**fields: Any) -> Instance:
    return {
        "num_devices": 1,
        "num_microbatches": 3,
        "times": {"forward": 4, "backward": 6},
        "memory": {"activation": 1, "capacity": 2},
        "overlap": {"time": 7},
    } | fields


def bound_of(instance: Instance) -> int:
    chain, _ = next(parts_of(instance))
    return least(chain)


def test_two_ops_run_as_one() -> None:
    # Two blocks of 7 between the first forward and the last backward.
    assert bound_of(one_device()) == combined_optimum(one_device()) == 4 + 7 + 7 + 6


def test_a_block_needs_room_beside_what_it_gives_back() -> None:
    # An activation is held while its backward runs, so that no forward runs with it.
    instance = one_device(memory={"activation": 1, "capacity": 1})
    assert bound_of(instance) == combined_optimum(instance) == 3 * (4 + 6)


def test_weight_gradients_are_done_inside_blocks_or_behind_them() -> None:
    times = {"forward": 4, "backward_input": 6, "backward_weight": 3}
    instance = one_device(times=times)
    assert bound_of(instance) == 4 + 7 + 7 + 6 + 3
    apart = instance | {"overlap": {"time": 7, "with_weight": False}}
    assert bound_of(apart) == 4 + 7 + 7 + 6 + 3 * 3


def test_nothing_is_said_of_blocks_in_which_an_op_takes_less_time() -> None:
    assert list(parts_of(one_device(overlap={"time": 5}))) == []

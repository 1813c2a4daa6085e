"""Frontiers of several devices: against the plain model, with and without looking ahead."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import pytest

from ppsolve.models.core.problem import FREE
from ppsolve.solver.board import Board
from ppsolve.solver.bounds.frontier_chains import alone, chain_of, device_ops
from ppsolve.solver.bounds.frontier_devices import JOINT_FRONTIER, FrontierDevices
from ppsolve.solver.bounds.frontier_search import (
    NOTHING_AHEAD,
    BeamLimits,
    FrontierSearch,
    device_ahead,
    look_ahead,
)
from ppsolve.solver.bounds.params import FrontierParams
from ppsolve.solver.bounds.registry import bottleneck
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.kernels import compilation
from ppsolve.solver.kernels.frontier import DeviceChain, LookAhead
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder
from tests.bounds.frontier_cases import drawn_pipeline, problem_of
from tests.marks import later
from tests.outside.plain_model import Instance, plain_optimum

MANY = later("fuzz", range(1, 50))


def parts_of(instance: Instance) -> Iterator[tuple[DeviceChain, int]]:
    """Yield the chains of all sets of devices of a pipeline, and how many devices these are."""
    relaxations = Relaxations(ImpliedOrder(problem_of(instance)))
    try:
        devices = list(device_ops(relaxations))
        for count in range(1, len(devices) + 1):
            for part in combinations(devices, count):
                chain = chain_of(relaxations, part)
                if chain is not None:
                    yield chain, count
    except MemoryInfeasible:
        return


def ahead_of(chain: DeviceChain, rows: int) -> LookAhead:
    tables = []
    for device in range(len(chain.room)):
        table = device_ahead(alone(chain, device), rows, room=5_000)
        assert table is not None
        tables.append(table)
    return look_ahead(chain, tables)


def least(
    chain: DeviceChain, ahead: LookAhead = NOTHING_AHEAD, width: int = NEVER
) -> int:
    search = FrontierSearch(chain, NEVER, BeamLimits(width), ahead=ahead)
    search.run()
    return search.lower


def is_above_the_optimum(instance: Instance, bound: int) -> bool:
    if bound == NEVER:
        return plain_optimum(instance) is not None
    below = bound * problem_of(instance).scale.tick
    return plain_optimum(instance, below=below) is not None


def largest_part(instance: Instance) -> int:
    return max((least(chain) for chain, _ in parts_of(instance)), default=0)


@pytest.mark.parametrize("number", [0, *MANY])
def test_no_makespan_is_below_any_part(number: int) -> None:
    for seed in range(24 * number, 24 * (number + 1)):
        instance = drawn_pipeline(Random(seed), ops=30)
        assert not is_above_the_optimum(instance, largest_part(instance)), seed


@pytest.mark.parametrize("number", [0, *MANY])
def test_no_device_span_is_below_any_part(number: int) -> None:
    for seed in range(20 * number, 20 * (number + 1)):
        instance = drawn_pipeline(Random(seed), ops=16)
        instance |= {"objective": "device_span"}
        assert not is_above_the_optimum(instance, largest_part(instance)), seed


@pytest.mark.parametrize("number", [0, *MANY])
def test_all_devices_without_loose_work_are_the_whole(number: int) -> None:
    count = 0
    for seed in range(32 * number, 32 * (number + 1)):
        instance = drawn_pipeline(Random(seed), ops=24)
        if "backward" not in instance["times"] or "optimizer" in instance:
            continue
        for chain, devices in parts_of(instance):
            if devices == instance["num_devices"]:
                bound = least(chain)
                optimum = plain_optimum(instance)
                tick = problem_of(instance).scale.tick
                assert (optimum is None) == (bound == NEVER), seed
                assert optimum is None or optimum == bound * tick, seed
                count += 1
    assert count >= 10


def two_devices(**fields: Any) -> Instance:
    return {
        "num_devices": 2,
        "num_microbatches": 2,
        "placement": "linear",
        "times": {"forward": 1, "backward": [10, 1]},
        "memory": {"activation": 1, "capacity": 2},
    } | fields


def test_ops_of_other_devices_do_not_delay_the_end_of_one_that_has_ended() -> None:
    # Device 1 works from 1 to 5, and 30 for its optimizer; backwards of device 0 end at 23.
    instance = two_devices(optimizer=[0, 30])
    assert largest_part(instance) == plain_optimum(instance) == 35


def test_loose_work_of_a_device_that_has_ended_counts() -> None:
    # Device 1 works from 1 on: two forwards, two backwards, 50 for each weight gradient; device 0
    # has ended by then.
    times = {"forward": 1, "backward_input": 1, "backward_weight": [1, 50]}
    instance = two_devices(times=times)
    assert largest_part(instance) == plain_optimum(instance) == 105


def test_devices_wait_for_each_other() -> None:
    # One micro-batch at a time: 1 + 1 + 1 + 10 for each, on device 1 too, which waits for starts
    # that memory of device 0 allows. With room for two, device 0 forwards at 0 and 1, and its
    # backwards end at 3 + 20; device 1 works until 5, before a backward of 10.
    one = two_devices(memory={"activation": 1, "capacity": 1})
    assert [least(chain) for chain, _ in parts_of(one)] == [26, 26, 26]
    assert [least(chain) for chain, _ in parts_of(two_devices())] == [23, 15, 23]


def test_looking_ahead_changes_no_bound_of_a_whole_search() -> None:
    for seed in range(20):
        for chain, _ in parts_of(drawn_pipeline(Random(seed), ops=30)):
            bound = least(chain)
            for rows in (1, 2, 24):
                assert least(chain, ahead_of(chain, rows)) == bound, seed


@pytest.mark.parametrize("width", [1, 4])
def test_no_narrow_beam_is_above_the_whole_search(width: int) -> None:
    lower = 0
    for seed in range(20, 40):
        for chain, _ in parts_of(drawn_pipeline(Random(seed), ops=30)):
            bound = least(chain)
            for ahead in (NOTHING_AHEAD, ahead_of(chain, rows=2)):
                narrow = least(chain, ahead, width)
                assert narrow <= bound, seed
                lower += narrow < bound
    assert lower


def test_a_device_alone_takes_what_its_first_state_says() -> None:
    # Without earliest starts the rows of the first state are the optimum of the device.
    for seed in range(20):
        for chain, count in parts_of(drawn_pipeline(Random(seed), ops=30)):
            if count == 1:
                single = alone(chain, 0)
                table = device_ahead(single, most=10_000, room=5_000)
                assert table is not None
                rows = table.entries[: table.pointer[1] * (single.rows + 2)]
                ends = rows.reshape(-1, single.rows + 2)[:, :2].max(axis=1)
                assert min(ends, default=NEVER) == least(single), seed


def test_a_device_with_too_many_states_is_not_looked_up() -> None:
    chain, _ = next(parts_of(drawn_pipeline(Random(0), ops=30)))
    for most, room in ((4, 3), (4, 1), (4, 0), (0, 5_000)):
        assert device_ahead(alone(chain, 0), most, room) is None


def test_compiled_bounds_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chains = [
        chain
        for seed in range(5)
        for chain, _ in parts_of(drawn_pipeline(Random(seed), ops=30))
    ]
    answers = []
    for is_compiled in (False, True):
        monkeypatch.setitem(compilation._state, "compiled", is_compiled)
        answers.append([least(chain, ahead_of(chain, 2), 5) for chain in chains])
    assert answers[0] == answers[1]


def tight(**fields: Any) -> Instance:
    """Return four devices of two stages with memory for half of their micro-batches."""
    draw = Random(3)
    times = {
        kind: [draw.randint(40, 150) for _ in range(8)]
        for kind in ("forward", "backward_input", "backward_weight")
    }
    memory = {
        "capacity": 2,
        "activation": 0.5,
        "released_by_backward_weight": 0.5,
    }
    return {
        "num_devices": 4,
        "num_microbatches": 6,
        "stages_per_device": 2,
        "placement": "interleaved",
        "times": times,
        "p2p": {"latency": 20},
        "memory": memory,
    } | fields


def searched(
    instance: Instance, steps: int, clock: Clock | None = None, lower: int = 0
) -> Board:
    """Return a board after a search that begins with narrow beams."""
    problem = problem_of(instance)
    board = Board.beginning(list_tail(problem))
    board.raise_bound(lower, "other rules")
    relaxations = Relaxations(ImpliedOrder(problem), clock)
    params = FrontierParams(width=1, proving=2)
    search = FrontierDevices(relaxations, board, params, steps)
    search.run()
    board.units += steps - search.steps_left
    return board


@pytest.mark.parametrize("objective", ["makespan", "device_span"])
def test_several_devices_prove_more_than_each_alone(objective: str) -> None:
    instance = tight(objective=objective)
    singles = [least(chain) for chain, count in parts_of(instance) if count == 1]
    best = searched(instance, 10**6).bound
    assert best.name == JOINT_FRONTIER
    assert best.value > max(singles)
    assert best.value == largest_part(instance)
    assert best.others


def test_little_effort_proves_less_and_none_nothing() -> None:
    bounds = [searched(tight(), steps).bound.value for steps in (0, 1_000, 10**6)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0
    assert bounds[1] < bounds[2]
    assert searched(tight(), 10**6, Clock(0.0)).bound.value == 0


def test_no_round_follows_one_that_proves_no_more_than_other_rules() -> None:
    first = searched(tight(), 10**6)
    beside = searched(tight(), 10**6, lower=first.bound.value)
    assert beside.bound.name == "other rules"
    assert 0 < beside.units < first.units / 2


def test_the_bottleneck_names_memory_and_devices() -> None:
    board = searched(tight(), 10**6)
    problem = problem_of(tight())
    cause = bottleneck(problem, board.bounds, board.bound)
    assert cause is not None
    numbers = (board.bound.resource, *board.bound.others)
    assert FREE not in numbers
    *first, last = (problem.resource_names[number] for number in numbers)
    names = f"{', '.join(first)} and {last}"
    assert cause.about == names
    assert f"the memory of {names}: " in cause.why
    assert cause.work is None

"""Published event-driven schedulers on hand-made routes: what each rule starts, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.kinds.pipeline.event_driven.route import (
    Route,
    RouteMemory,
    RouteRun,
    RouteShape,
    route_of,
)
from ppsolve.solver.kinds.pipeline.event_driven.schedulers import (
    cyclic,
    fifo,
    interleaved_cyclic_1f1b,
    strict_1f1b,
    turns_1f1b,
    wait_free_cyclic,
)
from tests.running import run_heuristic

NAMES = ("fifo", "cyclic", "wait-free-cyclic")


def route(
    forward: Sequence[int],
    backward: Sequence[int],
    transfer: int = 0,
    devices: Sequence[int] = (0, 1),
    room: int | None = None,
) -> Route:
    """Return a route whose stages take the same times; each forward leaves as much as it takes."""
    shape = RouteShape(len(devices))
    rows, queue = [], []
    for position in range(shape.num_positions):
        stage = shape.stage(position)
        if shape.is_transfer(position):
            rows.append([transfer] * len(forward))
            queue.append(devices[stage])
        else:
            rows.append(list(forward if shape.is_forward(position) else backward))
            queue.append(max(devices) + 1 + devices[stage])
    amounts, size = (
        np.array([forward] * len(devices)),
        np.full(max(devices) + 1, room or 0),
    )
    memory = None if room is None else RouteMemory(amounts, amounts, size)
    lag = np.zeros(len(queue), dtype=np.int64)
    table = np.array(rows, dtype=np.int64)
    return Route(tuple(devices), table, np.array(queue), lag, memory)


def orders(run: RouteRun) -> list[str]:
    """Return what each device computes, e.g. ``F0 F1 B0 B1``."""
    shape = run.route.shape
    queues = [
        run.route.compute_queue(device) for device in range(run.route.num_devices)
    ]
    return [
        " ".join(f"{'BF'[shape.is_forward(v)]}{k}" for v, k in run.served[queue])
        for queue in queues
    ]


def pipeline(**fields: Any) -> dict[str, Any]:
    times = {"forward": [[1, 3, 2]] * 2, "backward": [[2, 6, 4]] * 2}
    whole = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 3,
        "times": times,
    }
    return {**whole, **fields}


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_positions_are_a_chain_there_and_back(stages: int) -> None:
    """Computed at: 0, 1, ..., S - 1, S - 1, ..., 1, 0; every transfer leaves the stage before."""
    shape = RouteShape(stages)
    positions = range(shape.num_positions)
    computed = [v for v in positions if not shape.is_transfer(v)]
    assert [shape.stage(v) for v in computed] == [
        *range(stages),
        *reversed(range(stages)),
    ]
    assert [shape.is_forward(v) for v in computed] == [True] * stages + [False] * stages
    for position in set(positions) - set(computed):
        assert shape.stage(position) == shape.stage(position - 1)
        assert shape.is_forward(position) == shape.is_forward(position - 1)


def test_fifo_serves_what_arrived_first() -> None:
    """All forwards are at device 0 before any backward; at device 1 B0 arrives before F1 does."""
    run = fifo(route([1, 1, 1], [2, 2, 2]))
    assert orders(run) == ["F0 F1 F2 B0 B1 B2", "F0 B0 F1 F2 B1 B2"]
    # On device 1: F0 1-2, B0 2-4, F1 4-5, F2 5-6, B1 6-8, B2 8-10; then B2 on device 0.
    assert run.makespan == 12


def test_1f1b_waits_for_its_turn() -> None:
    """Device 1 could run F1 while it has nothing to do; its plan says B0 first."""
    run = strict_1f1b(route([1, 1, 4], [5, 1, 1]))
    assert orders(run) == ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]
    # F0, F0', B0' and B0 end at 1, 2, 7, 12; F2 at 16, F2' at 20, B2' at 21, B2 at 22.
    assert run.makespan == 22


def test_transfers_of_both_directions_share_the_queue_of_the_sender() -> None:
    """The middle device sends F1 on and B0 back one after the other, in the order of its ops."""
    run = strict_1f1b(route([1, 1], [1, 1], transfer=10, devices=(0, 1, 2)))
    sent = run.served[1]
    ends = [int(run.start[visit]) + 10 for visit in sent]
    starts = [int(run.start[visit]) for visit in sent]
    assert [(v, k) for v, k in sent] == [(3, 0), (3, 1), (8, 0), (8, 1)]
    assert all(start >= end for start, end in zip(starts[1:], ends[:-1], strict=True))


@pytest.mark.parametrize(
    ("devices", "count", "leads"), [(4, 8, [3, 2, 1, 0]), (4, 2, [2, 2, 1, 0])]
)
def test_lead_of_1f1b(devices: int, count: int, leads: list[int]) -> None:
    given = route([1] * count, [1] * count, devices=range(devices))
    for device, lead in enumerate(leads):
        turns = turns_1f1b(given, device)
        assert turns[: 2 * lead][:lead] == [(True, k) for k in range(lead)]
        assert sorted(turns) == sorted(
            (way, k) for way in (True, False) for k in range(count)
        )


def test_rounds_run_a_backward_and_a_forward_of_each_stage() -> None:
    """Rounds: F0 | F1 F0' | F2 F1' B0' | B0 F2' B1' | B1 B2' | B2, each as long as its device."""
    run = cyclic(route([1, 1, 1], [3, 3, 3]))
    assert orders(run) == ["F0 F1 F2 B0 B1 B2", "F0 B0 F1 B1 F2 B2"]
    assert run.makespan == 1 + 1 + 4 + 4 + 3 + 3


def test_transfers_of_a_round_start_with_it() -> None:
    """The published slip: a transfer starts together with the forward that feeds it."""
    run = cyclic(route([4, 4], [4, 4], transfer=2))
    assert run.start[0, 0] == run.start[1, 0] == 0
    assert run.makespan == cyclic(route([4, 4], [4, 4])).makespan


def test_wait_free_runs_the_orders_of_the_rounds_without_barriers() -> None:
    given = route([1, 3, 2], [3, 1, 2])
    assert orders(wait_free_cyclic(given)) == orders(cyclic(given))
    assert wait_free_cyclic(given).makespan < cyclic(given).makespan


def test_rounds_put_off_what_has_no_room() -> None:
    """Each forward holds 1: with room for 1, nothing runs ahead of a backward."""
    given = route([1, 1, 1], [1, 1, 1], room=1)
    assert not cyclic(given).fits
    careful = cyclic(given, keeps_room=True)
    assert orders(careful) == ["F0 B0 F1 B1 F2 B2"] * 2
    assert careful.fits
    assert orders(wait_free_cyclic(given)) == orders(careful)


def test_the_first_micro_batch_is_never_put_off() -> None:
    """It has no room either; nothing else ever has, so that the rounds end before all is done."""
    given = route([3, 3], [1, 1], room=2)
    assert not cyclic(given, keeps_room=True).is_complete
    assert wait_free_cyclic(given).is_complete
    assert not wait_free_cyclic(given).fits


def test_levels_count_the_forward_that_runs() -> None:
    """Forwards of 2 and 3 that leave 1 and 1: 1 + 3 while the second runs."""
    given = route([1, 1], [1, 1], room=9)
    ones = np.ones((2, 2), dtype=np.int64)
    memory = RouteMemory(np.array([[2, 3], [2, 3]]), ones, np.full(2, 9))
    given = replace(given, memory=memory)
    assert strict_1f1b(given).levels().tolist() == [4, 3]


def test_barriers_hold_up_forwards_only() -> None:
    """Barriers never change an order, and never make a run shorter."""
    devices = (0, 1, 0, 1)
    free = strict_1f1b(route([1, 5, 2, 3], [2, 9, 1, 7], devices=devices))
    held = interleaved_cyclic_1f1b(route([1, 5, 2, 3], [2, 9, 1, 7], devices=devices))
    assert orders(held) == orders(free)
    assert (held.start >= free.start).all()


def test_a_permuted_route_has_the_micro_batches_in_their_new_places() -> None:
    given = route([1, 2, 3], [4, 5, 6], room=5)
    permuted = given.permuted(np.array([2, 0, 1]))
    assert permuted.duration[0].tolist() == [3, 1, 2]
    assert permuted.duration[-1].tolist() == [6, 4, 5]
    assert permuted.memory is not None
    assert permuted.memory.peak[1].tolist() == [3, 1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_heuristics_end_when_the_simulation_does(name: str) -> None:
    instance = parse_instance(pipeline())
    problem = lower(instance)
    outcome = run_heuristic(name, instance, problem)
    rule = {"fifo": fifo, "cyclic": cyclic, "wait-free-cyclic": wait_free_cyclic}[name]
    assert outcome.status is HeuristicStatus.FEASIBLE
    assert outcome.schedule is not None
    assert outcome.schedule.makespan == rule(route_of(instance, problem)).makespan


@pytest.mark.parametrize("name", NAMES)
def test_equal_micro_batches_need_none_of_them(name: str) -> None:
    instance = parse_instance(pipeline(times={"forward": [1, 2], "backward": 3}))
    outcome = run_heuristic(name, instance, lower(instance))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason == "needs unequal micro-batches that are not sliced"


def test_cyclic_needs_transfers_that_take_no_time() -> None:
    instance = parse_instance(pipeline(p2p={"latency": 1}))
    outcome = run_heuristic("cyclic", instance, lower(instance))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert "transfers that take no time" in (outcome.reason or "")


@pytest.mark.parametrize("mode", ["delay", "link", "nic"])
@pytest.mark.parametrize("name", ["fifo", "wait-free-cyclic"])
def test_transfers_are_those_of_the_pipeline(name: str, mode: str) -> None:
    size = {} if mode == "delay" else {"bytes": 4, "bandwidth": 2}
    instance = parse_instance(pipeline(p2p={"mode": mode, "latency": 1, **size}))
    problem = lower(instance)
    outcome = run_heuristic(name, instance, problem)
    assert outcome.schedule is not None
    assert not check_schedule(problem, outcome.schedule)
    simulated = {"fifo": fifo, "wait-free-cyclic": wait_free_cyclic}[name]
    if mode != "nic":
        assert (
            outcome.schedule.makespan == simulated(route_of(instance, problem)).makespan
        )


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("mode", ["delay", "link", "nic", "send_queue"])
def test_every_link_of_interleaved_stages_has_its_turns(
    mode: str, devices: int
) -> None:
    size = {} if mode == "delay" else {"bytes": 4, "bandwidth": 2}
    stages, count = 2 * devices, 2 * devices
    times = {
        "forward": [[*range(1, count + 1)]] * stages,
        "backward": [[*range(2, count + 2)]] * stages,
    }
    data = {"num_devices": devices, "num_microbatches": count, "times": times}
    data |= {"placement": "interleaved", "stages_per_device": 2}
    instance = parse_instance(
        {"kind": "pipeline", **data, "p2p": {"mode": mode, **size}}
    )
    problem = lower(instance)
    outcome = run_heuristic("interleaved-cyclic-1f1b", instance, problem)
    assert outcome.schedule is not None
    assert not check_schedule(problem, outcome.schedule)
    if mode != "nic":
        run = interleaved_cyclic_1f1b(route_of(instance, problem))
        assert outcome.schedule.makespan == run.makespan


@pytest.mark.parametrize("name", NAMES)
def test_split_backwards_run_in_one_piece(name: str) -> None:
    times = {
        "forward": [[1, 3, 2]] * 2,
        "backward_input": [[1, 2, 1]] * 2,
        "backward_weight": [[1, 4, 3]] * 2,
    }
    instance = parse_instance(pipeline(times=times))
    split, whole = (
        run_heuristic(name, i, lower(i)) for i in (instance, parse_instance(pipeline()))
    )
    assert split.schedule is not None
    assert whole.schedule is not None
    assert split.schedule.makespan == whole.schedule.makespan
    assert split.orders == whole.orders


@pytest.mark.parametrize("name", ["fifo", "cyclic"])
def test_too_little_memory_is_named(name: str) -> None:
    instance = parse_instance(pipeline(memory={"capacity": 1, "activation": 1}))
    outcome = run_heuristic(name, instance, lower(instance))
    assert outcome.status is HeuristicStatus.INFEASIBLE
    assert outcome.reason is not None
    careful = run_heuristic("wait-free-cyclic", instance, lower(instance))
    assert careful.status is HeuristicStatus.FEASIBLE


def test_barriers_need_whole_groups() -> None:
    fields = {"placement": "interleaved", "stages_per_device": 2, "num_microbatches": 3}
    times = {"forward": [[1, 3, 2]] * 4, "backward": [[2, 6, 4]] * 4}
    instance = parse_instance(pipeline(**fields, times=times))
    outcome = run_heuristic("interleaved-cyclic-1f1b", instance, lower(instance))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason == "needs a multiple of the devices as micro-batches"

from __future__ import annotations

import itertools
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.kinds.pipeline.one_stage import one_forward_one_backward
from tests.running import run_heuristic


def pipes(devices: int, microbatches: int, **fields: Any) -> PipelineInstance:
    return PipelineInstance.parse(
        {
            "num_devices": devices,
            "num_microbatches": microbatches,
            "placement": "bidirectional",
            "times": {"forward": 1, "backward": 2},
        }
        | fields
    )


def merged_step_by_step(
    devices: int, microbatches: int, times: dict[str, int]
) -> list[list[str]]:
    """Merge by the rule's own words: again and again, start the head that can start earliest."""
    half = microbatches // 2
    waiting = {}
    for pipe, (stage, order) in itertools.product(
        range(2), enumerate(one_forward_one_backward(devices, half))
    ):
        device = stage if pipe == 0 else devices - 1 - stage
        waiting[device, pipe] = [
            (a.kind, a.stage, a.microbatch + pipe * half) for a in order
        ]
    end: dict[tuple[str, int, int], int] = {}
    free = [0] * devices
    merged: list[list[str]] = [[] for _ in range(devices)]

    def ready(kind: str, stage: int, i: int) -> int | None:
        before = (
            [("F", stage - 1, i)]
            if kind == "F"
            else [("F", stage, i), ("B", stage + 1, i)]
        )
        before = [b for b in before if 0 <= b[1] < devices]
        return (
            max((end[b] for b in before), default=0)
            if all(b in end for b in before)
            else None
        )

    while any(waiting.values()):
        heads = []
        for (device, pipe), sequence in waiting.items():
            moment = ready(*sequence[0]) if sequence else None
            if moment is not None:
                kind, stage, i = sequence[0]
                key = (max(moment, free[device]), kind == "F", stage, i)
                heads.append((key, device, pipe))
        (time, *_), device, pipe = min(heads)
        kind, stage, i = waiting[device, pipe].pop(0)
        free[device] = end[kind, stage, i] = time + times[kind]
        merged[device].append(f"{stage}{kind}{i}")
    return merged


def test_two_devices_by_hand() -> None:
    instance = pipes(2, 2)
    outcome = run_heuristic("chimera", instance, lower(instance))
    assert outcome.orders == [
        ["0F0", "1F1", "1B1", "0B0"],
        ["0F1", "1F0", "1B0", "0B1"],
    ]
    assert outcome.schedule is not None
    assert outcome.schedule.makespan == 6


@pytest.mark.parametrize(
    ("devices", "microbatches"), [(2, 8), (4, 4), (4, 8), (4, 14), (6, 12)]
)
@pytest.mark.parametrize("times", [(1, 2), (3, 4), (5, 3)])
def test_merge_follows_the_rule(
    devices: int, microbatches: int, times: tuple[int, int]
) -> None:
    forward, backward = times
    instance = pipes(
        devices, microbatches, times={"forward": forward, "backward": backward}
    )
    outcome = run_heuristic("chimera", instance, lower(instance))
    assert outcome.status is HeuristicStatus.FEASIBLE
    expected = merged_step_by_step(devices, microbatches, {"F": forward, "B": backward})
    assert outcome.orders == expected


def test_split_backward_runs_like_a_fused_one() -> None:
    fused, split = (
        pipes(4, 8),
        pipes(4, 8, times={"forward": 1, "backward_input": 1, "backward_weight": 1}),
    )
    outcomes = [run_heuristic("chimera", i, lower(i)) for i in (fused, split)]
    assert outcomes[0].orders == outcomes[1].orders
    assert outcomes[0].schedule is not None
    assert outcomes[1].schedule is not None
    assert outcomes[0].schedule.makespan == outcomes[1].schedule.makespan


@pytest.mark.parametrize("mode", ["link", "nic"])
def test_transfers_on_links(mode: str) -> None:
    p2p = {"mode": mode, "latency": 1, "bytes": 2, "bandwidth": 1}
    instance = pipes(4, 8, p2p=p2p, optimizer=3, allreduce=2)
    outcome = run_heuristic("chimera", instance, lower(instance))
    assert outcome.status is HeuristicStatus.FEASIBLE


def test_slices_of_a_microbatch_follow_each_other() -> None:
    """No other published order of one pipe is tried on two of them."""
    instance = pipes(2, 2, times={"forward": [3, 2], "backward": [0, 4]}, slices=2)
    result = ppsolve.optimize(instance)
    values = {entry.name: entry.value for entry in result.heuristics}
    assert (result.status, result.value) == (Status.OPTIMAL, 18)
    assert values["chimera"] == 18
    refused = {name for name in values if "seq1f1b" in name or name == "slimpipe"}
    assert len(refused) == 4
    assert {values[name] for name in refused} == {None}

"""Refusals of memory: the device, what it needs, and changes that make room, worked out anew."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import HeuristicStatus, Status
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.models.studies.plan.result import MemoryShortage, Rule, Verdict, bytes_text
from ppsolve.solver.studies.plan.building import PipelineBuilder
from tests.studies.plan.cases import document, planned, reduced_document, splits


def holding(memory: float, **search: Any) -> dict[str, Any]:
    """Return a request of eight layers, each with states of 8 and 2 of activations per sample."""
    data = document(8, 1, 4, batch_sizes=[8], **search)
    data["model"]["layers"][0] |= {"activation_bytes": 2, "parameter_bytes": 1}
    data["cluster"]["memory"] = memory
    return data


def test_a_refusal_by_hand() -> None:
    """One device has 64 of states and 16 or 32 of activations, two have half of that."""
    found = planned(holding(70))
    lacks = {
        (
            row.configuration.pipeline_depth,
            row.configuration.microbatch_size,
        ): row.memory
        for row in found.table
    }
    assert lacks.pop((1, 1)) == MemoryShortage(
        device=0,
        needed=80,
        available=70,
        may_help=("a pipeline of 2 devices", "recomputation", "tensor parallelism 2"),
    )
    assert set(lacks.values()) == {
        None,
        MemoryShortage(
            device=0,
            needed=96,
            available=70,
            may_help=(
                "a pipeline of 2 devices",
                "recomputation",
                "tensor parallelism 2",
            ),
        ),
    }
    row = next(row for row in found.table if row.memory and row.memory.needed == 80)
    assert row.reason == (
        "proved: no split of the layers leaves room for the states and one micro-batch: device 0 "
        "needs 80 bytes or more, available 70 bytes; may help: a pipeline of 2 devices, "
        "recomputation, tensor parallelism 2"
    )


@pytest.mark.parametrize(
    ("memory", "depth", "size", "helps"),
    [
        (90, 1, 2, {"micro-batch size 1", "a pipeline of 2 devices", "recomputation"}),
        (39, 2, 2, {"a pipeline of 4 devices", "recomputation"}),
        (30, 2, 2, {"a pipeline of 4 devices"}),
        (10, 4, 1, set()),
    ],
)
def test_what_may_help(memory: float, depth: int, size: int, helps: set[str]) -> None:
    found = planned(holding(memory, pipeline_depths=[depth], microbatch_sizes=[size]))
    (row,) = {row.memory for row in found.table}
    assert row is not None
    assert set(row.may_help) - {"tensor parallelism 2"} == helps


def test_what_already_recomputes_cannot_recompute() -> None:
    data = holding(70, pipeline_depths=[1], microbatch_sizes=[1])
    data["model"]["recompute"] = "full"
    (row,) = planned(data).table
    assert row.memory is not None
    assert "recomputation" not in row.memory.may_help


@pytest.mark.parametrize(
    ("depth", "per_node", "may"),
    [(1, 2, True), (1, 3, False), (2, 2, False), (2, 4, True)],
)
def test_groups_are_no_larger_than_nodes_and_all_have_room(
    depth: int, per_node: int, may: bool
) -> None:
    data = holding(
        70 / depth, pipeline_depths=[depth], microbatch_sizes=[1], replicas=[1]
    )
    data["cluster"]["devices_per_node"] = per_node
    (row,) = planned(data).table
    assert row.memory is not None
    assert ("tensor parallelism 2" in row.memory.may_help) == may


def test_an_even_split_that_the_solver_refutes() -> None:
    """Four layers with states of 4 on one device, four of 12 on the other, activations of 2."""
    data = holding(50, pipeline_depths=[2], microbatch_sizes=[1], layer_splits=["even"])
    (layer,) = data["model"]["layers"]
    data["model"]["layers"] = [
        layer | {"count": 4, "parameter_bytes": amount} for amount in (0.5, 1.5)
    ]
    found = planned(data)
    for row in found.table:
        assert row.lost_by is Rule.MEMORY
        assert row.memory is not None
        assert (row.memory.device, row.memory.needed) == (1, 4 * 12 + 4 * 2)
        assert row.reason.startswith("proved: ")


@pytest.mark.parametrize("seed", range(8))
def test_no_split_needs_less_than_a_refusal_says(seed: int) -> None:
    data = reduced_document(seed)
    data["cluster"]["memory"] = 12
    builder = PipelineBuilder(parse_request(data))
    layers = builder.request.model.num_layers
    refused = [row for row in planned(data).table if row.lost_by is Rule.MEMORY]
    for row in refused:
        assert row.memory is not None
        c, needed = row.configuration, row.memory.needed
        held = builder.layers(c.microbatch_size).held
        devices = builder.stage_to_device(c)
        every = list(splits(layers, len(devices)))
        if c.layer_split == "even" and row.layers_per_stage:
            continue
        least = min(max(loads(devices, bounds, held)) for bounds in every)
        assert row.memory.available == 12
        assert needed is None or 12 < needed <= least
        fullest = [loads(devices, bounds, held) for bounds in every]
        best = min(fullest, key=max)
        if (
            len(set(devices)) == len(devices)
            and [max(x) for x in fullest].count(max(best)) == 1
        ):
            assert best[row.memory.device] == max(best)


def loads(
    devices: tuple[int, ...], boundaries: tuple[int, ...], held: list[Fraction]
) -> list[Fraction]:
    found = [Fraction(0)] * (max(devices) + 1)
    for device, (first, last) in zip(devices, pairwise(boundaries), strict=True):
        found[device] += sum(held[first:last])
    return found


def test_refusals_of_schedules_are_called_so() -> None:
    """Under gpipe each of two devices keeps all micro-batches, eight or four of 8 or 16 bytes."""
    search = {"schedules": ["gpipe"], "pipeline_depths": [2], "replicas": [1]}
    found = planned(holding(90, **search))
    assert (found.winner, found.status) == (None, Status.UNKNOWN)
    assert found.counts.schedules_memory == len(found.table) == 2
    for row in found.table:
        assert (row.verdict, row.lost_by) == (Verdict.LOST, Rule.SCHEDULES_MEMORY)
        assert row.memory is not None
        assert (row.memory.device, row.memory.needed, row.memory.available) == (
            0,
            96,
            90,
        )
        assert row.memory.schedule == "gpipe"
        assert row.memory.may_help[0] == "a schedule with fewer micro-batches in flight"
        assert row.reason.startswith(
            "no allowed schedule fits the memory: under gpipe device 0 needs 96 bytes, available 90"
        )
    fits = planned(holding(96, **search))
    assert fits.winner is not None
    assert fits.instance is not None
    peaks = ppsolve.simulate(fits.instance, "gpipe").peak_memory
    assert peaks is not None
    assert max(peaks.values()) == 96


def test_the_schedule_that_comes_closest_counts() -> None:
    search = {
        "schedules": ["gpipe", "1f1b", "zb-h1"],
        "pipeline_depths": [2],
        "replicas": [1],
    }
    found = planned(holding(45, **search, microbatch_sizes=[1]))
    (row,) = found.table
    assert row.lost_by is Rule.SCHEDULES_MEMORY
    assert row.memory is not None
    assert (row.memory.schedule, row.memory.needed) == ("1f1b", 48)
    instance = PipelineBuilder(parse_request(holding(1000, **search))).pipeline(
        row.configuration, (0, 4, 8)
    )
    entry = ppsolve.simulate(instance.instance(), "1f1b")
    assert entry.status is HeuristicStatus.FEASIBLE
    assert entry.peak_memory == {"device 0": 48, "device 1": 40}


def test_what_does_not_apply_is_no_memory() -> None:
    found = planned(holding(1000, schedules=["zb-h1"], pipeline_depths=[2]))
    assert {row.lost_by for row in found.table} == {Rule.NOT_APPLICABLE}
    assert {row.memory for row in found.table} == {None}


def test_amounts_are_told_apart() -> None:
    lack = MemoryShortage(device=3, needed=24_000_000_001, available=24e9)
    assert str(lack) == "device 3 needs 24.000000001 GB or more, available 24 GB"
    assert str(MemoryShortage(device=0, needed=None, available=5e6)) == (
        "device 0 needs more, available 5 MB"
    )
    assert [bytes_text(amount) for amount in (999, 1500, 1e9)] == [
        "999 bytes",
        "1.5 kB",
        "1 GB",
    ]

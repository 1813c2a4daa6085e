"""V-Half and V-Min: orders and figures of the published program, memory by the paper's rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from tests.marks import first
from tests.paths import DATA
from tests.running import run_heuristic

PUBLISHED = json.loads((DATA / "controllable_memory.json").read_text())
UNIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}
NAMES = ("v-half", "v-min")


def folded(devices: int, microbatches: int, **fields: Any) -> PipelineInstance:
    base = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "placement": "vshape",
        "times": UNIT,
    }
    return PipelineInstance.parse(base | fields)


def run(name: str, instance: PipelineInstance) -> HeuristicOutcome:
    return run_heuristic(name, instance, lower(instance))


def whole_chunks(capacity: float) -> dict[str, Any]:
    """Memory in chunks, each of which is held until its weight gradient ends."""
    return {"capacity": capacity, "activation": 1, "released_by_backward_weight": 1}


def published_instance(row: dict[str, Any], capacity: float) -> PipelineInstance:
    profile = PUBLISHED["profiles"][row["profile"]]
    return folded(
        row["devices"],
        row["microbatches"],
        times={
            "forward": profile["F"] / 2,
            "backward_input": profile["I"] / 2,
            "backward_weight": profile["W"] / 2,
        },
        p2p={"latency": profile["comm"]},
        memory=whole_chunks(capacity),
    )


def name_of(row: dict[str, Any]) -> str:
    return f"{row['mode']}-{row.get('profile', row['devices'])}-{row['microbatches']}"


@pytest.mark.parametrize("row", PUBLISHED["rows"], ids=name_of)
def test_published_makespans_at_published_peaks(row: dict[str, Any]) -> None:
    instance = published_instance(row, row["peak_chunks"])
    problem = lower(instance)
    outcome = run_heuristic(row["mode"], instance, problem)
    assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason
    assert outcome.schedule is not None
    assert outcome.schedule.value * problem.scale.time(1) == row["published"]


@pytest.mark.parametrize("row", PUBLISHED["rows"], ids=name_of)
def test_less_than_the_published_peak_is_too_little(row: dict[str, Any]) -> None:
    peak = int(row["peak_chunks"])
    outcome = run(row["mode"], published_instance(row, peak - 0.5))
    assert outcome.status is HeuristicStatus.INFEASIBLE
    assert outcome.reason is not None
    assert f"holds {peak} of {peak - 0.5} at " in outcome.reason


@pytest.mark.parametrize("row", PUBLISHED["orders"], ids=name_of)
def test_published_orders_are_reproduced(row: dict[str, Any]) -> None:
    outcome = run(row["mode"], folded(row["devices"], row["microbatches"]))
    assert outcome.orders == [order.split() for order in row["orders"]]


def peak_of(name: str, devices: int) -> int:
    """Chunks that the paper's rule holds, where 1F1B holds twice the devices."""
    return 2 * (devices // 2 if name == "v-half" else (devices + 1) // 3) + 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", first(4, [1, 2, 4, 7, 3, 5, 6, 9]))
@pytest.mark.parametrize("microbatches", [1, 2, 5, 8, 13, 30])
def test_orders_run_within_their_memory(
    name: str, devices: int, microbatches: int
) -> None:
    peak = min(peak_of(name, devices), 2 * microbatches)
    memory = whole_chunks(peak)
    outcome = run(name, folded(devices, microbatches, memory=memory))
    assert outcome.status is HeuristicStatus.FEASIBLE, outcome.reason
    memory = whole_chunks(peak - 1)
    outcome = run(name, folded(devices, microbatches, memory=memory))
    assert outcome.status is HeuristicStatus.INFEASIBLE


@pytest.mark.parametrize("name", NAMES)
def test_orders_follow_from_the_shape_alone(name: str) -> None:
    usual = run(name, folded(4, 9))
    times = {
        "forward": [3, 1, 4, 1, 5, 9, 2, 6],
        "backward_input": [5, 3, 5, 8, 9, 7, 9, 3],
        "backward_weight": 2,
    }
    p2p = {"mode": "link", "latency": 1, "bytes": 6, "bandwidth": 2}
    uneven = run(name, folded(4, 9, times=times, p2p=p2p))
    assert uneven.status is HeuristicStatus.FEASIBLE
    assert uneven.orders == usual.orders


def test_one_micro_batch_by_hand() -> None:
    """Blocks of device 1 are slots 2, 3, 10, 12 and 1, 2, 5, 6: a gap of one slot, and none."""
    turn = ["1F0", "2F0", "2I0"]
    lines = {
        "v-half": [*turn, "2W0", "1I0", "1W0"],
        "v-min": [*turn, "1I0", "2W0", "1W0"],
    }
    # Four forwards and four input gradients in turn, then a weight gradient; V-Half has one more
    # on the way.
    makespans = {"v-half": 10, "v-min": 9}
    for name in NAMES:
        outcome = run(name, folded(2, 1))
        first = ["0F0", "3F0", "3I0", "3W0", "0I0", "0W0"]
        assert outcome.orders == [first, lines[name]]
        assert outcome.schedule is not None
        assert outcome.schedule.makespan == makespans[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"placement": "interleaved"}, "needs a V placement: 2 stages per device"),
        ({"placement": "linear"}, "needs a V placement: 2 stages per device"),
        ({"placement": "bidirectional"}, "needs one pipe (not bidirectional)"),
        ({"times": {"forward": 1, "backward": 2}}, "needs split backwards"),
    ],
)
def test_what_they_need_is_said(name: str, fields: dict[str, Any], reason: str) -> None:
    outcome = run(name, folded(4, 8, **fields))
    assert outcome.status is HeuristicStatus.NOT_APPLICABLE
    assert outcome.reason is not None
    assert outcome.reason.startswith(reason)

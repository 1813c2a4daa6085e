"""The program's check of a pipeline schedule against an oracle that reads the instance alone."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.core.result import ScheduleDocument
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from tests.kinds.pipeline.oracle import Finding, broken_rules
from tests.running import run_heuristic

TIMES = st.sampled_from([0, 0.5, 1, 1.25, 2, 3])
AMOUNTS = st.sampled_from([0, 0.25, 0.5, 1, 1.5])


def per(entry: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
    return entry | st.lists(entry, min_size=count, max_size=count)


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    """Return the JSON of a small pipeline with delays and, mostly, memory."""
    devices, microbatches = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    placement = draw(
        st.sampled_from(
            ["linear", "vshape", "interleaved", "wave", "bidirectional", "explicit"]
        )
    )
    data: dict[str, Any] = {
        "kind": "pipeline",
        "num_devices": devices,
        "placement": placement,
    }
    stages = devices
    if placement in {"vshape", "interleaved", "wave"}:
        data["stages_per_device"] = 2
        stages = 2 * devices
    if placement == "bidirectional":
        microbatches = 2
    if placement == "explicit":
        places = draw(st.permutations([*range(devices), 0]))
        data["placement"] = {"stage_to_device": places}
        stages = devices + 1
    data["num_microbatches"] = microbatches
    row = st.lists(TIMES, min_size=microbatches, max_size=microbatches)
    times = TIMES | st.lists(TIMES | row, min_size=stages, max_size=stages)
    kinds = draw(
        st.sampled_from(
            [("forward", "backward"), ("forward", "backward_input", "backward_weight")]
        )
    )
    data["times"] = {kind: draw(times) for kind in kinds}
    assume(re.search("[1-9]", str(data["times"])))  # all zero are refused
    across = st.lists(TIMES, min_size=devices, max_size=devices)
    latency = TIMES | st.lists(across, min_size=devices, max_size=devices)
    data["p2p"] = {"latency": draw(latency)}
    own = st.lists(AMOUNTS, min_size=microbatches, max_size=microbatches)
    amounts = AMOUNTS | st.lists(AMOUNTS | own, min_size=stages, max_size=stages)
    if draw(st.integers(0, 3)):
        data["memory"] = {
            "capacity": draw(per(st.sampled_from([2, 3, 4.5]), devices)),
            "activation": draw(amounts),
            "released_by_backward_weight": draw(st.sampled_from([0, 0.25, 1])),
            "static": draw(per(st.sampled_from([0, 0.5]), stages)),
        }
        if draw(st.booleans()):
            data["memory"]["forward_peak"] = draw(
                per(st.sampled_from([1.5, 1.75, 3]), stages)
            )
    return data


def schedule_of(data: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return a heuristic's schedule as JSON, None where memory never suffices."""
    instance = PipelineInstance.parse(data)
    schedule = run_heuristic(name, instance, lower(instance)).schedule
    if schedule is None:
        return None
    text = ScheduleDocument.of(schedule).model_dump_json()
    document: dict[str, Any] = json.loads(text)
    return document


def said_by_check(data: dict[str, Any], document: dict[str, Any]) -> set[Finding]:
    """Return the program's violations in the words of the oracle, overlaps as a mere fact."""
    found: set[Finding] = set()
    for violation in ppsolve.check(PipelineInstance.parse(data), document):
        if violation.rule == "memory":
            device = re.match(r"device \d+", violation.message)
            assert device is not None
            found.add(("memory", device.group()))
        elif violation.rule == "overlap":
            found.add(("overlap",))
        else:
            found.add((violation.rule, *violation.ops))
    return found


def said_by_oracle(data: dict[str, Any], document: dict[str, Any]) -> set[Finding]:
    found = broken_rules(data, document)
    return {finding[:1] if finding[0] == "overlap" else finding for finding in found}


@given(
    pipelines(), st.sampled_from(["list-tail", "list-backward-first", "list-serial"])
)
def test_schedules_of_heuristics_break_no_rule(data: dict[str, Any], name: str) -> None:
    document = schedule_of(data, name)
    assume(document is not None)
    assert document is not None
    assert said_by_oracle(data, document) == said_by_check(data, document) == set()


@given(pipelines(), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_corrupted_schedules_break_the_same_rules(
    data: dict[str, Any], seed: int, count: int
) -> None:
    roomy = {key: value for key, value in data.items() if key != "memory"}
    document = schedule_of(roomy, "list-tail")
    assert document is not None
    rng = np.random.default_rng(seed)
    for op in rng.choice(document["ops"], size=min(count, len(document["ops"]))):
        shift = float(rng.choice([-3, -1, -0.25, 0.25, 1, 2, 9]))
        op["start"] += shift
        op["end"] += shift
    assume(on_ticks(data, document))
    assert said_by_oracle(data, document) == said_by_check(data, document)


def on_ticks(data: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether every start is a whole number of ticks: the oracle knows no ticks."""
    scale = lower(PipelineInstance.parse(data)).scale
    return all((op["start"] / float(scale.tick)).is_integer() for op in document["ops"])


@given(pipelines(), st.integers(0, 2**32 - 1))
def test_wrong_ends_and_missing_ops_are_named(data: dict[str, Any], seed: int) -> None:
    roomy = {key: value for key, value in data.items() if key != "memory"}
    document = schedule_of(roomy, "list-tail")
    assert document is not None
    rng = np.random.default_rng(seed)
    wrong = document["ops"][int(rng.integers(len(document["ops"])))]
    wrong["end"] += 1
    assert said_by_oracle(roomy, document) == {("duration", wrong["id"])}
    assert said_by_check(roomy, document) == {("duration", wrong["id"])}
    document["ops"].remove(wrong)
    assert said_by_oracle(roomy, document) == {("missing", wrong["id"])}
    assert said_by_check(roomy, document) == {("missing", wrong["id"])}


HAND_MADE = {
    "kind": "pipeline",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward_input": 2, "backward_weight": 1},
    "p2p": {"latency": 1},
    "memory": {"capacity": [2, 1], "activation": 1, "released_by_backward_weight": 1},
}
BY_HAND = {
    "F0.0": 0, "F0.1": 1, "I0.0": 6, "W0.0": 8, "I0.1": 10, "W0.1": 12,
    "F1.0": 2, "I1.0": 3, "W1.0": 5, "F1.1": 6, "I1.1": 7, "W1.1": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        ({}, set()),
        ({"F1.1": 3.5}, {("overlap",), ("memory", "device 1")}),
        ({"F1.1": 5.5}, {("overlap",), ("memory", "device 1")}),
        ({"F1.0": 1.5}, {("precedence", "F0.0", "F1.0")}),
        ({"I0.0": 5.5}, {("precedence", "I1.0", "I0.0")}),
        ({"W1.1": 8.5}, {("precedence", "I1.1", "W1.1"), ("overlap",)}),
        ({"F0.0": -1}, {("start", "F0.0")}),
    ],
)
def test_oracle_by_hand(moved: dict[str, float], expected: set[Finding]) -> None:
    instance = {**HAND_MADE, "times": {**HAND_MADE["times"]}}
    instance["time_unit"] = "us"
    starts = {**BY_HAND, **moved}
    document = {
        "time_unit": "us",
        "ops": [{"id": name, "start": start} for name, start in starts.items()],
    }
    assert said_by_oracle(instance, document) == expected

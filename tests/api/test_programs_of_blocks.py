"""Blocks whose times are those of programs: two levels, one answer, a bound of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ppsolve
from ppsolve.models.core.result import Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.replicas import PipelineResult
from ppsolve.solver.api.two_levels import of_both_levels
from ppsolve.solver.kinds.pipeline.kind import PIPELINE

NODES = [
    {"name": "f1", "kind": "compute", "duration": 3},
    {"name": "sent f", "kind": "comm", "duration": 4, "deps": ["f1"]},
    {"name": "got f", "kind": "wait", "deps": ["sent f"]},
    {"name": "f2", "kind": "compute", "duration": 2, "deps": ["got f"]},
    {"name": "b1", "kind": "compute", "duration": 5},
    {"name": "sent b", "kind": "comm", "duration": 4, "deps": ["b1"]},
    {"name": "got b", "kind": "wait", "deps": ["sent b"]},
    {"name": "b2", "kind": "compute", "duration": 3, "deps": ["got b"]},
]
"""As they stand they take 9 and 12. Together at least 15: the one that begins second has its
all-to-all behind that of the other, or the other has waited for its first kernel."""

PROGRAM = {
    "kind": "overlap",
    "name": "block",
    "collective_order": "free",
    "nodes": NODES,
}
TIMES = {"forward": 9, "backward": 12}


def pipeline(overlap: dict[str, Any], **more: Any) -> PipelineInstance:
    fields = {"name": "two", "num_devices": 2, "num_microbatches": 3, "times": TIMES}
    return PipelineInstance.parse({**fields, "overlap": overlap, **more})


def solved(overlap: dict[str, Any], **options: Any) -> PipelineResult:
    result = ppsolve.optimize(pipeline(overlap), time_limit=20, **options)
    assert isinstance(result, PipelineResult)
    return result


def test_both_levels_are_solved_and_proved() -> None:
    found = solved({"time": "block", "programs": {"block": PROGRAM}})
    plain = solved({"time": 15})
    assert found.programs is not None
    inner = found.programs["block"]
    assert (inner.value, inner.bound, inner.status) == (15, 15, Status.OPTIMAL)
    assert (found.value, found.bound, found.status) == (
        plain.value,
        plain.bound,
        Status.OPTIMAL,
    )
    assert found.instance_document == plain.instance_document


def test_pairs_of_stages_have_programs_of_their_own() -> None:
    short = {**PROGRAM, "nodes": NODES[:4]}
    table = [["block", None], [None, "short"]]
    found = solved({"time": table, "programs": {"block": PROGRAM, "short": short}})
    assert found.programs is not None
    assert {name: each.value for name, each in found.programs.items()} == {
        "block": 15,
        "short": 9,
    }
    assert found.value == solved({"time": [[15, None], [None, 9]]}).value


def test_what_is_claimed_of_programs_is_checked() -> None:
    blocks = {"time": "block", "programs": {"block": PROGRAM}}
    instance, found = pipeline(blocks), solved(blocks)
    data = json.loads(found.model_dump_json())
    assert ppsolve.check(instance, found) == ppsolve.check(instance, data) == []
    inner = data["programs"]["block"]
    inner["value"] = inner["makespan"] = 14
    rules = {broken.rule for broken in ppsolve.check(instance, data)}
    assert "programs" in rules
    for programs in ({}, {"block": {}}, {"block": {"value": 0}}, []):
        with pytest.raises(
            InputError, match="expected the result of the program"
        ) as caught:
            ppsolve.check(instance, data | {"programs": programs})
        assert caught.value.field == "programs.block"


def test_an_unproved_program_lowers_the_bound_of_both() -> None:
    blocks = {"time": "block", "programs": {"block": PROGRAM}}
    found, instance = solved(blocks), pipeline(blocks)
    assert found.programs is not None
    open_inner = found.programs["block"].model_copy(
        update={"bound": 13, "status": Status.FEASIBLE}
    )
    inner = PIPELINE.inner(instance)
    assert inner is not None
    both = of_both_levels(inner, found, {"block": open_inner})
    assert both.value == found.value
    assert both.status is Status.FEASIBLE
    assert both.bound is not None and found.bound is not None and both.gap is not None
    assert both.bound <= solved({"time": 13}).value < found.bound
    assert both.gap == pytest.approx((both.value - both.bound) / both.value)


def test_programs_are_files_beside_the_instance(tmp_path: Path) -> None:
    blocks = {"time": "block", "programs": {"block": "block.json"}}
    fields = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 3,
        "times": TIMES,
    }
    (tmp_path / "two.json").write_text(json.dumps({**fields, "overlap": blocks}))
    with pytest.raises(InputError, match=r"block\.json"):
        ppsolve.load_instance(tmp_path / "two.json")
    (tmp_path / "block.json").write_text(json.dumps(PROGRAM))
    loaded = ppsolve.load_instance(tmp_path / "two.json")
    assert isinstance(loaded, PipelineInstance) and loaded.overlap is not None
    assert len(loaded.overlap.programs["block"].nodes) == len(NODES)


@pytest.mark.parametrize("name", ["../block.json", "/etc/hostname", "a/b.json"])
def test_files_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    blocks = {"time": "block", "programs": {"block": name}}
    fields = {
        "kind": "pipeline",
        "num_devices": 2,
        "num_microbatches": 3,
        "times": TIMES,
    }
    (tmp_path / "two.json").write_text(json.dumps({**fields, "overlap": blocks}))
    with pytest.raises(
        InputError, match="the name of a file in the same folder"
    ) as caught:
        ppsolve.load_instance(tmp_path / "two.json")
    assert caught.value.field == "overlap.programs.block"


@pytest.mark.parametrize(
    ("overlap", "field", "message"),
    [
        (
            {"time": "x"},
            "overlap.time",
            'expected a number or the name of a program, got "x"',
        ),
        (
            {"time": [["x", None], [None, 3]], "programs": {"block": PROGRAM}},
            "overlap.programs",
            'each program to be the time of a block, "block" is not',
        ),
        (
            {"time": 3, "memory": "block"},
            "overlap.memory",
            "expected a number, got a text",
        ),
        (
            {"time": "block", "programs": {"block": {**PROGRAM, "time_unit": "ms"}}},
            "overlap.programs.block.time_unit",
            'expected "us", as of the pipeline, got "ms"',
        ),
        (
            {
                "time": "block",
                "programs": {"block": {**PROGRAM, "nodes": [{"name": "a"}]}},
            },
            "overlap.programs.block.nodes[0].kind",
            "required",
        ),
        (
            {"time": "block", "programs": {"block": "block.json"}},
            "overlap.programs.block",
            "expe",
        ),
    ],
)
def test_wrong_programs_are_refused(
    overlap: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        pipeline(overlap)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_a_program_without_time_is_refused() -> None:
    empty = {**PROGRAM, "nodes": [{"name": "a", "kind": "compute", "duration": 0}]}
    with pytest.raises(InputError, match="has an order and takes time") as caught:
        ppsolve.optimize(pipeline({"time": "block", "programs": {"block": empty}}))
    assert caught.value.field == "overlap.programs.block"


def test_only_optimizing_knows_the_time_of_a_program() -> None:
    with pytest.raises(InputError, match='knows the time of program "block"') as caught:
        ppsolve.simulate(
            pipeline({"time": "block", "programs": {"block": PROGRAM}}), "combined-1f1b"
        )
    assert caught.value.field == "overlap.time"


def test_the_time_of_a_program_is_that_of_a_device_of_speed_one() -> None:
    programs = {"time": "block", "programs": {"block": PROGRAM}}
    for overlap in (programs, {"time": 15}):
        twice = ppsolve.optimize(pipeline(overlap, speed=0.5), time_limit=20)
        assert twice.status is Status.OPTIMAL
        assert twice.value == 2 * solved(overlap).value

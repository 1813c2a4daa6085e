"""The comparison with peers: fixed instances, a file that is continued, an honest table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peers import compare
from peers.answer import PeerAnswer
from peers.plain_cpsat import solve_plainly

from tests.small import op, small
from tests.studies.bench.records import record

LIMIT = 20.0


def row(
    family: str, name: str, seconds: float, status: str = "OPTIMAL"
) -> dict[str, Any]:
    value = None if status == "INVALID" else 10.0
    bound = 10.0 if status == "OPTIMAL" else 8.0
    answer = {
        "name": name,
        "status": status,
        "value": value,
        "bound": bound,
        "seconds": seconds,
    }
    return {"family": family, "instance": "x", "limit": LIMIT, **answer}


def test_there_are_36_capped_instances_of_six_families() -> None:
    found = list(compare.instances())
    assert len(found) == 36
    assert len({family for family, _ in found}) == 6
    assert len({(family, instance.name) for family, instance in found}) == 36
    assert all(instance.memory is not None for _, instance in found)
    assert [family for family, _ in compare.instances("vshape")] == ["vshape"] * 6


def test_unequal_micro_batches_have_room_for_one_per_device() -> None:
    found = [instance for _, instance in compare.instances(compare.UNEQUAL)]
    assert [(one.num_devices, one.num_microbatches) for one in found] == [
        (4, 16)
    ] * 3 + [(8, 32)] * 3
    assert all(
        one.memory.capacity == one.num_devices and one.times.is_split for one in found
    )


def test_what_the_file_holds_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake(instance: Any, limit: float) -> dict[str, Any]:
        asked.append(instance.name)
        return {"name": "ppsolve", "status": "OPTIMAL", "seconds": limit, "value": 1.0}

    monkeypatch.setattr(compare, "SOLVERS", {"ppsolve": fake})
    path = tmp_path / "results.jsonl"
    compare.run(path, LIMIT, "vshape", 4)
    compare.run(path, LIMIT, "vshape")
    compare.run(path, LIMIT, "vshape")
    assert len(asked) == len(compare.rows(path, LIMIT)) == 6
    assert compare.rows(path, 60.0) == []


def test_unproved_instances_count_with_the_limit() -> None:
    found = [
        row("vshape", "ppsolve", 2.0),
        row("vshape", "ppsolve", 5.0, "FEASIBLE"),
        row("vshape", "pyjobshop", 20.0, "INVALID"),
        row("uneven", "ppsolve", 1.0),
    ]
    lines = list(compare.table(found, LIMIT))
    assert lines[2:] == [
        "| vshape | ppsolve | 2 | 2 | 1 | 11.00 | - | 10.00 |",
        "| vshape | pyjobshop | 1 | 0 | 0 | 20.00 | 0.55 | - |",
        "| uneven | ppsolve | 1 | 1 | 1 | 1.00 | - | 0.00 |",
    ]
    assert json.loads(json.dumps(found)) == found


class TestAnswers:
    def test_a_schedule_that_breaks_a_rule_has_no_value(self) -> None:
        problem = small([op("a", 2, "r"), op("b", 3, "r")])
        both = PeerAnswer.of(problem, [0, 0], 3, took=1.0)
        assert (both.status, both.value, both.bound) == ("INVALID", None, 3)

    def test_a_valid_one_at_its_bound_is_optimal(self) -> None:
        problem = small([op("a", 2, "r"), op("b", 3, "r")])
        assert PeerAnswer.of(problem, [0, 2], 5, took=1.0).record("x", problem) == {
            "name": "x",
            "status": "OPTIMAL",
            "value": 5.0,
            "bound": 5.0,
            "seconds": 1.0,
        }
        assert PeerAnswer.of(problem, [0, 2], 4, took=1.0).status == "FEASIBLE"
        assert PeerAnswer.of(problem, None, 4, took=1.0).status == "UNKNOWN"

    def test_the_plain_model_proves_a_small_one(self) -> None:
        problem = small([op("a", 2, "r"), op("b", 3, "r")])
        answer = solve_plainly(problem, seconds=20, workers=1)
        assert (answer.status, answer.value, answer.bound) == ("OPTIMAL", 5, 5)


def test_a_proof_of_a_relaxation_is_none() -> None:
    pytest.importorskip("pyjobshop")
    _, instance = next(compare.instances("vshape"))
    answer = compare.pyjobshop_answer(instance, 20.0)
    assert (answer["value"] is None) == (answer["status"] in {"INVALID", "UNKNOWN"})
    assert answer["bound"] <= compare.our_answer(instance, 5.0)["value"]


@pytest.mark.processes
def test_peers_are_put_beside_the_results_of_a_run(tmp_path: Path) -> None:
    from peers import add

    from ppsolve.models.studies.bench.file import read_records
    from ppsolve.solver.studies.bench.report.report import bench_report
    from tests.studies.bench.results import written

    document = {
        "kind": "pipeline",
        "name": "one",
        "num_devices": 2,
        "num_microbatches": 2,
        "times": {"forward": 10, "backward": 20},
    }
    (tmp_path / "one.json").write_text(json.dumps(document))
    fields: dict[str, Any] = {"instance": "one", "path": str(tmp_path / "one.json")}
    drawn = record("drawn", path=None)
    source = written(tmp_path / "x.jsonl", record("k", **fields), drawn)
    target = tmp_path / "y.jsonl"
    assert add.add(source, target, ["plain-cpsat"]) == 1
    first, second = read_records(target).records
    # Two micro-batches of 10 and 20 on two devices: 10 + 2 x 30 + 20.
    assert first.peers is not None
    assert [(one.name, one.status, one.value, one.bound) for one in first.peers] == [
        ("plain-cpsat", "OPTIMAL", 90, 90)
    ]
    assert (second.key, second.peers) == ("drawn", None)
    text = target.read_bytes()
    add.add(source, target, ["plain-cpsat"])
    assert target.read_bytes() == text
    rows = bench_report(read_records(target), str(target)).every.methods
    assert [(row.method.name, row.proved) for row in rows[:2]] == [
        ("ppsolve", 2),
        ("plain-cpsat", 1),
    ]

"""Heuristics of users in benchmark runs: listed with their reasons, and part of what is asked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ppsolve.models.studies.bench.file import BenchRecord, read_records
from ppsolve.solver.studies.bench.suite import ChangedCodeError, check_code, code_of
from tests.studies.bench.conftest import Bench

GREEDY = """
def greedy(instance):
    count = range(instance.num_microbatches)
    return [[f"{s}{k}{i}" for k in "FB" for i in count] for s in range(instance.num_devices)]
"""
ONE_BY_ONE = """
def greedy(instance):
    count = range(instance.num_microbatches)
    return [[f"{s}{k}{i}" for i in count for k in "FB"] for s in range(instance.num_devices)]
"""
REASON = "memory: device 0 holds 3 of 2 at 2 us (too much from 2 us to 6 us)"


def capped(folder: Path) -> Path:
    """Write 2 devices and 3 micro-batches, F = B = 1, room for two activations."""
    document = {
        "kind": "pipeline",
        "name": "capped",
        "num_devices": 2,
        "num_microbatches": 3,
        "times": {"forward": 1, "backward": 1},
        "memory": {"capacity": 2, "activation": 1},
    }
    path = folder / "capped.json"
    path.write_text(json.dumps(document))
    return path


def rules(folder: Path, text: str = GREEDY) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rules.py").write_text(text)
    return folder / "rules.py"


def entry(record: BenchRecord, name: str) -> tuple[str, float | None, str | None]:
    (found,) = (one for one in record.heuristics if one.name == name)
    return found.status.value, found.value, found.reason


@pytest.mark.processes
def test_a_heuristic_that_breaks_memory_is_reported_with_its_reason(
    tmp_path: Path, bench: Bench
) -> None:
    spec = f"{rules(tmp_path / 'mine')}:greedy"
    run = (capped(tmp_path), "-o", "x.jsonl", "-t", "20", "--heuristic", spec)
    bench(*run)
    (record,) = read_records(tmp_path / "x.jsonl").records
    assert record.failure is None
    # Three micro-batches of 4 us, one of which can begin before the one before it has ended.
    assert (record.status, record.value) == ("OPTIMAL", 8)
    assert entry(record, spec) == ("infeasible", 8, REASON)
    report = json.loads(bench("report", "x.jsonl", "--json").stdout)
    (row,) = (
        one for one in report["every"]["methods"] if one["method"]["name"] == spec
    )
    assert (row["instances"], row["infeasible"], row["solved"], row["wins"]) == (
        1,
        1,
        0,
        0,
    )
    (reason,) = (one for one in report["reasons"] if spec in one["methods"])
    assert (reason["state"], reason["reason"]) == (
        "infeasible",
        "memory: device # holds # of # at # us",
    )
    assert " memory: device # holds " in bench("report", "x.jsonl").stdout


@pytest.mark.processes
def test_a_heuristic_that_raises_is_told_in_the_last_line(
    tmp_path: Path, bench: Bench
) -> None:
    text = f"no (way) {'round ' * 80}here"
    path = rules(
        tmp_path / "mine", f"def greedy(instance):\n    raise ValueError({text!r})\n"
    )
    capped(tmp_path)
    run = ("capped.json", "-o", "x.jsonl", "-t", "20", "--heuristic", f"{path}:greedy")
    line = (
        f"x.jsonl: 1 item: 1 proved; {path}:greedy failed on 1 of 1 instance: "
        f"ValueError: {text} (rules.py:2)\n"
    )
    assert bench(*run).stdout == line
    assert bench(*run, "--quiet").stdout == line  # nothing is run, the file has it
    page = bench("report", "x.jsonl", "-o", "x.md").stdout
    assert "(rules.py:2)" in page
    assert rf"ValueError: no (way) {'round ' * 80}here (rules.py:2)" in (
        tmp_path / "x.md"
    ).read_text(encoding="utf-8")


@pytest.mark.processes
def test_an_edited_heuristic_is_run_again(tmp_path: Path, bench: Bench) -> None:
    spec = f"{rules(tmp_path / 'mine')}:greedy"
    run = (capped(tmp_path), "-o", "x.jsonl", "-t", "20", "--heuristic", spec)
    bench(*run)
    assert "1 of 1 items are in the file already" in bench(*run).stderr
    rules(tmp_path / "mine", ONE_BY_ONE)
    done = bench(*run)
    assert done.stderr.startswith(
        "note: x.jsonl: 1 line is about these instances with other settings, code or version; "
        "they stay, and are reported too\n"
    )
    before, after = read_records(tmp_path / "x.jsonl").records
    assert before.key != after.key
    assert [entry(record, spec)[:2] for record in (before, after)] == [
        ("infeasible", 8),
        ("feasible", 12),
    ]
    hashes = [
        hashlib.sha256(text.encode()).hexdigest()[:16] for text in (GREEDY, ONE_BY_ONE)
    ]
    assert [record.settings["code"] for record in (before, after)] == [
        {spec: one} for one in hashes
    ]


@pytest.mark.processes
def test_an_installed_heuristic_is_part_of_what_is_asked(
    tmp_path: Path, bench: Bench
) -> None:
    site = tmp_path / "site"
    facts = site / "mine-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[ppsolve.heuristics]\nmine = rules:greedy\n"
    )
    run = (capped(tmp_path), "-o", "x.jsonl", "-t", "20")
    for text in (GREEDY, ONE_BY_ONE):
        rules(site, text)
        bench(*run)
    found = read_records(tmp_path / "x.jsonl").records
    assert [entry(record, "mine")[0] for record in found] == ["infeasible", "feasible"]


def test_code_is_the_bytes_of_the_file(tmp_path: Path) -> None:
    spec = f"{rules(tmp_path)}:greedy"
    options = {"heuristics": ["1f1b", spec], "more_heuristics": []}
    wanted = {spec: hashlib.sha256(GREEDY.encode()).hexdigest()[:16]}
    assert code_of(options) == wanted
    check_code(options, wanted)
    rules(tmp_path, ONE_BY_ONE)
    with pytest.raises(
        ChangedCodeError, match="greedy is not the code that the run began with"
    ):
        check_code(options, wanted)


def test_code_of_a_module_is_found_by_its_name() -> None:
    (found,) = code_of(
        {"heuristics": [], "more_heuristics": ["ppsolve.own:f"]}
    ).values()
    assert found == hashlib.sha256(b"").hexdigest()[:16]
    spec = "tests.heuristics.own_rules:one_by_one"
    data = Path("tests/heuristics/own_rules.py").read_bytes()
    assert code_of({"heuristics": [spec]}) == {
        spec: hashlib.sha256(data).hexdigest()[:16]
    }

"""`ppsolve convert trace`: files that other commands take, and what is said beside them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.detect import read_trace
from tests.paths import DATA
from tests.studies.traces import cases

TRACES = DATA / "traces"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments):
        return CliRunner().invoke(build(), [str(part) for part in arguments])

    return invoke


def test_instances_and_recorded_schedules(run, tmp_path):
    done = run("convert", "trace", TRACES / "ST.parquet", "-o", "out")
    assert done.exit_code == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    steps = [f"step{step}-replica{replica}" for step in (23, 25) for replica in (0, 1)]
    assert names == sorted(
        f"{step}{end}" for step in steps for end in (".json", ".recorded.json")
    )
    for step in steps:
        files = f"out/{step}.json", f"out/{step}.recorded.json"
        assert run("check", *files).exit_code == 0
        assert run("show", *files).exit_code == 0
        assert run("show", files[1]).exit_code == 0
    result = json.loads((tmp_path / "out/step23-replica0.recorded.json").read_text())
    assert result["makespan"] == pytest.approx(1.936143, rel=1e-6)
    assert (result["best_by"], result["stop_reason"]) == ("recorded", "recorded")
    assert (result["kind"], result["time_unit"], result["bound"]) == (
        "pipeline",
        "s",
        None,
    )


def test_median_instance_names_what_is_unusual(run, tmp_path):
    done = run("convert", "trace", TRACES / "primus_pp8", "--median", "-o", "m.json")
    assert done.exit_code == 0
    for text in (
        "step 1: warm-up",
        "F0.0 on rank 0",
        "step 16: stall",
        "F2.8 on rank 2",
        "step 18: stall",
        "F3.10 on rank 3",
        "no common zero",
        "jitter",
        "time that no op explains: rank 0",
    ):
        assert text in done.stderr
    made = json.loads((tmp_path / "m.json").read_text())
    assert (made["num_devices"], made["num_microbatches"]) == (8, 16)
    assert "spread" in made["description"]
    assert run("simulate", "m.json", "--heuristic", "1f1b", "--json").exit_code == 0


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_any_trace_becomes_a_table(run, tmp_path, name):
    assert (
        run("convert", "trace", TRACES / "ST.parquet", "--table", "-o", name).exit_code
        == 0
    )
    found, given = read_trace([tmp_path / name]), read_trace([TRACES / "ST.parquet"])
    assert found.start.tolist() == given.start.tolist()
    assert found.end.tolist() == given.end.tolist()


def test_moves_are_told_and_allowed_by_tolerance(run, tmp_path):
    rows = cases.rows()
    rows[2]["start_us"], rows[2]["end_us"] = 9, 19
    cases.table(tmp_path / "t.jsonl", rows)
    refused = run("convert", "trace", "t.jsonl", "-o", "out")
    assert refused.exit_code == 2
    assert "F1.0: starts 1 us before F0.0 ends" in refused.stderr
    done = run("convert", "trace", "t.jsonl", "--tolerance", "1e-6", "-o", "out")
    assert done.exit_code == 0
    assert "at most by 1 us (step0-replica0, F1.0)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--median", "--table", "-o", "x"], "either --median or --table"),
        (["--median", "--change", "reorder", "-o", "x"], "or --change"),
        (["--change", "rearrange", "-o", "x"], 'unknown change "rearrange"'),
        (["--capacity", "2", "-o", "x"], "--capacity: this option needs --change"),
        (["-o", "-"], "expected a folder"),
        (["-o", "t.jsonl"], "this is a file"),
        (["--median", "-o", "t.jsonl"], "this is the input"),
        (["--format", "kinetto", "-o", "x"], "did you mean"),
        (["--tolerance", "-1", "-o", "x"], "--tolerance"),
        (["--format", "megatron", "-o", "x"], "pp_rank_"),
    ],
)
def test_wrong_options(run, tmp_path, arguments, says):
    cases.table(tmp_path / "t.jsonl", cases.rows())
    done = run("convert", "trace", "t.jsonl", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not (tmp_path / "x").exists()

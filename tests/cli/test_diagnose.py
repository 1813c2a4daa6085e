"""`ppsolve diagnose`: the verdict as JSON, as tables, and as a picture in any width."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from ppsolve.solver.views.diagnosis import _slowness
from tests.paths import DATA
from tests.studies.traces import cases

ST = DATA / "traces" / "ST.parquet"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments):
        return CliRunner().invoke(build(), ["diagnose", *map(str, arguments)])

    return invoke


def test_json_has_all_steps_and_replicas(run):
    done = run(ST, "--time-limit", 0, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [step["step"] for step in found["steps"]] == [23, 25]
    assert [one["replica"] for one in found["steps"][0]["replicas"]] == [0, 1]
    assert found["steps"][0]["recorded"] == pytest.approx(1.936143, rel=1e-6)
    changes = [one["change"] for one in found["helps"]]
    assert changes[:3] == ["reorder", "exchange", "even split"]


def test_tables_say_verdict_helps_and_bubble(run):
    done = run(ST, "--time-limit", 0)
    assert done.exit_code == 0
    for text in (
        "replayed",
        "mean",
        "even split",
        "not computed",
        "fill and drain",
        "slowest replicas",
    ):
        assert text in done.stdout


def test_a_table_of_ops_is_read(run, tmp_path):
    cases.table(tmp_path / "run.jsonl", cases.rows())
    done = run("run.jsonl", "--time-limit", 5)
    assert done.exit_code == 0
    assert "The recorded order is optimal" in done.stdout


def test_bad_capacities_are_one_line(run, tmp_path):
    cases.table(tmp_path / "run.jsonl", cases.rows())
    for arguments, text in (
        (("--capacity", "1"), "--capacity: expected at least 2 for device 0"),
        (("--capacity", "2,x"), "--capacity: expected whole numbers"),
    ):
        done = run("run.jsonl", "-t", 0, *arguments)
        assert done.exit_code == 2
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_unusual_steps_are_named(run):
    done = run(DATA / "traces" / "primus_pp8", "-t", 0)
    assert "step 1: warm-up" in done.stderr
    assert "step 16: stall" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("none.parquet",), "no such file"),
        ((ST, "--format", "csv"), "unknown format"),
        ((ST, "--tolerance", "-1"), "expected seconds from 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, text):
    done = run(*arguments, "--time-limit", 0)
    assert done.exit_code == 2
    assert text in done.output
    assert "Traceback" not in done.output


def test_the_slowest_replicas_come_first():
    found = Mock(slowness=[[1.0, 1.1, 0.9, 1.5], [0.5, 1.0, 1.2, 1.0]], replicas=[0, 1, 2, 7])
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(_slowness(found))
    _, head, _, first, second = captured.get().splitlines()
    assert head.split() == ["stage", "7", "2", "1", "0"]
    assert first.split() == ["0", "1.50", "0.90", "1.10", "1.00"]
    assert second.split() == ["1", "1.00", "1.20", "1.00", "0.50"]

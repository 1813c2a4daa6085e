"""`ppsolve diagnose`: the verdict as JSON, as tables, and as a picture in any width."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from ppsolve.solver.cli.traces import _commands
from ppsolve.solver.studies.traces.diagnosis.verdict import (
    Diagnosis,
    Help,
    ReplicaVerdict,
    StepVerdict,
)
from ppsolve.solver.views.diagnosis import _slowness, _steps, diagnosis_report
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


def test_the_commands_at_the_end_do_what_saves_most(run, tmp_path):
    cases.table(tmp_path / "my run.jsonl", cases.rows())
    done = run("my run.jsonl", "-t", 20, "--capacity", 3)
    commands = [
        line for line in done.stdout.splitlines() if line.startswith("  ppsolve ")
    ]
    assert (
        "'my run.jsonl' --capacity 3 --change split-backward -o split-backward.json"
        in commands[0]
    )
    for line in commands:
        words = shlex.split(line)[1:]
        told = CliRunner().invoke(
            build(), [*words, *(["-t", "20"] if "optimize" in words else [])]
        )
        assert told.exit_code == 0, told.output
    made = json.loads((tmp_path / "split-backward.json").read_text())
    assert made["memory"] == {"activation": 1, "capacity": [3, 3]}
    # Of what no order of fused backwards does in less than 90 us.
    assert json.loads((tmp_path / "best.json").read_text())["makespan"] < 90
    assert (tmp_path / "best.csv").read_text().count("W") == 4


def test_micro_batches_that_change_replicas_are_exported_with_their_order():
    found = Mock(best=Mock(change="exchange"))
    assert _commands(found, ["run"], {})[-1] == (
        "ppsolve export best.json --to torch --replica 0 --data-order order.json -o best.csv"
    )


def test_where_nothing_helps_nothing_is_to_be_run():
    assert _commands(Mock(best=None), ["run"], {}) == []


def test_the_verdict_is_written_as_json_and_as_a_page(run, tmp_path):
    done = run(
        DATA / "traces" / "primus_pp8", "-t", 0, "-o", "d.json", "--html", "d.html"
    )
    assert done.exit_code == 0
    found = json.loads((tmp_path / "d.json").read_text())
    assert len(found["steps"]) == 10
    assert any("step 16: stall" in text for text in found["warnings"])
    page = (tmp_path / "d.html").read_text()
    for text in (
        "Verdict",
        "fill and drain",
        found["next"][0],
        "step 16: stall",
        "step17-replica0",
    ):
        assert text in page
    assert "src=" not in page.replace("data:", "")
    assert "fill and drain" in done.stdout
    assert (
        json.loads(run(DATA / "traces" / "primus_pp8", "-t", 0, "-o", "-").stdout)[
            "schema"
        ]
        == 1
    )


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_files_that_cannot_be_written_are_refused_at_once(run, option):
    done = run(ST, "-t", 0, option, "none/d")
    assert done.exit_code == 2
    assert "the directory none does not exist" in done.stderr


def steps_of(*times: float) -> Diagnosis:
    """Return the verdict on steps that took so many seconds, whatever was done."""
    one = (1e9 * np.array(times)).astype(int).tolist()
    replicas = [(ReplicaVerdict(0, each, each, each, each),) for each in one]
    steps = (
        StepVerdict(number, made, (4,), each, each, each)
        for number, (each, made) in enumerate(zip(one, replicas, strict=True))
    )
    return Diagnosis(tuple(steps), (), {}, (), ())


def lines_of(found: Diagnosis) -> list[list[str]]:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(_steps(found))
    return [line.split() for line in captured.get().splitlines()][3:]


def test_steps_that_are_alike_are_one_line_with_their_count():
    lines = lines_of(steps_of(1, 2, 1.004, 1.2, 1, 1.996))
    assert [line[:3] for line in lines] == [
        ["0", "3", "1.0013"],
        ["1", "2", "1.998"],
        ["3", "1", "1.2"],
        ["mean", "6", "1.3667"],
    ]


def test_steps_that_differ_have_no_count():
    assert [line[0] for line in lines_of(steps_of(1, 2))] == ["0", "1", "mean"]
    assert len(lines_of(steps_of(1, 2))[0]) == 7


def test_steps_of_other_shapes_are_not_alike():
    found = steps_of(1, 1)
    first, second = found.steps
    other = replace(second, microbatches=(5,))
    assert len(lines_of(replace(found, steps=(first, other)))) == 3


def test_what_saves_most_comes_first_and_what_costs_is_not_recommended():
    helps = [
        Help("a", "", 12.0, None, 10.0, (0,)),
        Help("b", "nothing"),
        Help("c", "", 9.0, None, 10.0, (0,)),
    ]
    found = replace(
        steps_of(1),
        helps=tuple(helps),
        bubble={"order": 1.0},
        slowness=((1.0,),),
        replicas=(0,),
    )
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(diagnosis_report(found))
    rows = [line.split() for line in captured.get().splitlines()]
    assert [row[0] for row in rows if row and row[0] in {"a", "b", "c"}] == [
        "c",
        "a",
        "b",
    ]
    assert found.best is helps[2]
    assert replace(found, helps=tuple(helps[:2])).best is None


def test_of_many_steps_that_differ_only_the_mean_is_shown():
    assert [line[0] for line in lines_of(steps_of(*range(1, 30)))] == ["mean"]


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
    found = Mock(
        slowness=[[1.0, 1.1, 0.9, 1.5], [0.5, 1.0, 1.2, 1.0]], replicas=[0, 1, 2, 7]
    )
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(_slowness(found))
    _, head, _, first, second = captured.get().splitlines()
    assert head.split() == ["stage", "7", "2", "1", "0"]
    assert first.split() == ["0", "1.50", "0.90", "1.10", "1.00"]
    assert second.split() == ["1", "1.00", "1.20", "1.00", "0.50"]

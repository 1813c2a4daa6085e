"""``ppsolve what-if``: one table, a file, a page, and what is wrong by name."""

import json
import re
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from ppsolve.models.studies.what_if import WhatIf
from ppsolve.solver.cli import curve as command
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies.changes import AXES

TWO = {
    "kind": "pipeline",
    "name": "two",
    "num_devices": 2,
    "num_microbatches": 4,
    "times": {"forward": 2, "backward": 4},
    "memory": {"capacity": 4, "activation": 1},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "two.json").write_text(json.dumps(TWO))
    return lambda *args: CliRunner().invoke(build(), [*map(str, args)])


def cells(text):
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return [row for row in rows if len(row) > 3]


def test_one_table_with_all_that_is_asked_for(run):
    done = run(
        "what-if", "two.json", "--microbatches", "8", "--placements", "v", "-t", 20
    )
    assert done.exit_code == 0, done.stderr
    text = done.stdout
    assert (
        "two: 4 rows, 4 proved. Best: 8 micro-batches, vshape, 15.00 % less per" in text
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "~" not in text
    assert "left out" not in text
    assert [row[:4] + row[5:] for row in cells(text)[-4:]] == [
        ["as it is", "30", "30", "proved", "0.00 %"],
        ["8 micro-batches", "54", "54", "proved", "10.00 %"],
        ["vshape", "27", "27", "proved", "10.00 %"],
        ["8 micro-batches, vshape", "51", "51", "proved", "15.00 %"],
    ]
    assert all(1 <= float(row[4]) <= 4 for row in cells(text)[-4:])
    assert "8 rows" not in done.stderr
    assert "4 of 4 rows have a schedule, 4 proved" in done.stderr


def test_without_other_numbers_of_microbatches_a_gain_is_one_of_the_step(run):
    done = run("what-if", "two.json", "--capacity", "0.5,1", "-t", 20)
    assert "per micro" not in done.stdout
    assert ["capacity 1", "48", "48", "proved", "1", "-60.00 %"] in cells(done.stdout)
    assert ["capacity 0.5", "infeasible", "-", "-", "-", "-"] in cells(done.stdout)
    assert (
        "two: 3 rows, 2 proved, 1 infeasible. No change gains anything." in done.stdout
    )
    assert re.search(r"^capacity 0.5: .*memory", done.stdout, re.MULTILINE)


def test_every_axis_has_its_option():
    assert [field.name for field in fields(command.ChangeOptions)] == list(AXES)


def test_quiet_is_one_line(run):
    done = run("what-if", "two.json", "--placements", "v", "-t", 20, "-q")
    assert done.stdout == "two: 2 rows, 2 proved. Best: vshape, 10.00 % less.\n"
    assert done.stderr == ""


def test_the_file_the_page_and_what_reads_them(run, tmp_path):
    arguments = ("two.json", "--placements", "v", "--slow", "1x2", "-t", 20)
    done = run("what-if", *arguments, "-o", "w.json", "--html", "w.html", "--json")
    assert done.exit_code == 0, done.stderr
    found = WhatIf.model_validate_json((tmp_path / "w.json").read_text())
    assert found.rows[1].value == 27
    assert json.loads(done.stdout) == json.loads((tmp_path / "w.json").read_text())
    page = (tmp_path / "w.html").read_text()
    assert all(
        words in page
        for words in ("as it is", "vshape, times of device 1x2", "two: what if", "gain")
    )
    assert "<script>" not in page
    assert run("report", "w.json", "-o", "again.html").exit_code == 0
    assert (tmp_path / "again.html").read_text() == page
    assert "Best: vshape" in run("show", "w.json").stdout
    assert "as it is" in found._repr_html_()
    assert "rows" in json.loads(run("schema", "what-if").stdout)["properties"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected a change: --microbatches, --slices"),
        (
            ("--recompute", "stage"),
            "two.json: --recompute memory: expected memory modes; add",
        ),
        (("--comm", "x0.5"), "two.json: --comm: expected transfers or collectives"),
        (
            ("--capacity", "1:100000"),
            "--capacity: expected at most 1000 points, got 100000",
        ),
        (("--slow", "1x2", "--html", "-"), "--html: expected a file, got -"),
        (
            ("--slow", "1x2", "--html", "two.json"),
            "two.json: --html: this is the input two.json",
        ),
    ],
)
def test_what_is_wrong_is_named(run, arguments, message):
    done = run("what-if", "two.json", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")


def test_exit_codes_say_what_was_found(run, tmp_path):
    assert run("what-if", "two.json", "--capacity", "0.5", "-q").exit_code == 0
    small = TWO | {"memory": {"capacity": 0.5, "activation": 1}}
    (tmp_path / "two.json").write_text(json.dumps(small))
    assert run("what-if", "two.json", "--capacity", "0.7", "-q").exit_code == 3


@pytest.mark.parametrize(
    ("statuses", "interrupted", "code"),
    [
        (("INFEASIBLE", "UNKNOWN"), False, 4),
        (("UNKNOWN", "UNKNOWN"), True, 130),
    ],
)
def test_without_a_schedule(run, monkeypatch, statuses, interrupted, code):
    rows = [{"status": status, "microbatches": 1} for status in statuses]
    whole = {
        "instance": "two",
        "objective": "makespan",
        "time_unit": "us",
        "rows": rows,
    }
    found = WhatIf.model_validate(whole | {"interrupted": interrupted})
    monkeypatch.setattr(command, "what_if", lambda *args, **options: found)
    done = run("what-if", "two.json", "--slow", "1x2")
    assert done.exit_code == code
    assert done.stdout.startswith("two: 2 rows, 0 proved")
    assert done.stderr == ("interrupted\n" if interrupted else "")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("optimize", "w.json"), "w.json: this is a what-if; `ppsolve show` and"),
        (("show", "w.json", "two.json"), "w.json: expected this file alone"),
        (
            ("show", "w.json", "--svg", "a.svg"),
            "w.json: expected a result or a curve; for a what-if",
        ),
        (("show", "broken.json"), "broken.json: rows: "),
        (("report", "broken.json", "-o", "a.html"), "broken.json: rows: "),
    ],
)
def test_other_commands_say_what_it_is(run, tmp_path, command, message):
    row = {"status": "OPTIMAL", "value": 3, "bound": 3, "gap": 0, "microbatches": 1}
    whole = {
        "kind": "what-if",
        "instance": "x",
        "objective": "makespan",
        "time_unit": "us",
    }
    (tmp_path / "w.json").write_text(json.dumps(whole | {"rows": [row]}))
    (tmp_path / "broken.json").write_text(json.dumps(whole | {"rows": []}))
    done = run(*command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}"), done.stderr


def test_rows_for_a_runtime(run, tmp_path):
    """Megatron-LM runs 1F1B or groups of 2 and 4; a V has its reason, and nothing is searched."""
    arguments = ("two.json", "--placements", "v,interleaved", "--capacity", 2, "--for")
    done = run("what-if", *arguments, "megatron", "-t", 60, "-o", "rows.json")
    assert done.exit_code == 0, done.stderr
    study = WhatIf.model_validate_json((tmp_path / "rows.json").read_text())
    assert study.runtime == "megatron"
    assert [row.status for row in study.rows[:4]] == [
        "OPTIMAL",
        "OPTIMAL",
        "INFEASIBLE",
        "OPTIMAL",
    ]
    assert study.rows[2].reason.startswith(
        "placement: Megatron-LM puts stage s on rank"
    )
    assert [row.best_by for row in study.rows[:4]] == [
        "1F1B",
        "1F1B",
        None,
        "groups of 2",
    ]
    assert [row.value for row in study.rows[:4]] == [30, 30, None, 27]
    shown = run("show", "rows.json").stdout
    assert "two for megatron: 6 rows" in shown


def test_what_no_row_of_which_is_run_is_refused(run):
    done = run("what-if", "two.json", "--capacity", 2, "--for", "colossalai")
    assert done.exit_code == 2
    assert (
        "two.json: --for: placement: ColossalAI puts stages s and 2p - 1" in done.stderr
    )
    done = run("curve", "two.json", "--capacity", 2, "--for", "megatorn")
    assert (
        'error: --for: unknown runtime "megatorn"; did you mean "megatron"'
        in done.stderr
    )


def test_a_curve_for_a_runtime(run, tmp_path):
    """Two of four micro-batches at once suffice for 1F1B; one is too few for it."""
    arguments = ("two.json", "--capacity", "1:4:1", "--for", "deepspeed", "-t", 60)
    done = run("curve", *arguments, "--json")
    points = json.loads(done.stdout)["points"]
    assert [point["status"] for point in points] == ["INFEASIBLE"] + ["OPTIMAL"] * 3
    assert [point.get("value") for point in points] == [None, 30, 30, 30]
    assert json.loads(done.stdout)["runtime"] == "deepspeed"
    assert (
        "two for deepspeed: makespan over capacity" in run("curve", *arguments).stdout
    )

"""Orders of pipelines on stdout: a device per line, as PyTorch's schedule files."""

import csv
import json

import pytest
from typer.testing import CliRunner

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import optimize
from ppsolve.solver.cli.main import build

INSTANCE = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 2},
}
ONE_F_ONE_B = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(INSTANCE))
    graph = {
        "kind": "graph",
        "name": "g",
        "resources": [],
        "ops": [{"id": "a", "duration": 1}],
    }
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    return lambda *args, **options: CliRunner().invoke(build(), list(args), **options)


def test_a_heuristic_has_a_line_per_device(run):
    done = run("show", "tiny.json", "--heuristic", "1f1b", "--order")
    assert (done.exit_code, done.stdout) == (0, ONE_F_ONE_B)


def test_the_best_order_is_printed_from_a_file(run):
    run("optimize", "tiny.json", "-o", "result.json")
    done = run("show", "result.json", "--order")
    rows = list(csv.reader(done.stdout.splitlines()))
    assert rows == optimize(PipelineInstance.model_validate(INSTANCE)).orders
    assert [sorted(row) for row in rows] == [
        ["0B0", "0B1", "0F0", "0F1"],
        ["1B0", "1B1", "1F0", "1F1"],
    ]
    assert run("show", "tiny.json", "result.json", "--order").stdout == done.stdout


def test_an_entry_without_orders_gives_those_of_its_schedule(run, tmp_path):
    entry = json.loads(
        run("simulate", "tiny.json", "--heuristic", "1f1b", "--json").stdout
    )
    assert entry["kind"] == "pipeline"
    (tmp_path / "entry.json").write_text(json.dumps(entry | {"orders": None}))
    assert run("show", "entry.json", "--order").stdout == ONE_F_ONE_B


def test_names_with_commas_stay_one_field(run, tmp_path):
    ops = [{"id": "a,b", "kind": "X", "device": 0, "start": 0, "end": 1}]
    entry = {"name": "mine", "kind": "pipeline", "status": "feasible"}
    document = entry | {"schedule": {"time_unit": "us", "ops": ops}}
    (tmp_path / "entry.json").write_text(json.dumps(document))
    assert run("show", "entry.json", "--order").stdout == '"a,b"\n'


def test_an_order_that_breaks_the_memory_limit_says_so(run, tmp_path):
    tight = INSTANCE | {"memory": {"capacity": 1, "activation": 1}}
    (tmp_path / "tight.json").write_text(json.dumps(tight))
    done = run("show", "tight.json", "--heuristic", "gpipe", "--order")
    assert done.stdout.startswith("0F0,0F1,")
    assert "warning: infeasible: memory: device 0 holds 2 of 1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["show", "graph.json", "--order"],
            "graph.json: --order: expected an overlap or pipeline",
        ),
        (
            ["show", "tiny.json", "--order"],
            "--order: expected also a RESULT or --heuristic NAME",
        ),
        (
            ["show", "none.json", "--order"],
            "there is no order of each device in it: why",
        ),
    ],
)
def test_what_has_no_order_is_refused(run, tmp_path, arguments, words):
    none = {
        "name": "x",
        "kind": "pipeline",
        "status": "failed",
        "reason": "why",
        "schedule": None,
    }
    (tmp_path / "none.json").write_text(
        json.dumps(none | {"schedule": None, "value": None})
    )
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr

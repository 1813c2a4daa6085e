"""``export --to perfetto``: schedules of any kind in one trace, under their own names."""

import json

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from tests.formats.cases import TWO_RANKS
from tests.paths import ROOT

TINY = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 1, "backward": 1},
}
GRAPH = {
    "kind": "graph",
    "name": "shop",
    "resources": ["m0", "m1"],
    "ops": [
        {"id": "a", "duration": 2, "resources": ["m0"]},
        {"id": "b", "duration": 1, "resources": ["m1"]},
    ],
    "precedences": [{"before": "a", "after": "b"}],
}
KFAC = ROOT / "instances" / "kfac" / "measured" / "bert-base-gpipe-4x4.json"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = {"tiny": TINY, "shop": GRAPH, "two": TWO_RANKS}
    for name, data in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(data))

    def invoke(*args):
        return CliRunner().invoke(build(), list(args))

    return invoke


def solved(run, *names):
    for name in names:
        done = run("optimize", f"{name}.json", "-q", "-o", f"{name}.result.json")
        assert done.exit_code == 0, done.stderr


def events(done):
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)["traceEvents"]


def processes(found):
    return [e["args"]["name"] for e in found if e["name"] == "process_name"]


def test_a_result_is_shown_by_its_method(run, tmp_path):
    solved(run, "tiny")
    best = json.loads((tmp_path / "tiny.result.json").read_text())["best_by"]
    found = events(run("export", "tiny.result.json", "--to", "perfetto"))
    assert processes(found) == [f"{best}: device 0", f"{best}: device 1"]
    assert max(e["ts"] + e["dur"] for e in found if e["ph"] == "X") == 6


def test_a_refresh_is_shown_too(run):
    done = run("optimize", str(KFAC), "-q", "-t", "0", "-o", "refresh.json")
    assert done.exit_code == 0, done.stderr
    found = events(run("export", "refresh.json", "--to", "perfetto"))
    assert any(e["ph"] == "X" and "/inv_kron_" in e["name"] for e in found)


def test_a_graph_is_shown_too(run):
    solved(run, "shop")
    found = events(run("export", "shop.result.json", "--to", "perfetto"))
    slices = [(e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"]
    assert slices == [("a", 0, 2), ("b", 2, 1)]


def test_results_beside_each_other_keep_their_names(run):
    solved(run, "tiny")
    args = (
        "--heuristic",
        "gpipe",
        "--beside",
        "tiny.result.json",
        "--beside",
        "two.json",
    )
    found = events(run("export", "tiny.result.json", "--to", "perfetto", *args))
    names = [name.split(":")[0] for name in processes(found)]
    assert names[::2] == ["gpipe", "1f1b", "schedule"]
    assert [e["pid"] for e in found if e["name"] == "process_name"] == [
        *(1, 2),
        *(1001, 1002),
        *(2001, 2002),
    ]


def test_equal_names_are_told_apart_by_their_files(run, tmp_path):
    (tmp_path / "copy.json").write_text((tmp_path / "two.json").read_text())
    args = ("--instance", "tiny.json", "--beside", "copy.json")
    found = events(run("export", "two.json", "--to", "perfetto", *args))
    assert processes(found)[::2] == [
        "schedule, two.json: device 0",
        "schedule, copy.json: device 0",
    ]


def test_a_schedule_that_breaks_a_rule_is_shown_with_a_warning(run, tmp_path):
    tight = TINY | {"memory": {"capacity": 1, "activation": 1}}
    (tmp_path / "tight.json").write_text(json.dumps(tight))
    done = run("export", "two.json", "--to", "perfetto", "--instance", "tight.json")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: two.json: memory: device 0 holds 2 of 1")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("two.json",), "two.json: instance_document: this result carries no instance"),
        (("tiny.json", "--instance", "tiny.json"), "tiny.json: expected a result"),
        (("missing.json",), "missing.json: "),
        (("two.json", "--fsdp"), "--fsdp: expected a runtime"),
        (("two.json", "--replica", "0"), "--replica: expected a runtime"),
        (("two.json", "--layers", "1,1"), "--layers: expected a runtime"),
        (("two.json", "--instance", "shop.json"), "two.json: schedule"),
        (("-", "--beside", "-"), "only one of the files can be standard input"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(run, tmp_path, args, message):
    done = run("export", *args, "--to", "perfetto", "-o", "trace.json")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.parametrize("orders", [5, [5], [["0F0", "0F0"]], [["x"]]])
def test_odd_orders_are_refused(run, tmp_path, orders):
    (tmp_path / "odd.json").write_text(
        json.dumps({"name": "x", "status": "y", "orders": orders})
    )
    done = run("export", "odd.json", "--to", "perfetto", "--instance", "tiny.json")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: odd.json: ")


def test_only_viewers_show_several(run):
    done = run("export", "two.json", "--to", "torch", "--beside", "two.json")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: --beside: expected --to perfetto\n",
    )

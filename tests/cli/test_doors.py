"""Names and units may hold anything; what reaches the terminal acts on nothing and ends."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build
from tests.marks import first

ACTING = "\x1b[2J\x07\x7f\x9b1m\r\u202e\u2066\u200f\u061c\u2028\u2029\u200b\ufeff\t"
TEXTS = {"acting": ACTING, "long": "x" * 50_000 + ACTING}
LONGEST = 5_000

PIPELINE = {
    "kind": "pipeline",
    "name": "tiny",
    "description": "small",
    "time_unit": "ms",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
    "memory": {"capacity": 2, "activation": 1},
}
GRAPH = {
    "kind": "graph",
    "name": "tiny",
    "description": "small",
    "time_unit": "ms",
    "resources": ["gpu", "net"],
    "ops": [
        {"id": "first", "duration": 3, "resources": ["gpu"], "acquire": {"room": 1}},
        {
            "id": "next",
            "duration": 2,
            "resources": ["net"],
            "release_at_end": {"room": 1},
        },
    ],
    "precedences": [{"before": "first", "after": "next"}],
    "pools": [{"name": "room", "capacity": 1}],
}
KFAC = {
    "kind": "kfac",
    "name": "tiny",
    "time_unit": "ms",
    "margin_ratio": 0,
    "pattern": "1f1b",
    "pipeline": {**PIPELINE, "kind": "pipeline", "name": "inner", "memory": None},
    "modules": [
        {"stage": s, "name": f"module{s}", "curvature_a": 2, "curvature_b": 3, "inverse_a": 5,
         "inverse_b": 6} for s in (0, 1)
    ],
    "objective": "iterations",
}  # fmt: skip
OVERLAP = {
    "kind": "overlap",
    "name": "tiny",
    "time_unit": "ms",
    "max_in_flight": {"dp": 2},
    "nodes": [
        {"name": "layer0", "kind": "compute", "duration": 50, "bytes": 4},
        {"name": "gather", "kind": "comm", "duration": 90, "group": "dp"},
        {"name": "wait", "kind": "wait", "deps": ["gather"]},
        {
            "name": "layer1",
            "kind": "compute",
            "duration": 120,
            "deps": ["layer0", "wait"],
        },
    ],
}
PLAN = {
    "kind": "plan",
    "name": "tiny",
    "time_unit": "ms",
    "model": {
        "microbatch_sizes": [1, 2],
        "layers": [
            {"name": "block", "count": 2, "forward": [10, 16], "backward": [20, 32],
             "activation_bytes": {"per_sample": 10}, "output_bytes": {"per_sample": 1},
             "parameter_bytes": 10}
        ],
    },
    "cluster": {"nodes": 1, "devices_per_node": 2, "memory": 300,
                "within_node": {"latency": 1, "bandwidth": 100}},
    "goodput": {"init_batch_size": 8, "grad": {"sqr": 0.1, "var": 1}},
    "search": {"batch_sizes": [8]},
}  # fmt: skip
PARAMS = {
    "params": {"alpha_c": 0.02, "beta_c": 0.002, "alpha_n": 0.1, "beta_n": 0.007, "alpha_r": 0.01,
               "beta_r": 0.001, "gamma": 2.5},
    "grad": {"sqr": 0.0002, "var": 0.09}, "init_batch_size": 128, "fixed": ["alpha_n"],
}  # fmt: skip
OBSERVED = [
    {"num_nodes": 1, "num_replicas": n, "atomic_bsz": 16, "accum_step_time": 1,
     "optim_step_time": n}
    for n in (1, 2)
]  # fmt: skip

HEURISTIC = {
    "pipeline": "1f1b",
    "graph": "list-tail",
    "kfac": "pipefisher",
    "overlap": "sink-waits",
}
INSTANCES = {"pipeline": PIPELINE, "graph": GRAPH, "kfac": KFAC, "overlap": OVERLAP}
LONGER = [(kind, "long") for kind in INSTANCES if kind != "pipeline"]
QUARTERS = first(1, range(4))
"""Every other text in the default run, the rest with `-m slow`."""

SOLVING = ["-t", "0", "--workers", "1"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(build(), list(arguments), env={"COLUMNS": "100"})


def texts_in(data: Any) -> list[str]:
    """Return the texts of a document, names of fields included; of a list two items speak."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        inner = [text for value in data.values() for text in texts_in(value)]
        return list(dict.fromkeys([*data, *inner]))
    if isinstance(data, list):
        return list(
            dict.fromkeys(text for value in data[:2] for text in texts_in(value))
        )
    return []


def renamed(data: Any, old: str, new: str) -> Any:
    """Return a document with a text replaced wherever it stands."""
    if isinstance(data, str):
        return new if data == old else data
    if isinstance(data, dict):
        return {
            renamed(key, old, new): renamed(value, old, new)
            for key, value in data.items()
        }
    return (
        [renamed(value, old, new) for value in data] if isinstance(data, list) else data
    )


def assert_harmless(done: Any, *, is_json: bool = False) -> None:
    """Assert that an output, JSON too, acts on no terminal and has no endless line."""
    assert done.exit_code in {0, 2, 3, 4, 5}, (done.exception, done.stderr[-300:])
    for stream in (done.stdout, done.stderr):
        for line in stream.split("\n"):
            assert line.isprintable(), ascii(line[:300])
            assert is_json or len(line) <= LONGEST, (len(line), line[:200])
    if is_json and done.exit_code in {0, 3, 4}:
        json.loads(done.stdout)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(name: str, data: Any) -> None:
        (tmp_path / name).write_text(json.dumps(data))

    return put


@pytest.mark.parametrize("kind", INSTANCES)
def test_the_documents_are_right(write, kind):
    write("i.json", INSTANCES[kind])
    assert run("simulate", "i.json", "--heuristic", HEURISTIC[kind]).exit_code == 0
    assert run("optimize", "i.json", *SOLVING, "-o", "result.json").exit_code in {0, 4}
    assert run("check", "i.json", "result.json").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "way"),
    first(
        3, [("pipeline", "long"), *((kind, "acting") for kind in INSTANCES), *LONGER]
    ),
)
@pytest.mark.parametrize("quarter", QUARTERS)
def test_any_text_of_an_instance(write, kind, way, quarter):
    for old in texts_in(INSTANCES[kind])[quarter::4]:
        data = renamed(INSTANCES[kind], old, TEXTS[way])
        write("i.json", data)
        assert_harmless(run("optimize", "i.json", "-v", *SOLVING))
        write("plain.json", INSTANCES[kind])
        if not run("show", "i.json").exit_code:
            name = HEURISTIC[kind]
            assert_harmless(
                run("optimize", "i.json", "-q", *SOLVING, "-o", "result.json")
            )
            for command in (
                ["compare", "i.json", "plain.json", *SOLVING],
                ["simulate", "i.json", "--heuristic", name],
                ["show", "i.json"],
                ["show", "i.json", "--heuristic", name, "--links"],
                ["show", "i.json", "result.json"],
                ["show", "result.json"],
                ["check", "i.json", "result.json"],
                ["check", "plain.json", "result.json"],
            ):
                assert_harmless(run(*command))
            assert_harmless(run("optimize", "i.json", "--json", *SOLVING), is_json=True)


@pytest.mark.parametrize("kind", first(1, ["pipeline", "graph", "kfac", "overlap"]))
@pytest.mark.parametrize("quarter", QUARTERS)
def test_any_text_of_a_result(write, kind, quarter):
    write("i.json", INSTANCES[kind])
    result = json.loads(run("optimize", "i.json", "--json", *SOLVING).stdout)
    for old in texts_in(result)[quarter::4]:
        write("result.json", renamed(result, old, TEXTS["long"]))
        shown = run("show", "result.json")
        assert_harmless(shown)
        if shown.exit_code == 0:
            assert_harmless(run("show", "i.json", "result.json"))
            assert_harmless(run("check", "i.json", "result.json"))


@pytest.mark.parametrize("way", TEXTS)
def test_any_text_of_a_plan(write, way):
    for old in texts_in(PLAN):
        write("p.json", renamed(PLAN, old, TEXTS[way]))
        assert_harmless(run("plan", "p.json", "-t", "1", "--finalists", "0", "-v"))


@pytest.mark.parametrize("way", TEXTS)
def test_any_text_of_goodput(write, way):
    for old in texts_in(PARAMS):
        write("p.json", renamed(PARAMS, old, TEXTS[way]))
        assert_harmless(
            run(
                "goodput",
                "predict",
                "p.json",
                "--replicas",
                "2",
                "--batch-per-replica",
                "8",
            )
        )
    for old in texts_in(OBSERVED):
        write("o.json", renamed(OBSERVED, old, TEXTS[way]))
        assert_harmless(run("goodput", "fit", "o.json"))


def test_json_keeps_every_name(write):
    write("i.json", {**PIPELINE, "name": ACTING})
    done = run("optimize", "i.json", "--json", *SOLVING)
    assert json.loads(done.stdout)["instance"] == ACTING
    assert re.search(
        r'"instance":"\\u001b\[2J\\u0007\\u007f\\u009b1m\\r\\u202e', done.stdout
    )


def test_a_long_unit_leaves_the_figures_readable(write):
    write("i.json", {**PIPELINE, "time_unit": "x" * 10**6})
    done = run("optimize", "i.json", "-q", *SOLVING)
    assert re.match(r"tiny: OPTIMAL 90 xxx", done.stdout)
    assert len(run("optimize", "i.json", *SOLVING).stdout) < 20_000


def test_a_picture_has_a_widest_width(write):
    write("i.json", PIPELINE)
    done = run("show", "i.json", "--width", "1000000000")
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        done.stderr == "error: --width: expected at most 4000 columns, got 1000000000\n"
    )
    wide = CliRunner().invoke(
        build(),
        ["show", "i.json", "--heuristic", "1f1b"],
        env={"COLUMNS": "1000000000"},
    )
    assert max(map(len, wide.stdout.splitlines())) <= 4000

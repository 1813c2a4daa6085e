"""Overlap instances on the command line: solving, drawing, program orders, errors."""

import json
import re
import runpy

import pytest
from typer.testing import CliRunner

from ppsolve.solver.api import api
from ppsolve.solver.api.kinds import load_instance, parse_instance
from ppsolve.solver.cli.main import build
from tests.paths import ROOT

NODES = [
    {"name": "embed", "kind": "compute", "duration": 50, "bytes": 4},
    {
        "name": "gather0",
        "kind": "comm",
        "duration": 90,
        "bytes": 16,
        "collective": "all_gather",
    },
    {"name": "wait0", "kind": "wait", "deps": ["gather0"]},
    {
        "name": "layer0",
        "kind": "compute",
        "duration": 120,
        "deps": ["embed", "wait0"],
        "bytes": 4,
    },
    {
        "name": "gather1",
        "kind": "comm",
        "duration": 90,
        "bytes": 16,
        "collective": "all_gather",
    },
    {"name": "wait1", "kind": "wait", "deps": ["gather1"]},
    {"name": "layer1", "kind": "compute", "duration": 120, "deps": ["layer0", "wait1"]},
]
INSTANCE = {"kind": "overlap", "name": "layers", "nodes": NODES}
OPTIMUM = 330
"""gather0 0-90 beside embed 0-50, gather1 90-180, layer0 90-210, layer1 210-330."""

PIPELINE = {
    "kind": "pipeline",
    "name": "pipeline",
    "time_unit": "ms",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "layers.json").write_text(json.dumps(INSTANCE))
    (tmp_path / "pipeline.json").write_text(json.dumps(PIPELINE))

    def invoke(*arguments, **options):
        return CliRunner().invoke(build(), [str(part) for part in arguments], **options)

    return invoke


@pytest.fixture
def solved(run, tmp_path):
    done = run("optimize", "layers.json", "-t", 5, "-q", "-o", "result.json")
    assert done.exit_code == 0
    return json.loads((tmp_path / "result.json").read_text())


def write(tmp_path, name="other", **fields):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({**INSTANCE, "name": name, **fields}))
    return path


def test_optimize_reports(run):
    done = run("optimize", "layers.json", "-t", 5)
    assert done.exit_code == 0
    for words in (
        r"layers: OPTIMAL", r"makespan +330 us  by ", r"lower bound +330 us", r"gap +0.00 %",
        r"exposed +40 us, 12.12 % of the makespan", r"max in flight +\d$", r"peak live bytes +\d+$",
        r"original +470 +42.42 % +\d+ +\d+ +feasible", r"raise-comms +- +- +- +- +failed",
        r"failed: raise_comms: several",
        r"gather0 +40 us +.*gather0$",
    ):  # fmt: skip
        assert re.search(words, done.stdout, re.M), words


def test_optimize_verbose_has_both_estimates(run):
    done = run("optimize", "layers.json", "-t", 5, "-v")
    assert re.search(r"own +older", done.stdout)
    assert re.search(r"sink-waits-stable +470 ", done.stdout)
    assert "assert len(cur_comms) <= 1" in done.stdout
    assert "heuristic: original" in done.stderr


def test_optimize_quietly_is_one_line(run):
    done = run("optimize", "layers.json", "-t", 5, "-q")
    assert re.fullmatch(
        r"layers: OPTIMAL 330 us, bound 330, gap 0.00 %, exposed 40 us, 12.12 % of the makespan, "
        r"\S+ s\n",
        done.stdout,
    )
    assert done.stderr == ""


def test_optimize_tells_progress(run):
    done = run("optimize", "layers.json", "-t", 5)
    assert re.search(r"\[ +\S+ s\] bound: \S+  bound \d+ us", done.stderr)
    assert re.search(r"incumbent: original  best 470 us  bound \d+ us", done.stderr)


def test_optimize_json_has_orders_and_curves(run):
    done = run("optimize", "layers.json", "-t", 5, "--json", "-q")
    data = json.loads(done.stdout)
    assert (data["status"], data["value"]) == ("OPTIMAL", OPTIMUM)
    assert sorted(data["order"]) == sorted(node["name"] for node in NODES)
    assert data["exposed_wait"] == 40
    assert data["in_flight_curve"][-1][1] == data["live_bytes_curve"][-1][1] == 0
    by_name = {entry["name"]: entry for entry in data["heuristics"]}
    assert by_name["original"]["order"] == [node["name"] for node in NODES]
    assert (by_name["raise-comms"]["status"], by_name["raise-comms"]["order"]) == (
        "failed",
        None,
    )
    assert {"estimate", "estimate_seed"} <= by_name["original"].keys()


def test_the_order_is_printed_for_a_compiler(run, solved):
    names = "".join(f"{name}\n" for name in solved["order"])
    assert run("show", "result.json", "--order").stdout == names
    assert run("show", "layers.json", "result.json", "--order").stdout == names
    assert run("show", "--order", "-", input=json.dumps(solved)).stdout == names
    done = run("show", "layers.json", "--heuristic", "original", "--order")
    assert done.stdout.split() == [node["name"] for node in NODES]


def test_the_printed_order_is_a_program_that_takes_the_claimed_time(
    run, solved, tmp_path
):
    node_of = {node["name"]: node for node in NODES}
    write(tmp_path, "again", nodes=[node_of[name] for name in solved["order"]])
    done = run("simulate", "again.json", "--heuristic", "original", "--json")
    assert json.loads(done.stdout)["makespan"] == OPTIMUM


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["show", "layers.json", "--order"],
            "--order: expected also a RESULT or --heuristic NAME",
        ),
        (
            ["show", "layers.json", "--order", "--heuristic", "raise-comms"],
            "there is no program order in it: raise_comms: several collectives left to come first",
        ),
        (
            ["show", "layers.json", "--order", "--heuristic", "1f1b"],
            "1f1b is not applicable",
        ),
        (
            ["show", "plain.json", "--order"],
            "plain.json: order: there is no program order in it",
        ),
        (
            ["show", "layers.json", "--heuristic", "raise-comms"],
            "raise-comms gives no schedule",
        ),
        (
            ["show", "layers.json", "--heuristic", "gpipe"],
            "gpipe is not applicable: needs a pipe",
        ),
    ],
)
def test_contradictions_are_refused(run, tmp_path, arguments, words):
    found = {
        "schedule": {"time_unit": "us", "ops": [{"id": "a", "start": 0, "end": 1}]}
    }
    (tmp_path / "plain.json").write_text(json.dumps(found))
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert done.stdout == ""


def test_what_cannot_fit_is_said(run, tmp_path):
    done = run("optimize", write(tmp_path, max_live_bytes=10), "-q")
    assert done.exit_code == 3
    assert (
        "other: INFEASIBLE (memory: gather0 alone needs 16 of live bytes" in done.stdout
    )


@pytest.mark.parametrize("width", [80, 120, 200])
def test_show_draws_both_streams(run, solved, width):
    done = run("show", "layers.json", "result.json", "--width", width)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= width
    names = [line.split("│")[0].strip() for line in lines if "│" in line]
    assert names == ["compute", "comm", "in flight", "live bytes"]
    assert re.search(r"│.*wwww.*layer0", done.stdout)
    assert re.search(r"makespan +330 us", done.stdout)
    assert "launch" not in done.stdout


def test_show_without_the_instance(run, solved):
    done = run("show", "result.json")
    assert done.exit_code == 0
    assert re.search(r"comm │gather0 ", done.stdout)
    assert "in flight │" in done.stdout


def test_show_of_a_heuristic_and_its_entry(run, tmp_path):
    done = run("show", "layers.json", "--heuristic", "original")
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search(r"max in flight +1$", done.stdout, re.M)
    run("simulate", "layers.json", "--heuristic", "original", "-o", "entry.json")
    assert "in flight │" in run("show", "layers.json", "entry.json").stdout
    alone = run("show", "entry.json")
    assert alone.exit_code == 0
    assert "device 0 │" in alone.stdout


def test_show_of_a_bare_schedule_knows_no_flight(run, solved, tmp_path):
    (tmp_path / "bare.json").write_text(json.dumps(solved["schedule"]))
    done = run("show", "layers.json", "bare.json")
    assert done.exit_code == 0
    assert "live bytes │" in done.stdout
    assert "in flight" not in done.stdout


def test_an_order_of_another_schedule_is_not_believed(run, solved, tmp_path):
    solved["order"] = [node["name"] for node in NODES]
    (tmp_path / "wrong.json").write_text(json.dumps(solved))
    done = run("show", "layers.json", "wrong.json")
    assert done.exit_code == 0
    assert (
        "wrong.json: its order does not run as its schedule; the schedule is drawn"
        in done.stderr
    )
    assert re.search(r"makespan +330 us", done.stdout)


def test_show_describes_an_instance(run):
    done = run("show", "layers.json")
    assert done.exit_code == 0
    assert "layers: a program of kernels and collectives" in done.stdout
    assert re.search(r"nodes +7: 3 kernels, 2 collectives, 2 waits", done.stdout)


def test_simulate_reports(run):
    done = run("simulate", "layers.json", "--heuristic", "original")
    assert done.exit_code == 0
    assert re.search(r"exposed +180 us", done.stdout)
    assert re.search(r"older estimate +\d+ us", done.stdout)
    quiet = run("simulate", "layers.json", "--heuristic", "original", "-q")
    assert quiet.stdout == "original: feasible 470 us\n"


def test_simulate_a_pass_that_fails(run):
    done = run("simulate", "layers.json", "--heuristic", "inductor-default", "--json")
    data = json.loads(done.stdout)
    assert (done.exit_code, data["status"], data["schedule"]) == (0, "failed", None)
    assert "assert len(cur_comms) <= 1" in data["reason"]
    done = run("simulate", "layers.json", "--heuristic", "inductor-default")
    assert done.exit_code == 0
    assert "several collectives left to come first" in done.stdout


def test_simulate_a_pass_above_a_cap(run, tmp_path):
    path = write(tmp_path, max_in_flight=1)
    done = run("simulate", path, "--heuristic", "inductor-list-raise")
    assert done.exit_code == 0
    assert "inductor-list-raise on other: infeasible" in done.stdout
    assert re.search(r"max in flight +2 of 1", done.stdout)


def test_caps_are_named_beside_what_is_used(run, tmp_path):
    path = write(
        tmp_path, max_in_flight=1, max_live_bytes=40, objective="makespan_then_bytes"
    )
    done = run("optimize", path, "-t", 5, "-o", "capped.json")
    assert done.exit_code == 0
    for text in (done.stdout, run("show", path, "capped.json").stdout):
        assert re.search(r"max in flight +1 of 1$", text, re.M)
        assert re.search(
            r"peak live bytes +\d+ of 40 \(proven least at this makespan\)", text
        )
    assert re.search(r"infeasible: .* holds 2 of 1", done.stdout)


def test_check(run, solved, tmp_path):
    done = run("check", "layers.json", "result.json")
    assert (done.exit_code, done.stdout) == (0, "result.json: valid, no violations\n")
    for op in solved["schedule"]["ops"]:
        if op["id"] == "layer1":
            op["start"], op["end"] = op["start"] - 100, op["end"] - 100
    (tmp_path / "wrong.json").write_text(json.dumps(solved))
    done = run("check", "layers.json", "wrong.json")
    assert done.exit_code == 5
    assert "layer1" in done.stdout


def test_compare_beside_a_pipeline(run):
    done = run("compare", "layers.json", "pipeline.json", "-t", 5)
    assert done.exit_code == 0
    assert re.search(r"layers +OPTIMAL +330 us +330 ", done.stdout)
    assert re.search(r"pipeline +OPTIMAL +90 ms +90 ", done.stdout)
    assert re.search(r"raise-comms +0 of 1 +0 +1 +0 +0 +- +-", done.stdout)
    data = json.loads(
        run("compare", "layers.json", "pipeline.json", "-t", 5, "--json").stdout
    )
    assert [result["value"] for result in data] == [OPTIMUM, 90]
    assert "order" in data[0]


def test_compare_one_program_reports_its_caps(run, tmp_path):
    path = write(tmp_path, max_live_bytes=40)
    done = run("compare", path, "-t", 5)
    assert re.search(r"peak live bytes +\d+ of 40", done.stdout)


@pytest.mark.parametrize("kind", ["overlap", "overlap-result", "overlap-heuristic"])
def test_schemas(run, kind):
    done = run("schema", kind)
    assert done.exit_code == 0
    schema = json.loads(done.stdout)
    assert ("nodes" if kind == "overlap" else "order") in schema["properties"]
    assert "estimate_seed" in schema["properties"] or kind == "overlap"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes": [*NODES, NODES[0]]}, 'nodes[7].name: the name "embed" appears twice'),
        ({"nodes": NODES[:5]}, 'expected one wait for the collective "gather1", got 0'),
        ({"nodes": [NODES[1], {"name": "w", "kind": "wait"}]}, "expected exactly one collective"),
        (
            {"nodes": [{"name": "a", "kind": "compute", "duration": 1, "deps": ["b"]},
                       {"name": "b", "kind": "compute", "duration": 1, "deps": ["a"]}]},
            '"a" depends on "b", which comes later; expected earlier nodes only (a cycle, or',
        ),
        ({"nodes": [{"name": "a", "kind": "compute", "deps": ["z"]}]}, 'unknown node "z"'),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"collective_order": "loose"}, "collective_order"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["optimize", "show"])
def test_bad_instances_are_refused(run, tmp_path, command, fields, words):
    done = run(command, write(tmp_path, **fields))
    assert done.exit_code == 2
    assert re.match(r"error: \S*other.json: ", done.stderr)
    assert words in done.stderr


def test_a_cap_below_one_output_is_proved_infeasible(run, tmp_path):
    done = run("optimize", write(tmp_path, max_live_bytes=15), "-q")
    assert done.exit_code == 3
    assert (
        "INFEASIBLE (memory: gather0 alone needs 16 of live bytes, capacity 15)"
        in done.stdout
    )


def test_the_documented_instance_is_one():
    text = (ROOT / "docs/overlap.md").read_text(encoding="utf-8")
    block = re.search(r"```json\n(.*?)```", text, re.S)[1]
    instance = parse_instance(json.loads(block))
    assert api.simulate(instance, "original").makespan == 210


def test_the_curve_is_plotted(run):
    plot = runpy.run_path(str(ROOT / "benchmarks/plot_live_bytes.py"))
    points = list(plot["curve"](load_instance("layers.json"), 5))
    assert [(point.peak, point.makespan) for point in points[:-1]] == [
        (40, 330),
        (24, 420),
    ]
    assert all(point.is_proved for point in points[:-1])
    assert points[-1].status == "INFEASIBLE"
    svg = plot["picture"](points[:-1], "us", "a & b", "below: none")
    assert svg.count("<circle") == 2
    assert "a &amp; b" in svg

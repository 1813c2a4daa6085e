"""``ppsolve stress``: a table, JSON, and options that name what is wrong."""

import json
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.studies.stress import StressEntry, StressReport
from ppsolve.solver.cli.main import build
from ppsolve.solver.views.stress import stress_report
from tests.paths import DATA

PIPELINE = ppsolve.PipelineInstance(
    name="two", num_devices=2, num_microbatches=4, times={"forward": 10, "backward": 20}
)


def run(*arguments):
    return CliRunner().invoke(build(), [*map(str, arguments)])


@pytest.fixture
def result(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(ppsolve.optimize(PIPELINE, time_limit=1).model_dump_json())
    return path


def test_json_has_an_entry_for_each_schedule(result):
    done = run("stress", result, "--jitter", 0.02, "--runs", 100, "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["kind"], found["runs"], found["jitter"]) == (
        "stress",
        100,
        {"*": 0.02},
    )
    assert found["entries"][0]["stays_ahead"] is None
    assert {"gpipe", "1f1b"} <= {entry["name"] for entry in found["entries"]}


def test_the_table_says_how_often_the_best_stays_ahead(result):
    done = run("stress", result, "--jitter", "F=0.1", "--slow", "1=1.5", "--runs", 100)
    assert done.exit_code == 0
    assert "100 runs, jitter 10.00 % of F, device 1 x 1.5" in done.stdout.replace(
        "\n", " "
    )
    assert "not later" in done.stdout


def test_jitter_comes_from_a_recorded_run(result):
    trace = DATA / "traces" / "primus_pp8"
    done = run("stress", result, "--trace", trace, "--runs", 10, "--json")
    assert done.exit_code == 0, done.stderr
    assert set(json.loads(done.stdout)["jitter"]) == {"F", "B"}


def test_the_instance_of_a_result_that_carries_none(result, tmp_path):
    data = json.loads(result.read_text())
    del data["instance_document"]
    bare, known = tmp_path / "bare.json", tmp_path / "instance.json"
    bare.write_text(json.dumps(data))
    known.write_text(PIPELINE.model_dump_json())
    options = ("--jitter", 0.02, "--runs", 100, "--json")
    refused = run("stress", bare, *options[:-1])
    assert refused.exit_code == 2
    assert (
        "bare.json: instance_document: this result carries no instance"
        in refused.stderr
    )
    given = run("stress", bare, "--instance", known, *options)
    assert given.stdout == run("stress", result, *options).stdout


@pytest.fixture
def known(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(PIPELINE.model_dump_json())
    return path


OPTIONS = ("--jitter", 0.02, "--runs", 100, "--json")


@pytest.mark.parametrize("form", ["entry", "bare"])
def test_an_entry_and_a_bare_schedule_are_replayed_alone(form, known, tmp_path):
    entry = ppsolve.simulate(PIPELINE, "1f1b")
    path = tmp_path / "given.json"
    path.write_text((entry if form == "entry" else entry.schedule).model_dump_json())
    done = run("stress", path, *OPTIONS, "--instance", known)
    assert done.exit_code == 0, done.stderr
    (only,) = json.loads(done.stdout)["entries"]
    assert (only["name"], only["planned"]) == (
        "1f1b" if form == "entry" else "best",
        entry.value,
    )


def test_jitter_of_a_recorded_run_for_a_bare_schedule(known, tmp_path):
    path, trace = tmp_path / "bare.json", DATA / "traces" / "primus_pp8"
    path.write_text(ppsolve.simulate(PIPELINE, "1f1b").schedule.model_dump_json())
    done = run(
        "stress", path, "--trace", trace, "--runs", 10, "--json", "--instance", known
    )
    assert set(json.loads(done.stdout)["jitter"]) == {"F", "B"}


def spoilt_status(data):
    data["status"] = "GREAT"


def spoilt_orders(data):
    place = [entry["status"] for entry in data["heuristics"]].index("feasible")
    data["heuristics"] = [data["heuristics"][place]]
    data["best_by"], data["heuristics"][0]["orders"][0][0] = "other", "7F0"


def spoilt_cycle(data):
    place = [entry["status"] for entry in data["heuristics"]].index("feasible")
    data["heuristics"] = [data["heuristics"][place]]
    data["best_by"] = "other"
    data["heuristics"][0]["orders"][0].reverse()


def spoilt_start(data):
    keys = ("value", "makespan", "device_span", "gap", "bound")
    data.update(dict.fromkeys(keys))
    last = data["schedule"]["ops"][-1]
    last["start"], last["end"] = 0, last["end"] - last["start"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoilt_status, "schedule: it breaks a rule: objective: status is given as"),
        (
            spoilt_orders,
            'heuristics[0].orders: expected an action of this instance, got "7F0"',
        ),
        (spoilt_cycle, "heuristics[0].orders: deadlock: "),
        (spoilt_start, "schedule: it breaks a rule: "),
        (lambda data: data.update(schedule="x"), "schedule: expected an object"),
    ],
)
def test_a_broken_result_is_named_with_its_field(result, tmp_path, spoil, message):
    data, path = json.loads(result.read_text()), tmp_path / "broken.json"
    spoil(data)
    path.write_text(json.dumps(data))
    done = run("stress", path, *OPTIONS[:-1])
    assert done.exit_code == 2
    assert f"broken.json: {message}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_list_is_no_result(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1]")
    done = run("stress", path, *OPTIONS[:-1], "--trace", DATA / "traces" / "primus_pp8")
    assert (done.exit_code, "list.json: expected a result" in done.stderr) == (2, True)


def replicas(assignment):
    return ppsolve.PipelineInstance(
        num_devices=2,
        num_microbatches=4,
        times={"forward": [[1, 2, 3, 6], 2], "backward": [3, [2, 4, 1, 2]]},
        replicas={"count": 2, "assignment": assignment},
    )


def test_replicas_are_replayed_with_their_heuristics():
    found = ppsolve.optimize(replicas("fixed"), time_limit=1)
    names = {entry.name for entry in ppsolve.stress(found, 0.1, runs=10).entries}
    assert {found.best_by, "gpipe", "1f1b"} <= names
    planned = {entry.name: entry.value for entry in found.heuristics}
    exact = {
        entry.name: entry.worst for entry in ppsolve.stress(found, 0.0, runs=1).entries
    }
    assert [exact[name] for name in ("gpipe", "1f1b")] == [
        planned["gpipe"],
        planned["1f1b"],
    ]


def test_heuristics_of_another_assignment_are_left_out():
    pipeline = replicas("free")
    found = ppsolve.optimize(pipeline, time_limit=1)
    data = json.loads(found.model_dump_json())
    assert len(ppsolve.stress(data, 0.1, runs=10).entries) > 1
    assert sorted(data["assignment"][0]) != [0, 1]
    side_by_side = ppsolve.optimize(replicas("fixed"), time_limit=1)
    other = json.loads(side_by_side.model_dump_json())
    data |= {name: other[name] for name in ("schedule", "assignment", "makespan")}
    figures = (
        "value",
        "device_span",
        "bound",
        "gap",
        "bubble_ratio",
        "bubble_over_compute",
    )
    data |= dict.fromkeys(figures)
    (only,) = ppsolve.stress(data, 0.1, runs=10).entries
    assert only.planned == side_by_side.value


def test_a_mean_below_the_plan_is_less_not_longer_by_a_negative_share():
    one = {"planned": 100, "mean": 99, "p5": 90, "p95": 110, "p99": 111, "worst": 112}
    entry = StressEntry.model_construct(name="best", stays_ahead=None, **one)
    found = StressReport.model_construct(
        instance="two",
        runs=9,
        jitter={"*": 0.1},
        slow={},
        time_unit="us",
        entries=(entry,),
    )
    console = Console(width=200, file=StringIO())
    console.print(stress_report(found))
    assert "best takes 1.00 % less than planned on average" in console.file.getvalue()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "expected --jitter or --trace"),
        (
            ("--jitter", "much"),
            "--jitter: expected a share such as 0.05 or 5%, got 'much'",
        ),
        (
            ("--jitter", "F=5"),
            "--jitter: expected 0.05 or 5%; 5 would be 500 %: write 5%",
        ),
        (("--jitter", 0.1, "--slow", "2"), "--slow: expected DEVICE=FACTOR, got ''"),
        (("--jitter", 0.1, "--slow", "x=2"), "--slow: expected DEVICE=FACTOR, got 'x'"),
    ],
)
def test_wrong_options_end_with_2(result, options, message):
    done = run("stress", result, *options)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_an_instance_is_no_result(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text('{"kind": "pipeline"}')
    done = run("stress", path, "--jitter", 0.1)
    assert done.exit_code == 2
    assert "instance.json: expected a result" in done.stderr


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("500%", 5.0), ("1", 1.0)])
def test_jitter_may_be_written_in_percent(result, text, share):
    done = run("stress", result, "--jitter", f"F={text}", "--runs", 10, "--json")
    assert json.loads(done.stdout)["jitter"] == {"F": share}

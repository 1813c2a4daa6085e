"""``ppsolve show``: what it accepts, what it draws, what it refuses."""

import json
import re

import pytest
from typer.testing import CliRunner

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.result import (
    HeuristicEntry,
    Result,
    ScheduleDocument,
    Versions,
)
from ppsolve.solver.api import api as library
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.cli.main import build
from ppsolve.solver.structure.timing import time_orders

INSTANCE = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20.5},
    "p2p": {"mode": "link", "latency": 1, "bytes": 5, "bandwidth": 1},
    "memory": {"capacity": 3, "activation": 1},
}


@pytest.fixture
def schedule():
    problem = lower(parse_instance(INSTANCE))
    orders = [problem.ops_by_resource[r] for r in problem.span_resources.tolist()]
    return time_orders(problem, orders)


@pytest.fixture
def here(tmp_path, monkeypatch, schedule):
    monkeypatch.chdir(tmp_path)
    document = ScheduleDocument.of(schedule)
    result = Result(
        instance="tiny", status="FEASIBLE", objective="makespan", time_unit="us",
        value=93.5, makespan=93.5, bubble_ratio=measure(schedule).bubble_ratio,
        best_by="gpipe", stop_reason="time_limit",
        wall_seconds=1.0, versions=Versions(ppsolve="0", python="3"), schedule=document,
        peak_memory={"device 0": 2.0, "device 1": 2.0},
    )  # fmt: skip
    entry = HeuristicEntry(name="1f1b", status="feasible", schedule=document)
    (tmp_path / "tiny.json").write_text(json.dumps(INSTANCE))
    (tmp_path / "bare.json").write_text(document.model_dump_json())
    (tmp_path / "entry.json").write_text(entry.model_dump_json())
    makespan = schedule.problem.scale.time(schedule.makespan)
    text = result.model_copy(
        update={"value": makespan, "makespan": makespan}
    ).model_dump_json()
    (tmp_path / "result.json").write_text(text)
    return tmp_path


@pytest.fixture
def show(here):
    def invoke(*args, **options):
        return CliRunner().invoke(build(), ["show", *args], **options)

    return invoke


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "bubble ratio"),
        (
            {"objective": "device_span", "device_span": 80},
            "bubble ratio of device span",
        ),
    ],
)
def test_a_result_alone_names_the_ratio_of_its_objective(show, here, changes, name):
    data = json.loads((here / "result.json").read_text())
    (here / "result.json").write_text(
        json.dumps(data | {"bubble_ratio": 0.5} | changes)
    )
    assert re.search(rf"\n +{name} +0\.5000", show("result.json").stdout)


def test_an_entry_alone_names_the_ratio_of_its_value(show, here):
    data = json.loads((here / "entry.json").read_text())
    of_span = {"value": 80, "device_span": 80, "makespan": 93.5, "bubble_ratio": 0.25}
    (here / "entry.json").write_text(json.dumps(data | of_span))
    assert re.search(
        r"\n +bubble ratio of device span +0\.2500", show("entry.json").stdout
    )
    (here / "entry.json").write_text(json.dumps(data | of_span | {"value": 93.5}))
    assert re.search(r"\n +bubble ratio +0\.2500", show("entry.json").stdout)


def test_instance_and_result(show):
    done = show("tiny.json", "result.json")
    assert done.exit_code == 0
    assert done.stderr == ""
    assert done.stdout.startswith("tiny, gpipe\ndevice 0 │F0")
    assert "2 of 3" in done.stdout
    assert show("result.json", "tiny.json").stdout == done.stdout


@pytest.mark.parametrize(
    ("file", "title"),
    [
        ("result.json", "tiny, gpipe"),
        ("entry.json", "schedule, 1f1b"),
        ("bare.json", "schedule"),
    ],
)
def test_a_result_alone(show, file, title):
    done = show(file)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{title}\ndevice 0 │F0")
    assert ("peak memory" in done.stdout) is (file == "result.json")


def test_an_instance_alone_is_described(show):
    done = show("tiny.json")
    assert done.stdout.startswith("tiny: a pipeline instance")
    assert "--heuristic NAME" in done.stdout


def test_stdin(show, here):
    text = (here / "result.json").read_text()
    assert show("tiny.json", "-", input=text).stdout.startswith("tiny, gpipe")


@pytest.mark.parametrize("width", ["60", "80", "120", "200"])
def test_width(show, width):
    lines = show("tiny.json", "result.json", "--links", "--width", width).stdout.split(
        "\n"
    )
    assert max(map(len, lines)) <= int(width)
    assert any(line.startswith("link 0->1 │") for line in lines)
    chart = next(line for line in lines if line.startswith(" device 0 │"))
    assert len(chart) == int(width)


def test_colour_follows_the_environment(show, here):
    plain = show("tiny.json", "result.json")
    forced = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    coloured = show("tiny.json", "result.json", env={**forced, "NO_COLOR": None})
    muted = show("tiny.json", "result.json", env={**forced, "NO_COLOR": "1"})
    assert "\x1b[" not in plain.stdout
    assert "48;5;75" in coloured.stdout
    assert "48;5;75" not in muted.stdout


def test_a_part_of_the_axis(show):
    whole = show("result.json", "--width", "80").stdout.split("\n")
    part = show(
        "result.json", "--from", "0", "--to", "20", "--width", "80"
    ).stdout.split("\n")
    assert part[1].startswith("device 0 │F0" + " " * 28)
    assert whole[1] != part[1]


def test_heuristic(show, here, schedule, monkeypatch):
    document = ScheduleDocument.of(schedule)
    answers = {
        "gpipe": {"status": "feasible", "schedule": document},
        "zbv": {"status": "not_applicable", "reason": "needs two chunks"},
        "odd": {"status": "failed", "reason": "deadlock: a -> a"},
        "full": {
            "status": "infeasible",
            "reason": "memory: full",
            "schedule": document,
        },
    }

    class Api:
        @staticmethod
        def simulate(instance, name, **options):
            return HeuristicEntry(name=name, **answers[name])

    monkeypatch.setattr(library, "simulate", Api.simulate)
    assert show("tiny.json", "--heuristic", "gpipe").stdout.startswith(
        "tiny, gpipe\ndevice 0 │"
    )
    for name, code, message in (
        ("zbv", 2, "error: zbv is not applicable: needs two chunks\n"),
        ("odd", 2, "error: tiny.json: odd gives no schedule: deadlock: a -> a\n"),
        ("full", 0, "warning: infeasible: memory: full\n"),
    ):
        done = show("tiny.json", "--heuristic", name)
        assert (done.exit_code, done.stderr) == (code, message)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["result.json", "bare.json"],
            "error: bare.json: expected an instance, this is a second",
        ),
        (
            ["tiny.json", "tiny.json"],
            "error: tiny.json: expected a result (with a schedule) here",
        ),
        (["tiny.json"] * 3, "error: expected an instance, a result, or one of each"),
        (["-", "-"], "error: expected an instance, a result, or one of each"),
        (
            ["result.json", "--from", "5", "--to", "5"],
            "error: --to: expected more than --from (5)",
        ),
        (
            ["result.json", "--from", "inf", "--to", "5"],
            "error: --to: expected more than --from",
        ),
        (
            ["result.json", "--from", "0.9999999999", "--to", "0.9999999998"],
            "error: --to: expected more than --from (0.9999999999), got 0.9999999998",
        ),
        (
            ["result.json", "--heuristic", "x"],
            "error: --heuristic: a heuristic needs an instance",
        ),
        (
            ["tiny.json", "bare.json", "--heuristic", "x"],
            "error: --heuristic: expected either",
        ),
        (["none.json"], "error: none.json: there is no schedule in it"),
        (["broken.json"], "error: broken.json: ops[0].start"),
        (
            ["tiny.json", "half.json"],
            "error: half.json: not a whole schedule: missing: ",
        ),
        (
            ["tiny.json", "alien.json"],
            'error: alien.json: schedule.ops[0].id: unknown op "Q"',
        ),
    ],
)
def test_refusals(show, here, args, message):
    first = {"id": "F0.0", "start": 0, "end": 10}
    files = {
        "none": {"instance": "x", "schedule": None},
        "broken": {
            "time_unit": "us",
            "ops": [{"id": "F0.0", "start": "soon", "end": 1}],
        },
        "half": {"schedule": {"time_unit": "us", "ops": [first]}},
        "alien": {"schedule": {"time_unit": "us", "ops": [{**first, "id": "Q"}]}},
    }
    for name, data in files.items():
        (here / f"{name}.json").write_text(json.dumps(data))
    done = show(*args)
    assert done.exit_code == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("NaN", "ops[0].start: input should be"),
        ("-Infinity", "ops[0].start: input should be"),
        ("1e31", "ops[0].start: expected at most 1E+30, got 1.000000E+31"),
        ("1e5000", "ops[0].start: expected at most 1E+30, got 1.000000E+5000"),
        ("9" * 5000, "ops[0].start: expected at most 1E+30, got 1.000000E+5000"),
        (
            '0, "stage": 1e999999',
            "ops[0].stage: expected at most 1E+30, got 1.000000E+999999",
        ),
        (
            '0, "stage": ' + "9" * 5000,
            "ops[0].stage: expected at most 1E+30, got 1.000000E+5000",
        ),
    ],
)
def test_times_that_cannot_be_drawn(show, here, start, message):
    text = f'{{"time_unit": "us", "ops": [{{"id": "a", "start": {start}, "end": 1}}]}}'
    (here / "wild.json").write_text(text)
    done = show("wild.json")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: wild.json: {message}")


@pytest.mark.parametrize("number", ["1e31", "9" * 400])
def test_a_curve_of_huge_numbers_is_refused(show, here, number):
    fields = {
        "instance": "i",
        "over": "capacity",
        "objective": "makespan",
        "time_unit": "us",
    }
    curve = json.dumps({"kind": "curve", **fields, "points": "POINTS"})
    points = f'[{{"at": 1, "status": "FEASIBLE", "value": {number}}}]'
    (here / "curve.json").write_text(curve.replace('"POINTS"', points))
    done = show("curve.json")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "error: curve.json: points[0].value: expected at most 1E+30"
    )


def test_an_op_without_a_name_is_drawn(show, here):
    op = {"id": "", "device": 0, "start": 0, "end": 1}
    (here / "nameless.json").write_text(json.dumps({"time_unit": "us", "ops": [op]}))
    assert show("nameless.json").stdout.startswith("schedule\ndevice 0 │")


def test_an_infinite_end_is_the_end(show):
    assert show("result.json", "--to", "inf").stdout == show("result.json").stdout


def test_a_wrong_schedule_is_drawn_with_a_warning(show, here):
    data = json.loads((here / "result.json").read_text())
    data["makespan"] = 1
    (here / "result.json").write_text(json.dumps(data))
    done = show("tiny.json", "result.json")
    assert done.exit_code == 0
    assert done.stderr.startswith(
        "warning: result.json: objective: makespan is given as 1"
    )


def test_a_window_behind_the_schedule_is_refused(show, schedule):
    end = f"{schedule.problem.scale.time(schedule.makespan):g}"
    done = show("result.json", "--from", end)
    assert done.exit_code == 2
    assert (
        f"--from: expected less than the end of the schedule ({end}), got {end}"
        in done.stderr
    )
    assert show("result.json", "--from", "1").exit_code == 0


def carrying(here, **changes):
    """Write the result with its instance, and with the first op of its schedule changed."""
    data = json.loads((here / "result.json").read_text()) | {"kind": "pipeline"}
    data["schedule"]["ops"][0] |= changes
    (here / "whole.json").write_text(json.dumps(data | {"instance_document": INSTANCE}))


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, None),
        ({"device": 99}, "label: F0.0 is given with device 99, it has device 0"),
        ({"start": 1, "end": 11}, "precedence: "),
    ],
)
def test_a_result_alone_is_checked_by_the_instance_that_it_carries(
    show, here, changes, broken
):
    carrying(here, **changes)
    done = show("whole.json")
    assert done.exit_code == 0
    assert "2 of 3" in done.stdout
    assert done.stderr == show("tiny.json", "whole.json").stderr
    if broken is None:
        assert done.stderr == ""
    else:
        assert done.stderr.startswith(f"warning: whole.json: {broken}")


def test_a_result_of_an_unknown_kind_is_drawn_unchecked(show, here):
    carrying(here)
    text = (here / "whole.json").read_text().replace('"pipeline"', '"elsewhere"')
    (here / "whole.json").write_text(text)
    done = show("whole.json")
    assert done.stdout.startswith("tiny, gpipe\ndevice 0 │F0")
    assert "unknown kind" in done.stderr
    assert done.stderr.endswith("the schedule is drawn unchecked\n")


def test_figures_are_in_the_unit_of_the_axis(tmp_path):
    """Two micro-batches of 2 + 3 s on one device end after 10 s, however fine the unit is."""
    path, result = tmp_path / "fine.json", tmp_path / "result.json"
    fine = {
        "kind": "pipeline",
        "num_devices": 1,
        "num_microbatches": 2,
        "time_unit": "ns",
        "times": {"forward": "2 s", "backward": "3 s"},
        "memory": {"unit": "B", "capacity": "80 GB", "activation": "35 GB"},
    }
    path.write_text(json.dumps(fine))

    def run(*arguments):
        done = CliRunner().invoke(build(), [*map(str, arguments)])
        assert done.exit_code == 0
        assert "000,000" not in done.output
        return done.output

    assert "capacity 80.0 GB" in run("show", path)
    assert "10,000 ms" in run("show", path, "--heuristic", "gpipe")
    assert "peak, device 0  70.0 GB" in run("simulate", path, "--heuristic", "gpipe")
    assert "bound 10,000 ms" in run("optimize", path, "-o", result)
    assert "schedule (ms)" in run("stress", result, "--jitter", 0.05, "--runs", 10)
    path.write_text(json.dumps(fine | {"memory": None}))
    assert "(ms)" in run("what-if", path, "--microbatches", 3)
    assert "value (ms)" in run("curve", path, "--microbatches", "2,3")

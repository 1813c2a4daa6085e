"""``ppsolve report``: a page, or one error that names the file and what is right."""

import json

import pytest
from typer.testing import CliRunner

import ppsolve
from ppsolve.models.core.claims import MEASURED
from ppsolve.solver.cli.main import build
from tests.paths import ROOT
from tests.views.page.cases import pipeline


def run(*arguments):
    return CliRunner().invoke(build(), ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def text():
    return ppsolve.optimize(pipeline(), time_limit=1).model_dump_json()


@pytest.fixture
def result(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text)
    return path


def test_page_of_a_result_and_its_heuristics(result, tmp_path):
    target = tmp_path / "report.html"
    done = run(result, "--heuristic", "gpipe", "-o", target)
    assert (done.exit_code, done.output) == (0, "")
    assert "tiny, gpipe" in target.read_text()


def test_stdout(result):
    assert run(result, "-o", "-").stdout.startswith("<!doctype html>")


def test_a_plan_is_a_table_of_configurations_and_the_winner(tmp_path):
    request = ppsolve.load_request(
        ROOT / "instances" / "plans" / "small-12x4.plan.json"
    )
    path = tmp_path / "plan.json"
    path.write_text(ppsolve.plan(request, time_limit=0).model_dump_json())
    page = run(path, "-o", "-").stdout
    assert "Configurations" in page
    assert "winner" in page
    assert 'id="lanes"' in page


def broken(data, **fields):
    return {**data, **fields}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda data: data["instance_document"],
            "expected a result, this is an instance",
        ),
        (lambda data: [data], "expected a result, a plan or a what-if"),
        (
            lambda data: {"kind": "curve"},
            "expected a result, this is a curve; `ppsolve show`",
        ),
        (lambda data: broken(data, instance_document=None), "carries no instance"),
        (lambda data: broken(data, schedule=None), "there is no schedule in it"),
        (lambda data: {"kind": "plan-result"}, "this field is required"),
    ],
)
def test_wrong_files_end_with_2(text, tmp_path, change, message):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(change(json.loads(text))))
    target = tmp_path / "report.html"
    done = run(path, "-o", target)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "wrong.json" in done.stderr
    assert not target.exists()


def test_wrong_options_end_with_2(result, tmp_path):
    unknown = run(result, "--heuristic", "gpip", "-o", "-")
    assert unknown.exit_code == 2
    assert 'no heuristic "gpip"; did you mean "gpipe"?' in unknown.stderr
    assert run(result, "-o", result).exit_code == 2


def test_a_schedule_that_breaks_a_rule_is_refused(text, tmp_path):
    data = json.loads(text)
    last = data["schedule"]["ops"][-1]
    last["start"], last["end"] = 0, last["end"] - last["start"]
    for name in ("value", "makespan", "device_span", "gap", "bound", *MEASURED):
        data[name] = None
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    done = run(path, "-o", "-")
    assert done.exit_code == 2
    assert "broken.json: schedule: the schedule breaks a rule: " in done.stderr


def test_heuristics_without_orders_are_run_again(tmp_path):
    instance = ppsolve.load_instance(
        ROOT / "instances" / "overlap" / "fsdp-forward-8l.json"
    )
    path = tmp_path / "order.json"
    path.write_text(ppsolve.optimize(instance, time_limit=1).model_dump_json())
    done = run(path, "--heuristic", "inductor-default", "-o", "-")
    assert "fsdp-forward-8l, inductor-default" in done.stdout


def test_bench_files_are_shown_by_their_own_command(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("{}\n{}\n")
    done = run(path, "-o", "-")
    assert done.exit_code == 2
    assert "`ppsolve bench report FILE` reads" in done.stderr

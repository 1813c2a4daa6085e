"""The plan command: exit codes, streams, files, options and errors, on a tiny request."""

import json
import sys
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from ppsolve.models.core.result import Result, Status
from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.plan.request import parse_request
from ppsolve.models.studies.plan.result import Plan
from ppsolve.solver.api.api import check
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies.plan import api
from ppsolve.solver.studies.plan.progress import PlanProgress

REQUEST = {
    "kind": "plan",
    "name": "tiny",
    "model": {
        "microbatch_sizes": [1, 2],
        "layers": [
            {
                "name": "block",
                "count": 4,
                "forward": [10, 16],
                "backward": [20, 32],
                "activation_bytes": {"per_sample": 10},
                "output_bytes": {"per_sample": 1},
                "parameter_bytes": 10,
            }
        ],
    },
    "cluster": {
        "nodes": 1,
        "devices_per_node": 4,
        "memory": 300,
        "within_node": {"latency": 1, "bandwidth": 100},
    },
    "goodput": {"init_batch_size": 8, "grad": {"sqr": 0.1, "var": 1}},
    "search": {"batch_sizes": [8, 16]},
}


def changed(**parts):
    """Return the request with some fields of its parts replaced."""
    return {
        name: {**value, **parts[name]} if name in parts else value
        for name, value in REQUEST.items()
    }


@pytest.fixture(scope="module")
def found():
    return api.plan(parse_request(REQUEST))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(REQUEST))
    return tmp_path


@pytest.fixture
def planner(monkeypatch, found):
    """Stand in for the planner: answers as told, remembers what it was asked."""

    class Planner:
        answer, error = found, None

        def __init__(self):
            self.asked = []

        def plan(self, request, *, on_progress=None, **options):
            self.asked.append({"name": request.name, **options})
            if self.error is not None:
                raise self.error
            if on_progress is not None:
                on_progress(PlanProgress(0.5, "heuristics", 3, 8, 1.0, 2.0))
            return self.answer

    planner = Planner()
    monkeypatch.setattr(api, "plan", planner.plan)
    return planner


@pytest.fixture
def run(here):
    def invoke(*args, **options):
        return CliRunner().invoke(build(), ["plan", *args], **options)

    return invoke


class TestAnswers:
    def test_report_on_stdout_progress_on_stderr(self, run, planner):
        done = run("tiny.json")
        assert done.exit_code == 0
        assert done.stdout.startswith("tiny: OPTIMAL\n")
        assert done.stderr == (
            "[    0.50 s] heuristics  3/8  best 1 samples/s  at most 2  gap 50.00 %\n"
        )
        lines = done.stdout.split("\n")
        assert lines == [line.rstrip() for line in lines]

    def test_quiet_is_one_line(self, run, planner):
        done = run("tiny.json", "-q")
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1
        assert done.stdout.startswith("tiny: OPTIMAL ")
        assert "samples/s, gap 0.00 %, pipeline of " in done.stdout

    def test_verbose_has_all_rows_and_reasons(self, run, planner, found):
        done = run("tiny.json", "-v")
        for row in found.table:
            assert f"rank {row.rank} " in done.stdout
        assert "versions" in done.stdout

    def test_rows(self, run, planner, found):
        assert "  rank " in run("tiny.json", "--top", "1").stdout
        none = run("tiny.json", "--top", "0").stdout
        assert "reached" not in none.split("more: ")[0]
        assert "more: " in none

    def test_options_reach_the_planner(self, run, planner):
        done = run(
            "tiny.json", "--time-limit", "5", "--gap", "0.01", "--workers", "2", "--seed", "7",
            "--deterministic", "--exhaustive", "--finalists", "3",
        )  # fmt: skip
        assert done.exit_code == 0
        assert planner.asked == [
            {
                "name": "tiny", "time_limit": 5.0, "finalists": 3, "gap": 0.01, "workers": 2,
                "seed": 7, "deterministic": True, "exhaustive": True, "runtime": None,
            }
        ]  # fmt: skip

    def test_defaults(self, run, planner):
        run("tiny.json")
        assert (planner.asked[0]["time_limit"], planner.asked[0]["finalists"]) == (
            45,
            12,
        )

    def test_json_is_one_document_that_reads_back(self, run, planner, found):
        done = run("tiny.json", "--json")
        assert Plan.model_validate_json(done.stdout) == found
        assert json.loads(done.stdout)["kind"] == "plan-result"

    def test_output_file_stdin_and_stdout(self, run, here, planner, found):
        done = run("-", "-o", "plan.json", "-q", input=json.dumps(REQUEST))
        assert done.stdout.startswith("tiny: OPTIMAL")
        assert Plan.model_validate_json((here / "plan.json").read_text()) == found
        assert json.loads(run("tiny.json", "-o", "-").stdout)["request"] == "tiny"

    def test_the_winner_alone(self, run, here, planner):
        done = run(
            "tiny.json", "-q", "--instance-out", "i.json", "--result-out", "r.json"
        )
        assert done.exit_code == 0
        instance = load_instance("i.json")
        result = Result.model_validate_json((here / "r.json").read_text())
        assert check(instance, result.schedule) == []
        checked = CliRunner().invoke(build(), ["check", "i.json", "r.json"])
        assert checked.exit_code == 0

    @pytest.mark.parametrize(
        ("changes", "code", "words"),
        [
            ({"interrupted": True}, 130, "interrupted after"),
            ({"status": Status.FEASIBLE}, 0, "tiny: FEASIBLE"),
            (
                {"status": Status.UNKNOWN, "winner": None, "goodput": None},
                4,
                "no schedule found",
            ),
        ],
    )
    def test_exit_codes(self, run, here, planner, found, changes, code, words):
        planner.answer = found.model_copy(update=changes)
        done = run("tiny.json", "-o", "plan.json")
        assert done.exit_code == code
        assert words in done.stdout
        assert (here / "plan.json").exists()

    def test_nothing_fits(self, run, here):
        (here / "tight.json").write_text(json.dumps(changed(cluster={"memory": 5})))
        done = run("tight.json", "--instance-out", "i.json", "--chart", "c.svg")
        assert done.exit_code == 3
        assert "INFEASIBLE" in done.stdout
        assert "no configuration fits the memory (proved)" in done.stdout
        assert "do not fit the memory" in done.stdout
        assert done.stderr == (
            "warning: i.json: not written, there is no winner\n"
            "warning: c.svg: not written, there is nothing to draw\n"
        )
        assert not (here / "i.json").exists()

    def test_an_interrupt_before_anything_is_known(self, run, planner):
        planner.error = KeyboardInterrupt()
        done = run("tiny.json")
        assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


class TestCharts:
    def test_both_formats(self, run, here, planner):
        assert run("tiny.json", "-q", "--chart", "c.png", "--json").exit_code == 0
        assert (here / "c.png").read_bytes().startswith(b"\x89PNG\r\n")
        assert run("tiny.json", "-q", "--chart", "c.SVG").exit_code == 0
        root = ElementTree.fromstring((here / "c.SVG").read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"

    def test_the_same_plan_gives_the_same_bytes(self, run, here, planner):
        for name in ("a.svg", "b.svg", "a.png", "b.png"):
            run("tiny.json", "-q", "--chart", name)
        assert (here / "a.svg").read_bytes() == (here / "b.svg").read_bytes()
        assert (here / "a.png").read_bytes() == (here / "b.png").read_bytes()
        assert b"<dc:date>" not in (here / "a.svg").read_bytes()

    def test_without_matplotlib(self, run, planner, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        done = run("tiny.json", "--chart", "c.png")
        assert (done.exit_code, planner.asked) == (2, [])
        assert done.stderr == (
            "error: --chart: needs matplotlib, which is not installed: "
            "pip install 'ppsolve[plot]'\n"
        )
        assert run("tiny.json").exit_code == 0


class TestErrors:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (
                ["-o", "no/p.json"],
                "no/p.json: --output: the directory no does not exist",
            ),
            (
                ["--chart", "no/c.png"],
                "no/c.png: --chart: the directory no does not exist",
            ),
            (
                ["--chart", "c.pdf"],
                "c.pdf: --chart: expected a file name ending in .png or .svg",
            ),
            (["--chart", "-"], "--chart: expected a file, got -"),
            (["--instance-out", "-"], "--instance-out: expected a file, got -"),
            (
                ["--result-out", "."],
                ".: --result-out: expected a file, this is a directory",
            ),
            (
                ["--instance-out", "tiny.json"],
                "tiny.json: --instance-out: this is the input tiny.json, give another file",
            ),
            (
                ["-o", "a.json", "--result-out", "./a.json"],
                "a.json: --result-out: --output writes there too",
            ),
        ],
    )
    def test_outputs_are_checked_before_the_plan(self, run, planner, args, message):
        done = run("tiny.json", *args)
        assert (done.exit_code, planner.asked) == (2, [])
        assert done.stderr == f"error: {message}\n"

    @pytest.mark.parametrize(
        ("request_data", "message"),
        [
            (
                {**REQUEST, "kind": "plans"},
                "bad.json: kind: input should be 'plan', got the text \"plans\"",
            ),
            (
                changed(search={"schedules": ["1f1c"]}),
                'bad.json: search.schedules[0]: unknown heuristic "1f1c"; did you mean "1f1b"?',
            ),
            (
                changed(search={"replicas": [9], "pipeline_depths": [1]}),
                "bad.json: search: expected at least one configuration: more devices than the "
                "cluster has (1x)",
            ),
        ],
    )
    def test_errors_name_the_file(self, run, here, request_data, message):
        (here / "bad.json").write_text(json.dumps(request_data))
        done = run("bad.json", "-o", "out.json")
        assert done.exit_code == 2
        assert done.stderr == f"error: {message}\n"
        assert not (here / "out.json").exists()

    def test_missing_file_and_stdin(self, run):
        assert run("nope.json").stderr == "error: nope.json: no such file\n"
        done = run("-", input="{")
        assert done.stderr.startswith("error: <stdin>: not valid JSON: line 1")

    def test_options_that_only_the_planner_refuses(self, run):
        done = run("tiny.json", "--gap", "1")
        assert done.exit_code == 2
        assert (
            done.stderr == "error: --gap: expected a share from 0 to below 1, got 1.0\n"
        )

    def test_an_error_with_a_source_keeps_it(self, run, planner):
        planner.error = InputError("too much", source="elsewhere", field="x")
        assert run("tiny.json").stderr == "error: elsewhere: x: too much\n"

    @pytest.mark.parametrize(
        "args",
        [["--finalists", "-1"], ["--top", "x"], ["--time-limit", "-1"], ["--gap", "2"]],
    )
    def test_usage_errors(self, run, planner, args):
        done = run("tiny.json", *args)
        assert (done.exit_code, planner.asked) == (2, [])
        assert "Usage: " in done.stderr


def test_schemas():
    for kind, field in (
        ("plan", "cluster"),
        ("plan-result", "counts"),
        ("goodput", "params"),
    ):
        done = CliRunner().invoke(build(), ["schema", kind])
        assert field in json.loads(done.stdout)["properties"]


def test_nothing_slow_is_loaded_for_help():
    import subprocess

    code = (
        "import sys; from ppsolve.solver.cli.main import build; build();"
        "print([m for m in ('numpy', 'pydantic', 'ortools', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"

"""Exit codes, streams and options of every command, over a stand-in for the solver."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    ScheduleDocument,
    Status,
    StopReason,
    Versions,
)
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.solver.api import api as library
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.cli.main import build
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.run.progress import Progress
from ppsolve.solver.structure.timing import time_orders

INSTANCE = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
}


def document_of(instance):
    """Return the gpipe schedule of an instance with fused backwards."""
    problem = lower(instance)
    orders = [problem.ops_by_resource[r] for r in problem.span_resources.tolist()]
    return ScheduleDocument.of(time_orders(problem, orders))


class FakeApi(SimpleNamespace):
    """Answers as told and remembers what it was asked."""

    def __init__(self):
        super().__init__(changes={}, error=None, crash_on=None, asked=[], violations=[])

    def optimize(self, instance, *, on_progress=None, began=None, **options):
        self.asked.append({"name": instance.name, **options})
        if self.error is not None and self.crash_on in (None, instance.name):
            raise self.error
        if on_progress is not None:
            on_progress(Progress("heuristic", 0.1, "1f1b", incumbent=90))
            on_progress(
                Progress("incumbent", 0.2, "gpipe", incumbent=90, bound=80, gap=1 / 9)
            )
        fields = {
            "instance": instance.name, "status": Status.OPTIMAL, "objective": "makespan",
            "time_unit": "us", "value": 90, "makespan": 90, "device_span": 90, "bound": 90,
            "bound_by": "chain", "gap": 0.0, "bubble_ratio": 0.25, "best_by": "gpipe",
            "stop_reason": StopReason.PROVED, "wall_seconds": 0.1,
            "versions": Versions(ppsolve="0", python="3"), "schedule": document_of(instance),
            "heuristics": (
                HeuristicEntry(name="gpipe", status="feasible", value=90, gap=0.0),
                HeuristicEntry(name="zbv", status="not_applicable", reason="needs two chunks"),
            ),
        }  # fmt: skip
        return Result(**{**fields, **self.changes})

    def simulate(self, instance, heuristic, **options):
        self.asked.append({"heuristic": heuristic, **options})
        if self.error is not None:
            raise self.error
        fields = {
            "name": heuristic, "status": "feasible", "value": 90, "makespan": 90,
            "device_span": 90, "schedule": document_of(instance),
        }  # fmt: skip
        return HeuristicEntry(**{**fields, **self.changes})

    def check(self, instance, schedule, *, exact=False):
        if self.error is not None:
            raise self.error
        return self.violations


@pytest.fixture
def api(monkeypatch):
    fake = FakeApi()
    for name in ("optimize", "simulate"):
        monkeypatch.setattr(library, name, getattr(fake, name))
    # Checks load no search, and so not the library.
    monkeypatch.setattr(
        Kind, "check", lambda kind, *rest, **more: fake.check(*rest, **more)
    )
    return fake


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(INSTANCE))
    return tmp_path


@pytest.fixture
def run(here, api):
    def invoke(*args, **options):
        return CliRunner().invoke(build(), list(args), **options)

    return invoke


NOTHING = {
    "value": None, "makespan": None, "device_span": None, "gap": None, "bubble_ratio": None,
    "best_by": None, "schedule": None,
}  # fmt: skip


class TestOptimize:
    def test_report_on_stdout_progress_on_stderr(self, run):
        done = run("optimize", "tiny.json")
        assert done.exit_code == 0
        assert done.stdout.startswith("tiny: OPTIMAL\n")
        assert "not applicable: zbv" in done.stdout
        assert done.stderr == (
            "[    0.20 s] incumbent: gpipe  best 90 us  bound 80 us  gap 11.11 %\n"
        )

    def test_pipes_get_no_blanks_at_the_ends_of_lines(self, run):
        lines = run("optimize", "tiny.json").stdout.split("\n")
        assert lines == [line.rstrip() for line in lines]
        assert lines[-2:] == ["  not applicable: zbv (--verbose says why)", ""]
        assert "" in lines[1:-2]

    def test_options_reach_the_library(self, run, api):
        done = run(
            "optimize", "tiny.json", "--time-limit", "5", "--gap", "0.01", "--workers", "2",
            "--seed", "7", "--deterministic", "--deterministic-limit", "3", "--exact",
        )  # fmt: skip
        assert done.exit_code == 0
        assert api.asked == [
            {
                "name": "tiny", "time_limit": 5.0, "gap": 0.01, "workers": 2, "seed": 7,
                "deterministic": True, "deterministic_limit": 3.0, "heuristics": None,
                "more_heuristics": [], "exact": True, "robust": None, "verify": None,
                "runtime": None, "params": None, "start": None,
            }
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            ("1f1c", 'unknown heuristic "1f1c"; did you mean "1f1b"?'),
            (",", "at least one name"),
        ],
    )
    def test_wrong_heuristics(self, run, api, names, message):
        done = run("optimize", "tiny.json", "--heuristics", names)
        assert (done.exit_code, api.asked) == (2, [])
        assert done.stderr.startswith("error: --heuristics: ")
        assert message in done.stderr

    def test_chosen_heuristics(self, run, api):
        run("optimize", "tiny.json", "--heuristics", "1f1b, gpipe,1f1b")
        assert api.asked[0]["heuristics"] == ["1f1b", "gpipe"]

    def test_json_is_one_document(self, run):
        done = run("optimize", "tiny.json", "--json")
        parsed = json.loads(done.stdout)
        assert (parsed["schema"], parsed["value"], len(parsed["schedule"]["ops"])) == (
            1,
            90,
            8,
        )

    def test_quiet_and_verbose(self, run):
        quiet = run("optimize", "tiny.json", "--quiet")
        assert quiet.stdout == "tiny: OPTIMAL 90 us, bound 90, gap 0.00 %, 0.10 s\n"
        assert quiet.stderr == ""
        verbose = run("optimize", "tiny.json", "--verbose")
        assert "not applicable: needs two chunks" in verbose.stdout
        assert "heuristic: 1f1b" in verbose.stderr

    def test_output_file_stdin_and_stdout(self, run, here):
        done = run("optimize", "-", "-o", "out.json", input=json.dumps(INSTANCE))
        assert "tiny: OPTIMAL" in done.stdout
        assert json.loads((here / "out.json").read_text())["status"] == "OPTIMAL"
        piped = run("optimize", "tiny.json", "-o", "-")
        assert json.loads(piped.stdout)["instance"] == "tiny"
        assert sorted(path.name for path in here.iterdir()) == ["out.json", "tiny.json"]

    @pytest.mark.parametrize(
        ("changes", "options", "code"),
        [
            ({}, [], 0),
            (
                {**NOTHING, "status": "INFEASIBLE", "stop_reason": "proved_infeasible"},
                [],
                3,
            ),
            ({**NOTHING, "status": "UNKNOWN", "stop_reason": "time_limit"}, [], 4),
            ({"gap": 0.02}, ["--fail-on-gap", "0.01"], 6),
            ({"gap": 0.01}, ["--fail-on-gap", "0.01"], 0),
            ({"gap": None}, ["--fail-on-gap", "0.01"], 6),
            ({"status": "FEASIBLE", "stop_reason": "interrupted"}, [], 130),
            ({**NOTHING, "status": "UNKNOWN", "stop_reason": "interrupted"}, [], 130),
        ],
    )
    def test_exit_codes(self, run, api, here, changes, options, code):
        api.changes = changes
        done = run("optimize", "tiny.json", "-o", "out.json", *options)
        assert done.exit_code == code
        assert "tiny: " in done.stdout
        assert json.loads((here / "out.json").read_text())["instance"] == "tiny"

    def test_interrupt_outside_the_search(self, run, api):
        api.error = KeyboardInterrupt()
        done = run("optimize", "tiny.json")
        assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")

    def test_internal_error_is_one_line(self, run, api):
        api.error = ZeroDivisionError("bad\nluck")
        done = run("optimize", "tiny.json")
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("internal error: ZeroDivisionError: bad luck (")
        assert "please report" in done.stderr
        assert "Traceback" in run("optimize", "tiny.json", "--verbose").stderr

    def test_a_closed_pipe_is_quiet(self, run, api):
        api.error = BrokenPipeError()
        done = run("optimize", "tiny.json")
        assert (done.exit_code, done.output) == (141, "")

    @pytest.mark.parametrize(
        ("output", "message"),
        [
            ("missing/out.json", "the directory missing does not exist"),
            (".", "expected a file, this is a directory"),
        ],
    )
    def test_output_is_checked_before_the_solve(self, run, api, output, message):
        done = run("optimize", "tiny.json", "-o", output)
        assert done.exit_code == 2
        assert done.stderr == f"error: {output}: --output: {message}\n"
        assert api.asked == []

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (None, "error: bad.json: no such file\n"),
            ("", "error: bad.json: expected JSON, the file is empty\n"),
            ('{"kind": "pipelin"}', 'did you mean "pipeline"?'),
            ('{"kind": "pipeline",\n "x"}', "line 2, column 5"),
            (
                json.dumps({**INSTANCE, "num_devices": "two"}),
                "error: bad.json: num_devices: ",
            ),
        ],
    )
    def test_input_errors_are_one_line(self, run, here, text, message):
        if text is not None:
            (here / "bad.json").write_text(text)
        done = run("optimize", "bad.json", "-o", "out.json")
        assert done.exit_code == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
        assert not (here / "out.json").exists()

    @pytest.mark.parametrize(
        "args",
        [
            ["--tmie-limit", "3"],
            ["--gap", "2"],
            ["--workers", "0"],
            ["--time-limit", "soon"],
            [],
        ],
    )
    def test_usage_errors(self, run, args):
        files = ["tiny.json"] if args else []
        done = run("optimize", *files, *args)
        assert done.exit_code == 2
        assert "Usage: " in done.stderr
        assert "Traceback" not in done.stderr


class TestCompare:
    @pytest.fixture
    def many(self, here):
        folder = here / "family"
        folder.mkdir()
        for number in (10, 2):
            text = json.dumps({**INSTANCE, "name": f"n{number}"})
            (folder / f"n{number}.json").write_text(text)
        (folder / "best_known.json").write_text("{}")
        return folder

    def test_directory_in_human_order(self, run, many):
        done = run("compare", "family", "--json", "-q")
        assert [item["instance"] for item in json.loads(done.stdout)] == ["n2", "n10"]
        assert (
            done.stderr == "note: family/best_known.json is not an instance, left out\n"
        )

    def test_digits_that_are_no_decimals_do_not_count(self, run, many):
        (many / "n2.json").rename(many / "n1²2.json")
        done = run("compare", "family", "--json", "-q")
        assert [item["instance"] for item in json.loads(done.stdout)] == ["n2", "n10"]

    def test_one_file_gives_a_list_too(self, run):
        assert len(json.loads(run("compare", "tiny.json", "--json").stdout)) == 1

    def test_globs_files_and_no_doubles(self, run, many):
        done = run("compare", "family/n*.json", "tiny.json", "tiny.json", "--json")
        names = [item["instance"] for item in json.loads(done.stdout)]
        assert names == ["n2", "n10", "tiny"]

    def test_tables(self, run, many):
        done = run("compare", "family")
        assert done.exit_code == 0
        assert "best heuristic" in done.stdout
        assert (
            "2 instances: 2 proven optimal, 2 of them reached by a heuristic"
            in done.stdout
        )
        assert run("compare", "family", "-q").stdout.count("\n") == 2
        assert "lower bound" in run("compare", "family", "-v").stdout

    def test_all_files_are_read_before_the_first_solve(self, run, api, here):
        (here / "zz.json").write_text("{")
        done = run("compare", "tiny.json", "zz.json")
        assert (done.exit_code, api.asked) == (2, [])

    @pytest.mark.parametrize("name", ["empty", "nothing/*.json"])
    def test_no_instances(self, run, here, name):
        (here / "empty").mkdir()
        done = run("compare", name)
        assert done.exit_code == 2
        assert done.stderr == f"error: {name}: no instance files there\n"

    def test_a_crash_costs_one_instance(self, run, api, many):
        api.error, api.crash_on = RuntimeError("boom"), "n2"
        done = run("compare", "family", "--json")
        assert done.exit_code == 1
        assert [item["instance"] for item in json.loads(done.stdout)] == ["n10"]
        assert "internal error: n2: RuntimeError: boom" in done.stderr

    def test_an_interrupt_ends_the_sweep_and_keeps_what_there_is(self, run, api, many):
        api.changes = {"stop_reason": "interrupted"}
        done = run("compare", "family", "--json")
        assert done.exit_code == 130
        assert [item["instance"] for item in json.loads(done.stdout)] == ["n2"]

        assert done.stderr.endswith("interrupted; 2 of 2 not solved\n")

    def test_progress_names_the_instance(self, run, many):
        lines = run("compare", "family").stderr.splitlines()
        assert [line.split("  ")[0] for line in lines[1:]] == ["[1/2] n2", "[2/2] n10"]
        assert run("compare", "tiny.json").stderr.startswith("[    0.20 s] incumbent")

    def test_worst_exit_code(self, run, api):
        api.changes = {"gap": 0.5}
        assert run("compare", "tiny.json", "--fail-on-gap", "0.1").exit_code == 6


class TestSimulate:
    @pytest.mark.parametrize("status", ["feasible", "infeasible", "failed"])
    def test_statuses_that_exit_with_0(self, run, api, status):
        api.changes = {
            "status": status,
            "reason": None if status == "feasible" else "because",
        }
        done = run("simulate", "tiny.json", "--heuristic", "gpipe", "--json")
        assert done.exit_code == 0
        assert json.loads(done.stdout)["status"] == status
        shown = run("simulate", "tiny.json", "--heuristic", "gpipe")
        assert shown.stdout.startswith(f"gpipe on tiny: {status}")

    def test_not_applicable(self, run, api):
        api.error = NotApplicableError("needs two chunks per device", "zbv")
        done = run("simulate", "tiny.json", "--heuristic", "zbv", "--json")
        assert done.exit_code == 2
        assert json.loads(done.stdout)["status"] == HeuristicStatus.NOT_APPLICABLE
        assert json.loads(done.stderr)["error"] == {
            "code": "not-applicable",
            "message": "zbv is not applicable: needs two chunks per device",
        }

    def test_unknown_name(self, run, api):
        api.error = InputError('unknown heuristic "1f1c"; did you mean "1f1b"?')
        done = run("simulate", "tiny.json", "--heuristic", "1f1c")
        assert done.exit_code == 2
        assert 'did you mean "1f1b"?' in done.stderr

    def test_group_size_and_output(self, run, api, here):
        done = run(
            "simulate", "tiny.json", "--heuristic", "gpipe", "--group-size", "3", "-q",
            "-o", "entry.json",
        )  # fmt: skip
        assert done.stdout == "gpipe: feasible 90 us\n"
        assert api.asked == [{"heuristic": "gpipe", "exact": False, "group_size": 3}]
        assert json.loads((here / "entry.json").read_text())["name"] == "gpipe"


class TestCheck:
    @pytest.fixture
    def result(self, run, here):
        run("optimize", "tiny.json", "-o", "result.json", "-q")
        return "result.json"

    def test_valid(self, run, result):
        done = run("check", "tiny.json", result)
        assert (done.exit_code, done.stdout) == (
            0,
            "result.json: valid, no violations\n",
        )
        assert (
            json.loads(run("check", "tiny.json", result, "--json").stdout)["valid"]
            is True
        )

    def test_all_violations(self, run, api, result):
        api.violations = [
            Violation("overlap", "A on B", ("A",)),
            Violation("memory", "full", ()),
        ]
        done = run("check", "tiny.json", result)
        assert done.exit_code == 5
        assert done.stdout == (
            "result.json: not valid, 2 violations\n  overlap: A on B\n  memory: full\n"
        )
        parsed = json.loads(run("check", "tiny.json", result, "--json").stdout)
        assert parsed["violations"][0] == {
            "rule": "overlap",
            "message": "A on B",
            "ops": ["A"],
        }

    def test_errors_name_the_result_file(self, run, api, result):
        api.error = InputError('unknown op "X"', field="schedule.ops[0].id")
        done = run("check", "tiny.json", result)
        assert done.exit_code == 2
        assert done.stderr == 'error: result.json: schedule.ops[0].id: unknown op "X"\n'

    def test_two_standard_inputs(self, run):
        done = run("check", "-", "-")
        assert done.exit_code == 2
        assert "only one of the two files" in done.stderr


class TestProgram:
    def test_version_and_help(self, run):
        assert run("--version").stdout.startswith("ppsolve ")
        done = run("--help")
        assert done.exit_code == 0
        for command in (
            "optimize",
            "compare",
            "simulate",
            "check",
            "show",
            "schema",
            "generate",
        ):
            assert f"  {command} " in done.stdout
        assert run("optimise", "x").exit_code == 2

    def test_schemas(self, run):
        instance = json.loads(run("schema").stdout)
        assert instance["discriminator"]["propertyName"] == "kind"
        assert "schema" in json.loads(run("schema", "pipeline").stdout)["properties"]
        assert "stop_reason" in json.loads(run("schema", "result").stdout)["properties"]
        wrong = run("schema", "grahp")
        assert wrong.exit_code == 2
        assert 'did you mean "graph"?' in wrong.stderr

    def test_help_loads_nothing_slow(self):
        code = (
            "import sys; from ppsolve.solver.cli.main import build; build();"
            "slow = {'ortools', 'numpy', 'pydantic', 'rich'} & set(sys.modules); print(slow)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        )
        assert done.stdout == "set()\n"

    def test_closing_stdout_early_is_quiet(self, here):
        read, write = os.pipe()
        os.close(read)
        code = "from ppsolve.solver.cli.main import run; run()"
        with os.fdopen(write, "w") as stdout:
            done = subprocess.run(
                [sys.executable, "-c", code, "show", "tiny.json"],
                stdout=stdout, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (141, "")

    def test_the_stand_in_builds_real_instances(self, here):
        assert document_of(load_instance("tiny.json")).ops[0].id == "F0.0"


class TestErrorsAsJson:
    def error_of(self, done) -> dict:
        assert done.stdout == ""
        return json.loads(done.stderr.splitlines()[-1])["error"]

    @pytest.mark.parametrize(
        "command",
        [
            "optimize", "compare", "plan", "what-if", "curve --capacity 1:2:1", "check",
            "stress", "diagnose", "bench report", "buckets", "goodput choose",
            "simulate --heuristic 1f1b", "heuristics --for",
        ],
    )  # fmt: skip
    def test_every_command_that_prints_json(self, run, command):
        error = self.error_of(run(*command.split(), "none.json", "--json"))
        assert error["code"] in {"file", "usage", "unknown-name"}
        assert error["message"]

    def test_bad_input(self, run, here):
        (here / "bad.json").write_text(json.dumps(INSTANCE | {"num_devices": 0}))
        done = run("optimize", "bad.json", "--json")
        assert done.exit_code == 2
        error = self.error_of(done)
        assert (error["code"], error["field"]) == ("range", "num_devices")
        assert (error["source"], error["expected"]) == (
            "bad.json",
            "greater than or equal to 1",
        )

    def test_a_wrong_command_line(self, run):
        done = run("optimize", "tiny.json", "--json", "--fast")
        assert (done.exit_code, self.error_of(done)["code"]) == (2, "usage")

    def test_a_name_comes_with_all_names(self, run):
        done = run("optimize", "tiny.json", "--json", "--heuristics", "1f1c")
        error = self.error_of(done)
        assert error["code"] == "unknown-name"
        assert "1f1b" in error["expected"]

    @pytest.mark.parametrize(
        ("raised", "code", "exit_code"),
        [
            (KeyboardInterrupt(), "interrupted", 130),
            (MemoryError(), "out-of-memory", 1),
            (ZeroDivisionError("bad luck"), "internal", 1),
        ],
    )
    def test_what_else_ends_a_run(self, run, api, raised, code, exit_code):
        api.error = raised
        done = run("optimize", "tiny.json", "--json")
        assert (done.exit_code, self.error_of(done)["code"]) == (exit_code, code)

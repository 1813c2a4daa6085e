"""The goodput commands: exit codes, streams, files, lists of numbers, errors, charts."""

import csv
import json
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.studies.goodput.files import GoodputRows, load_params
from ppsolve.models.studies.goodput.params import GradParams, PerfParams
from ppsolve.solver.cli.inputs import broadcast, parse_counts
from ppsolve.solver.cli.main import build
from ppsolve.solver.studies.goodput.model import GoodputModel

PERF = {
    "alpha_c": 0.02, "beta_c": 0.002, "alpha_n": 0.1, "beta_n": 0.007, "alpha_r": 0.01,
    "beta_r": 0.001, "gamma": 2.5,
}  # fmt: skip
PARAMS = {"params": PERF, "grad": {"sqr": 0.0002, "var": 0.09}, "init_batch_size": 128}
MODEL = GoodputModel(PerfParams(**PERF), GradParams(0.0002, 0.09), 128)
NAMES = (
    "num_nodes",
    "num_replicas",
    "atomic_bsz",
    "accum_step_time",
    "optim_step_time",
)


def observations():
    """Return exact steps of the model, as rows."""
    nodes, replicas, size = (
        grid.ravel() for grid in np.meshgrid([1, 2], [2, 4, 8], [16, 32, 64])
    )
    times = MODEL.perf.accum_time(size), MODEL.perf.optim_time(nodes, replicas, size)
    columns = [column.tolist() for column in (nodes, replicas, size, *times)]
    return [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = observations()
    (tmp_path / "obs.json").write_text(json.dumps(rows))
    with (tmp_path / "obs.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, NAMES)
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "params.json").write_text(json.dumps(PARAMS))
    (tmp_path / "bare.json").write_text(json.dumps(PERF))
    return tmp_path


@pytest.fixture
def run(here):
    def invoke(*args, **options):
        return CliRunner().invoke(build(), ["goodput", *args], **options)

    return invoke


JOB = ("--grad-sqr", "0.0002", "--grad-var", "0.09", "--init-batch-size", "128")


class TestFit:
    def test_report(self, run):
        done = run("fit", "obs.csv")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("obs.csv: 18 observations\n  objective ")
        assert "alpha_c" in done.stdout
        lines = done.stdout.split("\n")
        assert lines == [line.rstrip() for line in lines]

    def test_both_formats_and_stdin_say_the_same(self, run, here):
        text = (here / "obs.json").read_text()
        answers = {
            run("fit", "obs.csv", "--json").stdout,
            run("fit", "obs.json", "--json").stdout,
            run("fit", "-", "--json", input=text).stdout,
            run("fit", "obs.json", "-o", "-").stdout,
        }
        assert len(answers) == 1

    def test_the_document_is_read_by_the_others(self, run, here):
        done = run("fit", "obs.csv", "-o", "fitted.json", *JOB)
        assert done.exit_code == 0
        document = load_params("fitted.json")
        assert (document.grad_params, document.init_batch_size) == (MODEL.grad, 128)
        limits = (
            "--replicas",
            "1,8",
            "--nodes",
            "1,2",
            "--max-batch-size",
            "2048",
            "--json",
        )
        fitted = json.loads(run("optimize", "fitted.json", *limits).stdout)
        true = json.loads(run("optimize", "params.json", *limits).stdout)
        for one, other in zip(fitted["rows"], true["rows"], strict=True):
            assert one["goodput"] == pytest.approx(other["goodput"], rel=0.02)

    def test_warnings(self, run, here):
        (here / "one.json").write_text(json.dumps(observations()[:1]))
        assert "warning: " in run("fit", "one.json").stdout
        done = run("fit", "one.json", "-o", "-")
        assert done.stderr.startswith("warning: ")

    def test_allocations_that_nobody_observed(self, run, here):
        alone = [{**row, "num_nodes": 1, "num_replicas": 1} for row in observations()]
        (here / "alone.json").write_text(json.dumps(alone))
        fitted = run("fit", "alone.json", "-o", str(here / "alone.params.json"), *JOB)
        assert fitted.exit_code == 0, fitted.stderr
        args = ("alone.params.json", "--max-batch-size", "256", "--replicas")
        assert "guess" not in run("optimize", *args, "1").stderr
        guessed = run("optimize", *args, "8", "--nodes", "2").stderr
        assert (
            "no observation speaks of alpha_n, beta_n, which these allocations need"
            in guessed
        )

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (
                ["obs.json", "--grad-sqr", "1"],
                "--grad-var: expected both --grad-sqr and --grad-v",
            ),
            (
                ["obs.json", "--grad-var", "1"],
                "--grad-sqr: expected both --grad-sqr and --grad-v",
            ),
            (
                ["obs.json", "--init-batch-size", "0"],
                "--init-batch-size: expected a number > 0",
            ),
            (
                ["obs.json", "-o", "obs.json"],
                "obs.json: --output: this is the input obs.json",
            ),
            (
                ["obs.json", "-o", "no/x"],
                "no/x: --output: the directory no does not exist",
            ),
            (["nope.csv"], "nope.csv: no such file"),
            (["params.json"], "params.json: expected a list of objects with num_nodes"),
        ],
    )
    def test_errors(self, run, args, message):
        done = run("fit", *args)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {message}")
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"atomic_bsz": 0},
                "bad.json: atomic_bsz[0]: expected a number > 0, got 0",
            ),
            (
                {"accum_step_time": None},
                "bad.json: accum_step_time[0]: expected a number, got nu",
            ),
            (
                {"atomic": 3},
                'bad.json: [0]: unknown field "atomic"; did you mean "atomic_bsz"?',
            ),
            (
                {"num_nodes": 9},
                "bad.json: num_nodes[0]: expected at most as many nodes as repl",
            ),
        ],
    )
    def test_bad_observations(self, run, here, change, message):
        (here / "bad.json").write_text(json.dumps([{**observations()[0], **change}]))
        done = run("fit", "bad.json", "-o", "params2.json")
        assert done.exit_code == 2
        assert done.stderr.startswith(f"error: {message}")
        assert not (here / "params2.json").exists()

    @pytest.mark.parametrize("text", ["[]", ""])
    def test_no_observations(self, run, here, text):
        (here / "bad.csv").write_text(text if text else ",".join(NAMES))
        assert run("fit", "bad.csv").exit_code == 2


class TestOptimize:
    ROWS = ("--nodes", "1,1,2", "--replicas", "1,4,16", "--max-batch-size", "4096")

    @pytest.mark.parametrize(
        "extra", [(), ("--accumulation", "--max-per-replica", "64")]
    )
    @pytest.mark.parametrize("compat", [False, True])
    def test_answers_are_those_of_the_library(self, run, extra, compat):
        flags = (*extra, "--json", *(("--compat",) if compat else ()))
        answer = GoodputRows.model_validate_json(
            run("optimize", "params.json", *self.ROWS, *flags).stdout
        )
        high = 64 if extra else None
        goodput, atomic, accum = MODEL.optimize(
            [1, 1, 2], [1, 4, 16], 4096, (None, high), bool(extra), compat
        )
        assert [row.goodput for row in answer.rows] == pytest.approx(goodput, rel=1e-12)
        assert [row.atomic_bsz for row in answer.rows] == atomic.tolist()
        assert [row.accum_steps for row in answer.rows] == accum.tolist()

    def test_table_and_charts(self, run):
        done = run("optimize", "params.json", *self.ROWS)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "goodput (samples/s) over batch size, best marked" in done.stdout
        assert ["batch", "size", *["on", "1", "node"] * 2, "on", "2", "nodes"] in [
            line.split() for line in done.stdout.splitlines()
        ]
        assert max(map(len, done.stdout.splitlines())) <= 80

    def test_limits_that_allow_nothing(self, run):
        args = (
            "--replicas",
            "2,4",
            "--max-batch-size",
            "256",
            "--min-per-replica",
            "200",
        )
        done = run("optimize", "params.json", *args)
        message = "params.json: the limits allow no configuration of any of these allocations\n"
        assert (done.exit_code, done.stdout, done.stderr) == (3, "", message)
        done = run("optimize", "params.json", *args, "--json", "--chart", "c.svg")
        assert done.exit_code == 3
        assert [row["goodput"] for row in json.loads(done.stdout)["rows"]] == [0, 0]
        assert (
            done.stderr
            == f"warning: c.svg: not written, there is nothing to draw\n{message}"
        )

    def test_limits_that_allow_some(self, run):
        args = (
            "--replicas",
            "1,4",
            "--max-batch-size",
            "256",
            "--min-per-replica",
            "200",
        )
        done = run("optimize", "params.json", *args)
        assert done.exit_code == 0
        assert done.stdout.splitlines()[4].split()[:3] == ["1", "4", "-"]

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (
                ["--max-batch-size", "80"],
                "--max-batch-size: expected at least the initial batch s",
            ),
            (
                ["--max-batch-size", "256", "--min-per-replica", "300"],
                "--min-per-replica: expected at most the largest batch size 256, got 300",
            ),
            (
                [
                    "--max-batch-size",
                    "256",
                    "--min-per-replica",
                    "9",
                    "--max-per-replica",
                    "3",
                ],
                "--min-per-replica, --max-per-replica: expected (least, greatest), got (9, 3)",
            ),
            (
                ["--max-batch-size", "256", "--chart", "x.jpg"],
                "x.jpg: --chart: expected a file na",
            ),
            (
                ["--max-batch-size", "256", "-o", "no/x"],
                "no/x: --output: the directory no does no",
            ),
        ],
    )
    def test_errors(self, run, args, message):
        done = run("optimize", "params.json", "--replicas", "1,4", *args)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {message}")
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (
                ["--replicas", "1,2", "--nodes", "1,1,1"],
                "expected lists of one length or single numbers: --nodes has 3, --replicas has 2",
            ),
            (
                ["--replicas", "1,0"],
                "--replicas[1]: expected a whole number >= 1, got 0",
            ),
            (
                ["--replicas", "1", "--nodes", "2"],
                "--nodes[0]: expected at most as many nodes as replicas, got 2",
            ),
            (
                ["--replicas", "one"],
                "--replicas: expected numbers (1,2,4) or ranges (1-8), got 'one'",
            ),
        ],
    )
    def test_errors_of_allocations(self, run, args, message):
        done = run("optimize", "params.json", "--max-batch-size", "256", *args)
        assert (done.exit_code, done.stdout, done.stderr) == (
            2,
            "",
            f"error: {message}\n",
        )

    def test_errors_of_the_file(self, run, here):
        (here / "bad.json").write_text(
            json.dumps({**PARAMS, "params": {**PERF, "gamma": 0.5}})
        )
        done = run("optimize", "bad.json", *self.ROWS)
        assert (
            done.stderr
            == "error: bad.json: params.gamma: expected a number >= 1, got 0.5\n"
        )

    def test_options_replace_what_the_file_has(self, run):
        args = ("--replicas", "1", "--max-batch-size", "128", "--json")
        done = run("optimize", "params.json", *args, "--init-batch-size", "64")
        row = GoodputRows.model_validate_json(done.stdout).rows[0]
        model = GoodputModel(MODEL.perf, MODEL.grad, 64)
        assert row.efficiency == pytest.approx(
            model.efficiency(row.batch_size), rel=1e-12
        )

    def test_it_needs_gradient_statistics(self, run):
        args = ("--replicas", "1", "--max-batch-size", "256")
        done = run("optimize", "bare.json", *args)
        assert done.exit_code == 2
        assert done.stderr.startswith(
            "error: bare.json: expected gradient statistics and the ini"
        )
        assert run("optimize", "bare.json", *args, *JOB).exit_code == 0

    @pytest.mark.parametrize(
        "args", [[], ["--replicas", "1"], ["--replicas", "1", "--max-batch-size", "0"]]
    )
    def test_usage_errors(self, run, args):
        done = run("optimize", "params.json", *args)
        assert done.exit_code == 2
        assert "Usage: " in done.stderr


class TestCharts:
    def test_files(self, run, here):
        for name in ("a.png", "a.svg"):
            done = run("optimize", "params.json", *TestOptimize.ROWS, "--chart", name)
            assert done.exit_code == 0
        assert (here / "a.png").read_bytes().startswith(b"\x89PNG\r\n")
        svg = (here / "a.svg").read_text()
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"

    def test_without_matplotlib(self, run, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        done = run("optimize", "params.json", *TestOptimize.ROWS, "--chart", "a.png")
        assert done.exit_code == 2
        assert "pip install 'ppsolve[plot]'" in done.stderr
        assert (
            "over batch size"
            in run("optimize", "params.json", *TestOptimize.ROWS).stdout
        )


class TestCounts:
    @pytest.mark.parametrize(
        ("text", "numbers"),
        [
            ("1", [1]),
            ("1,2, 4", [1, 2, 4]),
            ("1-3", [1, 2, 3]),
            ("2..4,8", [2, 3, 4, 8]),
            ("5-5", [5]),
            ("0", [0]),
        ],
    )
    def test_lists(self, text, numbers):
        assert parse_counts(text, "--x") == numbers

    @pytest.mark.parametrize(
        "text", ["", "1,", "a", "3-1", "-1", "1-", "1.5", "1...3", "²", "1e3"]
    )
    def test_what_is_none(self, text):
        with pytest.raises(
            InputError, match=r"^--x: expected numbers \(1,2,4\) or ranges \(1-8\)"
        ):
            parse_counts(text, "--x")

    @pytest.mark.parametrize(
        "text", ["1-100001", "1-60000,1-60000", "1-999999999999999"]
    )
    def test_too_many(self, text):
        with pytest.raises(InputError, match="--x: expected at most 100,000 numbers"):
            parse_counts(text, "--x")

    @given(st.lists(st.integers(0, 50), min_size=1, max_size=9))
    def test_any_list_reads_back(self, numbers):
        assert parse_counts(",".join(map(str, numbers)), "--x") == numbers

    def test_broadcasting(self):
        assert list(broadcast({"a": [1, 2], "b": [7]})) == [(1, 7), (2, 7)]
        assert list(broadcast({"a": [1], "b": [7]})) == [(1, 7)]
        with pytest.raises(InputError, match="a has 2, b has 3"):
            broadcast({"a": [1, 2], "b": [1, 2, 3]})

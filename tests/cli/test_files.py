"""Files on the command line: named in errors, told apart in tables, never overwritten."""

import json
import os
import re
import sys

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.contents import RESULT
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.cli.main import build
from ppsolve.solver.cli.output import check_writable

TINY = {
    "kind": "pipeline",
    "name": "tiny",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
}
FINE = {**TINY, "times": {"forward": 1e9, "backward": 1e-9}}
CONFIG = {
    "num_stages": 1,
    "num_batches": 1,
    "forward_times": [1],
    "backward_times": [1],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in (("tiny", TINY), ("fine", FINE), ("config", CONFIG)):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return tmp_path


@pytest.fixture
def run(here):
    def invoke(*args, **options):
        return CliRunner().invoke(build(), list(args), **options)

    return invoke


ROUNDED = "times are rounded up to whole ticks, and optima are of those"


class TestTimesWithoutACommonTick:
    """They are rounded, every command says so in one line, and what it writes is accepted."""

    def test_optimize(self, run, here):
        done = run("optimize", "fine.json", "-o", "result.json")
        assert done.exit_code == 0
        assert ROUNDED.split(",")[0] in done.stdout
        # 8 ops of less than a tick too much each; the longest op is 10^9 ticks.
        assert json.loads((here / "result.json").read_text())["tick_error"] == 8
        assert run("check", "fine.json", "result.json").exit_code == 0

    def test_one_line(self, run):
        done = run("optimize", "fine.json", "--quiet")
        assert ", on ticks (given times: at most 8 us lower)" in done.stdout
        assert done.stdout.count("\n") == 1

    @pytest.mark.parametrize("options", [(), ("--heuristic", "gpipe")])
    def test_show_an_instance(self, run, options):
        done = run("show", "fine.json", *options)
        note = f"note: {ROUNDED}: of the given times at most 8 us lower"
        assert done.stderr.splitlines() == [
            f"{note} (times.backward = 1E-9 has the most digits)"
        ]

    @pytest.mark.parametrize("files", [("result.json",), ("fine.json", "result.json")])
    def test_show_a_result(self, run, files):
        run("optimize", "fine.json", "-o", "result.json")
        assert ROUNDED in run("show", *files).stderr

    def test_compare_and_simulate(self, run):
        assert (
            ROUNDED
            in run("compare", "tiny.json", "fine.json", "--time-limit", "0").stderr
        )
        assert (
            ROUNDED.split(",")[0]
            in run("simulate", "fine.json", "--heuristic", "gpipe").stdout
        )

    def test_nothing_is_said_where_ticks_are_exact(self, run):
        for command in (
            ["optimize"],
            ["show"],
            ["compare"],
            ["simulate", "--heuristic", "gpipe"],
        ):
            done = run(*command, "tiny.json")
            assert "rounded" not in done.stdout + done.stderr


class TestUnitsThatLookWrong:
    @pytest.mark.parametrize(
        "command",
        [["optimize"], ["compare"], ["show"], ["simulate", "--heuristic", "gpipe"]],
    )
    def test_they_are_questioned_and_taken(self, run, here, command):
        data = {**TINY, "p2p": {"mode": "link", "bytes": 1, "bandwidth": 1e6}}
        (here / "link.json").write_text(json.dumps(data))
        done = run(*command, "link.json")
        assert done.exit_code == 0
        questions = [
            line for line in done.stderr.splitlines() if line.startswith("warning: ")
        ]
        assert questions == [
            "warning: link.json: p2p.bandwidth: a transfer takes 1E-06 us where the shortest op "
            "takes 10 us: is the unit right?"
        ]


class TestErrorsNameTheFile:
    @pytest.mark.parametrize(
        "command",
        [
            ["optimize", "fine.json"],
            ["compare", "tiny.json", "fine.json", "--time-limit", "0"],
            ["simulate", "fine.json", "--heuristic", "gpipe"],
            ["check", "fine.json", "fine.json"],
            ["show", "fine.json"],
            ["show", "fine.json", "--heuristic", "gpipe"],
        ],
    )
    def test_times_without_a_common_tick(self, run, command):
        done = run(*command, "--exact")
        assert done.exit_code == 2
        last = done.stderr.splitlines()[-1]
        assert last.startswith("error: fine.json: times: the times have no common tick")

    def test_standard_input(self, run):
        done = run("optimize", "-", "--exact", input=json.dumps(FINE))
        assert done.stderr.startswith(
            "error: <stdin>: times: the times have no common tick"
        )

    def test_all_times_together(self, run, here):
        times = {"forward": 10**12, "backward": 10**12 - 1}
        data = {**TINY, "num_microbatches": 80_000, "times": times}
        (here / "long.json").write_text(json.dumps(data))
        done = run("show", "long.json")
        assert done.exit_code == 2
        assert done.stderr.startswith(
            "error: long.json: times: all times together are 3.2E+17"
        )

    def test_options_are_not_the_fault_of_a_file(self, run):
        done = run("simulate", "tiny.json", "--heuristic", "1f1c")
        assert done.exit_code == 2
        assert done.stderr.startswith('error: unknown heuristic "1f1c"')


class TestInputsAreKept:
    @pytest.mark.parametrize(
        ("command", "file"),
        [
            (["optimize", "tiny.json"], "tiny.json"),
            (["compare", "config.json", "tiny.json"], "tiny.json"),
            (["compare", "folder"], "folder/inner.json"),
            (["simulate", "tiny.json", "--heuristic", "gpipe"], "tiny.json"),
            (["convert", "visualizer", "config.json"], "config.json"),
        ],
    )
    @pytest.mark.parametrize("way", ["same", "spelled", "link", "hard link"])
    def test_no_output_replaces_an_input(self, run, here, command, file, way):
        (here / "folder").mkdir()
        (here / "folder" / "inner.json").write_text(json.dumps(TINY))
        (here / "config.json").write_text(
            json.dumps(CONFIG if command[0] == "convert" else {**TINY, "name": "other"})
        )
        output = {"same": file, "spelled": f"folder/../{file}"}.get(way, "alias.json")
        if way == "link":
            (here / output).symlink_to(file)
        elif way == "hard link":
            os.link(here / file, here / output)
        before = (here / file).read_text()
        done = run(*command, "-o", output)
        assert done.exit_code == 2
        assert done.stderr == (
            f"error: {output}: --output: this is the input {file}, give another file\n"
        )
        assert (here / file).read_text() == before

    def test_a_link_as_input(self, run, here):
        (here / "alias.json").symlink_to("tiny.json")
        done = run("optimize", "alias.json", "-o", "tiny.json")
        assert (done.exit_code, "this is the input alias.json" in done.stderr) == (
            2,
            True,
        )

    def test_standard_input_from_a_file(self, here, monkeypatch):
        with (here / "tiny.json").open() as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(
                InputError, match="this is the input <stdin>, give another file"
            ):
                check_writable(here / "tiny.json", "-")
            check_writable(here / "new.json", "-")
        assert not (here / "new.json").exists()

    def test_devices_and_other_files_are_free(self, run, here):
        check_writable(
            here / "tiny.json", here / "fine.json", here / "absent.json", "-"
        )
        done = run("optimize", "/dev/null", "-o", "/dev/null")
        assert done.stderr == "error: /dev/null: expected JSON, the file is empty\n"

    def test_a_result_beside_the_instances_may_be_replaced(self, run, here):
        (here / "folder").mkdir()
        (here / "folder" / "inner.json").write_text(json.dumps(TINY))
        for _ in range(2):
            done = run(
                "compare",
                "folder",
                "-o",
                "folder/result.json",
                "--time-limit",
                "0",
                "-q",
            )
            assert done.exit_code == 0
        assert len(json.loads((here / "folder" / "result.json").read_text())) == 1


class TestEqualNames:
    @pytest.fixture
    def files(self, here):
        paths = [f"{folder}/same.json" for folder in ("first", "second")]
        for number, path in enumerate(paths):
            (here / path).parent.mkdir()
            times = {"forward": 10 + number, "backward": 20}
            (here / path).write_text(
                json.dumps({**TINY, "name": "same", "times": times})
            )
        return [*paths, "tiny.json"]

    def test_lines_show_the_file(self, run, files):
        done = run("compare", *files, "-q", "--heuristics", "gpipe")
        shown = [line.partition(": ")[0] for line in done.stdout.splitlines()]
        assert shown == ["same (first/same.json)", "same (second/same.json)", "tiny"]

    def test_rows_show_the_file_however_narrow(self, run, files):
        for columns in ("120", "40"):
            environment = {"COLUMNS": columns}
            done = run("compare", *files, "--heuristics", "gpipe", env=environment)
            text = "".join(done.stdout.split())
            assert "first/same.json" in text
            assert "second/same.json" in text
            assert "(tiny.json)" not in text
            assert max(map(len, done.stdout.splitlines())) <= int(columns)

    def test_reports_show_the_file(self, run, files):
        done = run("compare", *files, "-v", "--heuristics", "gpipe")
        assert "same (first/same.json): OPTIMAL" in done.stdout

    def test_results_keep_the_name(self, run, files):
        done = run("compare", *files, "--json", "-q", "--heuristics", "gpipe")
        assert [r["instance"] for r in json.loads(done.stdout)] == [
            "same",
            "same",
            "tiny",
        ]


class TestDirectories:
    def test_decimals_are_numbers_and_hidden_directories_left_out(self, run, here):
        names = ["curve-1p", "curve-1.25p", "curve-2p", "scan-1", "scan-1.5", "scan-2"]
        for folder in ("set", "set/.venv/lib"):
            (here / folder).mkdir(parents=True)
            for name in names:
                text = json.dumps({**TINY, "name": name})
                (here / folder / f"{name}.json").write_text(text)
        done = run("compare", "set", "--json", "--time-limit", "0")
        assert [item["instance"] for item in json.loads(done.stdout)] == names


class TestHelp:
    @pytest.mark.parametrize("group", [[], ["convert"]])
    def test_summaries_are_not_clipped(self, run, group):
        done = run(*group, "--help", env={"COLUMNS": "80"})
        commands = done.stdout.split("Commands:")[1].splitlines()
        assert [line for line in commands if line.endswith("...")] == []

    def test_options_say_what_they_do(self, run):
        wide = {"COLUMNS": "200"}
        assert (
            "Heuristic to run, e.g. gpipe" in run("simulate", "--help", env=wide).stdout
        )
        told = " ".join(run("optimize", "--help", env=wide).stdout.split())
        assert "0 runs bounds and heuristics only." in told

    def test_generate_says_what_it_wrote(self, run):
        done = run("generate", "--seed", "7", "-o", "made.json")
        assert done.stdout == ""
        assert re.fullmatch(r"wrote made\.json \([\w-]+\)\n", done.stderr)
        assert run("generate", "--seed", "7").stderr == ""


class TestResultsInTheWrongPlace:
    @pytest.fixture
    def result(self, run):
        run("optimize", "tiny.json", "-o", "result.json", "--time-limit", "0", "-q")
        return "result.json"

    @pytest.mark.parametrize(
        "command", [["optimize"], ["compare"], ["check", "tiny.json"]]
    )
    def test_a_result_is_no_instance(self, run, result, command):
        done = run(command[0], result, *command[1:])
        assert done.exit_code == 2
        assert done.stderr == f"error: result.json: {RESULT}\n"

    def test_a_result_of_another_instance(self, run, here, result):
        other = {**TINY, "name": "less", "num_microbatches": 1}
        (here / "less.json").write_text(json.dumps(other))
        done = run("check", "less.json", result)
        assert done.exit_code == 2
        assert re.search(
            r'^error: result\.json: schedule\.ops\[\d+\]\.id: unknown op "\w+\.1"; '
            r'the result is of instance "tiny", not "less"\n$',
            done.stderr,
        )


def test_a_wrong_number_of_times_names_the_option(run):
    times = ("--forward", "1,2,3", "--backward", "1")
    done = run("generate", "--devices", "2", "--microbatches", "2", *times)
    assert done.exit_code == 2
    assert "error: --forward: expected a number or 2 entries" in done.stderr


def test_a_name_of_several_lines_is_one_in_the_summary(run, tmp_path):
    data = {"kind": "pipeline", "name": "a\nb", "num_devices": 1, "num_microbatches": 1}
    data["times"] = {"forward": 1, "backward": 1}
    (tmp_path / "named.json").write_text(json.dumps(data))
    done = run("optimize", str(tmp_path / "named.json"), "-q", "-t", "1")
    assert done.stdout.startswith("a\\nb: OPTIMAL 2 us")
    assert done.stdout.count("\n") == 1

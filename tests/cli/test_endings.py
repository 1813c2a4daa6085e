"""How the program ends where the machine stops it: signals, full disks, lost folders, no memory."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.cli import output
from ppsolve.solver.cli.guard import ExitCode, guarded, is_out_of_memory
from ppsolve.solver.cli.main import build

pytestmark = pytest.mark.processes

EASY = {
    "kind": "pipeline",
    "name": "easy",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
}
HARD = {
    "kind": "pipeline",
    "name": "hard-8x24",
    "num_devices": 8,
    "num_microbatches": 24,
    "times": {
        "forward": [61, 77, 112, 93, 138, 86, 71, 129],
        "backward_input": [92, 61, 131, 78, 104, 117, 66, 140],
        "backward_weight": [41, 66, 97, 32, 88, 51, 73, 60],
    },
    "memory": {
        "capacity": 8,
        "activation": [1, 1.3, 1, 1.1, 1, 1.2, 1, 1],
        "released_by_backward_weight": 0.43,
    },
}
GPIPE = {
    "time_unit": "us",
    "ops": [
        {"id": name, "start": start}
        for name, start in {
            **{"F0.0": 0, "F0.1": 10, "F1.0": 10, "F1.1": 20},
            **{"B1.0": 30, "B1.1": 50, "B0.0": 50, "B0.1": 70},
        }.items()
    ],
}
PROGRAM = [sys.executable, "-m", "ppsolve"]
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="devices and limits of Linux"
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in (("easy", EASY), ("hard", HARD)):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return tmp_path


@pytest.fixture
def run(here):
    def invoke(*args):
        return CliRunner().invoke(build(), list(args))

    return invoke


class TestSignals:
    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    @pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
    def test_the_best_so_far_is_printed_and_saved(self, here, name):
        command = [*PROGRAM, "optimize", "hard.json", "-o", "result.json", "--json"]
        process = subprocess.Popen(
            [*command, "--heuristics", "list-tail"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stderr:
            if "phase: " in line and "cp-sat" in line:
                process.send_signal(getattr(signal, name))
                process.send_signal(signal.SIGTERM)
                break
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "Traceback" not in stderr
        saved = json.loads((here / "result.json").read_text())
        assert json.loads(stdout) == saved
        assert (saved["stop_reason"], saved["status"]) == ("interrupted", "FEASIBLE")

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    @pytest.mark.parametrize("phase", ["bound: ", "heuristic: list-tail"])
    def test_signals_are_heard_in_every_phase(self, here, phase):
        large = {**HARD, "name": "large", "num_microbatches": 240}
        (here / "large.json").write_text(json.dumps(large))
        process = subprocess.Popen(
            [*PROGRAM, "optimize", "large.json", "--json", "--verbose"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stderr:
            if phase in line:
                process.send_signal(signal.SIGTERM)
                break
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "Traceback" not in stderr
        assert json.loads(stdout)["stop_reason"] == "interrupted"

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
    @pytest.mark.parametrize(
        "late",
        [
            # Exit handlers run before the interpreter takes signal handlers away, and what is
            # left in modules is deleted after that.
            "import atexit; atexit.register(kill)",
            "late = type('Late', (), {'__del__': lambda self, kill=kill: kill()})()",
        ],
    )
    def test_a_signal_after_the_end_changes_nothing(self, here, name, late):
        code = (
            "import functools, os, signal\n"
            f"kill = functools.partial(os.kill, os.getpid(), signal.{name})\n"
            f"{late}\n"
            "from ppsolve.solver.cli.main import run; run()"
        )
        command = [sys.executable, "-c", code, "check", "easy.json", "result.json"]
        (here / "result.json").write_text(json.dumps(GPIPE))
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    def test_nohup_stays_in_force(self):
        code = (
            "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
            "from ppsolve.solver.cli.guard import end_like_ctrl_c; end_like_ctrl_c()\n"
            "print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        )
        assert done.stdout == "True\n"


class TestFailedWrites:
    def test_a_lost_folder_costs_the_file_not_the_report(self, run, here, monkeypatch):
        (here / "folder").mkdir()
        text_of = output.json_text

        def lose(document):
            shutil.rmtree(here / "folder")
            return text_of(document)

        monkeypatch.setattr(output, "json_text", lose)
        done = run("optimize", "easy.json", "-o", "folder/result.json", "-q", "-t", "0")
        assert done.exit_code == 2
        assert done.stdout.startswith("easy: OPTIMAL 90 us")
        why = "cannot be written: No such file or directory"
        assert done.stderr == f"error: folder/result.json: {why}\n"

    @linux
    @pytest.mark.parametrize("option", [[], ["--json"]])
    def test_a_full_device_costs_the_file_not_the_report(self, run, option):
        done = run("optimize", "easy.json", "-o", "/dev/full", "-q", "-t", "0", *option)
        assert done.exit_code == 2
        assert "OPTIMAL" in done.stdout
        why = "cannot be written: No space left on device"
        told = f"error: /dev/full: {why}\n"
        if option:
            error = {"code": "file", "message": why, "source": "/dev/full"}
            told = json.dumps({"error": error}) + "\n"
        assert done.stderr == told

    @linux
    def test_a_full_disk_leaves_nothing_behind(self, run, here):
        disk = here / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)]
        if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("cannot mount a small disk")
        try:
            (disk / "result.json").write_text("old")
            done = run(
                "simulate", "hard.json", "--heuristic", "1f1b", "-o", "disk/result.json"
            )
            assert done.exit_code == 2
            assert done.stdout.startswith("1f1b on hard-8x24: ")
            why = "cannot be written: No space left on device"
            assert done.stderr == f"error: disk/result.json: {why}\n"
            assert [path.name for path in disk.iterdir()] == ["result.json"]
            assert (disk / "result.json").read_text() == "old"
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    @linux
    @pytest.mark.parametrize(
        "command",
        [
            ["show", "easy.json"],
            ["optimize", "easy.json", "-q", "-t", "0", "--json"],
            ["--help"],
        ],
    )
    def test_full_stdout_is_one_message(self, here, command):
        with open("/dev/full", "w") as stdout:
            done = subprocess.run(
                [*PROGRAM, *command], stdout=stdout, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == 2
        assert (
            done.stderr
            == "error: <stdout>: cannot be written: No space left on device\n"
        )

    @linux
    def test_full_stderr_costs_nothing(self, here):
        with open("/dev/full", "w") as stderr:
            done = subprocess.run(
                [*PROGRAM, "optimize", "easy.json", "-t", "0"],
                stdout=subprocess.PIPE, stderr=stderr, text=True,
            )  # fmt: skip
        assert (done.returncode, done.stdout.startswith("easy: OPTIMAL")) == (0, True)

    def test_a_read_only_file_is_not_replaced(self, run, here):
        (here / "kept.json").write_text("kept")
        (here / "kept.json").chmod(0o444)
        done = run("optimize", "easy.json", "-o", "kept.json")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr == "error: kept.json: --output: it is read-only\n"
        assert (here / "kept.json").read_text() == "kept"

    def test_long_names(self, run, here):
        done = run("optimize", "easy.json", "-o", "x" * 300, "-t", "0")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.endswith(
            "x: --output: cannot be written: File name too long\n"
        )
        assert run("optimize", "easy.json", "-o", "x" * 250, "-t", "0").exit_code == 0
        assert (here / ("x" * 250)).exists()

    def test_the_first_of_several_failures_decides(self):
        with pytest.raises(typer.Exit) as caught, guarded({}):
            output.postpone(InputError("no"))
            raise typer.Exit(ExitCode.INFEASIBLE)
        assert caught.value.exit_code == ExitCode.USAGE
        with pytest.raises(InputError):
            output.postpone(InputError("no command runs"))


class TestMemory:
    @pytest.mark.parametrize(
        "error",
        [
            MemoryError(),
            RuntimeError("can't start new thread"),
            RuntimeError("std::bad_alloc"),
            SystemError("error return without exception set"),
            ImportError("x.so: failed to map segment from shared object"),
            OSError(12, "Cannot allocate memory"),
        ],
    )
    def test_a_lack_of_memory_is_one_line(self, capsys, error):
        assert is_out_of_memory(error)
        with pytest.raises(typer.Exit) as caught, guarded({}):
            raise ImportError("a library did not load") from error
        assert caught.value.exit_code == 1
        told = capsys.readouterr().err
        assert told.startswith("error: out of memory: ")
        assert told.count("\n") == 1

    def test_other_errors_stay_what_they_are(self):
        assert not is_out_of_memory(ImportError("no module named x"))
        assert not is_out_of_memory(ValueError("bad_alloc"))

    @linux
    @pytest.mark.parametrize("mebibytes", [50, 70, 90, 150, 200])
    def test_a_limit_ends_in_one_line_or_an_answer(self, here, mebibytes):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

        done = subprocess.run(
            [*PROGRAM, "optimize", "hard.json", "-q", "-t", "0.5", "--workers", "2"],
            preexec_fn=limit, capture_output=True, text=True,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        # Compiled code of a library that finds no memory may end the process itself.
        if done.returncode not in {0, -signal.SIGABRT}:
            assert done.returncode == 1
            assert done.stderr.count("\n") == 1


def test_a_pipeline_too_large_to_schedule_is_refused(run, here):
    data = {**HARD, "name": "huge", "num_devices": 64, "num_microbatches": 26_000}
    data = {**data, "times": {"forward": 1, "backward": 2}}
    del data["memory"]
    (here / "huge.json").write_text(json.dumps(data))
    done = run("optimize", "huge.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "error: huge.json: num_microbatches: expected at most 1000000 ops (stages x micro-batches "
        "x kinds of op), which need about 2.7 GB of memory, got 3328000\n"
    )

"""The program as users run it: real files, real solves, real signals."""

import json
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ppsolve.solver.cli.main import build

EASY = {
    "kind": "pipeline",
    "name": "easy-4x8",
    "num_devices": 4,
    "num_microbatches": 8,
    "times": {"forward": 10, "backward_input": 12, "backward_weight": 9},
    "p2p": {"latency": 1},
    "memory": {"capacity": 4, "activation": 1},
}
# Unequal micro-batches: alike ones are proved within seconds.
HARD = {
    **EASY,
    "name": "hard-8x24",
    "num_devices": 8,
    "num_microbatches": 24,
    "times": {
        "forward": [
            [time + (7 * i * i + 3 * stage) % 23 for i in range(24)]
            for stage, time in enumerate([61, 77, 112, 93, 138, 86, 71, 129])
        ],
        "backward_input": [92, 61, 131, 78, 104, 117, 66, 140],
        "backward_weight": [41, 66, 97, 32, 88, 51, 73, 60],
    },
    "memory": {
        "capacity": 8,
        "activation": [1, 1.3, 1, 1.1, 1, 1.2, 1, 1],
        "released_by_backward_weight": 0.43,
    },
}
PROGRAM = [sys.executable, "-c", "from ppsolve.solver.cli.main import run; run()"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    impossible = {**EASY, "name": "full", "memory": {"capacity": 1, "activation": 2}}
    for name, data in (("easy", EASY), ("hard", HARD), ("full", impossible)):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return tmp_path


@pytest.fixture
def run(here):
    def invoke(*args):
        return CliRunner().invoke(build(), list(args))

    return invoke


def test_optimize_then_check_then_show(run, here):
    done = run("optimize", "easy.json", "-o", "result.json")
    assert done.exit_code == 0
    assert re.search(r"easy-4x8: OPTIMAL\n +makespan +299 us +by zb-", done.stdout)
    assert re.search(r"zb-h1 +299 +0\.00 % +(0\.1706 +)?optimal", done.stdout)
    assert "interleaved-1f1b" in done.stdout.split("not applicable: ")[1]
    assert run("check", "easy.json", "result.json").exit_code == 0
    shown = run("show", "easy.json", "result.json")
    assert shown.exit_code == 0
    assert "4 of 4" in shown.stdout


def test_a_corrupted_result_fails_the_check(run, here):
    run("optimize", "easy.json", "-o", "result.json", "-q")
    data = json.loads((here / "result.json").read_text())
    moved = next(op for op in data["schedule"]["ops"] if op["id"] == "I0.0")
    moved["start"], moved["end"] = 0, 12
    (here / "result.json").write_text(json.dumps(data))
    done = run("check", "easy.json", "result.json")
    assert done.exit_code == 5
    assert "precedence: " in done.stdout
    assert "overlap: " in done.stdout


def test_proven_infeasible(run):
    done = run("optimize", "full.json")
    assert done.exit_code == 3
    assert "full: INFEASIBLE" in done.stdout
    assert "reason" in done.stdout


def test_simulate(run):
    done = run("simulate", "easy.json", "--heuristic", "1f1b", "--json")
    entry = json.loads(done.stdout)
    assert (done.exit_code, entry["status"], entry["makespan"]) == (0, "feasible", 357)
    assert len(entry["orders"]) == 4
    full = run("simulate", "easy.json", "--heuristic", "gpipe")
    assert full.exit_code == 0
    assert full.stdout.startswith("gpipe on easy-4x8: infeasible\n")
    unknown = run("simulate", "easy.json", "--heuristic", "1f1c")
    assert (unknown.exit_code, "did you mean" in unknown.stderr) == (2, True)
    elsewhere = run("simulate", "easy.json", "--heuristic", "zbv")
    assert elsewhere.exit_code == 2
    assert elsewhere.stderr.count("not applicable") == 1


def test_compare_chosen_heuristics(run):
    done = run(
        "compare",
        "easy.json",
        "full.json",
        "--heuristics",
        "1f1b,gpipe,zb-h1",
        "--json",
    )
    results = json.loads(done.stdout)
    assert done.exit_code == 3
    assert [result["status"] for result in results] == ["OPTIMAL", "INFEASIBLE"]
    assert {entry["name"] for entry in results[0]["heuristics"]} == {
        "1f1b",
        "gpipe",
        "zb-h1",
    }


def test_show_a_heuristic(run):
    done = run("show", "easy.json", "--heuristic", "1f1b", "--width", "100")
    assert done.stdout.startswith("easy-4x8, 1f1b\ndevice 0 │F0")
    assert re.search(r"bubble ratio +0\.3053", done.stdout)


def test_fail_on_gap(run):
    done = run("optimize", "hard.json", "--gap", "0.5", "--fail-on-gap", "0.0001", "-q")
    assert done.exit_code == 6
    assert "hard-8x24: FEASIBLE" in done.stdout


@pytest.mark.processes
def test_ctrl_c_prints_and_saves_the_incumbent(here):
    command = [*PROGRAM, "optimize", "hard.json", "-o", "result.json", "--json"]
    command += ["--heuristics", "list-tail"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here
    )
    for line in process.stderr:
        if "phase: " in line and "cp-sat" in line:
            process.send_signal(signal.SIGINT)
            break
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    saved = json.loads((here / "result.json").read_text())
    assert json.loads(stdout) == saved
    assert (saved["stop_reason"], saved["status"]) == ("interrupted", "FEASIBLE")
    assert (
        CliRunner().invoke(build(), ["check", "hard.json", "result.json"]).exit_code
        == 0
    )

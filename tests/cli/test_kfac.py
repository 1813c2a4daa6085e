"""K-FAC instances on the command line: from PipeFisher's pickles to charts and back."""

import json
import pickle
import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppsolve.models.kinds.kfac.labels import END, START
from ppsolve.solver.cli.main import build
from tests.paths import DATA

FOLDER = DATA / "pipefisher"
CHIMERA, WIDE = "c03_chimera_base_p4_m4", "c09_gpipe_large_p8_m4"
REFILL, BARRIER, UNPLACED = (
    "hand_B1_refill_causality",
    "hand_P2_barrier",
    "hand_B3_unplaced",
)

MODULE = {
    "name": "m", "curvature_a": 2, "curvature_b": 3, "inverse_a": 5, "inverse_b": 6,
    "precondition": 1,
}  # fmt: skip
PIPELINE = {
    "time_unit": "ms",
    "num_devices": 2,
    "num_microbatches": 2,
    "times": {"forward": 10, "backward": 20},
}
CYCLE = {
    "kind": "kfac",
    "name": "cycle",
    "time_unit": "ms",
    "margin_ratio": 0,
    "pipeline": PIPELINE,
    "modules": [{"stage": stage, **MODULE} for stage in (0, 1)],
}
PINNED = {**CYCLE, "name": "pinned", "pattern": "1f1b", "objective": "iterations"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments, **options):
        return CliRunner().invoke(build(), [str(part) for part in arguments], **options)

    return invoke


@cache
def conversion(name):
    """Return the instance of a folder of pickles."""
    arguments = ["convert", "pipefisher", str(FOLDER / name), "--allow-pickle"]
    done = CliRunner().invoke(build(), arguments)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture
def converted(tmp_path):
    """Convert a folder of pickles, and return the path of the instance."""

    def convert(name):
        path = tmp_path / f"{name}.json"
        path.write_text(conversion(name))
        return path

    return convert


@pytest.fixture
def solved(run, converted, tmp_path):
    """Convert and optimise a folder, and return the paths of instance and result."""

    def solve(name, *options):
        instance, result = converted(name), tmp_path / f"{name}.result.json"
        done = run(
            "optimize",
            instance,
            "-o",
            result,
            "--workers",
            1,
            "--time-limit",
            20,
            "-q",
            *options,
        )
        assert done.exit_code == 0, done.stderr
        return instance, result

    return solve


def write(path, data):
    path.write_text(json.dumps(data))
    return path


# From pickles to a chart.


@pytest.mark.parametrize(
    "name", [REFILL, BARRIER, "hand_B2_chimera_gate", "hand_B7_clock_skew"]
)
def test_convert_optimize_check_show(run, converted, name):
    instance = converted(name)
    done = run("optimize", instance, "--json", "--workers", 1, "-q")
    assert done.exit_code == 0
    Path("result.json").write_text(done.stdout)
    result = json.loads(done.stdout)
    assert result["status"] == "OPTIMAL"
    assert result["value"] == result["bound"] == max(result["iterations_of"])
    checked = run("check", instance, "result.json")
    assert (checked.exit_code, checked.stdout) == (
        0,
        "result.json: valid, no violations\n",
    )
    shown = run("show", instance, "result.json")
    alone = run("show", "result.json")
    assert (shown.exit_code, shown.stderr) == (alone.exit_code, alone.stderr) == (0, "")
    assert shown.stdout.startswith(f"{name}, ")
    assert shown.stdout == alone.stdout


def test_a_real_run_from_pickles_to_the_pickle_of_a_runner(run, solved, tmp_path):
    instance, result = solved("c01_gpipe_base_p4_m4", "--time-limit", 0)
    assert run("check", instance, result).exit_code == 0
    text = run("show", instance, result).stdout
    rows = [line for line in text.splitlines() if re.match(r"device \d │", line)]
    assert len(rows) == 4
    assert "iteration 0" in text
    done = run("convert", "pipefisher-schedule", result, "-o", "schedule.pickle")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    labels = pickle.loads((tmp_path / "schedule.pickle").read_bytes())
    assert labels == json.loads(result.read_text())["labels"]
    assert {START, END} <= set(labels[0][0])


# optimize.


def test_report(run, converted):
    done = run("optimize", converted(REFILL), "--workers", 1)
    lines = done.stdout.splitlines()
    assert lines[0] == f"{REFILL}: OPTIMAL, 1 iteration"
    assert "  iterations    1  by cp-sat" in lines
    assert "  lower bound   1 iteration  by trivial" in lines
    assert (
        "  staleness     710,000 ns, proven least (total completion time of inversions)"
        in lines
    )
    assert "left (ns)" in done.stdout
    row = next(line for line in lines if line.startswith("       1  "))
    assert row.split() == [
        "1",
        "1",
        "1",
        "trivial",
        "95.00",
        "%",
        "20,000",
        "2",
        "0",
        "it.",
    ]
    assert "pipefisher breaks rules: 1 inversion before its curvature" in lines
    assert "claims fewer" not in done.stdout
    assert "best 2 iterations  bound 1 iteration  gap 50.00 %" in done.stderr
    assert " ns  " not in done.stderr


def test_claims_below_the_bound_are_called_impossible(run, converted):
    own = "pipefisher,pipefisher-causal"
    done = run("optimize", converted(WIDE), "--time-limit", 0, "--heuristics", own)
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert "and claims fewer iterations than any valid schedule has:" in text
    assert "device 3 (at least 2)" in text
    assert "infeasible: breaks rules" in text


def test_quiet_is_one_line(run, converted):
    done = run("optimize", converted(REFILL), "-q", "--workers", 1)
    assert done.stderr == ""
    line = rf"{REFILL}: OPTIMAL 1 iteration, bound 1, gap 0\.00 %, \d+\.\d+ s\n"
    assert re.fullmatch(line, done.stdout)


def test_work_that_never_fits(run, converted):
    done = run("optimize", converted(UNPLACED))
    assert done.exit_code == 3
    text = " ".join(done.stdout.split())
    assert text.startswith(f"{UNPLACED}: INFEASIBLE")
    assert "0/cov_kron_A:m#0 takes 150000 ns and fits into no hole" in text
    assert "2 iterations claimed, impossible: there is no valid schedule" in text
    quiet = run("optimize", converted(UNPLACED), "-q").stdout
    assert quiet.count("\n") == 1
    assert "takes 150000 ns" in quiet


def test_verbose_gives_whole_reasons(run, converted):
    text = " ".join(
        run("optimize", converted(REFILL), "-v", "--workers", 1).stdout.split()
    )
    assert "infeasible: breaks rules: 1 inversion before its curvature; first" in text
    assert re.search(r"bound value \(iterations\) \S+ .*trivial 1 ", text)


def test_refresh_cycle_is_reported_in_time(run, tmp_path):
    done = run("optimize", write(tmp_path / "cycle.json", CYCLE), "--workers", 1)
    assert done.exit_code == 0
    assert "cycle: OPTIMAL\n  makespan" in done.stdout
    assert "iteration" not in done.stdout
    assert re.search(r"  makespan +\d+ ms  by ", done.stdout)
    assert re.search(r"best \d+ ms  bound \d+ ms", done.stderr)


# compare.


def test_compare_of_refreshes_cycles_and_pipelines(run, converted, tmp_path):
    write(tmp_path / "cycle.json", CYCLE)
    write(tmp_path / "plain.json", {"kind": "pipeline", "name": "plain", **PIPELINE})
    files = [
        converted(REFILL),
        converted("hand_B2_chimera_gate"),
        "cycle.json",
        "plain.json",
    ]
    done = run("compare", *files, "--workers", 1)
    assert done.exit_code == 0
    assert re.search(rf"{REFILL} +OPTIMAL +1 iteration +1 +0.00 %", done.stdout)
    assert re.search(r"plain +OPTIMAL +90 +90", done.stdout)
    assert "pinned-1f1b" in done.stdout
    found = json.loads(run("compare", *files, "--json", "-q", "--workers", 1).stdout)
    assert [result["objective"] for result in found] == ["iterations"] * 2 + [
        "makespan"
    ] * 2
    assert found[0]["iterations_of"] == [1, 1]
    quiet = run("compare", *files, "-q", "--workers", 1).stdout.splitlines()
    assert quiet[0].startswith(f"{REFILL}: OPTIMAL 1 iteration, bound 1")
    assert quiet[3].startswith("plain: OPTIMAL 90 ms, bound 90")


# simulate.


def test_simulate_report(run, converted):
    done = run("simulate", converted(REFILL), "--heuristic", "pipefisher")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"pipefisher on {REFILL}: infeasible, 1 iteration"
    assert lines[1].startswith(
        "  reason        breaks rules: 1 inversion before its curvature"
    )
    assert any(line.endswith("1 inversion before its curvature") for line in lines[8:])
    causal = run(
        "simulate", converted(REFILL), "--heuristic", "pipefisher-causal", "-q"
    )
    assert causal.stdout == "pipefisher-causal: feasible 2 iterations\n"


def test_simulate_json(run, converted):
    instance = converted(CHIMERA)
    done = run("simulate", instance, "--heuristic", "pipefisher", "--json")
    entry = json.loads(done.stdout)
    assert (done.exit_code, entry["status"], entry["iterations"]) == (
        0,
        "infeasible",
        9,
    )
    assert len(entry["labels"]) == 4
    Path("entry.json").write_text(done.stdout)
    assert run("show", "entry.json").exit_code == 0
    assert run("check", instance, "entry.json").exit_code == 5


@pytest.mark.parametrize(
    ("instance", "name", "message"),
    [
        (
            None,
            "pinned-1f1b",
            "needs K-FAC work around a described pipeline (objective makespan)",
        ),
        (
            CYCLE,
            "pipefisher",
            "needs K-FAC work around a pinned pipeline (objective iterations)",
        ),
        (PINNED, "pinned-gpipe", "needs K-FAC work around a described pipeline"),
        (CYCLE, "pinned-zbv", "needs a V placement"),
    ],
)
def test_heuristics_that_do_not_apply(
    run, converted, tmp_path, instance, name, message
):
    file = write(tmp_path / "x.json", instance) if instance else converted(REFILL)
    for command in ("simulate", "show"):
        done = run(command, file, "--heuristic", name)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {name} is not applicable: ")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["pinned-1f1b", "pinned-gpipe", "list-tail"])
def test_simulate_a_cycle(run, tmp_path, name):
    done = run("simulate", write(tmp_path / "x.json", CYCLE), "--heuristic", name)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{name} on cycle: feasible\n  makespan ")


def test_a_heuristic_without_a_schedule(run, converted):
    done = run("show", converted(UNPLACED), "--heuristic", "pipefisher-causal")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "gives no schedule: inv_kron_A:m: an op of 600000 ns" in done.stderr


# show.


def test_show_a_heuristic_that_breaks_rules(run, converted):
    done = run("show", converted(REFILL), "--heuristic", "pipefisher")
    assert done.exit_code == 0
    assert done.stderr.startswith(
        "warning: infeasible: breaks rules: 1 inversion before its curvature; first precedence: "
    )
    assert "X inversion A" in done.stdout


def test_zoom_on_iterations(run, converted):
    instance = converted(CHIMERA)
    entry = run(
        "simulate", instance, "--heuristic", "pipefisher-causal", "--json"
    ).stdout
    Path("entry.json").write_text(entry)
    whole = run("show", instance, "entry.json").stdout
    assert whole.splitlines()[1].split() == ["iteration", *map(str, range(9))]
    assert re.search(r"\n +iteration +443,004 us", whole)
    length = 443_004_084
    bounds = ("--from", 7 * length, "--to", 9 * length)
    two = run("show", instance, "entry.json", *bounds).stdout
    assert two.splitlines()[1].split() == ["iteration", "7", "8"]
    assert "a row ends with the last iteration" in two
    assert not re.search("[a-zA-Z·]", two.splitlines()[3].split("│")[1])


def test_show_a_cycle(run, tmp_path):
    file = write(tmp_path / "cycle.json", CYCLE)
    run("optimize", file, "-o", "result.json", "-q", "--workers", 1)
    done = run("show", file, "result.json")
    assert (done.exit_code, done.stderr) == (0, "")
    for words in (
        "C curvature A",
        "D curvature B",
        "X inversion A",
        "Y inversion B",
        "P precond",
    ):
        assert words in done.stdout
    assert run("show", "result.json").exit_code == 0


@pytest.mark.parametrize("links", [True, False])
def test_syncs_on_streams_are_links(run, tmp_path, links):
    modules = [{**module, "sync_a": 4, "sync_b": 3} for module in PINNED["modules"]]
    file = write(tmp_path / "pinned.json", {**PINNED, "modules": modules})
    run("optimize", file, "-o", "result.json", "-q", "--workers", 1)
    for files in ([file, "result.json"], ["result.json"]):
        text = run("show", *files, *["--links"] * links).stdout
        assert ("comm 0 │" in text) is links
        assert ("S sync A" in text) is links
        assert ("collectives are not drawn; --links draws them" in text) is not links
    usage = json.loads(Path("result.json").read_text())["usage_of"]
    assert f"{usage[0]:.2f} %" in text


def test_describe_timelines(run, converted):
    done = run("show", converted(CHIMERA))
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    for words in (
        "a kfac instance, refresh around a pinned pipeline",
        "pipeline measured timelines",
        "micro-batches 4",
        "iteration 443,004 us",
        "modules 18 per device",
        "margin 5 % of an op's length",
        "replicas none, every device syncs alone",
        "0 348,993 94,011.2 669,168 7.12 18 4",
    ):
        assert words in text
    path = converted(CHIMERA)
    groups = {"sync_groups": [[0, 3], [1, 2]]}
    coupled = write(path, json.loads(path.read_text()) | groups)
    assert "syncs meet on devices 0 and 3; 1 and 2" in run("show", coupled).stdout


def test_describe_pipelines(run, tmp_path):
    text = run(
        "show", write(tmp_path / "p.json", {**PINNED, "refresh_interval": 3})
    ).stdout
    assert "described, run as 1f1b" in text
    assert "fewest iterations, at most 3" in text
    cycle = {**CYCLE, "refresh_interval": 2, "max_age": 1}
    text = run("show", write(tmp_path / "c.json", cycle)).stdout
    assert "cycle: a kfac instance\n" in text
    assert re.search("refresh cycle +2 iterations", text)
    assert re.search("inverses +used at most 1 iteration after their curvature", text)


# check.


def test_ops_outside_the_holes_are_listed(run, converted):
    instance = converted(UNPLACED)
    done = run("simulate", instance, "--heuristic", "pipefisher", "--json")
    Path("entry.json").write_text(done.stdout)
    checked = run("check", instance, "entry.json")
    assert checked.exit_code == 5
    assert (
        "  window: 0/cov_kron_A:m#0 starts at 1450000 ns, which is in no hole"
        in checked.stdout
    )
    found = json.loads(run("check", instance, "entry.json", "--json").stdout)
    assert {violation["rule"] for violation in found["violations"]} >= {"window"}


def test_moved_ops_are_found(run, solved):
    instance, path = solved(REFILL)
    result = json.loads(path.read_text())
    op = next(op for op in result["schedule"]["ops"] if op["id"].startswith("1/inv"))
    op["start"], op["end"] = op["start"] - 10_000, op["end"] - 10_000
    write(path, result)
    checked = run("check", instance, path)
    assert checked.exit_code == 5
    assert "not valid" in checked.stdout

"""K-FAC files on the command line: folders, schedule pickles, pickles for JSON, schemas."""

import json
import pickle
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppsolve.models.kinds.kfac.labels import START
from ppsolve.solver.cli.main import build
from tests.paths import DATA

FOLDER = DATA / "pipefisher/hand_B1_refill_causality"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments, **options):
        return CliRunner().invoke(build(), [str(part) for part in arguments], **options)

    return invoke


@pytest.fixture
def solved(run):
    """Convert and optimise a folder, and return the path of the result."""
    run("convert", "pipefisher", FOLDER, "--allow-pickle", "-o", "instance.json")
    assert (
        run("optimize", "instance.json", "-o", "result.json", "--workers", 1).exit_code
        == 0
    )
    return Path("result.json")


def write(path, data):
    path.write_text(json.dumps(data))
    return path


# convert.


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 1, 3), "node 2 of 0..3 is missing"),
        ((1, 2), "node 0 of 0..2 is missing"),
        ((1,), "node 0 of 0..1 is missing"),
        ((2, 4, 6), "node 0 of 0..6 is missing"),
        ((0, 2, 8), "nodes 4 and 6 of 0..8 are missing"),
        ((0, 5, 20, 21), "nodes 1, 2, 3, 4, 6 and 13 more of 0..21 are missing"),
        (
            (0, 1, 999_999_999),
            "nodes 2, 3, 4, 5, 6 and 999999992 more of 0..999999999 are missing",
        ),
    ],
)
def test_folders_with_a_node_missing(run, tmp_path, numbers, message):
    folder = folder_of(tmp_path, [f"r_node{number}_timeline" for number in numbers])
    done = run("convert", "pipefisher", folder, "--allow-pickle", "-o", "out.json")
    assert (done.exit_code, done.stdout) == (2, "")
    hint = "name the files one by one to go without"
    assert done.stderr == f"error: {folder}: {message}; {hint}\n"
    assert not Path("out.json").exists()
    files = run(
        "convert", "pipefisher", *folder.iterdir(), "--allow-pickle", "-o", "out.json"
    )
    assert files.exit_code == 0
    assert (
        files.stderr.startswith("warning: nodes seem to be missing")
        or len(numbers) == 1
    )


def test_folders_without_numbers_are_not_counted(run, tmp_path):
    folder = folder_of(tmp_path, ["x", "r_node7_timeline"])
    done = run("convert", "pipefisher", folder, "--allow-pickle", "-o", "out.json")
    assert (done.exit_code, done.stderr) == (0, "")


def folder_of(tmp_path, names):
    """Write the same small timeline under several names."""
    folder = tmp_path / "folder"
    folder.mkdir()
    timeline = {
        "start_end": [(0, 100)],
        "call_forward": [(0, 10)],
        "call_backward": [(20, 40)],
        "inv_kron_A:m": [(50, 55)],
    }
    for name in names:
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(timeline))
    return folder


def test_schedule_of_a_heuristic(run, solved, tmp_path):
    result = solved
    options = ["--heuristic", "pipefisher", "-o", "s.pickle"]
    done = run("convert", "pipefisher-schedule", result, *options)
    assert done.exit_code == 0
    assert done.stderr.startswith(
        f"warning: {result}: pipefisher is infeasible: breaks rules: "
    )
    entries = json.loads(result.read_text())["heuristics"]
    assert pickle.loads((tmp_path / "s.pickle").read_bytes()) == entries[0]["labels"]
    piped = run("convert", "pipefisher-schedule", result, "-o", "-")
    assert pickle.loads(piped.stdout_bytes) == json.loads(result.read_text())["labels"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected an object, got a list"),
        (
            {"status": "OPTIMAL"},
            "labels: expected the result or heuristic entry of a K-FAC",
        ),
        (
            {"objective": "iterations", "reason": "no hole"},
            "labels: expected a schedule of every device, there is none: no hole",
        ),
        ({"labels": {"a": 1}}, "labels: expected a list of devices, got an object"),
        ({"labels": [[["a"], 1]]}, "labels[0][1]: expected a list of labels, got 1"),
        ({"labels": [[[START, 7]]]}, "labels[0][0][1]: expected a label, got 7"),
        (
            {"labels": [[[START]], [["a"]]]},
            'labels[1]: expected an iteration with "-- start --"',
        ),
    ],
)
def test_results_without_usable_labels(run, tmp_path, data, message):
    file = write(tmp_path / "r.json", data)
    done = run("convert", "pipefisher-schedule", file, "-o", "s.pickle")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {file}: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "s.pickle").exists()


def test_schedule_of_an_unknown_heuristic(run, tmp_path):
    file = write(tmp_path / "r.json", {"heuristics": [{"name": "pipefisher"}]})
    arguments = [
        "convert",
        "pipefisher-schedule",
        file,
        "-o",
        "s.pickle",
        "--heuristic",
    ]
    done = run(*arguments, "pipefish")
    assert done.exit_code == 2
    assert (
        'the result has no heuristic "pipefish"; did you mean "pipefisher"?'
        in done.stderr
    )
    assert "labels: expected" in run(*arguments, "pipefisher").stderr


def test_the_result_is_not_overwritten(run, tmp_path):
    file = write(tmp_path / "r.json", {})
    done = run("convert", "pipefisher-schedule", file, "-o", file)
    assert done.exit_code == 2
    assert "this is the input" in done.stderr


# A pickle where JSON is expected.


class Bomb:
    """Leaves a file where it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("it-ran"),))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["x_timeline.pickle", "renamed.json"])
def test_pickles_are_not_read_as_json(run, protocol, name):
    Path(name).write_bytes(pickle.dumps(Bomb(), protocol=protocol))
    line = (
        f"error: {name}: expected JSON text, this looks like a pickle (nothing in it was run); "
        "`ppsolve convert pipefisher --allow-pickle` reads PipeFisher's timelines\n"
    )
    for command in ("optimize", "show", "compare"):
        done = run(command, name)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", line)
    assert not Path("it-ran").exists()
    piped = run("show", "-", input=Path(name).read_bytes())
    assert piped.stderr == line.replace(name, "<stdin>")


def test_other_bytes_are_no_pickle(run):
    Path("x.json").write_bytes(b"\x80abc")
    assert (
        run("show", "x.json").stderr
        == "error: x.json: expected UTF-8 text, byte 0 is not\n"
    )


# schema.


def test_schemas(run):
    schema = json.loads(run("schema", "kfac").stdout)
    assert {"timelines", "pipeline", "modules", "margin_ratio", "objective"} <= set(
        schema["properties"]
    )
    assert "sync_groups" in schema["description"]
    fields = json.loads(run("schema", "kfac-result").stdout)["properties"]
    assert {"iterations_of", "usage_of", "labels", "bound_of", "tie_break"} <= set(
        fields
    )
    fields = json.loads(run("schema", "kfac-heuristic").stdout)["properties"]
    assert {"breaks", "breaks_of", "labels"} <= set(fields)
    assert "kfac" in json.dumps(json.loads(run("schema").stdout)["discriminator"])

"""PipeFisher timelines to K-FAC instances: the measured cases, hand-made runs, every message."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.pipefisher import (
    convert_pipefisher,
    human_key,
    instance_name,
    last_step,
    node_numbers,
    timelines_document,
)
from tests.paths import DATA

CASES = DATA / "pipefisher"
FOLDERS = sorted(path for path in CASES.iterdir() if path.is_dir())

NODE: dict[str, Any] = {
    "start_end": [(0, 1000)],
    "call_forward": [(100, 110), (110, 120)],
    "call_backward": [(130, 150), (150, 170)],
    "cov_kron_A:m": [(200, 210)],
    "sync_kron_A:m": [(None, None)],
    "inv_kron_A:m": [(300, 310)],
}
SYNC = {"sync_kron_A:m": [(220, 230)]}


def write(folder: Path, timelines: dict[str, Any]) -> Path:
    """Write timelines by file name; what is given is changed in `NODE`, None takes away."""
    folder.mkdir(exist_ok=True)
    for name, change in timelines.items():
        timeline = {k: v for k, v in {**NODE, **change}.items() if v is not None}
        (folder / name).write_bytes(pickle.dumps(timeline))
    return folder


def run_of(tmp_path: Path, *changes: dict[str, Any]) -> Path:
    """Write a run with these changes of node 0, 1, ..."""
    return write(
        tmp_path / "run",
        {f"r_node{k}_timeline.pickle": change for k, change in enumerate(changes)},
    )


def convert(*paths: Path) -> tuple[KfacInstance, list[str]]:
    """Return the instance and the warnings."""
    return convert_pipefisher(paths, allow_pickle=True)


def warnings_of(tmp_path: Path, *changes: dict[str, Any]) -> list[str]:
    folder = run_of(tmp_path, *changes)
    _, warnings = convert(folder)
    return [warning.replace(f"{folder}{os.sep}", "") for warning in warnings]


def intervals(timeline: Any) -> dict[str, list[tuple[Any, ...]]]:
    return {label: [tuple(pair) for pair in pairs] for label, pairs in timeline.items()}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_cases_by_pickle_itself(folder: Path) -> None:
    instance, warnings = convert(folder)
    files = sorted(folder.glob("*.pickle"), key=lambda path: path.name)
    assert instance.name == folder.name
    assert instance.time_unit == "ns"
    assert instance.timelines is not None
    for timeline, file in zip(instance.timelines, files, strict=True):
        wanted = pickle.loads(file.read_bytes())
        assert intervals(timeline) == intervals(wanted)
        assert list(timeline) == list(wanted)
    assert len(instance.timelines) == len(
        json.loads((folder / "expected.json").read_text(encoding="utf-8"))["nodes"]
    )
    assert [warning.split(": ", 1)[1] for warning in warnings] == (
        [
            "its first op starts 10000 ns before node 0's first forward: is its clock ahead?"
        ]
        if "clock" in folder.name
        else []
    )


def test_files_in_any_order_are_one_folder(tmp_path: Path) -> None:
    folder = CASES / "c03_chimera_base_p4_m4"
    files = sorted(folder.glob("*.pickle"), reverse=True)
    assert convert(*files) == convert(folder)


def test_two_comes_before_ten(tmp_path: Path) -> None:
    names = [f"r_node{k}_timeline.pickle" for k in range(12)]
    changes = {name: {"inv_kron_A:m": [(k, k + 1)]} for k, name in enumerate(names)}
    instance, warnings = convert(write(tmp_path / "run", changes))
    assert warnings == []
    assert instance.timelines is not None
    assert [timeline["inv_kron_A:m"][0][0] for timeline in instance.timelines] == list(
        range(12)
    )
    assert sorted(["a10b2", "a2b10", "a2b2", "b1"], key=human_key) == [
        "a2b2",
        "a2b10",
        "a10b2",
        "b1",
    ]


def test_numpy_numbers_stay_exact(tmp_path: Path) -> None:
    far = 10**14 + 1
    change = {
        "call_forward": [(np.int64(far), np.int64(far + 3)), (far + 3, far + 4)],
        "call_backward": np.array([[far + 4, far + 5], [far + 5, far + 9]]),
    }
    instance, _ = convert(run_of(tmp_path, change))
    assert instance.timelines is not None
    assert instance.timelines[0]["call_forward"] == ((far, far + 3), (far + 3, far + 4))
    assert instance.timelines[0]["call_backward"][1] == (far + 5, far + 9)


def test_last_step_counts() -> None:
    steps = {
        "start_end": [(0, 1), (1, 2), (2, 3)],
        "call_forward": [(k, k + 1) for k in range(6)],
        "inv_kron_A:m": [(5, 6), (None, None), (7, 8)],
    }
    assert last_step(steps) == (
        {
            "start_end": [(2, 3)],
            "call_forward": [(4, 5), (5, 6)],
            "inv_kron_A:m": [(7, 8)],
        },
        [],
    )


@given(st.integers(1, 5), st.integers(0, 12))
def test_last_step_is_the_slice_of_pipefisher(steps: int, length: int) -> None:
    pairs = [(k, k + 1) for k in range(length)]
    found, warnings = last_step({"start_end": [(0, 1)] * steps, "call_forward": pairs})
    kept = pairs if steps == 1 else pairs[-(length // steps) :]
    assert found["call_forward"] == kept
    assert len(found["start_end"]) == 1
    assert bool(warnings) == (length % steps > 0)


def test_document_is_plain_json() -> None:
    timelines = [{"call_forward": [(1, 2.5), (None, None)]}]
    assert timelines_document(timelines, "x") == {
        "kind": "kfac",
        "name": "x",
        "time_unit": "ns",
        "timelines": [{"call_forward": [[1, 2.5], [None, None]]}],
        "margin_ratio": 0.05,
    }


# Names.


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a_node0_timeline.pickle", "a_node1_timeline.pickle"], "a"),
        (["bert_p4_node0.pickle"], "bert_p4"),
        (["b1_x.pickle", "b1_y.pickle"], "b1"),
        (["node0_timeline.pickle", "node1_timeline.pickle"], "folder"),
        (["x.pickle", "y.pickle"], "folder"),
        (["\udcff_node0_timeline.pickle"], "?"),
    ],
)
def test_name_of_the_instance(names: list[str], wanted: str) -> None:
    assert instance_name([Path("/folder", name) for name in names]) == wanted


def test_numbers_in_names() -> None:
    assert node_numbers([Path("a_node0_x_node12_timeline.pickle")]) == [12]
    assert node_numbers([Path("a_node0_timeline.pickle"), Path("b.pickle")]) is None


# Warnings.


def test_nothing_suspicious(tmp_path: Path) -> None:
    assert warnings_of(tmp_path, {}, {"call_forward": [(105, 110), (110, 120)]}) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"call_forward": [(99, 110), (110, 120)]},
            "r_node1_timeline.pickle: its first op starts 1 ns before node 0's first forward: "
            "is its clock ahead?",
        ),
        (
            {"call_forward": [(100, 110)]},
            "r_node1_timeline.pickle: 1 forwards but 2 backwards",
        ),
        (
            {"call_forward:up_pipe": [(120, 121)]},
            "r_node1_timeline.pickle: 1 forwards but 0 backwards of the second pipe",
        ),
        (
            {"call_forward": [(100, 110)], "call_backward": [(130, 150)]},
            "r_node1_timeline.pickle: 1 forwards, node 0 has 2",
        ),
        (
            {"call_forward": None, "call_backward": None},
            "r_node1_timeline.pickle: no forwards and no backwards at all",
        ),
        (
            {"cov_kron_A": [(1, 2)], "inv_kron_B": [(3, 4)]},
            "r_node1_timeline.pickle: without a module's name, taken for one more module: "
            "cov_kron_A, inv_kron_B",
        ),
        (
            {"sync_grad": [(1, 2)], "step": [], "a": [], "b": []},
            "r_node1_timeline.pickle: unknown labels dropped: sync_grad, step, a and 1 more",
        ),
        (
            {"start_end": None},
            "r_node1_timeline.pickle: start_end: missing or empty, taken as one profiled step",
        ),
        (
            {"start_end": [(0, 1), (1, 2)]},
            "r_node1_timeline.pickle: the number of intervals is no multiple of the 2 profiled "
            "steps, the last step is a guess: cov_kron_A:m, sync_kron_A:m, inv_kron_A:m",
        ),
    ],
)
def test_warnings(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    assert message in warnings_of(tmp_path, {}, change)


def test_unknown_labels_are_not_in_the_instance(tmp_path: Path) -> None:
    instance, _ = convert(run_of(tmp_path, {"sync_grad": [(1, 2)]}))
    assert instance.timelines is not None
    assert "sync_grad" not in instance.timelines[0]
    assert "start_end" in instance.timelines[0]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 1, 3), "nodes seem to be missing: there are 0, 1, 3"),
        (
            (1, 2),
            "nodes seem to be missing: there are 1, 2; node 1 is taken for node 0",
        ),
        (
            (0, 2),
            "nodes seem to be missing: there are 0, 2, but no sync with replicas was recorded",
        ),
    ],
)
def test_missing_nodes(tmp_path: Path, numbers: tuple[int, ...], message: str) -> None:
    folder = write(
        tmp_path / "run", {f"r_node{k}_timeline.pickle": {} for k in numbers}
    )
    assert convert(*folder.iterdir())[1] == [message]


def test_every_second_node_with_syncs_is_all_of_them(tmp_path: Path) -> None:
    late = {"sync_kron_A:m": [(320, 330)]}
    names = {"r_node0_timeline.pickle": SYNC, "r_node2_timeline.pickle": late}
    instance, warnings = convert(write(tmp_path / "run", names))
    assert warnings == []
    assert instance.sync_groups == ()


def test_hidden_files_and_schedules_are_left(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {}, {})
    (folder / "._r_node0_timeline.pickle").write_bytes(b"\x00\x05\x16\x07")
    (folder / "r_schedule.pickle").write_bytes(pickle.dumps([[["a"]]]))
    (folder / "schedule.pickle").write_bytes(pickle.dumps([[["a"]]]))
    (folder / "stats.txt").write_text("x")
    (folder / "sub.pickle").mkdir()
    instance, warnings = convert(folder)
    assert instance.num_devices == 2
    assert warnings == [
        f"{folder}: hidden files are not read: ._r_node0_timeline.pickle"
    ]


# Errors, on the command line: one line, exit code 2, nothing written.


def command(*arguments: str | Path) -> Any:
    return CliRunner().invoke(build(), ["convert", "pipefisher", *map(str, arguments)])


def refused(folder: Path, *arguments: str | Path) -> str:
    """Return the error of a command; its output file must not have been written."""
    output = folder / "out.json"
    result = command(*arguments, "-o", output)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert not list(folder.glob("*out.json*"))
    lines = [
        line for line in result.stderr.splitlines() if not line.startswith("warning: ")
    ]
    assert len(lines) == 1
    return lines[0].removeprefix("error: ")


def test_command_writes_the_file_and_warns(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {}, {"call_forward": [(90, 110), (110, 120)]})
    output = tmp_path / "out.json"
    result = command(folder, "--allow-pickle", "-o", output)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("warning: ")
    assert "its first op starts 10 ns before" in result.stderr
    written = KfacInstance.parse(json.loads(output.read_text(encoding="utf-8")))
    assert written == convert(folder)[0]


def test_command_writes_to_stdout() -> None:
    folder = CASES / "c03_chimera_base_p4_m4"
    result = command(folder, "--allow-pickle")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert not document.get("sync_groups")
    first = document["timelines"][0]["call_forward"][0]
    assert all(type(time) is int for time in first)


def test_without_consent(tmp_path: Path) -> None:
    text = refused(tmp_path, run_of(tmp_path, {}))
    assert "--allow-pickle" in text
    assert "pickles can run code" in text
    assert "This reader runs none" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"call_forward": []}, "call_forward: expected forwards of node 0"),
        ({"call_backward": None}, "call_backward: expected backwards of node 0"),
        (
            {"call_backward": [(None, None)]},
            "call_backward: expected backwards of node 0",
        ),
        (
            {"inv_kron_A:m": [(1, 2), (310, 300)]},
            "inv_kron_A:m[1]: expected an end at or after the start 310, got 300",
        ),
        (
            {"inv_kron_A:m": [(300, None)]},
            "inv_kron_A:m[0]: expected two numbers or (None, None), got one None",
        ),
        (
            {"inv_kron_A:m": [(300, "x")]},
            'inv_kron_A:m[0]: expected a number, got the text "x"',
        ),
        ({"inv_kron_A:m": [(0, 10**20)]}, "expected at most 1E+19"),
    ],
)
def test_timelines_that_cannot_be_used(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = run_of(tmp_path, change)
    text = refused(tmp_path, folder, "--allow-pickle")
    assert text.startswith(f"{folder / 'r_node0_timeline.pickle'}: ")
    assert message in text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a pickle, the file is empty"),
        (b'{"a": 1}', "not a valid pickle: no opcode is 0x7b, at byte 0"),
        (
            pickle.dumps({}),
            "expected a dict of lists of (start, end), the dict is empty",
        ),
        (pickle.dumps(NODE)[:-9], "(truncated?)"),
        (
            b"cos\nsystem\n(Vtouch canary\ntR.",
            "the pickle names os.system; only numbers",
        ),
    ],
)
def test_files_that_are_no_timelines(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a_node0_timeline.pickle"
    path.write_bytes(data)
    text = refused(tmp_path, path, "--allow-pickle")
    assert text.startswith(f"{path}: ")
    assert message in text
    assert not Path("canary").exists()


def test_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    wanted = f"{folder}: expected a folder with timelines named *.pickle, there is none"
    assert refused(tmp_path, folder, "--allow-pickle") == wanted
    (folder / ".a_node0_timeline.pickle").write_bytes(b"x")
    assert (
        refused(tmp_path, folder, "--allow-pickle")
        == wanted + " (1 hidden: name it to read it)"
    )
    assert "no such file" in refused(tmp_path, tmp_path / "no.pickle", "--allow-pickle")
    assert "<stdin>: expected files" in refused(tmp_path, "-", "--allow-pickle")
    with pytest.raises(InputError, match="expected at least one timeline pickle"):
        convert()


def test_a_file_twice(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {}, {})
    first = folder / "r_node0_timeline.pickle"
    assert (
        refused(tmp_path, first, first, "--allow-pickle")
        == f"{first}: this file appears twice"
    )
    assert "this file appears twice" in refused(
        tmp_path, folder, first, "--allow-pickle"
    )
    link = tmp_path / "s_node5_timeline.pickle"
    link.symlink_to(first)
    assert f"twice, also as {first}" in refused(tmp_path, first, link, "--allow-pickle")


def test_a_node_twice(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {})
    first = folder / "r_node0_timeline.pickle"
    second = tmp_path / "s_node0_timeline.pickle"
    shutil.copy(first, second)
    wanted = f"{second}: node 0 is there already: {first}"
    assert refused(tmp_path, second, folder, "--allow-pickle") == wanted


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "a_node0_timeline.pickle"
    os.mkfifo(path)
    wanted = f"{path}: expected a file, or a pipe with a writer"
    assert refused(tmp_path, path, "--allow-pickle").startswith(wanted)
    assert refused(tmp_path, tmp_path, "--allow-pickle").startswith(wanted)


def test_the_output_is_no_input(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {})
    path = folder / "r_node0_timeline.pickle"
    before = path.read_bytes()
    for given_as in (path, folder):
        result = command(given_as, "--allow-pickle", "-o", path)
        assert result.exit_code == 2
        assert f"this is the input {path}" in result.stderr
        assert path.read_bytes() == before

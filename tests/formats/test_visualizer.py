"""Visualizer configs: hand-made oracles, warnings, and every message."""

from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import lower, parse_instance
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.visualizer import convert_visualizer

CONFIG: dict[str, Any] = {
    "num_stages": 3,
    "num_batches": 5,
    "forward_times": [1.0, 1.5, 0.1],
    "backward_times": [2, 2, 3],
    "p2p_time": 0.25,
    "output_file": "picture.png",
}

YAML = """\
num_stages: 3
num_batches: 5
forward_times: [1.0, 1.5, 1e-1]   # a comment
backward_times:
  - 2
  - 2
  - 3
p2p_time: 0.25
output_file: picture.png
"""


def write(tmp_path: Path, content: Any, name: str = "config.json") -> Path:
    path = tmp_path / name
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return path


def test_json_by_hand(tmp_path: Path) -> None:
    instance, warnings = convert_visualizer(write(tmp_path, CONFIG))
    assert warnings == []
    assert instance == parse_instance(
        {
            "kind": "pipeline",
            "name": "config",
            "num_devices": 3,
            "num_microbatches": 5,
            "times": {"forward": [1, 1.5, 0.1], "backward": [2, 2, 3]},
            "p2p": {"latency": 0.25},
        }
    )
    problem = lower(instance)
    assert problem.scale.tick == Decimal("0.05")
    assert problem.duration[problem.grid("F")[:, 0]].tolist() == [20, 30, 2]


@pytest.mark.parametrize("name", ["config.yaml", "config.YML"])
def test_yaml_says_the_same(tmp_path: Path, name: str) -> None:
    assert convert_visualizer(write(tmp_path, YAML, name)) == convert_visualizer(
        write(tmp_path, CONFIG)
    )


def test_short_list_is_continued_and_long_one_cut(tmp_path: Path) -> None:
    path = write(
        tmp_path, {**CONFIG, "forward_times": [4, 7], "backward_times": [1, 2, 3, 4, 5]}
    )
    instance, warnings = convert_visualizer(path)
    assert instance.times.forward == (4, 7, 7)
    assert instance.times.backward == (1, 2, 3)
    assert warnings == [
        f"{path}: forward_times: 2 of 3 stages given, the others take the last value, 7",
        f"{path}: backward_times: 5 entries for 3 stages, the last 2 cut",
    ]


def test_p2p_and_output_are_optional(tmp_path: Path) -> None:
    config = {k: v for k, v in CONFIG.items() if k not in {"p2p_time", "output_file"}}
    instance, _ = convert_visualizer(write(tmp_path, config))
    assert instance.p2p.latency == 0


def test_standard_input_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(CONFIG)))
    instance, _ = convert_visualizer("-")
    assert instance.name == "visualizer"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_stages": None}, "num_stages: input should be a valid integer, got null"),
        (
            {"num_stages": 0},
            "num_stages: input should be greater than or equal to 1, got 0",
        ),
        ({"num_stages": 2.5}, "num_stages: expected a whole number, got 2.5"),
        (
            {"num_batches": "8"},
            'num_batches: expected a whole number, got the text "8"',
        ),
        (
            {"forward_times": 3},
            "forward_times: expected a list with one time per stage, got 3",
        ),
        (
            {"forward_times": []},
            "forward_times: expected at least one time, the list is empty",
        ),
        (
            {"forward_times": [1, -2]},
            "forward_times[1]: expected a number >= 0, got -2",
        ),
        (
            {"backward_times": [1, "x"]},
            'backward_times[1]: expected a number, got the text "x"',
        ),
        ({"p2p_time": [1]}, "p2p_time: expected a number, got a list of 1"),
        ({"p2p_time": float("nan")}, "p2p_time: expected a finite number, got NaN"),
        (
            {"forward_time": 1},
            'unknown field "forward_time"; did you mean "forward_times"?',
        ),
    ],
)
def test_wrong_fields(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path, {**CONFIG, **change})
    with pytest.raises(InputError) as caught:
        convert_visualizer(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "field", ["num_stages", "num_batches", "forward_times", "backward_times"]
)
def test_required_fields(tmp_path: Path, field: str) -> None:
    config = {key: value for key, value in CONFIG.items() if key != field}
    with pytest.raises(InputError, match=f"{field}: this field is required"):
        convert_visualizer(write(tmp_path, config))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not valid JSON: line 1"),
        ("a.json", "[1]", "expected an object, got a list of 1"),
        ("a.yaml", "", "expected an object, got null"),
        ("a.yaml", "a: [1, 2", "not valid YAML: line"),
        (
            "a.yaml",
            "a: !!python/object/apply:os.getcwd []",
            "not valid YAML: line 1, column 4",
        ),
        (
            "a.yaml",
            "num_stages: 1\nnum_stages: 2",
            'the field "num_stages" appears twice',
        ),
        ("a.yaml", "b: &b {c: 1}\na:\n  <<: *b", 'merge keys ("<<") are not supported'),
        ("a.yaml", "a: 2000-13-41", "not usable YAML: "),
        (
            "a.yaml",
            "[" * 51 + "]" * 51,
            "not usable YAML: nested deeper than 50 levels",
        ),
        # Newer libraries stop by themselves before ours would.
        ("a.yaml", "[" * 400_000 + "]" * 400_000, "YAML: "),
        ("a.yaml", "# " + "x" * 1_000_001, "at most 1000000 characters of YAML"),
    ],
)
def test_unreadable(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        convert_visualizer(write(tmp_path, text, name))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        convert_visualizer(tmp_path / "absent.yaml")


def test_yaml_without_pyyaml_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(
        InputError, match=r"pip install 'ppsolve\[yaml\]', or convert the file"
    ):
        convert_visualizer(write(tmp_path, YAML, "a.yml"))


def test_command_writes_the_file_and_warns(tmp_path: Path) -> None:
    target = tmp_path / "instance.json"
    path = write(tmp_path, {**CONFIG, "forward_times": [4]})
    result = CliRunner().invoke(
        build(), ["convert", "visualizer", str(path), "-o", str(target)]
    )
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "warning: " in result.stderr
    assert "the others take the last value, 4" in result.stderr
    assert json.loads(target.read_text())["times"]["forward"] == [4, 4, 4]

"""Graphs of collectives to overlap instances: every oracle file, warnings, and every message."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.cli.main import build
from ppsolve.solver.formats.overlap_graph import convert_overlap_graph
from tests.kinds.overlap.cases import FOLDER, NAMES

KERNEL = {"name": "k", "kind": "compute", "duration": 1.5}
GATHER = {"name": "g", "kind": "comm", "duration": 2, "deps": ["k"]}
WAIT = {"name": "w", "kind": "wait", "duration": 0, "deps": ["g"]}
GRAPH = {"name": "small", "unit": "ms", "nodes": [KERNEL, GATHER, WAIT]}


def write(folder: Path, data: Any, name: str = "graph.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(
        build(), ["convert", "overlap-graph", *map(str, arguments)]
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_graph_file(name: str, tmp_path: Path) -> None:
    output = tmp_path / "instance.json"
    done = run(FOLDER / f"{name}.json", "-o", output)
    assert (done.exit_code, done.output) == (0, "")
    data = json.loads((FOLDER / f"{name}.json").read_text())
    instance = load_instance(output)
    assert (instance.name, instance.time_unit) == (data["name"], data["unit"])
    assert [
        {"name": n.name, "kind": n.kind, "duration": n.duration, "deps": list(n.deps)}
        for n in instance.nodes
    ] == data["nodes"]


def test_what_may_be_missing_and_what_is_kept(tmp_path: Path) -> None:
    nodes = [
        KERNEL,
        {**GATHER, "group": 1, "bytes": 8},
        {"name": "w", "kind": "wait", "deps": ["g"]},
    ]
    path = write(tmp_path, {"nodes": nodes, "collective_order": "free"})
    instance, warnings = convert_overlap_graph(path)
    assert warnings == []
    assert (instance.name, instance.time_unit) == ("graph", "us")
    assert instance.collective_order == "free"
    assert instance.nodes[0].deps == ()
    assert (instance.nodes[0].duration, instance.nodes[1].bytes) == (Decimal("1.5"), 8)
    assert instance.groups == ("1",)


def test_extra_fields_are_left_out_with_a_warning(tmp_path: Path) -> None:
    nodes = [{**KERNEL, "stream": 7}, {**GATHER, "stream": 8, "size": 1}, WAIT]
    path = write(tmp_path, {**GRAPH, "nodes": nodes, "commit": "x"})
    done = run(path)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f'warning: {path}: the field "commit" is not used',
        f'warning: {path}: the field "nodes[].stream" is not used (2 nodes)',
        f'warning: {path}: the field "nodes[].size" is not used',
    ]
    assert json.loads(done.stdout)["nodes"][0] == KERNEL


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([GRAPH], "expected an object, got a list of 1"),
        ({"name": "x"}, "nodes: this field is required"),
        ({**GRAPH, "unit": 3}, "unit: expected a text, got 3"),
        (
            {**GRAPH, "time_unit": "us"},
            "unit: expected either unit or time_unit, got both",
        ),
        ({"nodes": [7]}, "nodes[0]: expected an object, got 7"),
        ({"nodes": [{**KERNEL, "kind": "copy"}]}, "nodes[0].kind: "),
        (
            {"nodes": [{**KERNEL, "duration": -1}]},
            "nodes[0].duration: expected a number >= 0",
        ),
        ({"nodes": [KERNEL, KERNEL]}, 'nodes[1].name: the name "k" appears twice'),
        ({"nodes": [{**KERNEL, "deps": ["j"]}]}, 'nodes[0].deps[0]: unknown node "j"'),
        ({"nodes": [GATHER, KERNEL, WAIT]}, 'nodes[0].deps[0]: "g" depends on "k"'),
        (
            {"nodes": [KERNEL, GATHER]},
            'expected one wait for the collective "g", got 0',
        ),
        (
            {"nodes": [KERNEL, {**WAIT, "deps": []}]},
            "nodes[1].deps: expected exactly one",
        ),
        ("{", "not valid JSON"),
    ],
)
def test_messages(data: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    with pytest.raises(InputError) as caught:
        convert_overlap_graph(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    done = run(path)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_a_missing_file_and_the_input_as_output(tmp_path: Path) -> None:
    assert run(tmp_path / "none.json").exit_code == 2
    path = write(tmp_path, GRAPH)
    assert run(path, "-o", path).exit_code == 2
    assert json.loads(path.read_text()) == GRAPH

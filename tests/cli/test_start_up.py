"""What a command does not need it does not import: other kinds, searches for its help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import first
from tests.paths import ROOT

KINDS = {"pipeline", "graph", "kfac", "overlap"}

SEARCHES = tuple(
    f"ppsolve.solver.{room}"
    for room in ("heuristics.", "bounds.", "exact.", "kernels.", "run.", "studies.")
)
"""Rooms of the solver that no schedule needs to be read, checked or drawn."""

NAMES = """
import sys
from ppsolve.solver.cli.main import run

try:
    run()
except SystemExit as ending:
    print(ending.code, *sys.modules, sep="\\n", file=sys.stderr)
"""


def imported(*arguments: str) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    command = [sys.executable, "-c", NAMES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    code, *names = done.stderr.splitlines()
    assert code in {"None", "0"}
    return set(names)


def kinds_in(modules: set[str]) -> set[str]:
    """Return the kinds whose objects are among modules."""
    homes = {"graph": "graph"} | {name: f"{name}.kind" for name in KINDS - {"graph"}}
    return {
        name
        for name, home in homes.items()
        if f"ppsolve.solver.kinds.{home}" in modules
    }


@pytest.mark.parametrize("command", first(1, ["optimize", "check", "show"]))
def test_help_loads_no_kind_and_no_search(command: str) -> None:
    modules = imported(command, "--help")
    homes = (*SEARCHES, "ppsolve.solver.kinds.")
    assert f"ppsolve.solver.cli.{command}" in modules
    assert {name for name in modules if name.startswith(homes)} == set()


@pytest.mark.parametrize("arguments", [("--help",), ("serve", "--help")])
def test_help_loads_no_service(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)
    tops = {name.partition(".")[0] for name in modules}
    assert tops & {"fastapi", "uvicorn", "asyncio", "sqlite3", "numpy"} == set()
    assert {
        name for name in modules if name.startswith("ppsolve.solver.service")
    } == set()


def test_a_file_loads_its_own_kind(tmp_path: Path) -> None:
    op = {"id": "x", "duration": 1, "resources": ["a"]}
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps({"kind": "graph", "resources": ["a"], "ops": [op]}))
    pipeline = ROOT / "instances" / "memory_scan" / "scan-4x8-3.json"
    for path, kind in ((graph, "graph"), (pipeline, "pipeline")):
        modules = imported("show", str(path))
        assert kinds_in(modules) == {kind}
        assert {name for name in modules if name.startswith(SEARCHES)} == set()
        assert not any(
            name.startswith("ppsolve.models.studies.plan") for name in modules
        )


def test_a_result_is_shown_and_checked_without_a_search(tmp_path: Path) -> None:
    instance = ROOT / "instances" / "memory_scan" / "scan-4x8-7.json"
    entry = tmp_path / "entry.json"
    imported("simulate", str(instance), "--heuristic", "1f1b", "-o", str(entry))
    for command in ("show", "check"):
        modules = imported(command, str(instance), str(entry))
        assert kinds_in(modules) == {"pipeline"}
        assert {name for name in modules if name.startswith(SEARCHES)} == set()

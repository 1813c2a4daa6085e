"""Replays mutants: each must be refused by the test that is named beside it.

``python -m tests.mutation.survivors [list.json ...] [--only ID]``; without a list, all lists in
this folder. An entry has an ``id``, a ``file``, the text ``old`` that becomes ``new``, a
``verdict`` (``killed``, ``equivalent`` or ``speed``), and ``by``: the test that fails once the
mutant is there, or the reason why none can. The tree is copied first, so nothing here is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.paths import ROOT

HERE = Path(__file__).resolve().parent
VERDICTS = {"killed", "equivalent", "speed"}
FIELDS = {"id", "file", "old", "new", "verdict", "by"}

PLAIN = {"PYTHONDONTWRITEBYTECODE": "1", "PPSOLVE_COMPILE": "never"}
"""Python runs what the file says now; compiled kernels may lie in a cache."""

Entry = dict[str, str]


def entries_of(lists: Iterable[Path]) -> list[Entry]:
    """Read lists of mutants."""
    return [entry for path in lists for entry in json.loads(path.read_text())]


def faults(entry: Entry) -> list[str]:
    """Return what is wrong with an entry, without running anything."""
    if set(entry) != FIELDS:
        return [
            f"expected the fields {', '.join(sorted(FIELDS))}, got {', '.join(sorted(entry))}"
        ]
    found = []
    if entry["verdict"] not in VERDICTS:
        found.append(
            f"expected one of {', '.join(sorted(VERDICTS))}, got {entry['verdict']}"
        )
    if entry["verdict"] == "killed":
        path, _, test = entry["by"].partition("::")
        name = test.split("::")[-1].partition("[")[0]
        if not name or f"def {name}(" not in _text(ROOT / path):
            found.append(f"expected a test, got {entry['by']}")
        times = _text(ROOT / entry["file"]).count(entry["old"])
        if times != 1:
            found.append(
                f"expected its text once in {entry['file']}, got {times} times"
            )
    return found


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def survives(entry: Entry, tree: Path) -> bool:
    """Apply a mutant to the copy in `tree`, run the named test, and take the mutant back."""
    path = tree / entry["file"]
    text = path.read_text()
    path.write_text(text.replace(entry["old"], entry["new"], 1))
    try:
        command = [
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-m",
            "",
        ]
        result = subprocess.run(
            [sys.executable, *command, entry["by"]],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), **PLAIN},
            capture_output=True,
        )
    finally:
        path.write_text(text)
    return result.returncode != 1


def copy_of_the_tree(place: Path) -> Path:
    """Copy the project, links as links, and return where."""
    skipped = shutil.ignore_patterns(
        ".git", "__pycache__", ".*_cache", ".hypothesis", "docs"
    )
    shutil.copytree(ROOT, place / "tree", symlinks=True, ignore=skipped)
    return place / "tree"


def main(arguments: list[str] | None = None) -> int:
    """Replay the mutants and return 1 if one that counts as killed survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.survivors")
    parser.add_argument(
        "lists", nargs="*", type=Path, default=sorted(HERE.glob("*.json"))
    )
    parser.add_argument("--only", help="replay the mutant with this id")
    given = parser.parse_args(arguments)
    entries = [e for e in entries_of(given.lists) if given.only in {None, e["id"]}]
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        tree = copy_of_the_tree(Path(place))
        for entry in entries:
            said = "; ".join(faults(entry))
            if not said and entry["verdict"] == "killed":
                said = "survives" if survives(entry, tree) else ""
            bad += bool(said)
            print(f"{entry['id']}: {said or entry['verdict']}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

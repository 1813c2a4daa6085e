"""Run the judges and write what passed, by version: ``python docs/making/judges.py``.

A judge is a test that holds the program to a real trainer. A run replaces the rows of the installed
versions in `docs/data/judges.json`, keeps those of other versions, and writes the table of
`docs/data/runtimes.md` anew. A judge that fails or skips leaves no row.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "docs" / "data" / "judges.json"
PAGE = ROOT / "docs" / "data" / "runtimes.md"
BEGIN, END = "<!-- judged -->\n", "<!-- end -->"
WAITS = "tests/kinds/pipeline/runtimes"


@dataclass(frozen=True)
class Judge:
    """Tests of one marker that hold the program to one package."""

    runtime: str
    package: str
    marker: str
    tests: str
    held: str  # what its passing says


JUDGES = (
    Judge(
        "PyTorch",
        "torch",
        "torch",
        "tests/formats/torch/test_gradients.py",
        "its runtime runs exported schedules on two to four processes: gradients",
    ),
    Judge(
        "PyTorch",
        "torch",
        "torch",
        "tests/formats/torch/test_time.py",
        "times of steps and their order",
    ),
    Judge(
        "PyTorch",
        "torch",
        "runtimes",
        f"{WAITS}/test_torch_waits.py",
        "its runtime in virtual time: every start of every op of 50 random pipelines, with our "
        "transfers and with those that it adds",
    ),
    Judge(
        "Megatron-LM",
        "megatron-core",
        "runtimes",
        f"{WAITS}/test_megatron_waits.py",
        "its schedulers in virtual time: every start of every op of 24 random pipelines, with "
        "every legal size of groups and flag for transfers, combined or not; of those tried no "
        "settings are better than the ones found",
    ),
    Judge(
        "DeepSpeed",
        "deepspeed",
        "runtimes",
        f"{WAITS}/test_waiting.py",
        "`TrainSchedule` in virtual time: every start of every op of 96 shapes",
    ),
)


def table(rows: Iterable[dict[str, str]]) -> str:
    """Return the table of what each version was held to."""
    lines = ["| runtime | version | tested against it |", "| --- | --- | --- |"]
    for row in rows:
        release = row["version"]
        if row["package"] == "megatron-core":
            release = f"megatron-core {release}"
        lines.append(f"| {row['runtime']} | {release} | {row['held']} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, rows: Iterable[dict[str, str]]) -> str:
    """Return a page with the table between its marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{table(rows)}\n{END}{rest.split(END, 1)[1]}"


def passes(judge: Judge) -> bool:
    """Whether tests of a judge ran, and all of them passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-n", "0", "-m", judge.marker, f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, judge.tests]
        subprocess.run(command, cwd=ROOT, check=False)
        suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {
        name: int(suite.get(name, "0"))
        for name in ("tests", "failures", "errors", "skipped")
    }
    return counts.pop("tests") > 0 and not any(counts.values())


def judged(old: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of other versions, and of each judge that passes now."""
    rows = []
    for judge in JUDGES:
        columns = {"runtime": judge.runtime, "package": judge.package}
        kept = [
            row
            for row in old
            if row["package"] == judge.package and row["held"] == judge.held
        ]
        try:
            release = version(judge.package).partition("+")[0]
        except PackageNotFoundError:
            rows += kept
            continue
        rows += [row for row in kept if row["version"] != release]
        if passes(judge):
            rows.append({**columns, "version": release, "held": judge.held})
    return rows


if __name__ == "__main__":
    rows = judged(json.loads(ROWS.read_text(encoding="utf-8")))
    ROWS.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, rows), encoding="utf-8")

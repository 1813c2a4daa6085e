"""Run the closed loop of examples/closed_loop.py on this machine and write docs/closed_loop.

Needs ppsolve[torch], two cores and nothing else running; takes two minutes there. The folder gets
the figures that the example prints, the result, the traces as tables of ops, and a page with the
schedule as predicted and the recorded step of the median span one below the other.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import ppsolve
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.torch.runtime import steps_of
from ppsolve.solver.traces.clocks import recorded_span
from ppsolve.solver.traces.replay import recorded_step

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "closed_loop"


def main(folder: Path) -> None:
    """Run the example in a folder and write its record."""
    example = [sys.executable, str(ROOT / "examples" / "closed_loop.py"), str(folder)]
    figures = subprocess.run(example, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(figures, end="")
    DOCS.mkdir(exist_ok=True)
    (DOCS / "figures.txt").write_text(figures)
    result = ppsolve.Result.model_validate_json((folder / "result.json").read_text())
    (DOCS / "result.json").write_text(result.model_dump_json() + "\n")
    for name in ("first", "run"):
        _ppsolve("convert", "trace", folder / name, "--table", "-o", DOCS / f"{name}.csv")
    _write_page(folder)


def _write_page(folder: Path) -> None:
    run = steps_of(read_trace([folder / "run"]), 1, 2)
    steps = sorted((part for _, _, part in run.parts()), key=recorded_span)
    middle = recorded_step(steps[len(steps) // 2])
    recorded = folder / f"{middle.name}.json"
    recorded.write_text(middle.result.model_dump_json())
    _ppsolve("report", DOCS / "result.json", recorded, "-o", DOCS / "report.html")


def _ppsolve(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "ppsolve", *map(str, arguments)], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))

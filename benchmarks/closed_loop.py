"""Run the closed loop of examples/closed_loop.py on this machine and write docs/closed_loop.

Needs ppsolve[torch], two cores and nothing else running; takes two minutes there. The folder gets
the figures that the example prints, the result, and the traces as tables of ops.

``--page FILE`` runs nothing: it writes a page with the predicted schedule of the record above the
recorded step of the median span.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import ppsolve
from ppsolve.solver.formats.detect import read_trace
from ppsolve.solver.formats.torch.runtime import steps_of
from ppsolve.solver.studies.traces.fits import recorded_span
from ppsolve.solver.studies.traces.replay import recorded_step

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "closed_loop"


def run_example(folder: Path) -> None:
    """Run the example in a folder and write its record."""
    example = [sys.executable, str(ROOT / "examples" / "closed_loop.py"), str(folder)]
    figures = subprocess.run(
        example, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    print(figures, end="")
    DOCS.mkdir(exist_ok=True)
    (DOCS / "figures.txt").write_text(figures)
    result = ppsolve.Result.model_validate_json((folder / "result.json").read_text())
    (DOCS / "result.json").write_text(result.model_dump_json() + "\n")
    for name in ("first", "run"):
        _ppsolve(
            "convert", "trace", folder / name, "--table", "-o", DOCS / f"{name}.csv"
        )


def write_page(page: Path, folder: Path) -> None:
    """Write the page of the record; `folder` is for the recorded step."""
    run = steps_of(read_trace([DOCS / "run.csv"]), 1, 2)
    steps = sorted((part for _, _, part in run.parts()), key=recorded_span)
    middle = recorded_step(steps[len(steps) // 2])
    recorded = folder / f"{middle.name}.json"
    recorded.write_text(middle.result.model_dump_json())
    _ppsolve("report", DOCS / "result.json", recorded, "-o", page)


def _ppsolve(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "ppsolve", *map(str, arguments)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--page", type=Path, help="write the page of the record to this file"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if options.page is None:
            run_example(Path(made))
        else:
            write_page(options.page, Path(made))

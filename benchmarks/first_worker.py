"""Measure how soon CP-SAT searches: ``python benchmarks/first_worker.py``.

Capped pipelines of about 500 ops, two workers: wall and processor seconds from the call of
`solve_exactly` until the model is built, and until presolve is over and the first worker begins.
Bounds and heuristics come before the call. Medians of `--runs` runs of each, in turns.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from ortools.sat.python import cp_model

from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.exact import search
from ppsolve.solver.exact.exact import solve_exactly
from ppsolve.solver.exact.params import BisectionParams
from ppsolve.solver.exact.question import Company, SearchLimits
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate

BEGIN = "Starting search at"
"""What CP-SAT's log says when its workers begin."""

PARTS = {"share": Decimal("0.43")}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "linear": {"devices": 8, "microbatches": 21},
    "linear, two releases": {"devices": 8, "microbatches": 21, **PARTS},
    "V": {
        "devices": 6,
        "microbatches": 14,
        "placement": "vshape",
        "stages_per_device": 2,
        "capacity": PerDevice(Decimal("0.75")),
    },
}


class Stopwatch:
    """Notes when the model is built and when the first worker begins, then stops the search."""

    def __init__(self) -> None:
        self.began = self.now()
        self.built = self.first = (math.nan, math.nan)

    @staticmethod
    def now() -> tuple[float, float]:
        """Return wall and processor seconds; the latter say more on a busy machine."""
        return time.monotonic(), time.process_time()

    def passed(self) -> tuple[float, float]:
        """Return wall and processor seconds since the beginning."""
        wall, processor = self.now()
        return wall - self.began[0], processor - self.began[1]

    def configured(self, *given: Any, original: Any, **named: Any) -> cp_model.CpSolver:
        """Return a solver that tells when its first worker begins."""
        self.built = self.passed()
        solver = original(*given, **named)
        solver.parameters.log_search_progress = True
        solver.parameters.log_to_stdout = False
        solver.log_callback = partial(self.hear, solver)
        return solver

    def hear(self, solver: cp_model.CpSolver, line: str) -> None:
        """Read one line of CP-SAT's log."""
        if BEGIN in line:
            self.first = self.passed()
            solver.stop_search()


def measure(options: Mapping[str, Any]) -> tuple[int, list[float]]:
    """Return the number of ops, and wall and processor seconds until each of both moments."""
    instance = generate(seed=1, **options)
    task = kind_of(instance).task(instance)
    task.find_bounds()
    for heuristic in chosen_heuristics(instance, ["list-serial"]):
        task.run_heuristic(heuristic)
    watch, original = Stopwatch(), search.configured
    search.configured = partial(watch.configured, original=original)
    try:
        limits = SearchLimits(seconds=5.0, workers=2)
        solve_exactly(task.implied, task.board, limits, Company.NEW, BisectionParams())
    finally:
        search.configured = original
    return task.size, [*watch.built, *watch.first]


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = max(1, parser.parse_args().runs)
    found = [
        {label: measure(options) for label, options in SHAPES.items()}
        for _ in range(runs)
    ]
    print(
        "| pipeline | ops | built: wall | processor | first worker: wall | processor |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for label in SHAPES:
        rows = [each[label][1] for each in found]
        medians = [
            f"{statistics.median(column):.2f}" for column in zip(*rows, strict=True)
        ]
        print(f"| {label} | {found[0][label][0]} | {' | '.join(medians)} |")


if __name__ == "__main__":
    main()

"""Measure answers within training steps: ``python benchmarks/step_scheduler.py``.

Consecutive steps of 8 replicas with 4 stages and 16 log-normal micro-batches each (sigma 0.6,
backward twice the forward, memory for 4 micro-batches on every device). With ``--trace FILE`` also
the steps of a recorded run, as JSON, in microseconds, equal blocks of micro-batches per replica:
``{"step": {"forward": [[...] per stage], "backward": [...]}}``.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import ppsolve
from ppsolve.models.kinds.pipeline.instance import PipelineInstance

REPLICAS, STAGES, EACH, SIGMA = 8, 4, 16, 0.6

HEADER = (
    "| steps | assignment | deadline s | mean | gap % | worst % | proved "
    "| median s | longest s | processor s | memory MB |"
)


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, metavar="N")
    parser.add_argument("--deadline", type=float, default=0.2, metavar="S")
    parser.add_argument("--patience", type=float, default=None, metavar="S")
    parser.add_argument("--trace", type=Path, metavar="FILE")
    parser.add_argument(
        "--replicas", type=int, default=32, help="of the trace", metavar="R"
    )
    given = parser.parse_args()
    options = {"deadline": given.deadline}
    if given.patience is not None:
        options["patience"] = given.patience
    print(HEADER + "\n" + "|---" * HEADER.count(" | ") + "|---|")
    for assignment in ("free", "fixed"):
        pipeline = _pipeline(
            STAGES, REPLICAS, EACH, [STAGES] * STAGES, assignment, "ms"
        )
        _measure(pipeline, _log_normal(given.steps), assignment, options)
        if given.trace is not None:
            steps = json.loads(given.trace.read_text(encoding="utf-8"))
            _measure_trace(steps, given.replicas, assignment, options)


def _pipeline(
    stages: int,
    replicas: int,
    each: int,
    capacity: list[int],
    assignment: str,
    unit: str,
) -> PipelineInstance:
    return PipelineInstance(
        num_devices=stages,
        num_microbatches=replicas * each,
        time_unit=unit,
        times={"forward": 1, "backward": 2},
        memory={"capacity": capacity, "activation": 1},
        replicas={"count": replicas, "assignment": assignment},
    )


def _log_normal(count: int) -> Iterable[dict[str, Any]]:
    draw = np.random.default_rng(0)
    for _ in range(count):
        forward = (
            10 * np.exp(draw.normal(0, SIGMA, REPLICAS * EACH)) * np.ones((STAGES, 1))
        )
        yield {"forward": forward, "backward": 2 * forward}


def _measure_trace(
    steps: dict[str, Any], replicas: int, assignment: str, options: dict[str, float]
) -> None:
    """Measure recorded steps with the memory of 1F1B."""
    shape = np.array(next(iter(steps.values()))["forward"]).shape
    capacity = list(range(shape[0], 0, -1))
    pipeline = _pipeline(
        shape[0], replicas, shape[1] // replicas, capacity, assignment, "us"
    )
    _measure(pipeline, steps.values(), assignment, options)


def _measure(
    pipeline: PipelineInstance,
    steps: Iterable[dict[str, Any]],
    assignment: str,
    options: dict[str, float],
) -> None:
    scheduler = ppsolve.StepScheduler(pipeline)
    rows, first = [], 0
    for times in steps:
        began, spent = time.perf_counter(), time.process_time()
        answer = scheduler.schedule(times=times, **options)
        wall, work = time.perf_counter() - began, time.process_time() - spent
        rows.append(
            (answer.makespan, answer.gap, answer.status == "OPTIMAL", wall, work)
        )
        if len(rows) == 10:
            first = _peak_memory()
    value, gap, proved, wall, work = np.array(rows, dtype=np.float64).T
    print(
        f"| {len(rows)} | {assignment} | {options['deadline']} | {value.mean():.6g} "
        f"| {100 * gap.mean():.2f} | {100 * gap.max():.2f} | {int(proved.sum())} "
        f"| {np.median(wall):.3f} | {wall.max():.3f} | {np.median(work):.3f} "
        f"| {_peak_memory():.0f} (after 10 steps {first:.0f}) |"
    )


def _peak_memory() -> float:
    """Return the most memory that the process held so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

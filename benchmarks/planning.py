"""What planning takes: ``python benchmarks/planning.py``.

Fits, the best of 5,050 allocations without and with pipelines, and the plan of 48 layers on 32
devices. Times are wall seconds of this machine, side by side in one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
from shipped import INSTANCES

import ppsolve
from ppsolve.models.studies.goodput.files import load_observations
from ppsolve.models.studies.goodput.params import GradParams, PerfParams
from ppsolve.solver.studies.goodput.fit import fit_goodput
from ppsolve.solver.studies.goodput.model import GoodputModel

PLANS = INSTANCES / "plans"
MODEL = GoodputModel(
    PerfParams(0.021, 0.0019, 0.09, 0.004, 0.012, 0.002, 1.8), GradParams(0.02, 4), 128
)
ALLOCATIONS = np.tril_indices(100)[::-1]  # nodes and replicas, from 0


def seconds(run: Callable[[], object], times: int = 5) -> float:
    """Return the median wall time of a call."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return median(took)


def main() -> None:
    """Print one line per figure."""
    observed = load_observations(PLANS / "observations.csv").columns()
    fit = seconds(lambda: fit_goodput(*observed))
    print(f"fit of {len(observed[0])} observations                {1e3 * fit:.1f} ms")
    nodes, replicas = (numbers + 1 for numbers in ALLOCATIONS)
    best = seconds(lambda: MODEL.optimize(nodes, replicas, max_batch_size=8192))
    print(f"best of 5,050 allocations              {1e3 * best:.1f} ms")
    pipeline = ppsolve.PipelineInstance(
        num_devices=4,
        num_microbatches=1,
        times={"forward": 0.03, "backward": 0.06},
        time_unit="s",
    )
    curve = ppsolve.measure_curve(pipeline, range(16, 25), heuristics=["1f1b"])
    job = ppsolve.PipelineGoodput(MODEL, {4: curve})
    best = seconds(lambda: job.optimize(nodes, replicas, max_batch_size=8192))
    print(f"the same with pipelines                {1e3 * best:.1f} ms")
    plan = ppsolve.plan(ppsolve.load_request(PLANS / "gpt-48x32.plan.json"))
    counts = plan.counts
    print(
        f"plan of 48 layers on 32 devices        {plan.wall_seconds:.1f} s, {plan.status}, "
        f"{counts.enumerated} configurations, {counts.heuristic_runs} scheduled, "
        f"{counts.exact_runs} solved"
    )


if __name__ == "__main__":
    main()

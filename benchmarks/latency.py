"""Time calls of the library by planners: median and 99th percentile, and arrays of pipelines.

    python benchmarks/latency.py [--calls 1000]

All rows are measured in one process, one after the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import ppsolve


def pipeline(devices: int, microbatches: int) -> ppsolve.PipelineInstance:
    """Return an uneven pipeline with the memory of 1F1B."""
    forward = [100 + 10 * (stage % 3) + 30 * (stage == devices - 1) for stage in range(devices)]
    return ppsolve.PipelineInstance(
        num_devices=devices,
        num_microbatches=microbatches,
        times={"forward": forward, "backward_input": 95, "backward_weight": 60},
        p2p={"latency": 5},
        memory={"capacity": devices, "activation": 1},
    )


def row(what: str, call: Callable[[], object], calls: int) -> None:
    """Print the times of a call."""
    call()
    taken = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begin))
    median, late = np.percentile(taken, [50, 99])
    print(f"| {what} | {median:.2f} | {late:.2f} |")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    calls = parser.parse_args().calls
    print("| call | median (ms) | 99 % (ms) |\n| --- | --- | --- |")
    for devices, microbatches in ((4, 8), (8, 64)):
        size, one = f"{devices} x {microbatches}", pipeline(devices, microbatches)
        few = calls if devices == 4 else max(1, calls // 10)
        row(f"`quick`, {size}", lambda one=one: ppsolve.quick(one), few)
        row(f"`simulate(…, '1f1b')`, {size}", lambda one=one: ppsolve.simulate(one, "1f1b"), few)
        row(
            f"`optimize(…, time_limit=0)`, {size}",
            lambda one=one: ppsolve.optimize(one, time_limit=0),
            max(1, few // 10),
        )
    print("\n| arrays of 2,000 pipelines | pipelines a second |\n| --- | --- |")
    for devices, microbatches in ((4, 8), (8, 16), (8, 64)):
        one = pipeline(devices, microbatches)
        forward = np.random.default_rng(0).uniform(50, 150, (2000, devices))
        ppsolve.quick(one, forward=forward[:10])
        begin = time.perf_counter()
        ppsolve.quick(one, forward=forward)
        print(f"| {devices} x {microbatches} | {2000 / (time.perf_counter() - begin):,.0f} |")


if __name__ == "__main__":
    main()

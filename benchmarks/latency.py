"""Time calls of the library by planners: median and 99th percentile, before and after a change.

    python benchmarks/latency.py [--calls 1000] [--before CHECKOUT]

Each checkout answers in a process of its own, a twentieth of the calls at a time and the other one
waiting, so that whatever else the machine does slows both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ppsolve

HERE = Path(__file__).resolve().parents[1]
ROUNDS = 20
TOGETHER = 100


def pipeline(devices: int, microbatches: int) -> ppsolve.PipelineInstance:
    """Return an uneven pipeline with the memory of 1F1B."""
    forward = [
        100 + 10 * (stage % 3) + 30 * (stage == devices - 1) for stage in range(devices)
    ]
    return ppsolve.PipelineInstance(
        num_devices=devices,
        num_microbatches=microbatches,
        times={"forward": forward, "backward_input": 95, "backward_weight": 60},
        p2p={"latency": 5},
        memory={"capacity": devices, "activation": 1},
    )


def calls() -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    rows: dict[str, Callable[[], object]] = {}
    for devices, microbatches in ((4, 8), (8, 64)):
        size, one = f"{devices} x {microbatches}", pipeline(devices, microbatches)
        forward = np.random.default_rng(0).uniform(50, 150, (TOGETHER, devices))
        rows |= {
            f"`quick`, {size}": lambda one=one: ppsolve.quick(one),
            f"`quick` of {TOGETHER}, {size}": lambda one=one, forward=forward: (
                ppsolve.quick(one, forward=forward)
            ),
            f"`simulate(…, '1f1b')`, {size}": lambda one=one: ppsolve.simulate(
                one, "1f1b"
            ),
            f"`optimize(…, time_limit=0)`, {size}": lambda one=one: ppsolve.optimize(
                one, time_limit=0
            ),
        }
    return rows


def answer() -> None:
    """Time calls as asked by lines of name and number; the first of each name is not counted."""
    rows, warm = calls(), set()
    for line in sys.stdin:
        name, number = json.loads(line)
        taken = []
        if hasattr(ppsolve, "quick") or not name.startswith("`quick`"):
            for _ in range(number + (name not in warm)):
                begin = time.perf_counter()
                rows[name]()
                taken.append(1000 * (time.perf_counter() - begin))
        warm.add(name)
        print(json.dumps(taken[-number:]), flush=True)


def ask(process: subprocess.Popen[str], name: str, number: int) -> list[float]:
    """Return the milliseconds of so many calls in the process, none if it has no such call."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([name, number]) + "\n")
    process.stdin.flush()
    taken: list[float] = json.loads(process.stdout.readline())
    return taken


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer()
        return
    trees = (
        {"now": HERE}
        if arguments.before is None
        else {"before": arguments.before, "now": HERE}
    )
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--answer"],
            env=os.environ | {"PYTHONPATH": str(tree.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for tree in trees.values()
    ]
    heads = [f"{figure} {when} (ms)" for when in trees for figure in ("median", "99 %")]
    print("| call | " + " | ".join(heads) + " |\n| --- |" + " ---: |" * len(heads))
    for name in calls():
        taken: list[list[float]] = [[] for _ in processes]
        for _ in range(ROUNDS):
            for process, times in zip(processes, taken, strict=True):
                times += ask(process, name, max(1, arguments.calls // ROUNDS))
        figures = [
            f"{figure:.2f}" if times else "-"
            for times in taken
            for figure in (np.percentile(times, [50, 99]) if times else (0, 0))
        ]
        print(f"| {name} | " + " | ".join(figures) + " |", flush=True)
    for process in processes:
        process.communicate()


if __name__ == "__main__":
    main()

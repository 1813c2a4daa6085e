"""Measure a large pipeline step by step: ``python benchmarks/large.py [DEVICES MICROBATCHES]``.

By default 64 x 1,024 with split backwards, 196,608 ops: lowering, one list schedule, its timing
from the device orders, its metrics and the independent check, each with seconds and peak memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TypeVar

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.api.kinds import kind_of, lower
from ppsolve.solver.api.registry import find_heuristic
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.structure.timing import time_orders
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate

T = TypeVar("T")


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("devices", nargs="?", type=int, default=64)
    parser.add_argument("microbatches", nargs="?", type=int, default=1024)
    parser.add_argument(
        "--heuristic", default="list-backward-first", help="name of a list schedule"
    )
    options = parser.parse_args()
    instance = generate(
        devices=options.devices,
        microbatches=options.microbatches,
        forward=Decimal(100),
        backward_input=Decimal(105),
        backward_weight=Decimal(70),
        p2p=Decimal(4),
        capacity=PerDevice(Decimal(1)),
    )
    print("| step | seconds | peak GB |\n| --- | --- | --- |")
    problem = timed("lower", lambda: lower(instance))
    kind, heuristic = kind_of(instance), find_heuristic(options.heuristic)
    run = partial(kind.run_heuristic, heuristic, instance, problem)
    outcome = timed(options.heuristic, run)
    if outcome.schedule is None:
        sys.exit(f"{options.heuristic}: {outcome.status}: {outcome.reason}")
    schedule = outcome.schedule
    orders = schedule.resource_orders()
    replay: Schedule = timed("timing", lambda: time_orders(problem, orders))
    metrics = timed("metrics", lambda: measure(replay))
    violations = timed("check", lambda: check_schedule(problem, schedule))
    print(
        f"\n{problem.num_ops} ops, makespan {problem.scale.time(schedule.makespan)}, "
        f"bubble ratio {metrics.bubble_ratio:.4f}, {len(violations)} broken rules"
    )


def timed(label: str, work: Callable[[], T]) -> T:
    """Run `work` and print its line of the table."""
    began = time.perf_counter()
    value = work()
    seconds = time.perf_counter() - began
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"| {label} | {seconds:.2f} | {kilobytes / 2**20:.2f} |", flush=True)
    return value


if __name__ == "__main__":
    main()

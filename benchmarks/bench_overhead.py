"""Measure what an item costs beside its solving: ``python benchmarks/bench_overhead.py``.

In one run, on the same items: solving alone, one after the other in this warm process, and the
engine of ``ppsolve bench`` with one and with two processes. `small` items have 96 ops;
`compiled` ones need kernels, which this process has loaded and a forked one loads again; `second`
ones use up their limit of a second, as CP-SAT does at work.

Wall time says what users wait for and is worth something on an idle machine only; processor time,
of this process, the helper and all that it forked, also on a busy one. What is asked: at most 50 ms
for each item over solving alone, and 100 items of a second on two processes in at most 0.6 of the
time that one takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

from ppsolve.models.instances import Instance
from ppsolve.solver.studies.bench.machine import memory_share
from ppsolve.solver.studies.bench.pool import Limits, LocalEngine
from ppsolve.solver.studies.bench.suite import BenchItem, solve_item
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate

UNPROVED: dict[str, Any] = {
    "devices": 8,
    "microbatches": 24,
    "stages_per_device": 2,
    "placement": "vshape",
    "capacity": PerDevice(Decimal("0.75")),
}
"""V placements with little memory, none of which was proved in 30 s (``peers/compare.py``)."""


COLUMNS = (
    "alone",
    "bench",
    "more",
    "bench - solving",
    "alone, processor",
    "more",
    "start",
)

START = 2
"""Items of a run of its own that says how long a start takes; the first one starts the helper."""


@dataclass(frozen=True)
class Times:
    """Wall and processor seconds of a run without its start; seconds that solving took."""

    wall: float
    processor: float
    solving: float


def items(sort: str, count: int) -> list[BenchItem]:
    """Return `count` items of a sort."""
    return list(islice(_items(sort), count))


def _items(sort: str) -> Iterator[BenchItem]:
    seed = 0
    while True:
        yield BenchItem(*_asked(sort, seed))
        seed += 1


def _asked(sort: str, seed: int) -> tuple[Instance, str, None, dict[str, Any]]:
    options: dict[str, Any] = {"time_limit": 0.0, "workers": 1}
    if sort == "small":
        return generate(devices=4, microbatches=8, seed=seed), sort, None, options
    if sort == "compiled":
        chosen = {"heuristics": ["list-sweep", "1f1b"]}
        shape = {
            "devices": 8,
            "microbatches": 32,
            "stages_per_device": 2,
            "placement": "vshape",
        }
        return generate(seed=seed, **shape), sort, None, options | chosen
    drawn = generate(seed=seed, **UNPROVED)
    return drawn, sort, None, options | {"time_limit": 1.0}


def alone(asked: Sequence[BenchItem]) -> Times:
    """Solve items in this process."""
    for item in asked[:START]:
        solve_item(item)
    began, spent = time.perf_counter(), _processor()
    seconds = [solve_item(item)["seconds"] for item in asked[START:]]
    return Times(time.perf_counter() - began, _processor() - spent, sum(seconds))


def engine(asked: Sequence[BenchItem], processes: int) -> tuple[Times, float]:
    """Solve items in watched processes; return also the seconds of a run of `START` items.

    Both are whole runs, as processor time of a process is counted when it has ended.
    """
    first = _engine(asked[:START], processes)
    every = _engine(asked, processes)
    wall = every.wall - first.wall
    return Times(
        wall, every.processor - first.processor, every.solving - first.solving
    ), first.wall


def _engine(asked: Sequence[BenchItem], processes: int) -> Times:
    began, spent = time.perf_counter(), _processor()
    limits = Limits(60.0, memory_share(processes))
    done = list(LocalEngine(processes).map(solve_item, asked, limits))
    wall = time.perf_counter() - began
    assert all(one.failure is None for one in done), next(
        one.error for one in done if one.failure
    )
    return Times(wall, _processor() - spent, sum(one.value["seconds"] for one in done))


def _processor() -> float:
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def rows(sort: str, count: int, rounds: int) -> Iterator[str]:
    """Yield the row of a sort: milliseconds for each item, medians over rounds."""
    asked = items(sort, START + count)
    found = []
    for _ in range(rounds):
        base, (run, start) = alone(asked), engine(asked, 1)
        each = (base.wall, run.wall, run.wall - base.wall, run.wall - run.solving)
        found.append(
            [*each, base.processor, run.processor - base.processor, start * count]
        )
    shown = [
        1000 * statistics.median(column) / count for column in zip(*found, strict=True)
    ]
    yield (
        f"| {sort} | {count} | "
        + " | ".join(f"{figure:,.1f}" for figure in shown)
        + " |"
    )


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--items", type=int, default=20, metavar="N", help="of each sort"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="medians are of so many"
    )
    parser.add_argument(
        "--seconds", type=int, default=100, metavar="N", help="items of a second"
    )
    options = parser.parse_args()
    print("Milliseconds for each item; the start is that of a whole run.\n")
    print("| items | number | " + " | ".join(COLUMNS) + " |")
    print("| --- |" + " ---: |" * (1 + len(COLUMNS)))
    for sort in ("small", "compiled"):
        for row in rows(sort, options.items, options.rounds):
            print(row, flush=True)
    if options.seconds:
        asked = items("second", START + options.seconds)
        one, two = engine(asked, 1)[0], engine(asked, 2)[0]
        print(
            f"\n{options.seconds} items of a second: {one.wall:.1f} s with one process,",
            end=" ",
        )
        print(f"{two.wall:.1f} s with two, ratio {two.wall / one.wall:.2f}")


if __name__ == "__main__":
    main()

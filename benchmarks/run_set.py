"""Solve a directory of instances, or random ones by seed, and write one markdown table.

Examples::

    python benchmarks/run_set.py instances --only 'uniform/*' --time-limit 60
    python benchmarks/run_set.py --seeds 0-39 --time-limit 20 -o table.md
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from shipped import instance_files

import ppsolve
from ppsolve.models.core.result import Result, Status
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.api.registry import all_heuristics
from ppsolve.solver.studies.generate.instances import generate

COLUMNS = ("instance", "ops", "value", "bound", "by", "gap %", "seconds", "found by")


def main() -> None:
    """Solve, then print or write the table."""
    options = parse_options()
    runs: list[tuple[str, int, Result]] = []
    for name, instance in chosen(options):
        result = ppsolve.optimize(
            instance,
            time_limit=options.time_limit,
            workers=options.workers,
            seed=options.seed,
        )
        runs.append((name, lower(instance).num_ops, result))
        print(f"{name}: {result.status} {result.wall_seconds:.2f} s", file=sys.stderr)
    text = table(runs) + "\n" + summary([result for _, _, result in runs]) + "\n"
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, encoding="utf-8")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", nargs="?", type=Path, help="directory of instances"
    )
    parser.add_argument("--seeds", help="random instances instead, e.g. 0-39 or 7")
    parser.add_argument("--only", default="*", help="pattern of instance files")
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds per instance"
    )
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seed", type=int, default=0, help="seed of the search")
    parser.add_argument("-o", "--output", type=Path, help="file for the table")
    options = parser.parse_args()
    if (options.directory is None) == (options.seeds is None):
        parser.error("expected either a directory or --seeds")
    return options


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, Instance]]:
    """Yield the instances that were asked for, with the names that the table shows."""
    if options.seeds is not None:
        for seed in seeds_of(options.seeds):
            instance = generate(seed=seed)
            yield instance.name, instance
        return
    for name in instance_files(options.directory):
        if fnmatch(name, options.only):
            yield name.removesuffix(".json"), load_instance(options.directory / name)


def seeds_of(text: str) -> range:
    """Return the seeds of ``7`` or ``0-39``."""
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def row_of(name: str, num_ops: int, result: Result, heuristics: list[str]) -> list[str]:
    """Return one line of the table."""
    gaps = {entry.name: entry.gap for entry in result.heuristics}
    return [
        name,
        f"{num_ops}",
        f"{result.value}",
        f"{result.bound}",
        f"{result.bound_by}",
        percent(result.gap),
        f"{result.wall_seconds:.2f}",
        f"{result.best_by}",
        *(percent(gaps.get(heuristic)) for heuristic in heuristics),
    ]


def percent(share: float | None) -> str:
    """Return a share in percent."""
    return "-" if share is None else f"{100 * share:.2f}"


def table(runs: list[tuple[str, int, Result]]) -> str:
    """Return a markdown table with a column for every heuristic that is feasible somewhere."""
    feasible = {
        entry.name
        for _, _, result in runs
        for entry in result.heuristics
        if entry.gap is not None
    }
    heuristics = [name for name in all_heuristics() if name in feasible]
    lines = [
        row_of(name, num_ops, result, heuristics) for name, num_ops, result in runs
    ]
    head = [*COLUMNS, *(f"{name} gap %" for name in heuristics)]
    return "".join(
        f"| {' | '.join(c)} |\n" for c in [head, ["---"] * len(head), *lines]
    )


def summary(results: list[Result]) -> str:
    """Return how many were proven, how many a heuristic closed, and how long it took."""
    proven = [result for result in results if result.status is Status.OPTIMAL]
    closed = [
        result
        for result in proven
        if any(entry.gap == 0 for entry in result.heuristics)
    ]
    seconds = [result.wall_seconds for result in results] or [0.0]
    return (
        f"{len(proven)} of {len(results)} proven optimal; on {len(closed)} of them a heuristic is "
        f"optimal. Seconds: median {statistics.median(seconds):.2f}, largest {max(seconds):.2f}."
    )


if __name__ == "__main__":
    main()

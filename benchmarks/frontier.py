"""How far from proved the hardest pipelines are: families of instances, one table.

Each row says value, bound, gap, who found the best schedule and who proved the bound; below are
proofs, mean and worst gap of each family. Example::

    python benchmarks/frontier.py --only uneven-16x64 --seeds 0-4 --time-limit 10
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import NamedTuple

from best_known_files import load_best_known
from published import curve as curve_points
from published import rows as published_rows
from published import v_rows as published_v_rows
from run_set import seeds_of
from shipped import INSTANCES

import ppsolve
from ppsolve.models.core.result import Result, Status
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import load_instance
from ppsolve.solver.studies.generate.flags import PerDevice
from ppsolve.solver.studies.generate.instances import generate

WIDE_CAPACITIES = ("1", "1.25")
NARROW_CAPACITIES = ("0.5", "0.625", "0.75", "1", "1.25")
"""Capacities in activations per device, for many micro-batches and for few."""

SMALL_SHAPES = ((8, 8), (8, 12), (16, 16), (16, 24))
"""Devices and micro-batches: about as many of either."""

VIRTUAL_SHAPES = ((4, 16), (6, 16), (8, 16), (8, 24), (12, 24))
TIGHT_CAPACITIES = ("0.5", "0.625", "0.75")
"""Shapes and capacities where two stages of a device wait for memory."""

COLUMNS = (
    "family",
    "instance",
    "value",
    "bound",
    "gap %",
    "found by",
    "proved by",
    "s",
    "CPU s",
)


class Family(NamedTuple):
    """A set of instances by seed, and the limit that its figures are given for."""

    seconds: float
    seeds: range
    instances: Callable[[range], Iterable[Instance]]


class Row(NamedTuple):
    """One solved instance."""

    family: str
    result: Result
    cpu_seconds: float


def main() -> None:
    """Solve the chosen families; print a row as each instance ends, and the summary."""
    options = parse_options()
    print(line(COLUMNS))
    print(line(["---"] * len(COLUMNS)))
    solved: list[Row] = []
    for name in options.only:
        solved += solve_family(name, options)
    print(f"\n{summary(solved)}")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument(
        "--seeds", type=seeds_of, help="e.g. 0-4, in place of the family's own"
    )
    parser.add_argument(
        "--time-limit", type=float, help="seconds, in place of the family's own"
    )
    parser.add_argument("--name", default="", help="part of the names of instances")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def solve_family(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """Solve the instances of one family, and print a line for each.

    Parameters
    ----------
    name : str
        The family.
    options : Namespace
        The command line.

    Yields
    ------
    Row
        One for each instance.
    """
    family = FAMILIES[name]
    for instance in family.instances(options.seeds or family.seeds):
        if options.name not in instance.name:
            continue
        began = time.process_time()
        result = ppsolve.optimize(
            instance,
            time_limit=options.time_limit or family.seconds,
            workers=options.workers,
        )
        row = Row(name, result, time.process_time() - began)
        print(line(cells(row)), flush=True)
        yield row


def cells(row: Row) -> list[str]:
    """Return the cells of one row."""
    result = row.result
    return [
        row.family,
        result.instance,
        f"{result.value}",
        f"{result.bound}",
        f"{100 * gap_of(result):.3f}",
        f"{result.best_by}",
        f"{result.bound_by}",
        f"{result.wall_seconds:.1f}",
        f"{row.cpu_seconds:.1f}",
    ]


def gap_of(result: Result) -> float:
    """Return the gap as a share of the value, 1 where there is no schedule."""
    return 1.0 if result.gap is None else result.gap


def summary(solved: list[Row]) -> str:
    """Return a table of proofs and gaps by family."""
    lines = [
        line(["family", "instances", "proved", "mean gap %", "worst gap %", "found by"])
    ]
    lines.append(line(["---"] * 6))
    for name in dict.fromkeys(row.family for row in solved):
        results = [row.result for row in solved if row.family == name]
        gaps = [100 * gap_of(result) for result in results]
        proved = sum(result.status is Status.OPTIMAL for result in results)
        found = statistics.multimode(f"{result.best_by}" for result in results)
        lines.append(
            line(
                [
                    name,
                    f"{len(results)}",
                    f"{proved}",
                    f"{statistics.mean(gaps):.3f}",
                    f"{max(gaps):.3f}",
                    f"mostly {found[0]}",
                ]
            )
        )
    return "\n".join(lines)


def line(texts: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(texts)} |"


def curve(seeds: range) -> Iterator[Instance]:
    """Yield the points of the published memory curve, for both objectives."""
    for point in curve_points():
        yield from both_objectives(point.instance)


def published(seeds: range) -> Iterator[Instance]:
    """Yield the published rows, which come for both objectives."""
    for point in published_rows():
        yield point.instance


def v_rows(seeds: range) -> Iterator[Instance]:
    """Yield V placements of published rows that have no published V schedule."""
    yield from published_v_rows()


def both_objectives(instance: Instance) -> Iterator[Instance]:
    """Yield an instance with device spans and with the makespan as its objective."""
    yield instance
    changes = {"objective": "makespan", "name": f"{instance.name}-makespan"}
    yield instance.model_copy(update=changes)


def uneven(
    shape: tuple[int, int], seeds: range, capacities: Iterable[str]
) -> Iterator[Instance]:
    """Yield pipelines with random times of every stage.

    Parameters
    ----------
    shape : tuple of int
        Devices and micro-batches.
    seeds : range
        A pipeline for each.
    capacities : iterable of str
        Activations per device; each pipeline comes with every one.

    Yields
    ------
    Instance
        Named by shape, seed and capacity.
    """
    devices, microbatches = shape
    for seed, capacity in product(seeds, capacities):
        yield generate(
            seed=seed,
            devices=devices,
            microbatches=microbatches,
            capacity=PerDevice(Decimal(capacity)),
            name=f"{devices}x{microbatches}-{capacity}p-seed{seed}",
        )


def few_microbatches(seeds: range) -> Iterator[Instance]:
    """Yield uneven pipelines with about as many micro-batches as devices."""
    for shape in SMALL_SHAPES:
        yield from uneven(shape, seeds, NARROW_CAPACITIES)


def uneven_virtual(seeds: range) -> Iterator[Instance]:
    """Yield uneven pipelines with two stages per device and tight memory."""
    for seed in seeds:
        devices, microbatches = VIRTUAL_SHAPES[seed % len(VIRTUAL_SHAPES)]
        placement = ("interleaved", "vshape")[seed % 2]
        capacity = TIGHT_CAPACITIES[seed % len(TIGHT_CAPACITIES)]
        yield generate(
            seed=seed,
            devices=devices,
            microbatches=microbatches,
            placement=placement,
            capacity=PerDevice(Decimal(capacity)),
            name=f"{devices}x{microbatches}-{placement}-{capacity}p-seed{seed}",
        )


def shipped(seeds: range, directory: Path = INSTANCES) -> Iterator[Instance]:
    """Yield the shipped instances that the best-known file leaves open."""
    for name, entry in load_best_known(directory).instances.items():
        if not entry.is_closed:
            yield load_instance(directory / name)


FAMILIES = {
    "curve": Family(60, range(1), curve),
    "published": Family(60, range(1), published),
    "v-rows": Family(180, range(1), v_rows),
    "uneven-16x64": Family(
        60, range(15), lambda s: uneven((16, 64), s, WIDE_CAPACITIES)
    ),
    "uneven-32x128": Family(
        180, range(5), lambda s: uneven((32, 128), s, WIDE_CAPACITIES)
    ),
    "uneven-64x1024": Family(60, range(1), lambda s: uneven((64, 1024), s, ("1",))),
    "uneven-virtual": Family(40, range(20), uneven_virtual),
    "m-near-p": Family(60, range(2), few_microbatches),
    "shipped": Family(60, range(1), shipped),
}


if __name__ == "__main__":
    main()

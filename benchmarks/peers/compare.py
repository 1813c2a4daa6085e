"""Compare with PyJobShop in one run: ``python benchmarks/peers/compare.py results.jsonl``.

Needs the extra ``peers``. 30 pipelines, 4 x 8 to 16 x 32, in five families; both solvers get the
same limit and two workers, one after the other. Every answer is appended to the file, and what it
holds already is not run again, so that a part can be run at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from ppsolve import optimize
from ppsolve.models.core.result import Status
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.generate.flags import PerDevice, Range
from ppsolve.solver.generate.instances import generate
from ppsolve.solver.optimize.kinds import lower

SIZES = ((4, 8), (6, 12), (8, 16), (8, 24), (12, 24), (16, 32))
WORKERS = 2
OURS, THEIRS = "ppsolve", "pyjobshop"

ALIKE: Mapping[str, Any] = {
    "forward": Range(90, 110),
    "backward_input": Range(95, 115),
    "backward_weight": Range(60, 80),
}
TWO_CHUNKS: Mapping[str, Any] = {**ALIKE, "stages_per_device": 2}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "linear-1p": {**ALIKE, "capacity": PerDevice(Decimal(1))},
    "linear-1.5p": {**ALIKE, "capacity": PerDevice(Decimal("1.5"))},
    "vshape": {**TWO_CHUNKS, "placement": "vshape", "capacity": PerDevice(Decimal("0.75"))},
    "interleaved": {**TWO_CHUNKS, "placement": "interleaved", "capacity": PerDevice(Decimal(1))},
    "uneven": {"capacity": PerDevice(Decimal("0.75"))},
}
"""Options of the random family by name. A capacity counts forwards of one chunk per chunk of the
pipeline; uneven stages take 50 to 150."""


def instances(only: str | None = None) -> Iterator[tuple[str, PipelineInstance]]:
    """Yield the instances of every family with its name, the smaller ones first."""
    for seed, (devices, microbatches) in enumerate(SIZES):
        for family, options in FAMILIES.items():
            if only in {None, family}:
                shape = {"devices": devices, "microbatches": microbatches}
                yield family, generate(seed=seed, **{**options, **shape})


def our_answer(instance: PipelineInstance, limit: float) -> dict[str, Any]:
    result = optimize(instance, time_limit=limit, workers=WORKERS)
    return {
        "proved": result.status is Status.OPTIMAL,
        "seconds": result.wall_seconds,
        "value": None if result.value is None else float(result.value),
        "valid": result.value is not None,
    }


def their_answer(instance: PipelineInstance, limit: float) -> dict[str, Any]:
    from pyjobshop_model import solve_with_pyjobshop

    problem = lower(instance)
    answer = solve_with_pyjobshop(problem, seconds=limit, workers=WORKERS)
    value = None if answer.value is None else float(problem.scale.time(answer.value))
    return {
        "proved": answer.proved,
        "seconds": round(answer.seconds, 3),
        "value": value,
        "valid": answer.valid,
    }


SOLVERS: Mapping[str, Callable[[PipelineInstance, float], dict[str, Any]]] = {
    OURS: our_answer,
    THEIRS: their_answer,
}


def run(path: Path, limit: float, only: str | None) -> None:
    """Run what the file does not hold yet."""
    done = {(row["name"], row["family"], row["solver"]) for row in rows(path, limit)}
    for family, instance in instances(only):
        for solver, answer in SOLVERS.items():
            if (instance.name, family, solver) in done:
                continue
            key = {"family": family, "name": instance.name, "solver": solver, "limit": limit}
            row = {**key, **answer(instance, limit)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


def rows(path: Path, limit: float) -> list[dict[str, Any]]:
    """Return the answers that a file holds of runs with a limit."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in found if row["limit"] == limit]


def table(found: list[dict[str, Any]], limit: float) -> Iterator[str]:
    """Yield a markdown table. An unproved instance counts with the limit in the medians."""
    yield "| family | instances | proved | PyJobShop | s to proof | PyJobShop | ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for family in FAMILIES:
        proved, seconds = {}, {}
        for solver in SOLVERS:
            own = [r for r in found if (r["family"], r["solver"]) == (family, solver)]
            proved[solver] = sum(row["proved"] for row in own)
            seconds[solver] = [row["seconds"] if row["proved"] else limit for row in own]
        if not seconds[OURS] or not seconds[THEIRS]:
            continue
        ours, theirs = (statistics.median(seconds[solver]) for solver in (OURS, THEIRS))
        yield (
            f"| {family} | {len(seconds[OURS])} | {proved[OURS]} | {proved[THEIRS]} "
            f"| {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |"
        )


def main() -> None:
    """Run, then print the table of everything in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--only", choices=sorted(FAMILIES), metavar="FAMILY")
    options = parser.parse_args()
    run(options.file, options.limit, options.only)
    print("\n".join(table(rows(options.file, options.limit), options.limit)))


if __name__ == "__main__":
    main()

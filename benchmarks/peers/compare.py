"""Compare with peers in one run: ``python benchmarks/peers/compare.py results.jsonl``.

PyJobShop needs the extra ``peers``; the plain CP-SAT model needs nothing. 36 pipelines, 4 x 8 to
16 x 32, in six families; all solvers get the same limit and two workers, one after the other. Every
answer is appended to the file, and what it holds already is not run again, so that a part can be
run at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import islice, product
from pathlib import Path
from typing import Any

from ppsolve import optimize
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import lower
from ppsolve.solver.studies.generate.flags import IntegerRange, PerDevice
from ppsolve.solver.studies.generate.instances import generate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import unequal
from peers.plain_cpsat import solve_plainly

SIZES = ((4, 8), (6, 12), (8, 16), (8, 24), (12, 24), (16, 32))
WORKERS = 2
OURS = "ppsolve"
UNEQUAL, UNEQUAL_SEEDS = "unequal", 3
"""Family of log-normal micro-batches, and instances of each of its sizes (`unequal.SIZES`)."""

ALIKE: Mapping[str, Any] = {
    "forward": IntegerRange(90, 110),
    "backward_input": IntegerRange(95, 115),
    "backward_weight": IntegerRange(60, 80),
}
TWO_CHUNKS: Mapping[str, Any] = {**ALIKE, "stages_per_device": 2}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "linear-1p": {**ALIKE, "capacity": PerDevice(Decimal(1))},
    "linear-1.5p": {**ALIKE, "capacity": PerDevice(Decimal("1.5"))},
    "vshape": {
        **TWO_CHUNKS,
        "placement": "vshape",
        "capacity": PerDevice(Decimal("0.75")),
    },
    "interleaved": {
        **TWO_CHUNKS,
        "placement": "interleaved",
        "capacity": PerDevice(Decimal(1)),
    },
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
    if only in {None, UNEQUAL}:
        for (devices, microbatches), seed in product(
            unequal.SIZES, range(UNEQUAL_SEEDS)
        ):
            name = f"unequal-{devices}x{microbatches}-seed{seed}"
            drawn = unequal.drawn(devices, microbatches, seed)
            yield UNEQUAL, drawn.model_copy(update={"name": name})


def our_answer(
    instance: PipelineInstance, limit: float, workers: int = WORKERS
) -> dict[str, Any]:
    result = optimize(instance, time_limit=limit, workers=workers)
    return {
        "name": OURS,
        "status": str(result.status),
        "value": None if result.value is None else float(result.value),
        "bound": None if result.bound is None else float(result.bound),
        "seconds": result.wall_seconds,
    }


def pyjobshop_answer(
    instance: PipelineInstance, limit: float, workers: int = WORKERS
) -> dict[str, Any]:
    from peers.pyjobshop_model import solve_with_pyjobshop

    problem = lower(instance)
    answer = solve_with_pyjobshop(problem, seconds=limit, workers=workers)
    return answer.record("pyjobshop", problem)


def plain_answer(
    instance: PipelineInstance, limit: float, workers: int = WORKERS
) -> dict[str, Any]:
    problem = lower(instance)
    return solve_plainly(problem, seconds=limit, workers=workers).record(
        "plain-cpsat", problem
    )


Solver = Callable[..., dict[str, Any]]
SOLVERS: Mapping[str, Solver] = {
    OURS: our_answer,
    "pyjobshop": pyjobshop_answer,
    "plain-cpsat": plain_answer,
}


def run(path: Path, limit: float, only: str | None, most: int | None = None) -> None:
    """Run what the file does not hold yet, of the first `most` instances."""
    done = {(row["instance"], row["family"], row["name"]) for row in rows(path, limit)}
    for family, instance in islice(instances(only), most):
        for solver, answer in SOLVERS.items():
            if (instance.name, family, solver) in done:
                continue
            key = {"family": family, "instance": instance.name, "limit": limit}
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
    """Yield a markdown table. An unproved instance counts with the limit in the medians.

    The gap is the median of (value - bound) / value, each solver's own bound, where it has a valid
    schedule; the ratio is our median of seconds over the peer's.
    """
    yield "| family | solver | instances | valid | proved | s to proof | ours / its | gap % |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for family in (*FAMILIES, UNEQUAL):
        ours = None
        for solver in SOLVERS:
            own = [r for r in found if (r["family"], r["name"]) == (family, solver)]
            if not own:
                continue
            proved = [row["status"] == "OPTIMAL" for row in own]
            took = statistics.median(
                row["seconds"] if is_proved else limit
                for row, is_proved in zip(own, proved, strict=True)
            )
            ours = took if solver == OURS else ours
            ratio = "-" if ours is None or solver == OURS else f"{ours / took:.2f}"
            gaps = [
                (row["value"] - row["bound"]) / row["value"]
                for row in own
                if row["value"]
            ]
            gap = f"{100 * statistics.median(gaps):.2f}" if gaps else "-"
            yield (
                f"| {family} | {solver} | {len(own)} | {len(gaps)} | {sum(proved)} "
                f"| {took:.2f} | {ratio} | {gap} |"
            )


def main() -> None:
    """Run, then print the table of everything in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument(
        "--only", choices=sorted([*FAMILIES, UNEQUAL]), metavar="FAMILY"
    )
    parser.add_argument(
        "--first", type=int, metavar="N", help="only the first instances"
    )
    options = parser.parse_args()
    run(options.file, options.limit, options.only, options.first)
    print("\n".join(table(rows(options.file, options.limit), options.limit)))


if __name__ == "__main__":
    main()

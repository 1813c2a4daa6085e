"""Put peers beside results: ``python benchmarks/peers/add.py results.jsonl -o beside.jsonl``.

Every instance of a file of ``ppsolve bench`` that peers can solve is given to PyJobShop (extra
``peers``) and to the plain CP-SAT model, with the limit and the workers of its record, each in a
watched process. ``ppsolve bench report beside.jsonl`` then lists them as methods. What the second
file holds is not run again. Only instances with a file can be read again, those of recipes cannot.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppsolve.models.core.problem import Objective
from ppsolve.models.studies.bench.file import (
    BenchFile,
    BenchPeer,
    BenchRecord,
    read_records,
)
from ppsolve.solver.api.kinds import load_instance, lower
from ppsolve.solver.studies.bench.machine import memory_share
from ppsolve.solver.studies.bench.pool import Finished, Limits, LocalEngine, wall_cap

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers import compare

SECONDS = 60.0
"""Limit of peers where a record has none, or 0."""

MAKESPAN_ONLY = ("pyjobshop",)
KINDS = ("pipeline", "graph")

Asked = tuple[str, BenchRecord]


def answer(question: Asked) -> dict[str, Any]:
    """Solve the instance of a record by a peer; return the fields of `BenchPeer`."""
    name, record = question
    instance = load_instance(str(record.path))
    is_other = lower(instance).objective is not Objective.MAKESPAN
    if record.kind not in KINDS or (is_other and name in MAKESPAN_ONLY):
        return {"name": name, "status": "not_applicable"}
    workers = int(record.settings.get("workers") or compare.WORKERS)
    solve = compare.SOLVERS[name]
    return solve(instance, record.time_limit or SECONDS, workers)


def peer_of(name: str, finished: Finished) -> BenchPeer:
    """Return a peer's answer, or how it failed."""
    if finished.failure is None:
        return BenchPeer.parse(finished.value)
    print(f"{name}: {finished.failure}: {finished.error}", file=sys.stderr)
    return BenchPeer(name=name, status=str(finished.failure), seconds=finished.seconds)


def peers_of(record: BenchRecord, names: Sequence[str]) -> tuple[BenchPeer, ...] | None:
    """Return the answers of peers on the instance of a record, None where it has no file."""
    if record.path is None:
        return None
    limits = Limits(
        wall_cap(record.time_limit or SECONDS, is_kept=True), memory_share(1)
    )
    questions = [(name, record) for name in names]
    found = {one.index: one for one in LocalEngine().map(answer, questions, limits)}
    return tuple(peer_of(name, found[index]) for index, name in enumerate(names))


def add(source: Path, target: Path, names: Sequence[str]) -> int:
    """Write the records of a file with peers beside them; return how many have no instance file."""
    given = read_records(source)
    with BenchFile(target) as file:
        done = {record.key for record in file.records}
        for record in given.records:
            if record.key not in done:
                beside = {"peers": peers_of(record, names)}
                file.append(record.model_copy(update=beside))
    return sum(record.path is None for record in given.records)


def main() -> None:
    """Run the peers of every record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    names = [name for name in compare.SOLVERS if name != compare.OURS]
    parser.add_argument("--peers", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    count = add(options.results, options.output, options.peers)
    if count:
        print(f"note: {count} records without a file have no peers", file=sys.stderr)


if __name__ == "__main__":
    # Processes that answer find functions by the names of their modules.
    from peers import add as module

    module.main()

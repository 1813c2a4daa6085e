"""Tiny hand-made traces: two stages, two micro-batches, one step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from ppsolve.models.studies.trace.table import KINDS, Trace, checked
from ppsolve.solver.studies.traces.replay import Recorded

F, B = 10, 20
"""Durations in microseconds."""

PLAN = [
    ("F", 0, 0, 0),
    ("F", 0, 1, 10),
    ("F", 1, 0, 10),
    ("B", 1, 0, 20),
    ("F", 1, 1, 40),
    ("B", 1, 1, 50),
    ("B", 0, 0, 40),
    ("B", 0, 1, 70),
]
"""Kind, stage, micro-batch and start of 1F1B on two devices, as early as possible: ends at 90."""

SPAN = 90


def rows(
    plan: list[tuple[str, int, int, float]] = PLAN, **fields: Any
) -> list[dict[str, Any]]:
    """Return rows of a table of ops, in microseconds."""
    return [
        {
            "step": 0,
            "replica": 0,
            "stage": stage,
            "kind": kind,
            "microbatch": microbatch,
            "start_us": start,
            "end_us": start + (F if kind == "F" else B),
            **fields,
        }
        for kind, stage, microbatch, start in plan
    ]


def table(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def trace(plan: list[tuple[str, int, int, float]] = PLAN, **fields: Any) -> Trace:
    """Return the trace of a plan, in nanoseconds."""
    columns: dict[str, list[Any]] = {
        "step": [0] * len(plan),
        "replica": [0] * len(plan),
        "stage": [row[1] for row in plan],
        "chunk": [0] * len(plan),
        "kind": [KINDS.index(row[0]) for row in plan],
        "microbatch": [row[2] for row in plan],
        "start": [round(row[3] * 1000) for row in plan],
        "end": [round((row[3] + (F if row[0] == "F" else B)) * 1000) for row in plan],
        "device": [row[1] for row in plan],
    }
    columns.update(fields)
    return checked(Trace.of(columns, unit="us", sources=("made",), format="table"))


def annotation(name: str, start: float, length: float, **fields: Any) -> dict[str, Any]:
    event = {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "ts": start,
        "dur": length,
    }
    return {**event, "pid": 1, "tid": 1, **fields}


def rank_events(rank: int, offset: float = 0.0) -> list[dict[str, Any]]:
    """Return the ranges of one rank of the plan, on a clock that is `offset` behind."""
    return [
        annotation(f"PP:{stage}{kind}{mb}", start - offset, F if kind == "F" else B)
        for kind, stage, mb, start in PLAN
        if stage == rank
    ]


def profile(path: Path, rank: int, events: list[dict[str, Any]], **header: Any) -> Path:
    """Write the profiler's file of a rank, gzipped where the name says so."""
    data = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": rank},
        "baseTimeNanoseconds": 0,
        **header,
        "traceEvents": events,
    }
    text = json.dumps({key: value for key, value in data.items() if value is not None})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def megatron(
    folder: Path, plan: list[tuple[str, int, int, float]] = PLAN, **config: Any
) -> dict[int, dict[str, Any]]:
    """Write the files of a run of two ranks; rank 1's clock is 1000 us behind that of rank 0."""
    folder.mkdir(exist_ok=True)
    made = {}
    for rank in (0, 1):
        lists: dict[str, Any] = {"total": 0.1, "memory": 1.0}
        for kind, prefix in (("F", "fwd"), ("B", "bwd")):
            starts = sorted(
                row[3] - 1000 * rank for row in plan if row[:2] == (kind, rank)
            )
            length = F if kind == "F" else B
            lists[f"{prefix}_start"] = [start / 1000 for start in starts]
            lists[f"{prefix}_end"] = [(start + length) / 1000 for start in starts]
        made[rank] = {"7": lists}
        (folder / f"pp_rank_{rank}.json").write_text(json.dumps(made[rank]))
    numbers = {"pp_size": 2, "vp_size": 1, "num_mbs": 2, **config}
    (folder / "config.json").write_text(json.dumps(numbers))
    return made


def order_of(recorded: Recorded) -> list[str]:
    """Return the recorded order of every stage as text, ``F0 F1 B0 F2 B1 B2``."""
    part, texts = recorded.part, []
    for stage in range(recorded.instance.num_stages):
        rows = np.flatnonzero(part.stage == stage)
        rows = rows[np.lexsort((part.end[rows], part.start[rows]))]
        texts.append(
            " ".join(f"{KINDS[part.kind[r]]}{part.microbatch[r]}" for r in rows)
        )
    return texts

"""Cases with unequal micro-batches (`tests/data/unequal`) as pipelines, with what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from tests.paths import DATA

FOLDER = DATA / "unequal"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names of the 28 cases, e.g. ``p4_m8_sigma04_seed48``."""


class Recorded(NamedTuple):
    """A schedule that a published scheduler made.

    `given` is the order of micro-batches that it was handed, `orders` the compute ops of each
    device: kind, stage and micro-batch.
    """

    scheduler: str
    which: str
    makespan: float
    peak_memory: int
    given: list[int]
    orders: list[list[tuple[str, int, int]]]


def read_case(name: str) -> dict[str, Any]:
    """Return the case of that name."""
    case: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return case


def pipeline_of(
    case: dict[str, Any], *, memory: bool | None = None
) -> PipelineInstance:
    """Return a case as a pipeline.

    Parameters
    ----------
    case : dict
        As `read_case` returns it.
    memory : bool, optional
        Whether the pipeline has pools; by default where the case has a limit. Without a limit they
        have room for everything, so that schedules have a peak.

    Returns
    -------
    PipelineInstance
        Transfers of t us are t bytes at a bandwidth of 1 in send queues.
    """
    chunks = case["chunks_per_device"]
    stages = case["num_devices"] * chunks
    fields: dict[str, Any] = {
        "name": case["name"],
        "num_devices": case["num_devices"],
        "stages_per_device": chunks,
        "num_microbatches": case["num_microbatches"],
        "placement": "linear" if chunks == 1 else "interleaved",
        "times": {kind: [case[kind]] * stages for kind in ("forward", "backward")},
    }
    if any(case["transfer"]):
        sizes = [case["transfer"]] * (stages - 1)
        fields["p2p"] = {"mode": "send_queue", "bytes": sizes, "bandwidth": 1}
    limit = case["memory"]["limit"]
    if (limit is not None) if memory is None else memory:
        fields["memory"] = _memory(case, stages, limit)
    return PipelineInstance(**fields)


def _memory(case: dict[str, Any], stages: int, limit: int | None) -> dict[str, Any]:
    memory, chunks = case["memory"], case["chunks_per_device"]
    everything = memory["static_per_device"] + chunks * sum(memory["peak_per_stage"])
    return {
        "capacity": everything if limit is None else limit,
        "activation": [memory["stored_per_stage"]] * stages,
        "forward_peak": [memory["peak_per_stage"]] * stages,
        "static": memory["static_per_device"] / chunks,
    }


def recorded_of(case: dict[str, Any]) -> Iterator[Recorded]:
    """Yield every schedule of a case that did not fail, for both orders of micro-batches."""
    for scheduler, runs in case["schedulers"].items():
        for which, run in runs.items():
            if run["status"] == "ok":
                given = run.get("permutation", list(range(case["num_microbatches"])))
                orders = [
                    _actions(row, device) for device, row in enumerate(run["orders"])
                ]
                figures = run["makespan"], run["peak_memory"]
                yield Recorded(scheduler, which, *figures, given, orders)


def _actions(row: str, device: int) -> list[tuple[str, int, int]]:
    found = []
    for word in row.split():
        stage, _, microbatch = word[1:].rpartition(".")
        found.append((word[0], int(stage or device), int(microbatch)))
    return found


def ops_of(
    problem: Problem, orders: list[list[tuple[str, int, int]]]
) -> list[IntArray]:
    """Return the op numbers of the compute ops of each device, in order.

    Parameters
    ----------
    problem : Problem
        A case, lowered.
    orders : list
        Kind, stage and micro-batch of the ops of each device.

    Returns
    -------
    list of int64[...]
        One chain per device.
    """
    grid = {kind: problem.grid(kind) for kind in ("F", "B")}
    return [
        np.array([grid[kind][stage, i] for kind, stage, i in row]) for row in orders
    ]


def sends_of(
    problem: Problem, orders: list[list[tuple[str, int, int]]]
) -> list[IntArray]:
    """Return the transfers of each device in the order of the compute ops that they follow.

    Parameters
    ----------
    problem : Problem
        A case with transfers, lowered.
    orders : list
        As for `ops_of`.

    Returns
    -------
    list of int64[...]
        One chain per device.
    """
    labels = zip(
        *(
            column.tolist()
            for column in (problem.kind, problem.stage, problem.microbatch)
        ),
        strict=True,
    )
    number = {
        (problem.kinds[kind], stage, i): op
        for op, (kind, stage, i) in enumerate(labels)
    }
    sends = [[("T" + kind, stage, i) for kind, stage, i in row] for row in orders]
    return [
        np.array([number[send] for send in row if send in number], np.int64)
        for row in sends
    ]

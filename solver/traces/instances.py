"""Pipeline instances of recorded runs: the durations of one replica-step, or medians of all."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.trace.table import NANOSECONDS, Trace
from ppsolve.solver.traces.clocks import B, F, I, W, op_table

FIELDS = {F: "forward", B: "backward", I: "backward_input", W: "backward_weight"}
"""Entries of the times of an instance by kind of op."""


def part_name(part: Trace) -> str:
    """Return the name of a replica-step, of its files and instances: ``step16-replica0``."""
    return f"step{part.step[0]}-replica{part.replica[0]}"


def pipeline_of(part: Trace, unit: str | None = None) -> PipelineInstance:
    """Return the instance of a replica-step, with the recorded duration of every op.

    Transfers are free: sends and receives that were recorded contain waiting.

    Parameters
    ----------
    part : Trace
        One replica-step, checked.
    unit : str, optional
        Time unit of the instance; by default that of the trace.

    Returns
    -------
    PipelineInstance
        Times are lists per stage and micro-batch; lengths are given where they were recorded.
    """
    unit = unit or part.unit
    compute = part.where(part.is_compute)
    table = op_table(compute)
    durations = _decimals(compute.duration, unit)
    times = {
        name: [[durations[row] for row in rows] for rows in table[kind].tolist()]
        for kind, name in FIELDS.items()
        if table[kind, 0, 0] != FREE
    }
    data = _instance(compute, part_name(part), unit, table.shape[2], times)
    lengths = _lengths(compute, table.shape[2])
    if lengths is not None:
        data["lengths"] = lengths
    return PipelineInstance.parse(data, part_name(part))


def median_instance(trace: Trace, name: str = "trace", *, latency: int = 0) -> PipelineInstance:
    """Return one instance of a whole trace: the median duration of each stage and kind.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    name : str
        Name of the instance.
    latency : int
        Nanoseconds that a transfer between devices takes.

    Returns
    -------
    PipelineInstance
        As many micro-batches as most replica-steps have; `description` says how far durations
        spread: the central half of them, relative to the median.
    """
    compute = trace.where(trace.is_compute)
    counts = [int(part.microbatch.max()) + 1 for _, _, part in compute.parts()]
    stages = int(compute.stage.max()) + 1
    times: dict[str, list[Decimal]] = {}
    spread: dict[str, list[float]] = {}
    for kind, field in FIELDS.items():
        if not np.any(compute.kind == kind):
            continue
        groups = [
            compute.duration[(compute.kind == kind) & (compute.stage == stage)]
            for stage in range(stages)
        ]
        quarters = [np.percentile(group, (25, 50, 75)) for group in groups]
        times[field] = _decimals([round(middle) for _, middle, _ in quarters], trace.unit)
        spread[field] = [
            float((high - low) / middle) if middle else 0.0 for low, middle, high in quarters
        ]
    common = max(set(counts), key=counts.count)
    data = _instance(compute, name, trace.unit, common, times)
    data["description"] = _description(trace, len(counts), spread)
    if latency:
        data["p2p"] = {"latency": _decimals([latency], trace.unit)[0]}
    return PipelineInstance.parse(data, name)


def _instance(
    part: Trace, name: str, unit: str, microbatches: int, times: dict[str, Any]
) -> dict[str, Any]:
    device = np.zeros(int(part.stage.max()) + 1, dtype=np.int64)
    device[part.stage] = part.device
    stages = device.tolist()
    data: dict[str, Any] = {
        "name": name,
        "time_unit": unit,
        "num_devices": max(stages) + 1,
        "num_microbatches": microbatches,
        "times": times,
    }
    if stages != list(range(len(stages))):
        data["placement"] = {"stage_to_device": stages}
    return data


def _decimals(nanoseconds: Sequence[int] | Any, unit: str) -> list[Decimal]:
    one = Decimal(NANOSECONDS[unit])
    return [Decimal(int(time)) / one for time in nanoseconds]


def _lengths(compute: Trace, microbatches: int) -> list[int] | None:
    length = np.full(microbatches, FREE, dtype=np.int64)
    length[compute.microbatch] = np.where(
        compute.length > 0, compute.length, length[compute.microbatch]
    )
    return None if np.any(length == FREE) else length.tolist()


def _description(trace: Trace, parts: int, spread: dict[str, list[float]]) -> str:
    text = "; ".join(
        f"{field} {', '.join(f'{100 * share:.1f}' for share in shares)}"
        for field, shares in spread.items()
    )
    return (
        f"medians of {parts} recorded steps and replicas ({trace.format}); spread of the central "
        f"half of the durations in % of the median, by stage: {text}"
    )

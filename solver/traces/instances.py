"""Pipeline instances of recorded runs: the durations of one replica-step, or medians of all."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.trace.table import KINDS, NANOSECONDS, Trace
from ppsolve.solver.traces.clocks import B, F, I, W, op_table
from ppsolve.solver.traces.fits import Fits

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


def median_instance(trace: Trace, fits: Fits, name: str = "trace") -> PipelineInstance:
    """Return one instance of a whole trace: the median duration of each stage and kind.

    Parameters
    ----------
    trace : Trace
        A checked trace.
    fits : Fits
        Its fits. The time for which a device is held after an op is part of the op's time, and
        what a transfer takes beyond it is the latency.
    name : str
        Name of the instance.

    Returns
    -------
    PipelineInstance
        As many micro-batches as most replica-steps have; `description` says how far durations
        spread and how much of the times is held.
    """
    compute = trace.where(trace.is_compute)
    counts = [int(part.microbatch.max()) + 1 for _, _, part in compute.parts()]
    times: dict[str, list[Decimal]] = {}
    for one in fits.stage_times:
        field = FIELDS[KINDS.index(one.kind)]
        times.setdefault(field, []).extend(_decimals([round(one.median + one.held)], trace.unit))
    common = max(sorted(set(counts)), key=counts.count)
    data = _instance(compute, name, trace.unit, common, times)
    data["description"] = _description(trace, fits)
    if fits.transfer is not None and round(fits.transfer.latency):
        data["p2p"] = {"latency": _decimals([round(fits.transfer.latency)], trace.unit)[0]}
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


def _description(trace: Trace, fits: Fits) -> str:
    """Return in words where the medians come from, their spread, and the time held."""
    one = NANOSECONDS[trace.unit]
    parts = []
    for kind in dict.fromkeys(time.kind for time in fits.stage_times):
        times = [time for time in fits.stage_times if time.kind == kind]
        spread = ", ".join(f"{100 * time.variation:.1f}" for time in times)
        held = ", ".join(f"{time.held / one:.4g}" for time in times)
        parts.append(f"{kind}: spread {spread} %, held {held} {trace.unit}")
    count = len({*zip(trace.step.tolist(), trace.replica.tolist(), strict=True)})
    left_out = f", {len(fits.unusual)} unusual left out" if fits.unusual else ""
    return (
        f"medians of {count} recorded steps and replicas{left_out} ({trace.format}), with the time "
        f"that devices are held after ops; by stage: {'; '.join(parts)}"
    )

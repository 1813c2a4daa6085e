"""Recorded orders run again: durations as recorded, everything as early as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.result import Result, ScheduleDocument, Status, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.studies.trace.table import KINDS, NANOSECONDS, Trace, tolerance_of
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.run.entries import figures, versions
from ppsolve.solver.structure.timing import time_orders
from ppsolve.solver.studies.traces.fits import (
    B,
    F,
    Fits,
    I,
    W,
    aligned,
    op_table,
    recorded_span,
)


@dataclass(frozen=True, eq=False)
class Recorded:
    """One replica-step as an instance, its problem, and where each of its ops is recorded."""

    part: Trace  # the compute ops of the replica-step
    instance: PipelineInstance  # its instance, in `unit`
    problem: Problem  # the instance lowered, n ops
    row: IntArray  # int64[n]: row of `part` that each op is

    @classmethod
    def of(cls, trace: Trace, unit: str | None = None) -> Recorded:
        """Make the instance and the problem of the compute ops of a replica-step, not yet replayed.

        `unit`: time unit of the instance; by default that of the trace.
        """
        compute = trace.where(trace.is_compute)
        instance = pipeline_of(compute, unit)
        problem = lower_pipeline(instance)
        row = np.full(problem.num_ops, FREE, dtype=np.int64)
        for kind, name in enumerate(KINDS):
            if name in problem.kinds:
                mine = np.flatnonzero(compute.kind == kind)
                row[
                    problem.grid(name)[compute.stage[mine], compute.microbatch[mine]]
                ] = mine
        return cls(compute, instance, problem, row)

    @property
    def tick(self) -> float:
        """Length of a tick of the problem in nanoseconds."""
        return float(self.problem.scale.tick * NANOSECONDS[self.instance.time_unit])

    @cached_property
    def orders(self) -> list[IntArray]:
        """Recorded order of the ops of each device; ties by stage and micro-batch."""
        trace, row = self.part, self.row
        by_time = np.lexsort(
            (trace.microbatch[row], trace.stage[row], trace.end[row], trace.start[row])
        )
        device = trace.device[row][by_time]
        return [by_time[device == index] for index in range(self.instance.num_devices)]

    @cached_property
    def span(self) -> int:
        """Recorded nanoseconds, see `recorded_span`."""
        return recorded_span(self.part)

    @cached_property
    def replay(self) -> Schedule:
        """The recorded order with the recorded durations, everything as early as possible."""
        return self.timed(self.problem)

    def timed(self, problem: Problem) -> Schedule:
        """Return the recorded order as early as possible, with the times of another problem.

        Raises `InputError` where orders wait for each other, which clocks that are off can make.
        """
        try:
            return time_orders(problem, self.orders)
        except DeadlockError as error:
            raise InputError(
                f"the recorded order is impossible ({error}); are clocks off, or two runs mixed?",
                source=self.part.sources[int(self.part.origin[0])],
                field=f"step {self.part.step[0]}, replica {self.part.replica[0]}",
            ) from None

    @property
    def replayed(self) -> int:
        """Nanoseconds that `replay` takes."""
        return round(self.replay.makespan * self.tick)


def least_span(trace: Trace) -> int:
    """Return nanoseconds that no order of the ops of a replica-step can beat, transfers free."""
    compute = trace.where(trace.is_compute)
    table = op_table(compute)
    length = np.where(table == FREE, 0, compute.duration[table])
    owners = np.zeros(table.shape[1], dtype=np.int64)
    owners[compute.stage] = compute.device
    return least_time(length, owners)


def least_time(length: IntArray, owners: IntArray) -> int:
    """Return the largest, over devices, of least head, work, and least tail.

    That is the least time before its first op, all its work, and the least time after its last op:
    forwards of earlier stages, then backwards of earlier stages.

    `length`: int64[kinds, stages, micro-batches], durations; 0 where there is no such op.
    `owners`: int64[stages], device of each stage.
    """
    back = length[B] + length[I]
    head = (np.cumsum(length[F], axis=0) - length[F]).min(axis=1)
    # A W may be the last op of its device, and nothing waits for it.
    after = np.cumsum(back, axis=0) - back
    tail = np.where(np.any(length[W] > 0), 0, after.min(axis=1))
    work = length.sum(axis=(0, 2))
    mine = [owners == device for device in range(int(owners.max()) + 1)]
    return max(
        int(head[here].min() + work[here].sum() + tail[here].min()) for here in mine
    )


FIELDS = {F: "forward", B: "backward", I: "backward_input", W: "backward_weight"}
"""Entries of the times of an instance by kind of op."""


def part_name(trace: Trace) -> str:
    """Return the name of a replica-step, of its files and instances: ``step16-replica0``."""
    return f"step{trace.step[0]}-replica{trace.replica[0]}"


def pipeline_of(trace: Trace, unit: str | None = None) -> PipelineInstance:
    """Return the instance of a replica-step, with the recorded duration of every op.

    Transfers are free: sends and receives that were recorded contain waiting. Lengths are given
    where they were recorded.

    `unit`: time unit of the instance; by default that of the trace.
    """
    unit = unit or trace.unit
    compute = trace.where(trace.is_compute)
    table = op_table(compute)
    durations = trace.times(compute.duration, unit)
    times = {
        name: [[durations[row] for row in rows] for rows in table[kind].tolist()]
        for kind, name in FIELDS.items()
        if table[kind, 0, 0] != FREE
    }
    data = _instance(compute, part_name(trace), unit, table.shape[2], times)
    lengths = _lengths(compute, table.shape[2])
    if lengths is not None:
        data["lengths"] = lengths
    return PipelineInstance.parse(data, part_name(trace))


def median_instance(
    trace: Trace,
    fits: Fits,
    name: str = "trace",
    change: Callable[[dict[str, IntArray]], dict[str, IntArray]] = dict,
    **fields: Any,
) -> PipelineInstance:
    """Return one instance of a whole trace: the median duration of each stage and kind.

    The time for which a device is held after an op is part of the op's time, and what a transfer
    takes beyond it is the latency.

    `change`: makes the times of the instance of those that were fitted: nanoseconds by field, each
        int64[stages, 1].
    `fields`: fields of the instance that replace those of the trace.
    """
    compute = trace.where(trace.is_compute)
    counts = [
        int(replica_step.microbatch.max()) + 1 for _, _, replica_step in compute.parts()
    ]
    fitted: dict[str, list[int]] = {}
    for time in fits.stage_times:
        fitted.setdefault(FIELDS[KINDS.index(time.kind)], []).append(
            round(time.median + time.held)
        )
    tables = change(
        {field: np.array(medians)[:, None] for field, medians in fitted.items()}
    )
    times = {field: trace.times(table[:, 0]) for field, table in tables.items()}
    common = max(sorted(set(counts)), key=counts.count)
    data = _instance(compute, name, trace.unit, common, times)
    data["description"] = _description(trace, fits)
    if fits.latency is not None and round(fits.latency):
        data["p2p"] = {"latency": trace.times([round(fits.latency)])[0]}
    return PipelineInstance.parse(data | fields, name)


def _instance(
    trace: Trace, name: str, unit: str, microbatches: int, times: dict[str, Any]
) -> dict[str, Any]:
    device = np.zeros(int(trace.stage.max()) + 1, dtype=np.int64)
    device[trace.stage] = trace.device
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


def _lengths(compute: Trace, microbatches: int) -> list[int] | None:
    length = np.full(microbatches, FREE, dtype=np.int64)
    length[compute.microbatch] = np.where(
        compute.length > 0, compute.length, length[compute.microbatch]
    )
    return None if np.any(length == FREE) else length.tolist()


def _description(trace: Trace, fits: Fits) -> str:
    scale = NANOSECONDS[trace.unit]
    texts = []
    for kind in dict.fromkeys(time.kind for time in fits.stage_times):
        times = [time for time in fits.stage_times if time.kind == kind]
        spread = ", ".join(f"{100 * time.variation:.1f}" for time in times)
        held = ", ".join(f"{time.held / scale:.4g}" for time in times)
        texts.append(f"{kind}: spread {spread} %, held {held} {trace.unit}")
    count = len({*zip(trace.step.tolist(), trace.replica.tolist(), strict=True)})
    left_out = f", {len(fits.unusual)} unusual left out" if fits.unusual else ""
    return (
        f"medians of {count} recorded steps and replicas{left_out} ({trace.format}), with the time "
        f"that devices are held after ops; by stage: {'; '.join(texts)}"
    )


@dataclass(frozen=True)
class RecordedStep:
    """The documents of one replica-step."""

    name: str  # beginning of the names of its files
    instance: PipelineInstance  # with the recorded durations
    result: Result  # with the recorded schedule
    shift: int  # most nanoseconds by which an op was moved so that the schedule keeps the rules
    moved: str  # the op that was moved most; empty where none was


def recorded_step(trace: Trace, tolerance: int | None = None) -> RecordedStep:
    """Return instance and recorded schedule of one replica-step.

    The schedule starts at 0 and passes the checker. Raises `InputError` where an op would have to
    be moved by more than the tolerance.

    `tolerance`: most nanoseconds by which an op may be moved; by default as `tolerance_of` allows.
    """
    allowed = tolerance_of(trace) if tolerance is None else tolerance
    trace = aligned(trace.where(trace.is_compute))
    recorded = Recorded.of(trace)
    starts = trace.start - trace.start.min()
    if recorded.tick > 1 and np.any(starts % recorded.tick):
        # All durations are multiples of a tick that moments are not multiples of.
        recorded = Recorded.of(trace, "ns")
    begun = np.rint(starts[recorded.row] / recorded.tick).astype(np.int64)
    # The least starts that are not before `begun` and keep the rules.
    timed = recorded.timed(replace(recorded.problem, release=begun))
    schedule = Schedule(recorded.problem, timed.start)
    moved = ((schedule.start - begun) * recorded.tick).astype(np.int64)
    worst = int(np.argmax(moved))
    shift, row = int(moved[worst]), int(recorded.row[worst])
    if shift > allowed:
        amount, limit = trace.times((shift, allowed))
        raise trace.error(
            row,
            f"starts {amount} {trace.unit} before what it needs has ended; expected clocks that "
            f"are off by at most {limit}",
        )
    result = _result(recorded.instance, schedule)
    event = trace.op(row) if shift else ""
    return RecordedStep(part_name(trace), recorded.instance, result, shift, event)


def _result(instance: PipelineInstance, schedule: Schedule) -> Result:
    violations = check_schedule(schedule.problem, schedule)
    assert not violations, violations[0]
    problem = schedule.problem
    return Result(
        instance=instance.name,
        kind=instance.kind,
        status=Status.FEASIBLE,
        objective=problem.objective,
        time_unit=instance.time_unit,
        value_unit=instance.time_unit,
        best_by="recorded",
        stop_reason=StopReason.RECORDED,
        wall_seconds=0.0,
        versions=versions(),
        instance_document=instance_data(instance),
        schedule=ScheduleDocument.of(schedule),
        **figures(schedule),
    )

"""Schedules that PyTorch's pipeline runtime runs, and what recorded steps say of them."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, median
from typing import Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.trace.table import NANOSECONDS, Trace
from ppsolve.solver.formats.data_order import in_data_order
from ppsolve.solver.formats.program import (
    FORMATS,
    Format,
    RuntimeProgram,
    read_program,
)
from ppsolve.solver.formats.torch_csv import torch_csv
from ppsolve.solver.kinds.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.kinds.pipeline.programs.rules import simulated_entry
from ppsolve.solver.studies.traces.fits import fit, recorded_span
from ppsolve.solver.studies.traces.replay import Recorded, median_instance, pipeline_of


def feeding_order(result: Result | HeuristicEntry) -> tuple[int, ...]:
    """Return the micro-batch of the instance that the runtime is fed as the k-th, for each k.

    The runtime keeps losses in the order of the last stage's forwards and takes them by micro-
    batch, so `build_schedule` numbers micro-batches in that order. Where they are unequal the
    chunks of a batch must be arranged so; alike ones need not be.
    """
    return _program(result).microbatches


def build_schedule(
    result: Result | HeuristicEntry,
    stages: Sequence[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    form: Format = FORMATS[0],
    **options: Any,
) -> Any:
    """Return the runtime of PyTorch that runs the schedule of a result by ``step``.

    Raises `InputError` where the version of torch is not one that was tested, the runtime cannot
    run the schedule, or the stages are not those of the rank.

    `result`: a pipeline's result with a schedule: of `ppsolve.optimize`, or a heuristic's.
    `stages`: stages of this process; its rank in their group runs the actions of that device.
    `loss_fn`: loss of an output and a target; needed for backwards.
    `form`: ``compute_only``: the runtime places sends and receives; ``compute_comms``: ppsolve
        does.
    `options`: further arguments of the runtime, such as ``scale_grads``.
    """
    require_tested_torch()
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    program = _program(result)
    ranked = sorted(stages, key=lambda stage: int(stage.stage_index))
    _check_stages(program, ranked)
    runtime = _PipelineScheduleRuntime(
        ranked, program.num_microbatches, loss_fn=loss_fn, **options
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text(torch_csv(program, form), encoding="ascii")
        runtime._load_csv(str(path), format=form)  # noqa: SLF001 - there is no other door
    return runtime


def _program(result: Result | HeuristicEntry) -> RuntimeProgram:
    return in_data_order(read_program(result.model_dump(mode="json")), may_permute=True)


def _check_stages(program: RuntimeProgram, stages: Sequence[Any]) -> None:
    if not stages:
        raise InputError(
            "expected the stages of this rank, got none",
            field="stages",
            code=ErrorCode.LENGTH,
        )
    ranks, total = int(stages[0].group_size), int(stages[0].num_stages)
    for noun, count, got in (
        ("ranks", len(program.rows), ranks),
        ("stages", program.num_stages, total),
    ):
        if count != got:
            text = f"expected {count} {noun}, as in the schedule, got {got}"
            raise InputError(text, field="stages")
    rank = int(stages[0].group_rank)
    assigned = [
        stage for stage, owner in enumerate(program.stage_to_rank) if owner == rank
    ]
    received = [int(stage.stage_index) for stage in stages]
    if assigned != received:
        raise InputError(
            f"expected stages {assigned} on rank {rank}, got {received}", field="stages"
        )


TESTED = ("2.13", "2.14")
"""Releases of torch whose runtime the tests run; others may read a schedule differently."""

WORDS = " or ".join(f"{release}.*" for release in TESTED)


def require_tested_torch() -> None:
    """Refuse a PyTorch whose pipeline runtime was not tested.

    Schedules are loaded by ``_PipelineScheduleRuntime._load_csv``, which is private and may change
    its meaning with any release. Raises `InputError` where there is no torch, or another version.
    """
    try:
        installed = version("torch")
    except PackageNotFoundError:
        text = (
            f"expected torch {WORDS}, it is not installed: pip install 'ppsolve[torch]'"
        )
        raise InputError(text, code=ErrorCode.NOT_INSTALLED) from None
    is_tested = any(f"{installed}.".startswith(f"{release}.") for release in TESTED)
    if not is_tested and os.environ.get("PPSOLVE_TORCH") != "any":
        text = f"expected torch {WORDS}, the releases whose pipeline runtime was tested"
        raise InputError(f"{text}, got {installed}", code=ErrorCode.NOT_INSTALLED)


def record_steps(
    schedule: Any, folder: str | Path, *inputs: Any, steps: int = 3, **arguments: Any
) -> Path:
    """Run some steps of a schedule under ``torch.profiler``, and return the file of this rank.

    Every process calls this. One step before them is not recorded: in the first the runtime finds
    out shapes. The processes begin each step together. Several schedules are run in turn, so that a
    machine whose speed drifts drifts for all of them; `steps_of` takes the steps of one out of the
    trace.

    `folder`: where ``rank<number>.json`` is written.
    `inputs`, `arguments`: arguments of each step: of the first stage its inputs, of the last one
        ``target``.
    `steps`: number of recorded steps of each schedule.
    """
    import torch
    from torch import distributed

    schedules = [*schedule] if isinstance(schedule, Sequence) else [schedule]
    group = schedules[0]._stages[0].group  # noqa: SLF001 - a schedule does not say its group
    for runner in schedules:
        runner.step(*inputs, **arguments)
    with torch.profiler.profile() as profiler:
        for runner in schedules * steps:
            distributed.barrier(group)
            runner.step(*inputs, **arguments)
    path = Path(folder) / f"rank{distributed.get_rank()}.json"
    profiler.export_chrome_trace(str(path))
    return path


def steps_of(trace: Trace, number: int, count: int) -> Trace:
    """Return the steps of one of the schedules that `record_steps` ran in turn.

    Of `count` schedules these are the steps whose number leaves `number` when divided by `count`.
    Raises `InputError` where there is no such step.
    """
    steps = trace.where(trace.step % count == number)
    if not len(steps):
        raise InputError(
            f"expected steps of schedule {number} of {count}, there is none",
            code=ErrorCode.MISSING,
        )
    return steps


@dataclass(frozen=True)
class Compared:
    """A predicted time and the median of recorded ones, microseconds.

    The name is ``step``, ``replay``, or kind and stage of ops, as ``F2``.
    """

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Measured over predicted, less 1; 0 for ops that were predicted to take no time."""
        return self.measured / self.predicted - 1 if self.predicted else 0.0


def measured_again(instance: PipelineInstance, trace: Trace) -> PipelineInstance:
    """Return an instance with the times that its ops had in recorded steps.

    In a step an op takes longer than by itself: its data are cold, memory is taken and given back,
    transfers go on at once and a profiler counts. So times are medians of the steps, each with the
    time for which its device is held after the op; the latency is that of the recorded transfers.
    Raises `InputError` where the steps are those of another pipeline, or in another unit.
    """
    refitted = median_instance(trace, fit(trace), instance.name)
    for field, expected, got in (
        ("time_unit", instance.time_unit, refitted.time_unit),
        ("placement", list(instance.stage_to_device), list(refitted.stage_to_device)),
        ("num_microbatches", instance.num_microbatches, refitted.num_microbatches),
        ("times", [*instance.times.by_kind()], [*refitted.times.by_kind()]),
    ):
        if expected != got:
            text = f"expected {expected}, as in the instance, the run has {got}"
            raise InputError(text, field=field)
    return instance.model_copy(update={"times": refitted.times, "p2p": refitted.p2p})


def timed_again(
    result: Result | HeuristicEntry, instance: PipelineInstance
) -> HeuristicEntry:
    """Return the schedule that the orders of a result give with the times of another instance.

    Every op starts as early as its order allows; the schedule is infeasible where that breaks a
    rule such as memory. Raises `InputError` where there is no schedule that one rank per stage can
    run.
    """
    program = read_program(result.model_dump(mode="json"))
    return simulated_entry(program.rows, instance, "timed-again")[0]


def compare_in_turn(
    result: Result | HeuristicEntry, run: Trace, beside: Trace
) -> list[Compared]:
    """Compare steps of a schedule with what the steps of another one, run in turn, predict.

    The speed of a machine changes within seconds. So each step is held against the two steps of the
    other schedule that were run just before and just after it: the mean of both predictions, or the
    one before for the last step. Rows of all steps, in microseconds, begin with that of the least
    error, so that the median step is in the middle.

    `run`: recorded steps of the schedule of the result.
    `beside`: recorded steps of the other one: the step before each of `run`, as `record_steps`
        makes them of two schedules.
    """
    steps = [number for number, _, _ in beside.parts()]
    predicted = dict(zip(steps, predictions_of(result, beside), strict=True))
    rows = []
    for number, _, step in run.parts():
        around = [
            predicted[near] for near in (number - 1, number + 1) if near in predicted
        ]
        rows.append(
            Compared("step, by others", mean(around), recorded_span(step) / 1000)
        )
    return sorted(rows, key=lambda row: row.error)


def predictions_of(result: Result | HeuristicEntry, trace: Trace) -> list[float]:
    """Return the makespans of a schedule with the durations of recorded steps of another.

    Where ops jitter, a step is longer than their medians say: the latest of several ops decides
    when another begins. So the orders of the result are timed with the durations of each step, in
    microseconds; transfers take the latency fitted to the whole trace.
    """
    p2p = median_instance(trace, fit(trace)).p2p
    makespans = []
    for _, _, recorded in trace.parts():
        step = pipeline_of(recorded, "us")
        timed = timed_again(result, step.model_copy(update={"p2p": p2p}))
        assert timed.makespan is not None, timed.reason
        makespans.append(float(timed.makespan))
    return makespans


def compare_run(result: Result | HeuristicEntry, trace: Trace) -> list[Compared]:
    """Compare the schedule of a result with recorded steps of one replica in which it was run.

    Rows are the step, from its first start to its last end; the replay, which is the recorded order
    with the recorded durations of each step and free transfers; then ops by kind and stage, medians
    over micro-batches and steps, with the time for which a device is held after such an op.

    Raises `InputError` where there is no schedule, its unit is none of ns, us, ms and s, or the run
    has other ops.
    """
    if result.schedule is None:
        raise InputError(
            "expected a result with a schedule, it has none",
            field="schedule",
            code=ErrorCode.MISSING,
        )
    time_unit = result.schedule.time_unit
    if time_unit not in NANOSECONDS:
        units = ", ".join(NANOSECONDS)
        raise InputError(
            f'expected one of {units}, got "{time_unit}"',
            field="schedule.time_unit",
            code=ErrorCode.UNIT,
        )
    unit = NANOSECONDS[time_unit] / 1000
    ops = [op for op in result.schedule.ops if op.kind in COMPUTE_KINDS]
    told: dict[tuple[str, int], list[float]] = defaultdict(list)
    for op in ops:
        told[str(op.kind), int(op.stage or 0)].append(float(op.end) - float(op.start))
    recorded = {
        (entry.kind, entry.stage): entry.median + entry.held
        for entry in fit(trace).stage_times
    }
    if told.keys() != recorded.keys():
        missing = ", ".join(
            f"{kind}{stage}" for kind, stage in sorted(told.keys() ^ recorded.keys())
        )
        raise InputError(f"expected the ops of the schedule, {missing} are in one only")
    steps = [step_trace for _, _, step_trace in trace.parts()]
    measured = median(map(recorded_span, steps)) / 1000
    step = float(max(op.end for op in ops)) - float(min(op.start for op in ops))
    return [
        Compared("step", step * unit, measured),
        Compared(
            "replay",
            median(Recorded.of(step_trace).replayed for step_trace in steps) / 1000,
            measured,
        ),
        *(
            Compared(f"{kind}{stage}", median(told[kind, stage]) * unit, time / 1000)
            for (kind, stage), time in sorted(recorded.items())
        ),
    ]

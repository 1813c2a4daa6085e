"""Schedules that PyTorch's pipeline runtime runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.trace.table import Trace
from ppsolve.solver.formats.program import (
    FORMATS,
    Format,
    RuntimeProgram,
    in_data_order,
    read_program,
)
from ppsolve.solver.formats.torch_csv import torch_csv


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
    """Return the schedule of a result as PyTorch's runtime runs it by ``step``.

    Raises `InputError` where the version of torch is not one that was tested, the runtime cannot
    run the schedule, or the stages are not those of the rank.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule: of `ppsolve.optimize`, or a heuristic's.
    stages : sequence of torch.distributed.pipelining.PipelineStage
        Stages of this process; its rank in their group runs the actions of that device.
    loss_fn : callable, optional
        Loss of an output and a target; needed for backwards.
    form : str
        ``compute_only``: the runtime places sends and receives; ``compute_comms``: ppsolve does.
    **options
        Further arguments of the runtime, such as ``scale_grads``.

    Returns
    -------
    torch.distributed.pipelining.schedules._PipelineScheduleRuntime
        The runtime, with the schedule and its sends and receives loaded.
    """
    require_tested_torch()
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    program = _program(result)
    ranked = sorted(stages, key=lambda stage: int(stage.stage_index))
    _check_stages(program, ranked)
    runtime = _PipelineScheduleRuntime(ranked, program.num_microbatches, loss_fn=loss_fn, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text(torch_csv(program, form), encoding="ascii")
        runtime._load_csv(str(path), format=form)  # noqa: SLF001 - there is no other door
    return runtime


def _program(result: Result | HeuristicEntry) -> RuntimeProgram:
    return in_data_order(read_program(result.model_dump(mode="json")), may_permute=True)


def _check_stages(program: RuntimeProgram, stages: Sequence[Any]) -> None:
    if not stages:
        raise InputError("expected the stages of this rank, got none", field="stages")
    ranks, total = int(stages[0].group_size), int(stages[0].num_stages)
    for what, wanted, found in (
        ("ranks", len(program.rows), ranks),
        ("stages", program.num_stages, total),
    ):
        if wanted != found:
            text = f"expected {wanted} {what}, as in the schedule, got {found}"
            raise InputError(text, field="stages")
    rank = int(stages[0].group_rank)
    own = [stage for stage, place in enumerate(program.stage_to_rank) if place == rank]
    given = [int(stage.stage_index) for stage in stages]
    if own != given:
        raise InputError(f"expected stages {own} on rank {rank}, got {given}", field="stages")


def require_tested_torch() -> None:
    """Refuse a PyTorch whose pipeline runtime was not tested.

    Schedules are loaded by ``_PipelineScheduleRuntime._load_csv``, which is private and may change
    its meaning with any release. Raises `InputError` where there is no torch, or another version.
    """
    tested = "2.13"  # run by the tests; other releases may read a schedule differently
    try:
        found = version("torch")
    except PackageNotFoundError:
        text = f"expected torch {tested}.*, it is not installed: pip install 'ppsolve[torch]'"
        raise InputError(text) from None
    if not f"{found}.".startswith(f"{tested}."):
        text = f"expected torch {tested}.*, the versions whose pipeline runtime was tested"
        raise InputError(f"{text}, got {found}")


def record_steps(
    schedule: Any, folder: str | Path, *inputs: Any, steps: int = 3, **arguments: Any
) -> Path:
    """Run some steps of a schedule under ``torch.profiler``; every process calls this.

    One step before them is not recorded: in the first the runtime finds out shapes. The processes
    begin each step together. Several schedules are run in turn, so that a machine whose speed
    drifts drifts for all of them; `steps_of` takes the steps of one out of the trace.

    Parameters
    ----------
    schedule : torch.distributed.pipelining.schedules._PipelineScheduleRuntime or sequence of them
        As `build_schedule` returns them; several have the same ops, each its own stages.
    folder : str or Path
        Where the file of this rank is written.
    *inputs, **arguments
        Arguments of each step: of the first stage its inputs, of the last one ``target``.
    steps : int
        Number of recorded steps of each schedule.

    Returns
    -------
    Path
        The file: ``rank<number>.json``.
    """
    import torch
    from torch import distributed

    schedules = [*schedule] if isinstance(schedule, Sequence) else [schedule]
    group = schedules[0]._stages[0].group  # noqa: SLF001 - a schedule does not say its group
    for one in schedules:
        one.step(*inputs, **arguments)
    with torch.profiler.profile() as profiler:
        for one in schedules * steps:
            distributed.barrier(group)
            one.step(*inputs, **arguments)
    path = Path(folder) / f"rank{distributed.get_rank()}.json"
    profiler.export_chrome_trace(str(path))
    return path


def steps_of(trace: Trace, number: int, count: int) -> Trace:
    """Return the steps of one of the schedules that `record_steps` ran in turn.

    Raises `InputError` where there is no such step.

    Parameters
    ----------
    trace : Trace
        Recorded steps, as `read_trace` reads them.
    number, count : int
        Which schedule, from 0, of how many.

    Returns
    -------
    Trace
        Every step whose number leaves `number` when divided by `count`.
    """
    found = trace.where(trace.step % count == number)
    if not len(found):
        raise InputError(f"expected steps of schedule {number} of {count}, there is none")
    return found

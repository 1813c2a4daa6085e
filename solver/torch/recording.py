"""Steps of PyTorch's runtime, recorded in files that ``ppsolve convert trace`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.models.trace.table import Trace


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

    Raises
    ------
    InputError
        There is no such step.
    """
    found = trace.where(trace.step % count == number)
    if not len(found):
        raise InputError(f"expected steps of schedule {number} of {count}, there is none")
    return found

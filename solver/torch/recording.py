"""Steps of PyTorch's runtime, recorded in files that ``ppsolve convert trace`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def record_steps(
    schedule: Any, folder: str | Path, *inputs: Any, steps: int = 3, **arguments: Any
) -> Path:
    """Run some steps of a schedule under ``torch.profiler``; every process calls this.

    One step before them is not recorded: in the first the runtime finds out shapes. The processes
    begin each step together.

    Parameters
    ----------
    schedule : torch.distributed.pipelining.schedules._PipelineScheduleRuntime
        As `build_schedule` returns it.
    folder : str or Path
        Where the file of this rank is written.
    *inputs, **arguments
        Arguments of each step: of the first stage its inputs, of the last one ``target``.
    steps : int
        Number of recorded steps.

    Returns
    -------
    Path
        The file: ``rank<number>.json``.
    """
    import torch
    from torch import distributed

    group = schedule._stages[0].group  # noqa: SLF001 - a schedule does not say its group
    schedule.step(*inputs, **arguments)
    with torch.profiler.profile() as profiler:
        for _ in range(steps):
            distributed.barrier(group)
            schedule.step(*inputs, **arguments)
    path = Path(folder) / f"rank{distributed.get_rank()}.json"
    profiler.export_chrome_trace(str(path))
    return path

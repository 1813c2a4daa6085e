"""Schedules that PyTorch's pipeline runtime runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.export.program import RuntimeProgram, in_data_order, read_program
from ppsolve.solver.export.torch import FORMATS, Format, torch_csv
from ppsolve.solver.torch.version import require_tested_torch


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

    Raises
    ------
    InputError
        The version of torch is not one that was tested, the runtime cannot run the schedule, or
        the stages are not those of the rank.
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
    """Refuse stages that are not those of their rank."""
    if not stages:
        raise InputError("expected the stages of this rank, got none", field="stages")
    ranks, total = int(stages[0].group_size), int(stages[0].num_stages)
    for what, wanted, found in (
        ("ranks", len(program.rows), ranks),
        ("stages", program.num_stages, total),
    ):
        if wanted != found:
            raise InputError(
                f"expected {wanted} {what}, as in the schedule, got {found}", field="stages"
            )
    rank = int(stages[0].group_rank)
    own = [stage for stage, place in enumerate(program.stage_to_rank) if place == rank]
    given = [int(stage.stage_index) for stage in stages]
    if own != given:
        raise InputError(f"expected stages {own} on rank {rank}, got {given}", field="stages")

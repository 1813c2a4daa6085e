"""Schedules that PyTorch's pipeline runtime runs."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.torch.rows import Rows, rows_of
from ppsolve.solver.torch.version import require_tested_torch


def feeding_order(result: Result | HeuristicEntry) -> list[int]:
    """Return the micro-batch of the instance that the runtime is fed as the k-th, for each k.

    `build_schedule` numbers micro-batches by their forward on the last stage. Where micro-batches
    are unequal the chunks of a batch must be arranged in this order; alike ones need not be.
    """
    return rows_of(result)[1]


def build_schedule(
    result: Result | HeuristicEntry,
    stages: Sequence[Any],
    loss_fn: Callable[..., Any] | None = None,
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

    rows, order = rows_of(result)
    ranked = sorted(stages, key=lambda stage: int(stage.stage_index))
    _check_stages(rows, ranked)
    runtime = _PipelineScheduleRuntime(ranked, len(order), loss_fn=loss_fn, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        write_rows(rows, path)
        runtime._load_csv(str(path), format="compute_only")  # noqa: SLF001 - there is no other door
    return runtime


def write_rows(rows: Rows, path: Path) -> None:
    """Write the actions of each rank as a CSV file that ``_load_csv`` reads as compute_only.

    Parameters
    ----------
    rows : list of list of Action
        Actions of each rank.
    path : Path
        File to write.
    """
    with path.open("w", newline="", encoding="ascii") as file:
        csv.writer(file, lineterminator="\n").writerows([*map(str, row)] for row in rows)


def _check_stages(rows: Rows, stages: Sequence[Any]) -> None:
    """Refuse stages that are not those of their rank."""
    if not stages:
        raise InputError("expected the stages of this rank, got none", field="stages")
    ranks, total = int(stages[0].group_size), int(stages[0].num_stages)
    needed = max(action.stage for row in rows for action in row) + 1
    for what, wanted, found in (("ranks", len(rows), ranks), ("stages", needed, total)):
        if wanted != found:
            raise InputError(
                f"expected {wanted} {what}, as in the schedule, got {found}", field="stages"
            )
    rank = int(stages[0].group_rank)
    own = sorted({action.stage for action in rows[rank]})
    given = [int(stage.stage_index) for stage in stages]
    if own != given:
        raise InputError(f"expected stages {own} on rank {rank}, got {given}", field="stages")

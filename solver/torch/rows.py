"""The actions of every rank of a result, as PyTorch's runtime reads them."""

from __future__ import annotations

from ppsolve.models.core.result import HeuristicEntry, Result, ScheduledOp
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.pipeline.actions import COMPUTE_KINDS, FORWARD, Action

Rows = list[list[Action]]
"""Actions of each rank, in order."""


def rows_of(result: Result | HeuristicEntry) -> tuple[Rows, list[int]]:
    """Return the actions of every rank of a result, and the order in which micro-batches are fed.

    The runtime keeps losses in the order of the last stage's forwards and takes them by micro-
    batch, so that forwards in another order give wrong gradients. Micro-batches are therefore
    numbered by their forward on the last stage.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule.

    Returns
    -------
    rows : list of list of Action
        Actions of each rank, by start.
    order : list of int
        Micro-batch of the instance that is fed as the k-th one, for each k.

    Raises
    ------
    InputError
        There is no schedule, or one that the runtime cannot run.
    """
    ops = _compute_ops(result)
    last = max(int(op.stage or 0) for op in ops)
    order = [
        int(op.microbatch or 0)
        for op in sorted(ops, key=_by_start)
        if op.stage == last and op.kind == FORWARD
    ]
    number = {microbatch: place for place, microbatch in enumerate(order)}
    rows: Rows = [[] for _ in range(max(int(op.device or 0) for op in ops) + 1)]
    for op in sorted(ops, key=_by_start):
        action = Action(int(op.stage or 0), str(op.kind), number[int(op.microbatch or 0)])
        rows[int(op.device or 0)].append(action)
    _refuse_twice(rows)
    return rows, order


def _compute_ops(result: Result | HeuristicEntry) -> list[ScheduledOp]:
    if result.schedule is None:
        raise InputError("expected a result with a schedule, it has none", field="schedule")
    ops = [op for op in result.schedule.ops if op.kind in COMPUTE_KINDS]
    if not ops or any(op.microbatch is None for op in ops):
        raise InputError("expected the schedule of a pipeline", field="schedule")
    if any(op.replica for op in ops):
        raise InputError("expected the schedule of one replica", field="schedule")
    return ops


def _by_start(op: ScheduledOp) -> tuple[object, object]:
    return op.start, op.end


def _refuse_twice(rows: Rows) -> None:
    """Refuse actions that are there twice: segments of one op, and two pipes."""
    place: dict[int, int] = {}
    for rank, row in enumerate(rows):
        if len(set(row)) < len(row):
            raise InputError(
                f"expected every op of rank {rank} in one piece, as the runtime runs it",
                field="schedule",
            )
        for action in row:
            if place.setdefault(action.stage, rank) != rank:
                raise InputError(
                    f"expected stage {action.stage} on one rank, it is on {place[action.stage]} "
                    f"and {rank}",
                    field="schedule",
                )

"""One replica of a schedule of several, as the schedule of a pipeline alone."""

from __future__ import annotations

from typing import Any

from ppsolve.models.documents.errors import InputError

Op = dict[str, Any]


def of_replica(data: dict[str, Any], replica: int) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the schedule of one replica.

    Parameters
    ----------
    data : dict
        A document with the schedule of all replicas.
    replica : int
        Number of the replica.

    Returns
    -------
    document : dict
        The document with this replica alone, its devices and micro-batches counted from 0.
    members : tuple of int
        The micro-batch of the step that has each of these numbers.

    Raises
    ------
    InputError
        The schedule has no such replica.
    """
    document = data.get("schedule", data)
    ops = document.get("ops") if isinstance(document, dict) else None
    own = [op for op in ops if _is_of(op, replica)] if isinstance(ops, list) else []
    if not own:
        raise InputError(f"the schedule has no replica {replica}", field="--replica")
    first = min(op["device"] for op in own)
    members = tuple(sorted({op["microbatch"] for op in own}))
    index = {microbatch: place for place, microbatch in enumerate(members)}
    alone = [_moved(op, first, index) for op in own]
    name = data.get("instance")
    return {"instance": name, "schedule": {"ops": alone}}, members


def _is_of(op: Any, replica: int) -> bool:
    """Whether an entry is an op of a micro-batch on a replica."""
    if not isinstance(op, dict) or op.get("replica") != replica:
        return False
    return type(op.get("device")) is int and type(op.get("microbatch")) is int


def _moved(op: Op, first: int, index: dict[int, int]) -> Op:
    device, microbatch = op["device"] - first, index[op["microbatch"]]
    return {**op, "replica": None, "device": device, "microbatch": microbatch}

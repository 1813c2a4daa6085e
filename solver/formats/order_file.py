"""Files of data orders: the micro-batch of a pipeline at each index of a runtime's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import read_json, source_name

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

DATA_ORDER = "--data-order"
"""Option of commands that write and read a data order."""

DataOrder = tuple[int, ...]
"""The micro-batch of the pipeline at each index of the file."""


def read_data_order(path: str | Path, instance: PipelineInstance) -> DataOrder:
    """Return the data order that an export wrote: all micro-batches, or those of one replica.

    Raises `InputError` where the file (``-`` is standard input) cannot be read, or holds no such
    list.
    """
    with errors_in(source_name(path)):
        order: Any = read_json(path)
        count = instance.num_microbatches
        if not isinstance(order, list):
            raise InputError(
                f"expected a list of micro-batches, got {describe(order)}",
                code=ErrorCode.LENGTH,
            )
        seen: set[int] = set()
        for microbatch in order:
            if type(microbatch) is not int or not 0 <= microbatch < count:
                got = microbatch if type(microbatch) is int else describe(microbatch)
                raise InputError(
                    f"expected micro-batches from 0 to {count - 1}, got {got}",
                    code=ErrorCode.RANGE,
                )
            if microbatch in seen:
                raise InputError(
                    f"expected every micro-batch once, got {microbatch} twice",
                    code=ErrorCode.CONFLICT,
                )
            seen.add(microbatch)
        if not order or (instance.replicas is None and len(order) < count):
            raise InputError(
                f"expected {count} micro-batches, got {len(order)}",
                code=ErrorCode.LENGTH,
            )
        return tuple(order)

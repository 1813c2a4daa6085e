"""The data order of a runtime's file: which micro-batch of a pipeline stands at each index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, source_name
from ppsolve.models.pipeline.instance import PipelineInstance

DATA_ORDER = "--data-order"
"""Option of commands that write and read such an order."""

DataOrder = tuple[int, ...]
"""The micro-batch of the pipeline at each index of the file."""


def read_data_order(path: str | Path, instance: PipelineInstance) -> DataOrder:
    """Return the data order that an export wrote.

    Parameters
    ----------
    path : str or Path
        The JSON file; ``-`` is standard input.
    instance : PipelineInstance
        The pipeline.

    Returns
    -------
    tuple of int
        All micro-batches of the pipeline, those of one replica where it has several.

    Raises
    ------
    InputError
        The file cannot be read, or holds no such list.
    """
    order: Any = read_json(path)
    problem = _fault(order, instance)
    if problem is not None:
        raise InputError(problem, source=source_name(path))
    return tuple(order)


def _fault(order: Any, instance: PipelineInstance) -> str | None:
    """Return in words why something is no data order of a pipeline, or None if it is one."""
    count = instance.num_microbatches
    if not isinstance(order, list):
        return f"expected a list of micro-batches, got {describe(order)}"
    seen: set[int] = set()
    for each in order:
        if type(each) is not int or not 0 <= each < count:
            got = each if type(each) is int else describe(each)
            return f"expected micro-batches from 0 to {count - 1}, got {got}"
        if each in seen:
            return f"expected every micro-batch once, got {each} twice"
        seen.add(each)
    if not order or (instance.replicas is None and len(order) < count):
        return f"expected {count} micro-batches, got {len(order)}"
    return None

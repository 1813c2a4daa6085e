"""Capacities in activations: ``1.25p`` for 1.25 activations of every stage of the pipeline.

1p is the memory of 1F1B: its first device, with as many stages as any other, holds one activation
for each of the p devices and stages on it.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from ppsolve.models.documents.base import as_decimal, describe
from ppsolve.models.documents.errors import InputError

FIELD = "memory.capacity"

CHUNKS = {"vshape": 2, "interleaved": 2, "wave": 2}
"""Stages per device of placements that need several, where the instance does not say."""


def stages_per_device(given: int | None, placement: Any) -> int:
    """Return the stages of each device.

    Parameters
    ----------
    given : int or None
        What the instance says.
    placement : Any
        Its placement; a name decides where it says nothing.

    Returns
    -------
    int
    """
    return given or (CHUNKS.get(placement, 1) if isinstance(placement, str) else 1)


def in_amounts(data: Any) -> Any:
    """Return the data of a pipeline with capacities such as ``1.25p`` as amounts.

    Data without any, and what is wrong with other fields, is left as it is.

    Raises
    ------
    InputError
        The multiple is no number, or stages have activations of their own.
    """
    memory = data.get("memory") if isinstance(data, dict) else None
    given = memory.get("capacity") if isinstance(memory, dict) else None
    entries = given if isinstance(given, list | tuple) else [given]
    if not isinstance(memory, dict) or not any(isinstance(entry, str) for entry in entries):
        return data
    stages = _count_stages(data)
    if stages is None:
        return data
    amounts = [_amount(entry, stages, memory) for entry in entries]
    capacity = amounts if isinstance(given, list | tuple) else amounts[0]
    return {**data, "memory": {**memory, "capacity": capacity}}


def _count_stages(data: dict[str, Any]) -> int | None:
    # The data is not validated yet: None where the number is unknown.
    placement = data.get("placement", "linear")
    if isinstance(placement, dict):
        listed = placement.get("stage_to_device")
        return len(listed) if isinstance(listed, list | tuple) else None
    devices, chunks = data.get("num_devices"), data.get("stages_per_device")
    is_known = isinstance(devices, int) and isinstance(chunks, int | None)
    return devices * stages_per_device(chunks, placement) if is_known and devices else None


def _amount(entry: Any, stages: int, memory: dict[str, Any]) -> Any:
    if not isinstance(entry, str):
        return entry
    text = entry.strip().lower()
    try:
        factor = as_decimal(Decimal(text.removesuffix("p") or "1")) if text[-1:] == "p" else None
    except (InvalidOperation, ValueError):
        factor = None
    if factor is None:
        expected = 'expected an amount, or a multiple such as "1.25p"'
        raise InputError(f"{expected}, got {describe(entry)}", field=FIELD)
    activation = memory.get("activation")
    if isinstance(activation, list | tuple | dict):
        raise InputError(
            f"expected an amount, not {entry.strip()}, where activations differ", field=FIELD
        )
    try:
        return factor * stages * as_decimal(activation)
    except ValueError:
        return 0  # the activation is refused by itself


def with_multiples(schema: dict[str, Any]) -> None:
    """Add capacities such as ``1.25p`` to the JSON Schema of the capacity."""
    multiple = {"type": "string", "pattern": r"^ *[0-9.]*[pP] *$"}
    for given in schema["anyOf"]:
        if "items" in given:
            given["items"] = {"anyOf": [given["items"], multiple]}
    schema["anyOf"].append(multiple)

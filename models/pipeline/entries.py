"""Entries of pipeline instances: a number, or one per stage, micro-batch, device or boundary."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from ppsolve.models.documents.base import Number, as_decimal, describe, error_at
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.costs import LengthCost

MAX_SEGMENTS = 10_000
"""Most segments of one op: far more than a stage has layers, each with two all-reduces at most; a
mistyped number is refused here by name, before `MAX_OPS` refuses the whole instance."""


def _numbers(
    value: Any, depth: int, what: str, at: tuple[int, ...] = (), *, costs: bool = False
) -> Any:
    if costs and depth > 0:
        if isinstance(value, LengthCost):
            return value
        if isinstance(value, dict):
            return LengthCost.read(value, at)
    if depth > 0 and isinstance(value, list | tuple | np.ndarray):
        return tuple(
            _numbers(item, depth - 1, what, (*at, index), costs=costs)
            for index, item in enumerate(value)
        )
    if isinstance(value, list | tuple | dict | str) or value is None:
        raise error_at(at, f"expected {what}, got {describe(value)}")
    try:
        return as_decimal(value)
    except ValueError as error:
        raise error_at(at, str(error)) from None


def _matrix(value: Any) -> Any:
    what = "a number or a matrix with a row and a column per device"
    for row, values in enumerate(value if isinstance(value, list | tuple | np.ndarray) else ()):
        if not isinstance(values, list | tuple | np.ndarray):
            raise error_at((row,), f"expected {what}, got {describe(values)} for a row")
    return _numbers(value, 2, what)


def _shape(depth: int, what: str, *, costs: bool = False) -> BeforeValidator:
    return BeforeValidator(lambda value: _numbers(value, depth, what, costs=costs))


def _segments(value: Any) -> Any:
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_count(item, (stage,)) for stage, item in enumerate(value))
    return _count(value, ())


def _count(value: Any, at: tuple[int, ...]) -> int:
    try:
        number = as_decimal(value)
    except ValueError:
        number = Decimal(0)
    if not 1 <= number <= MAX_SEGMENTS or number != number.to_integral_value():
        raise error_at(
            at, f"expected a whole number from 1 to {MAX_SEGMENTS}, got {describe(value)}"
        )
    return int(number)


PerStage = Annotated[
    Number | tuple[Number, ...], _shape(1, "a number or a list with one number per stage")
]
PerStageAndMicrobatch = Annotated[
    Number | LengthCost | tuple[Number | LengthCost | tuple[Number, ...], ...],
    _shape(
        2,
        "a number, or a list with one entry per stage (a number or one per micro-batch)",
        costs=True,
    ),
]
PerDevice = Annotated[
    Number | tuple[Number, ...], _shape(1, "a number or a list with one number per device")
]
PerBoundaryAndMicrobatch = Annotated[
    Number | LengthCost | tuple[Number | LengthCost | tuple[Number, ...], ...],
    _shape(
        2,
        "a number, or a list with one entry per stage boundary (a number or one per micro-batch)",
        costs=True,
    ),
]
SegmentsPerStage = Annotated[int | tuple[int, ...], BeforeValidator(_segments)]
DeviceMatrix = Annotated[Number | tuple[tuple[Number, ...], ...], BeforeValidator(_matrix)]


def check_backward(whole: object, of_input: object, of_weight: object) -> None:
    """Refuse times of a backward that are given neither as a whole nor in both parts, or as both.

    Parameters
    ----------
    whole, of_input, of_weight : object
        Times of the backward and of its parts, None where they are not given.

    Raises
    ------
    ValueError
        Says which fields are expected.
    """
    split = (of_input is not None, of_weight is not None)
    if (whole is not None) + all(split) != 1 or any(split) != all(split):
        raise ValueError(
            'expected either "backward", or both "backward_input" and "backward_weight"'
        )


def entry_at(entry: Any, *indices: int) -> Fraction:
    """Return the exact number that a scalar or nested entry has at some indices.

    Parameters
    ----------
    entry : number or nested tuple of numbers
        An entry; a number stands for every index.
    *indices : int
        Stage, device, or stage and micro-batch: the outermost index first.

    Returns
    -------
    Fraction
        The number in the unit of the entry.
    """
    for index in indices:
        entry = entry[index] if isinstance(entry, tuple) else entry
    return Fraction(entry)


def row_of(entry: Any, index: int) -> tuple[Decimal, ...]:
    """Return the numbers of one stage or boundary.

    Parameters
    ----------
    entry : number or tuple
        An entry without costs, per stage or boundary and per micro-batch.
    index : int
        Stage or boundary.

    Returns
    -------
    tuple of Decimal
        One number for all micro-batches, or one for each.
    """
    value = entry[index] if isinstance(entry, tuple) else entry
    return value if isinstance(value, tuple) else (value,)


def check_length(field: str, entry: Any, expected: int, what: str) -> None:
    """Refuse a list of the wrong length.

    Parameters
    ----------
    field : str
        Path of the entry in errors.
    entry : number, tuple or None
        The entry; only tuples have a length to check.
    expected : int
        The right length.
    what : str
        Name of one item in errors, e.g. ``stage``.

    Raises
    ------
    InputError
        Names the field, the right length and the length found.
    """
    if isinstance(entry, tuple) and len(entry) != expected:
        raise InputError(
            f"expected a number or {expected} entries (one per {what}), got {len(entry)}",
            field=field,
        )


def check_per_microbatch(field: str, entry: Any, count: int, what: str, microbatches: int) -> None:
    """Refuse an entry with a list of the wrong length, outside or inside.

    Parameters
    ----------
    field : str
        Path of the entry in errors.
    entry : number, tuple or None
        The entry: per stage or boundary, then per micro-batch.
    count, microbatches : int
        The right lengths.
    what : str
        Name of one outer item in errors, e.g. ``stage``.

    Raises
    ------
    InputError
        As `check_length` does.
    """
    check_length(field, entry, count, what)
    for index, item in enumerate(entry if isinstance(entry, tuple) else ()):
        check_length(f"{field}[{index}]", item, microbatches, "micro-batch")


def rows_per_microbatch(entry: Any) -> list[tuple[Any, ...]]:
    """Return the lists of an entry that have one number per micro-batch, in the order of stages."""
    items = entry if isinstance(entry, tuple) else ()
    return [item for item in items if isinstance(item, tuple)]


def decimals(entry: Any) -> Iterator[Decimal]:
    """Yield all numbers of an entry, however deep; none of an absent one."""
    if isinstance(entry, tuple):
        for item in entry:
            yield from decimals(item)
    elif entry is not None:
        yield entry

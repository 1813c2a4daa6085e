"""Arrays of numbers as callers give them: checked, broadcast, and scalars out for scalars in."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsolve.models.core.problem import BoolArray, IntArray
from ppsolve.models.documents.base import MAX_NUMBER, describe
from ppsolve.models.documents.errors import ErrorCode, InputError

Floats = NDArray[np.float64]

Quantity = float | Floats
"""A float where all arguments were scalars, else an array of their broadcast shape."""

Amount = int | IntArray
"""The same of whole numbers."""

LARGEST = float(MAX_NUMBER)
"""The greatest number that is taken, unless said otherwise."""


def as_array(
    name: str,
    value: ArrayLike,
    *,
    above: float | None = None,
    least: float = 0.0,
    most: float = LARGEST,
    whole: bool = False,
) -> Floats:
    """Check numbers of any shape and return them as doubles.

    An `InputError` names the argument, the place of the first refused value and the valid range.
    Numbers must be above `above` where that is given, else at least `least`; they must be at most
    `most`, and whole where that is asked. Text, truth values and null are refused.
    """
    doubles = _doubles(name, value)
    too_high = doubles > most
    enough = doubles >= least if above is None else doubles > above
    bad = ~enough | too_high
    if whole:
        bad |= doubles != np.floor(doubles)
    bound = f">= {least:g}" if above is None else f"> {above:g}"
    high = f" and at most {most:g}".replace("e+", "e") if np.any(too_high) else ""
    refuse(name, doubles, bad, f"a {'whole ' if whole else ''}number {bound}{high}")
    return doubles


def _doubles(name: str, value: Any) -> Floats:
    try:
        array = np.asarray(value)
        has_truth = isinstance(value, list | tuple) and bool in map(type, value)
        if array.dtype.kind not in "iuf" or has_truth:
            return _from_objects(name, np.asarray(value, dtype=object))
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "expected numbers that form an array", field=name, code=ErrorCode.TYPE
        ) from None


def _from_objects(name: str, array: NDArray[np.object_]) -> Floats:
    doubles = np.empty(array.shape)
    for index, item in np.ndenumerate(array):
        if isinstance(item, bool) or not isinstance(item, Real | Decimal):
            raise InputError(
                f"expected a number, got {describe(item)}",
                field=_path(name, index),
                code=ErrorCode.TYPE,
            )
        doubles[index] = _nearest(item)
    return doubles


def _nearest(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return np.inf if number > 0 else -np.inf


def as_number(name: str, value: Any, **limits: Any) -> float:
    """Check one number, which has no axes, and return it as a float."""
    array = as_array(name, value, **limits)
    if array.ndim:
        raise InputError(
            f"expected one number, got {array.size}", field=name, code=ErrorCode.TYPE
        )
    return float(array)


def whole_numbers(name: str, value: ArrayLike, *, least: int = 1) -> IntArray:
    """Check whole numbers of any shape and return them as int64."""
    return as_array(name, value, least=least, whole=True).astype(np.int64)


def allocation(
    num_nodes: ArrayLike, num_replicas: ArrayLike
) -> tuple[IntArray, IntArray]:
    """Check numbers of nodes and replicas, at least 1, and broadcast them together.

    A replica runs on one node, so there are no more nodes than replicas. An `InputError` names the
    argument and the place of a number out of range, or shapes that do not broadcast.
    """
    nodes, replicas = broadcast(
        num_nodes=whole_numbers("num_nodes", num_nodes),
        num_replicas=whole_numbers("num_replicas", num_replicas),
    )
    refuse("num_nodes", nodes, nodes > replicas, "at most as many nodes as replicas")
    return nodes, replicas


def refuse(name: str, values: NDArray[Any], bad: BoolArray, expected: str) -> None:
    """Raise an `InputError` about the first value that is marked as bad, if there is one.

    It names the argument and says in words what is expected.
    """
    if np.any(bad):
        index = np.unravel_index(np.argmax(bad), bad.shape)
        raise InputError(
            f"expected {expected}, got {values[index]:g}",
            field=_path(name, index),
            code=ErrorCode.RANGE,
        )


def _path(name: str, indices: tuple[Any, ...]) -> str:
    return name + "".join(f"[{index}]" for index in indices)


def broadcast(**arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return arrays in their common shape, as read-only views.

    An `InputError` names arguments whose shapes do not broadcast.
    """
    try:
        return tuple(np.broadcast_arrays(*arrays.values()))
    except ValueError:
        shapes = ", ".join(str(array.shape) for array in arrays.values())
        text = f"expected shapes that broadcast together, got {shapes}"
        raise InputError(text, field=", ".join(arrays), code=ErrorCode.LENGTH) from None


@overload
def plain(values: Floats) -> Quantity: ...
@overload
def plain(values: IntArray) -> Amount: ...
@overload
def plain(values: BoolArray) -> bool | BoolArray: ...


def plain(values: NDArray[Any]) -> Any:
    """Return the array, or a Python scalar where it has no axes."""
    return values if np.ndim(values) else np.asarray(values).item()

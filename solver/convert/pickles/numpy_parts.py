"""Stand-ins for the calls that pickled numpy scalars and arrays make, within limits.

A scalar is ``scalar(dtype, bytes)``; an array is ``_reconstruct(ndarray, ...)`` with a state, or
with protocol 5 ``_frombuffer``; protocols 0 to 2 have no bytes and write them as
``_codecs.encode(text, "latin1")``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.names import ONLY, Name, broken
from ppsolve.solver.convert.pickles.scan import MAX_FILE_BYTES

MAX_VALUES = 1_000_000
"""Numbers in all arrays of a pickle together: two for each entry that the schema takes."""

CODES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


@dataclass(eq=False)
class Dtype:
    """A dtype: one of `CODES`, and the byte order once its state has been read."""

    code: str
    order: str | None = None


@dataclass(eq=False)
class PickledArray:
    """An array of one or two dimensions, once its state has been read."""

    numbers: np.ndarray[Any, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers in each direction, none before the state has been read."""
        return () if self.numbers is None else self.numbers.shape


class Factory:
    """Maker of all numpy parts of one pickle."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES
        self._bytes_left = MAX_FILE_BYTES

    def call(self, name: Any, arguments: Any) -> Any:
        """Return the part that a call makes.

        Parameters
        ----------
        name, arguments : object
            What the pickle calls, and with what: a `Name` and a tuple, unless it is hostile.

        Returns
        -------
        bytes, int, float, Dtype or PickledArray
            The part; dtypes and arrays of older protocols wait for their state.

        Raises
        ------
        InputError
            Not a call that numpy's plain numbers and arrays of them need.
        """
        match name, arguments if type(arguments) is tuple else None:
            case Name.ENCODE, (str(text), "latin1"):
                return self._encoded(text)
            case Name.DTYPE, (str(code), int(), int()):
                return _dtype(code)
            case Name.RECONSTRUCT, (Name.NDARRAY, (0,), b"b"):
                return PickledArray()
            case Name.SCALAR, (dtype, payload):
                return self._numbers(dtype, (1,), payload).item()
            case Name.FROMBUFFER, (payload, dtype, shape, "C" | "F" as order):
                return PickledArray(self._numbers(dtype, shape, payload, order))
        called = name.value if type(name) is Name else "a value"
        raise InputError(f"the pickle calls {called} in another way than numpy; {ONLY}")

    def fill(self, target: Any, state: Any) -> None:
        """Give a dtype or an array its state, once.

        Parameters
        ----------
        target, state : object
            A `Dtype` or `PickledArray`, and what numpy's ``__setstate__`` takes, if not hostile.

        Raises
        ------
        InputError
            The target is anything else, has its state already, or the state is of another form.
        """
        match target, state if type(state) is tuple else None:
            case Dtype(order=None), (3, "<" | ">" as order, None, None, None, -1, -1, 0):
                target.order = order
            case Dtype("i1" | "u1", order=None), (3, "|", None, None, None, -1, -1, 0):
                target.order = "|"
            case PickledArray(numbers=None), (1, shape, dtype, int(is_fortran), payload):
                target.numbers = self._numbers(dtype, shape, payload, "F" if is_fortran else "C")
            case _:
                raise InputError(f"the pickle sets another state than numpy; {ONLY}")

    def _encoded(self, text: str) -> bytes:
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            raise InputError(f"the bytes in the pickle are more than {MAX_FILE_BYTES}")
        return text.encode("latin-1")

    def _numbers(
        self, dtype: Any, shape: Any, payload: Any, order: Literal["C", "F"] = "C"
    ) -> np.ndarray[Any, Any]:
        if type(dtype) is not Dtype or dtype.order is None or type(payload) is not bytes:
            raise broken("numpy data without a complete dtype or without bytes")
        if type(shape) is not tuple or not all(type(size) is int for size in shape):
            raise broken("the shape of an array is no tuple of whole numbers")
        if len(shape) not in (1, 2) or not all(0 <= size <= MAX_VALUES for size in shape):
            raise InputError(
                f"expected arrays of 1 or 2 dimensions from 0 to {MAX_VALUES}, there is another"
            )
        count, size = prod(shape), int(dtype.code[1])
        if len(payload) != count * size:
            raise InputError(
                f"expected {count * size} bytes for {count} numbers {dtype.code}, "
                f"got {len(payload)} bytes"
            )
        self._values_left -= count
        if self._values_left < 0:
            raise InputError(f"the arrays in the pickle hold more than {MAX_VALUES} numbers")
        return np.ndarray(shape, dtype.order + dtype.code, payload, order=order)


def _dtype(code: str) -> Dtype:
    if code not in CODES:
        raise InputError(
            f"expected arrays of plain numbers ({', '.join(CODES)}), got dtype {code[:20]!a}"
        )
    return Dtype(code)

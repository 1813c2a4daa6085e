"""Stand-ins for the names that pickled numpy scalars and arrays use; numpy is not called."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.names import Maker
from ppsolve.solver.convert.pickles.opcodes import MAX_FILE_BYTES
from ppsolve.solver.convert.pickles.refusals import ONLY, broken

MAX_VALUES = 1_000_000
"""Numbers in all arrays of a pickle together."""


_FORMATS = {
    "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
    "f4": "f", "f8": "d",
}  # fmt: skip
_PLAIN_DTYPE_STATE = (None, None, None, -1, -1, 0)
"""State of a dtype after version and byte order: no subarray, names, fields, alignment, flags."""


@dataclass(eq=False)
class Dtype:
    """A dtype: one of the plain numbers, and the byte order once its state has been read."""

    code: str
    order: str | None = None

    @property
    def size(self) -> int:
        """Bytes of one number."""
        return int(self.code[1])


@dataclass(eq=False)
class Array:
    """An array of up to two dimensions; `values` are flat, without a shape until it is filled."""

    shape: tuple[int, ...] | None = None
    values: tuple[Any, ...] = ()
    is_fortran: bool = False

    def pairs(self) -> list[tuple[Any, Any]] | None:
        """Return the rows of an array of shape (n, 2), else None."""
        if self.shape is None or len(self.shape) != 2 or self.shape[1] != 2:
            return None
        rows = self.shape[0]
        if self.is_fortran:
            return list(zip(self.values[:rows], self.values[rows:], strict=True))
        return list(zip(self.values[::2], self.values[1::2], strict=True))


class Factory:
    """Makes the stand-ins of one pickle, within limits for all of them together."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES
        self._bytes_left = MAX_FILE_BYTES

    def call(self, maker: Any, arguments: Any) -> Any:
        """Return what a call of `maker` with these arguments makes.

        Raises
        ------
        InputError
            Not a call that numpy's plain numbers and arrays of them need.
        """
        if type(maker) is not Maker:
            raise InputError(f"the pickle calls a value as a function; {ONLY}")
        if type(arguments) is not tuple:
            raise broken(f"{maker.value} is called without a tuple of arguments")
        match maker:
            case Maker.ENCODE:
                return self._encode(arguments)
            case Maker.SCALAR:
                return self._scalar(arguments)
            case Maker.DTYPE:
                return _dtype(arguments)
            case Maker.RECONSTRUCT:
                return _reconstruct(arguments)
            case Maker.FROMBUFFER:
                return self._frombuffer(arguments)
        raise InputError(f"the pickle calls {maker.value} itself; {ONLY}")

    def fill(self, target: Any, state: Any) -> None:
        """Give a dtype or an array its state, once.

        Raises
        ------
        InputError
            The target is anything else, has its state already, or the state is of another form.
        """
        if type(target) is Dtype and target.order is None:
            target.order = _byte_order(target, state)
        elif type(target) is Array and target.shape is None:
            self._fill_array(target, state)
        else:
            raise InputError(f"the pickle sets the state of what has none to set; {ONLY}")

    def _encode(self, arguments: tuple[Any, ...]) -> bytes:
        if len(arguments) != 2 or type(arguments[0]) is not str or arguments[1] != "latin1":
            raise InputError("the pickle calls _codecs.encode other than for bytes as latin1 text")
        self._bytes_left -= len(arguments[0])
        if self._bytes_left < 0:
            raise InputError(f"the bytes in the pickle are more than {MAX_FILE_BYTES}")
        try:
            return arguments[0].encode("latin-1")
        except UnicodeEncodeError:
            raise broken("bytes that are written as text hold more than latin1") from None

    def _scalar(self, arguments: tuple[Any, ...]) -> int | float:
        if len(arguments) != 2:
            raise broken("a numpy scalar is not made of a dtype and its bytes")
        number: int | float = self._unpacked(*arguments, 1)[0]
        return number

    def _frombuffer(self, arguments: tuple[Any, ...]) -> Array:
        if len(arguments) != 4 or type(arguments[3]) is not str or arguments[3] not in ("C", "F"):
            raise broken("numpy's _frombuffer is called with other arguments than numpy writes")
        payload, dtype, shape, order = arguments
        return self._array(Array(), dtype, shape, payload, is_fortran=order == "F")

    def _fill_array(self, target: Array, state: Any) -> None:
        if type(state) is not tuple or len(state) != 5 or type(state[0]) is not int:
            raise broken("the state of an array has another form than numpy writes")
        version, shape, dtype, is_fortran, payload = state
        if version != 1 or type(is_fortran) not in (bool, int):
            raise broken("the state of an array has another form than numpy writes")
        self._array(target, dtype, shape, payload, is_fortran=bool(is_fortran))

    def _array(
        self, target: Array, dtype: Any, shape: Any, payload: Any, *, is_fortran: bool
    ) -> Array:
        if type(shape) is not tuple or not all(type(size) is int for size in shape):
            raise broken("the shape of an array is no tuple of whole numbers")
        if not 1 <= len(shape) <= 2 or not all(0 <= size <= MAX_VALUES for size in shape):
            raise InputError(
                f"expected arrays of 1 or 2 dimensions from 0 to {MAX_VALUES}, got {len(shape)}"
                f" dimensions{_listed(shape)}"
            )
        count = shape[0] * shape[1] if len(shape) == 2 else shape[0]
        target.values = self._unpacked(dtype, payload, count)
        target.shape, target.is_fortran = shape, is_fortran
        return target

    def _unpacked(self, dtype: Any, payload: Any, count: int) -> tuple[Any, ...]:
        if type(dtype) is not Dtype or dtype.order is None:
            raise broken("numpy data without a complete dtype")
        if type(payload) is not bytes or len(payload) != count * dtype.size:
            held = f"{len(payload)} bytes" if type(payload) is bytes else "no bytes"
            raise InputError(
                f"expected {count * dtype.size} bytes for {count} numbers {dtype.code}, got {held}"
            )
        self._values_left -= count
        if self._values_left < 0:
            raise InputError(f"the arrays in the pickle hold more than {MAX_VALUES} numbers")
        return struct.unpack(f"{dtype.order}{count}{_FORMATS[dtype.code]}", payload)


def _dtype(arguments: tuple[Any, ...]) -> Dtype:
    code = arguments[0] if arguments else None
    flags = arguments[1:]
    if type(code) is not str or code not in _FORMATS:
        shown = ascii(code[:20]) if type(code) is str else "another value"
        raise InputError(
            f"expected arrays of plain numbers ({', '.join(_FORMATS)}), got dtype {shown}"
        )
    if len(flags) != 2 or not all(type(flag) in (bool, int) for flag in flags):
        raise broken("numpy.dtype is called with other arguments than numpy writes")
    return Dtype(code)


def _reconstruct(arguments: tuple[Any, ...]) -> Array:
    if arguments != (Maker.NDARRAY, (0,), b"b"):
        raise InputError("the pickle calls numpy's _reconstruct for another thing than ndarray")
    return Array()


def _listed(shape: tuple[int, ...]) -> str:
    return f" ({', '.join(str(size) for size in shape)})" if 1 <= len(shape) <= 2 else ""


def _byte_order(dtype: Dtype, state: Any) -> str:
    """Return the byte order for `struct`; a state with fields, subarrays or metadata is refused."""
    plain = type(state) is tuple and len(state) == 8
    if not plain or not _is_same(state[0], 3) or not _is_plain(state[2:]):
        raise InputError("expected arrays of plain numbers, got a dtype with parts or metadata")
    order = state[1]
    if order == "|" and type(order) is str and dtype.size == 1:
        return "<"
    if type(order) is not str or order not in ("<", ">"):
        raise broken("the byte order of a dtype is neither < nor >")
    return order


def _is_plain(parts: tuple[Any, ...]) -> bool:
    return all(map(_is_same, parts, _PLAIN_DTYPE_STATE))


def _is_same(value: Any, wanted: int | None) -> bool:
    return value is None if wanted is None else type(value) is int and value == wanted

"""Python's own unpickler without its powers: it moves plain values about and calls nothing.

Calls that pickled numpy scalars and arrays make have stand-ins. A scalar is ``scalar(dtype,
bytes)``; an array is ``_reconstruct(ndarray, ...)`` with a state, or with protocol 5
``_frombuffer``; protocols 0 to 2 have no bytes and write them as ``_codecs.encode(text,
"latin1")``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pickle import _Unpickler
from typing import Any, ClassVar, Literal

import numpy as np

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.formats.pickles.scan import (
    ALLOWED,
    LIMITS,
    ONLY,
    OPCODES,
    Name,
    broken,
    lookup,
    scan,
)


def unpickle(data: bytes) -> Any:
    """Return the value that a pickle builds, once it has been scanned.

    The value is made of None, bool, int, float, str, bytes, list, tuple, dict with str keys, and
    `PickledArray`. It may hold itself, and one part of it many times over. Raises `InputError`
    where the scan refuses it, its opcodes do not fit together, or it is no such value.
    """
    scan(data)
    try:
        return Inert(io.BytesIO(data)).load()
    except AttributeError:
        raise broken("it appends to what is no list") from None
    except (pickle.UnpicklingError, ValueError) as error:
        raise broken(error) from None


@dataclass(eq=False)
class _Dtype:
    code: str
    order: str | None = None  # until its state has been read


@dataclass(eq=False)
class PickledArray:
    """An array of one or two dimensions, once its state has been read."""

    numbers: np.ndarray[Any, Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers in each direction, none before the state has been read."""
        return () if self.numbers is None else self.numbers.shape


class Inert(_Unpickler):
    """The unpickler written in Python (the C one has no hooks for opcodes), with fewer opcodes."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._values_left = LIMITS.values
        self._bytes_left = LIMITS.file_bytes

    def find_class(self, module: str, name: str) -> Name:
        """Return the stand-in for a name, an `InputError` if it has none; nothing is imported."""
        return lookup(module, name)

    def load_reduce(self) -> None:
        """Make a number, an array or bytes, instead of calling what the pickle names."""
        arguments, called = self.stack.pop(), self.stack.pop()
        self.stack.append(self._call(called, arguments))

    def load_build(self) -> None:
        """Give a dtype or array its state, once, instead of setting attributes."""
        state = self.stack.pop()
        target = self.stack[-1]
        match target, state if type(state) is tuple else None:
            case _Dtype(order=None), (
                3,
                "<" | ">" as order,
                None,
                None,
                None,
                -1,
                -1,
                0,
            ):
                target.order = order
            case _Dtype("i1" | "u1", order=None), (3, "|", None, None, None, -1, -1, 0):
                target.order = "|"
            case PickledArray(numbers=None), (
                1,
                shape,
                dtype,
                int(is_fortran),
                payload,
            ):
                target.numbers = self._numbers(
                    dtype, shape, payload, "F" if is_fortran else "C"
                )
            case _:
                raise InputError(
                    f"the pickle sets another state than numpy; {ONLY}",
                    code=ErrorCode.UNSUPPORTED,
                )

    def load_dict(self) -> None:
        """Put a dict."""
        items = self.pop_mark()
        self.stack.append({})
        self._set(items)

    def load_setitem(self) -> None:
        """Set one item."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self) -> None:
        """Set the items since the mark."""
        self._set(self.pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise broken("it sets items of what is no dict, or a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Other keys may be nested so deeply that to hash them takes the process down.
            if type(key) is not str:
                raise InputError(
                    "expected texts as keys of a dict, the pickle has another key",
                    code=ErrorCode.UNSUPPORTED,
                )
            if key in target:
                raise InputError(
                    f"the key {key[:60]!a} appears twice in one dict",
                    code=ErrorCode.CONFLICT,
                )
            target[key] = value

    def _call(self, name: Any, arguments: Any) -> Any:
        # A `Name` and a tuple, unless the pickle is hostile.
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
        raise InputError(
            f"the pickle calls {called} in another way than numpy; {ONLY}",
            code=ErrorCode.UNSUPPORTED,
        )

    def _encoded(self, text: str) -> bytes:
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            raise InputError(
                f"the bytes in the pickle are more than {LIMITS.file_bytes}",
                code=ErrorCode.UNSUPPORTED,
            )
        return text.encode("latin-1")

    def _numbers(
        self, dtype: Any, shape: Any, payload: Any, order: Literal["C", "F"] = "C"
    ) -> np.ndarray[Any, Any]:
        if (
            type(dtype) is not _Dtype
            or dtype.order is None
            or type(payload) is not bytes
        ):
            raise broken("numpy data without a complete dtype or without bytes")
        if type(shape) is not tuple or not all(type(size) is int for size in shape):
            raise broken("the shape of an array is no tuple of whole numbers")
        if len(shape) not in (1, 2) or not all(
            0 <= size <= LIMITS.values for size in shape
        ):
            raise InputError(
                f"expected arrays of 1 or 2 dimensions from 0 to {LIMITS.values}, there is another",
                code=ErrorCode.TYPE,
            )
        count, size = prod(shape), int(dtype.code[1])
        if len(payload) != count * size:
            raise InputError(
                f"expected {count * size} bytes for {count} numbers {dtype.code}, "
                f"got {len(payload)} bytes"
            )
        self._values_left -= count
        if self._values_left < 0:
            raise InputError(
                f"the arrays in the pickle hold more than {LIMITS.values} numbers",
                code=ErrorCode.UNSUPPORTED,
            )
        return np.ndarray(shape, dtype.order + dtype.code, payload, order=order)

    dispatch: ClassVar[dict[int, Any]] = {
        code: _Unpickler.dispatch[code]
        for code, opcode in OPCODES.items()
        if opcode.name in ALLOWED | {"PROTO"}
    } | {
        pickle.REDUCE[0]: load_reduce,
        pickle.BUILD[0]: load_build,
        pickle.DICT[0]: load_dict,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        # The same form, and bytes cannot be appended to.
        pickle.BYTEARRAY8[0]: _Unpickler.dispatch[pickle.BINBYTES8[0]],
    }


def _dtype(code: str) -> _Dtype:
    codes = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
    if code not in codes:
        text = f"expected arrays of plain numbers ({', '.join(codes)}), got dtype {code[:20]!a}"
        raise InputError(text)
    return _Dtype(code)

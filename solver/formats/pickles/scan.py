"""The scan of a pickle before anything in it is built: opcodes, sizes, and a dry run of the stack.

Python's `pickletools` says what arguments an opcode has and what it takes from the stack.
"""

from __future__ import annotations

import io
import pickletools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError

ONLY = (
    "only numbers, strings, lists, tuples, dicts and numpy scalars and arrays are read"
)


class Name(Enum):
    """Stand-ins that a pickle gets for names: marks that can be compared, not called."""

    SCALAR = "numpy's scalar"
    RECONSTRUCT = "numpy's _reconstruct"
    FROMBUFFER = "numpy's _frombuffer"
    NDARRAY = "numpy.ndarray"
    DTYPE = "numpy.dtype"
    ENCODE = "_codecs.encode"


NAMES = {
    ("numpy", "ndarray"): Name.NDARRAY,
    ("numpy", "dtype"): Name.DTYPE,
    ("numpy.core.multiarray", "scalar"): Name.SCALAR,
    ("numpy._core.multiarray", "scalar"): Name.SCALAR,
    ("numpy.core.multiarray", "_reconstruct"): Name.RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): Name.RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): Name.FROMBUFFER,
    ("numpy._core.numeric", "_frombuffer"): Name.FROMBUFFER,
    ("_codecs", "encode"): Name.ENCODE,
}
"""Every name that a pickle may have, compared as a whole; numpy 2 has ``_core`` for ``core``."""


@dataclass(frozen=True)
class PickleLimits:
    """What is read of a pickle at most: far more than a timeline needs, and soon over."""

    file_bytes: int = 64 * 1024 * 1024  # bounds the memory before anything is looked at
    opcodes: int = 300_000  # a step of 100 modules in numpy scalars has about 14,000
    marks: int = 100  # how deep a value is nested; picklers stop at about 10
    stack: int = (
        100_000  # values that wait to be put together; picklers keep about 1,000
    )
    number_bytes: int = 16  # of a whole number: none that takes long to print
    values: int = 1_000_000  # numbers in all arrays together: two for each entry
    entries: int = 500_000  # of the result, each counted as often as it is referred to


LIMITS = PickleLimits()

ALLOWED = frozenset({
    "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS",
    "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
})  # fmt: skip
"""Opcodes that are read, besides a PROTO at the start.

Not among them: instances (INST, OBJ, NEWOBJ, NEWOBJ_EX), extension codes, persistent ids,
out-of-band buffers, sets, the byte strings of Python 2, and POP, POP_MARK and DUP, which picklers
write for nothing that a timeline holds. GLOBAL, REDUCE and BUILD are there for numpy only.
"""

OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})

_WHOLE = rb"-?(?:0|[1-9][0-9]{0,39})"
_LINES = {
    "INT": re.compile(rb"(?:0[01]|" + _WHOLE + rb")\n"),
    "LONG": re.compile(_WHOLE + rb"L?\n"),
    "FLOAT": re.compile(
        rb"-?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,9})?|inf|nan)\n"
    ),
    "GET": re.compile(_WHOLE + rb"\n"),
    "PUT": re.compile(_WHOLE + rb"\n"),
    "GLOBAL": re.compile(rb"[\w.]{1,200}\n[\w.]{1,200}\n"),
}
"""Lines as picklers write them; Python takes more (underscores, blanks, escapes, giants)."""


def scan(data: bytes) -> None:
    """Refuse a pickle that breaks a rule, before any of it is built.

    Raises `InputError` for a pickle that is empty, too large or truncated, opcodes that are unknown
    or not read, arguments beyond their limits, values that are taken but not there, and bytes after
    the end.
    """
    if not data:
        raise InputError(
            "expected a pickle, the file is empty", code=ErrorCode.UNSUPPORTED
        )
    if len(data) > LIMITS.file_bytes:
        raise InputError(
            f"expected a pickle of at most {LIMITS.file_bytes} bytes, got {len(data)}",
            code=ErrorCode.UNSUPPORTED,
        )
    stream, heights, frame_end = io.BytesIO(data), [0], 0
    for _ in range(LIMITS.opcodes):
        start = stream.tell()
        opcode = _opcode(stream)
        argument = _argument(opcode, stream)
        if start < frame_end < stream.tell():
            raise broken(f"{opcode.name} at byte {start} crosses the end of its frame")
        if opcode.name == "FRAME":
            frame_end = stream.tell() + argument
        _check(opcode.name, argument, len(data) - stream.tell())
        _step(opcode, heights)
        if opcode.name == "STOP":
            break
    else:
        raise InputError(
            f"expected a pickle of at most {LIMITS.opcodes} opcodes, there are more",
            code=ErrorCode.UNSUPPORTED,
        )
    if heights != [0]:
        raise broken(f"{sum(heights) + 1} values are left at its end, not 1")
    if stream.read(1):
        raise broken(f"more bytes follow its end at byte {stream.tell() - 1}")


def _opcode(stream: io.BytesIO) -> pickletools.OpcodeInfo:
    offset = stream.tell()
    code = stream.read(1)
    if not code:
        raise broken(f"it ends after {offset} bytes without STOP (truncated?)")
    opcode = OPCODES.get(code[0])
    if opcode is None:
        raise broken(f"no opcode is 0x{code[0]:02x}, at byte {offset}")
    if opcode.name not in ALLOWED and (offset or opcode.name != "PROTO"):
        raise InputError(
            f"the pickle uses {opcode.name} at byte {offset}; {ONLY}",
            code=ErrorCode.UNSUPPORTED,
        )
    return opcode


def _argument(opcode: pickletools.OpcodeInfo, stream: io.BytesIO) -> Any:
    if opcode.arg is None:
        return None
    offset, name = stream.tell(), opcode.name
    start = stream.getbuffer()[offset : offset + 500]
    if name in _LINES and not _LINES[name].match(start):
        text = f"{name} at byte {offset - 1} has a line of another form: {bytes(start[:50])!r}"
        raise broken(text)
    # The length of a number stands before it, in one byte or four.
    size = int.from_bytes(start[: {"LONG1": 1, "LONG4": 4}.get(name, 0)], "little")
    if size > LIMITS.number_bytes:
        raise InputError(
            f"expected numbers of at most {LIMITS.number_bytes} bytes, "
            f"{name} at byte {offset - 1} has {size}",
            code=ErrorCode.RANGE,
        )
    try:
        return opcode.arg.reader(stream)
    except ValueError as error:
        raise broken(f"{name} at byte {offset - 1}: {error}") from None


def _check(name: str, argument: Any, remaining: int) -> None:
    if name == "GLOBAL":
        lookup(*argument.split(" "))
    if name == "FRAME" and argument > remaining:
        raise broken(
            f"FRAME claims {argument} bytes, {remaining} are left (truncated?)"
        )
    if name in _PUTS and not 0 <= argument <= LIMITS.opcodes:
        raise InputError(
            f"expected memo places from 0 to {LIMITS.opcodes}, got {argument}",
            code=ErrorCode.RANGE,
        )


def _step(opcode: pickletools.OpcodeInfo, heights: list[int]) -> None:
    """Take and put as many values as an opcode does, in `heights`.

    They are the values that wait since the start, then since every open mark.
    """
    operands = opcode.stack_before
    needed = len(operands)
    if pickletools.markobject in operands:
        needed = operands.index(pickletools.markobject)
        heights.pop()
    if not heights:
        raise broken("it goes back to a mark that is not there")
    if heights[-1] < max(needed, opcode.name in _PUTS):
        raise broken("it takes a value that is not there")
    if opcode.name == "MARK":
        heights.append(0)
    else:
        heights[-1] += len(opcode.stack_after) - needed
    if len(heights) > LIMITS.marks + 1:
        raise InputError(
            f"the pickle is nested deeper than {LIMITS.marks} levels",
            code=ErrorCode.UNSUPPORTED,
        )
    if sum(heights) > LIMITS.stack:
        raise InputError(
            f"the pickle keeps more than {LIMITS.stack} values waiting",
            code=ErrorCode.UNSUPPORTED,
        )


def broken(detail: object) -> InputError:
    """Return the error for bytes that no pickler writes."""
    return InputError(f"not a valid pickle: {detail}", code=ErrorCode.UNSUPPORTED)


def lookup(module: str, name: str) -> Name:
    """Return the stand-in for a name.

    Raises `InputError` for any name but those of `NAMES`.
    """
    if (module, name) not in NAMES:
        raise InputError(
            f"the pickle names {module[:60]}.{name[:60]}; {ONLY}",
            code=ErrorCode.UNSUPPORTED,
        )
    return NAMES[module, name]

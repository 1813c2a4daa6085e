"""The scan of a pickle before anything in it is built: opcodes, sizes, and a dry run of the stack.

Python's `pickletools` says what arguments an opcode has and what it takes from the stack.
"""

from __future__ import annotations

import io
import pickletools
import re
from enum import Enum
from typing import Any

from ppsolve.models.documents.errors import InputError

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Bytes that are read of a pickle at most; it bounds the memory before anything is looked at."""

MAX_OPCODES = 300_000
"""A step of 100 modules in numpy scalars has about 14,000 (25,000 with protocol 0)."""

MAX_MARKS = 100
"""Open marks: how deep what is being put together is nested. Picklers stop at about 10."""

MAX_STACK = 100_000
"""Values that wait to be put together; picklers never let more than about 1,000 wait."""

MAX_NUMBER_BYTES = 16
"""Bytes of a whole number: twice a 64-bit one, and no number that takes long to print."""

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
"""Opcodes that are read, beside a PROTO at the start.

Not among them: instances (INST, OBJ, NEWOBJ, NEWOBJ_EX), extension codes, persistent ids,
out-of-band buffers, sets, the byte strings of Python 2, and POP, POP_MARK and DUP, which picklers
write for nothing that a timeline holds. GLOBAL, REDUCE and BUILD are there for numpy only.
"""

OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_COUNTED = {"LONG1": 1, "LONG4": 4}
"""Opcodes of a number with its length before it, and the bytes of that."""

_WHOLE = rb"-?(?:0|[1-9][0-9]{0,39})"
_LINES = {
    "INT": re.compile(rb"(?:0[01]|" + _WHOLE + rb")\n"),
    "LONG": re.compile(_WHOLE + rb"L?\n"),
    "FLOAT": re.compile(rb"-?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,9})?|inf|nan)\n"),
    "GET": re.compile(_WHOLE + rb"\n"),
    "PUT": re.compile(_WHOLE + rb"\n"),
    "GLOBAL": re.compile(rb"[\w.]{1,200}\n[\w.]{1,200}\n"),
}
"""Lines as picklers write them; Python takes more (underscores, blanks, escapes, giants)."""


def scan(data: bytes) -> None:
    """Refuse a pickle that breaks a rule, before any of it is built.

    Raises
    ------
    InputError
        Empty, too large, truncated, an opcode that is unknown or not read, an argument beyond
        its limit, values that are taken but not there, or bytes after the end.
    """
    if not data:
        raise InputError("expected a pickle, the file is empty")
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"expected a pickle of at most {MAX_FILE_BYTES} bytes, got {len(data)}")
    stream, heights, frame_end = io.BytesIO(data), [0], 0
    for _ in range(MAX_OPCODES):
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
        raise InputError(f"expected a pickle of at most {MAX_OPCODES} opcodes, there are more")
    if heights != [0]:
        raise broken(f"{sum(heights) + 1} values are left at its end, not 1")
    if stream.read(1):
        raise broken(f"more bytes follow its end at byte {stream.tell() - 1}")


def _opcode(stream: io.BytesIO) -> pickletools.OpcodeInfo:
    """Return the opcode at the stream's place, and go behind it."""
    place = stream.tell()
    code = stream.read(1)
    if not code:
        raise broken(f"it ends after {place} bytes without STOP (truncated?)")
    opcode = OPCODES.get(code[0])
    if opcode is None:
        raise broken(f"no opcode is 0x{code[0]:02x}, at byte {place}")
    if opcode.name not in ALLOWED and (place or opcode.name != "PROTO"):
        raise InputError(f"the pickle uses {opcode.name} at byte {place}; {ONLY}")
    return opcode


def _argument(opcode: pickletools.OpcodeInfo, stream: io.BytesIO) -> Any:
    """Return the argument at the stream's place, and go behind it."""
    if opcode.arg is None:
        return None
    place, name = stream.tell(), opcode.name
    start = stream.getbuffer()[place : place + 500]
    if name in _LINES and not _LINES[name].match(start):
        raise broken(
            f"{name} at byte {place - 1} has a line of another form: {bytes(start[:50])!r}"
        )
    size = int.from_bytes(start[: _COUNTED.get(name, 0)], "little")
    if size > MAX_NUMBER_BYTES:
        raise InputError(
            f"expected numbers of at most {MAX_NUMBER_BYTES} bytes, "
            f"{name} at byte {place - 1} has {size}"
        )
    try:
        return opcode.arg.reader(stream)
    except ValueError as error:
        raise broken(f"{name} at byte {place - 1}: {error}") from None


def _check(name: str, argument: Any, left: int) -> None:
    """Refuse an argument beyond its limit; `left` bytes follow it."""
    if name == "GLOBAL":
        lookup(*argument.split(" "))
    if name == "FRAME" and argument > left:
        raise broken(f"FRAME claims {argument} bytes, {left} are left (truncated?)")
    if name in _PUTS and not 0 <= argument <= MAX_OPCODES:
        raise InputError(f"expected memo places from 0 to {MAX_OPCODES}, got {argument}")


def _step(opcode: pickletools.OpcodeInfo, heights: list[int]) -> None:
    """Take and put as many values as an opcode does.

    Parameters
    ----------
    opcode : OpcodeInfo
        One of those that are read.
    heights : list of int
        Values that wait since the start, then since every open mark; changed in place.
    """
    taken = opcode.stack_before
    needed = len(taken)
    if pickletools.markobject in taken:
        needed = taken.index(pickletools.markobject)
        heights.pop()
    if not heights:
        raise broken("it goes back to a mark that is not there")
    if heights[-1] < max(needed, opcode.name in _PUTS):
        raise broken("it takes a value that is not there")
    if opcode.name == "MARK":
        heights.append(0)
    else:
        heights[-1] += len(opcode.stack_after) - needed
    if len(heights) > MAX_MARKS + 1:
        raise InputError(f"the pickle is nested deeper than {MAX_MARKS} levels")
    if sum(heights) > MAX_STACK:
        raise InputError(f"the pickle keeps more than {MAX_STACK} values waiting")


ONLY = "only numbers, strings, lists, tuples, dicts and numpy scalars and arrays are read"


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


def broken(detail: object) -> InputError:
    """Return the error for bytes that no pickler writes."""
    return InputError(f"not a valid pickle: {detail}")


def lookup(module: str, name: str) -> Name:
    """Return the stand-in for a name.

    Parameters
    ----------
    module, name : str
        As the pickle says them; a dotted name is not followed.

    Returns
    -------
    Name
        A mark.

    Raises
    ------
    InputError
        Any name but those of `NAMES`.
    """
    if (module, name) not in NAMES:
        raise InputError(f"the pickle names {module[:60]}.{name[:60]}; {ONLY}")
    return NAMES[module, name]

"""Scanning of pickle opcodes against an allow-list, before any of them is run."""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Callable
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.names import Maker, lookup
from ppsolve.solver.convert.pickles.refusals import ONLY, broken

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_OPCODES = 300_000
"""A step of 100 modules in numpy scalars has about 14,000 (25,000 with protocol 0)."""

MAX_NUMBER_BYTES, MAX_NUMBER_TEXT = 16, 40
MAX_NAME_TEXT = 200
NEWEST_PROTOCOL = 5

Instruction = tuple[str, Any]
"""What the machine is to do, and with what: constants are ``("push", value)``."""

_WHOLE = re.compile(rb"-?[0-9]+")
_LONG = re.compile(rb"(-?[0-9]+)L?")
_REAL = re.compile(rb"-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|inf|nan)")
_TRUTHS = {b"00": False, b"01": True}


class _Reader:
    """Bounded reading of arguments; `opcode` and `start` are for errors."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = self.start = 0
        self.opcode = ""

    def take(self, size: int) -> bytes:
        left = len(self.data) - self.position
        if not 0 <= size <= left:
            raise broken(
                f"{self.opcode} at byte {self.start} claims {size} bytes, {left} are left"
                " (truncated?)"
            )
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self, limit: int) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + limit + 1)
        if end < 0:
            raise broken(
                f"{self.opcode} at byte {self.start} lacks the end of its line"
                f" (truncated, or longer than {limit} bytes)"
            )
        found = self.data[self.position : end]
        self.position = end + 1
        return found

    def matched(self, pattern: re.Pattern[bytes], limit: int = MAX_NUMBER_TEXT) -> re.Match[bytes]:
        text = self.line(limit)
        match = pattern.fullmatch(text)
        if match is None:
            raise broken(f"{self.opcode} at byte {self.start} expects a number, got {text[:20]!r}")
        return match

    def decoded(self, text: bytes, codec: str) -> str:
        try:
            return text.decode(codec)
        except UnicodeDecodeError:
            raise broken(f"the text of {self.opcode} at byte {self.start} is no {codec}") from None


def _whole_line(reader: _Reader) -> int:
    truth = _TRUTHS.get(reader.data[reader.position : reader.position + 2])
    if truth is not None and reader.data[reader.position + 2 : reader.position + 3] == b"\n":
        reader.position += 3
        return truth
    return int(reader.matched(_WHOLE)[0])


def _index_line(reader: _Reader) -> int:
    return int(reader.matched(_WHOLE)[0])


def _counted_number(size: int) -> Callable[[_Reader], int]:
    def read(reader: _Reader) -> int:
        length = reader.number(size)
        if length > MAX_NUMBER_BYTES:
            raise InputError(
                f"expected numbers of at most {MAX_NUMBER_BYTES} bytes, "
                f"{reader.opcode} at byte {reader.start} claims {length}"
            )
        return int.from_bytes(reader.take(length), "little", signed=True)

    return read


def _counted_bytes(size: int) -> Callable[[_Reader], bytes]:
    return lambda reader: reader.take(reader.number(size))


def _counted_text(size: int) -> Callable[[_Reader], str]:
    return lambda reader: reader.decoded(reader.take(reader.number(size)), "utf-8")


def _unsigned(size: int) -> Callable[[_Reader], int]:
    return lambda reader: reader.number(size)


def _text_line(reader: _Reader) -> str:
    return reader.decoded(reader.line(MAX_FILE_BYTES), "raw-unicode-escape")


def _named(reader: _Reader) -> Maker:
    module = reader.decoded(reader.line(MAX_NAME_TEXT), "utf-8")
    return lookup(module, reader.decoded(reader.line(MAX_NAME_TEXT), "utf-8"))


def _constant(value: Any) -> Callable[[_Reader], Any]:
    return lambda _: value


_nothing = _constant(None)

ALLOWED: dict[str, tuple[str, Callable[[_Reader], Any]]] = {
    "MARK": ("mark", _nothing),
    "STOP": ("stop", _nothing),
    "NONE": ("push", _nothing),
    "NEWTRUE": ("push", _constant(True)),
    "NEWFALSE": ("push", _constant(False)),
    "INT": ("push", _whole_line),
    "BININT": ("push", lambda reader: int.from_bytes(reader.take(4), "little", signed=True)),
    "BININT1": ("push", _unsigned(1)),
    "BININT2": ("push", _unsigned(2)),
    "LONG": ("push", lambda reader: int(reader.matched(_LONG)[1])),
    "LONG1": ("push", _counted_number(1)),
    "LONG4": ("push", _counted_number(4)),
    "FLOAT": ("push", lambda reader: float(reader.matched(_REAL)[0])),
    "BINFLOAT": ("push", lambda reader: struct.unpack(">d", reader.take(8))[0]),
    "UNICODE": ("push", _text_line),
    "SHORT_BINUNICODE": ("push", _counted_text(1)),
    "BINUNICODE": ("push", _counted_text(4)),
    "BINUNICODE8": ("push", _counted_text(8)),
    "SHORT_BINBYTES": ("push", _counted_bytes(1)),
    "BINBYTES": ("push", _counted_bytes(4)),
    "BINBYTES8": ("push", _counted_bytes(8)),
    "BYTEARRAY8": ("push", _counted_bytes(8)),
    "EMPTY_TUPLE": ("push", _constant(())),
    "TUPLE": ("tuple", _nothing),
    "TUPLE1": ("short_tuple", _constant(1)),
    "TUPLE2": ("short_tuple", _constant(2)),
    "TUPLE3": ("short_tuple", _constant(3)),
    "EMPTY_LIST": ("empty_list", _nothing),
    "LIST": ("list", _nothing),
    "APPEND": ("append", _nothing),
    "APPENDS": ("appends", _nothing),
    "EMPTY_DICT": ("empty_dict", _nothing),
    "DICT": ("dict", _nothing),
    "SETITEM": ("setitem", _nothing),
    "SETITEMS": ("setitems", _nothing),
    "PUT": ("put", _index_line),
    "BINPUT": ("put", _unsigned(1)),
    "LONG_BINPUT": ("put", _unsigned(4)),
    "MEMOIZE": ("put", _nothing),
    "GET": ("get", _index_line),
    "BINGET": ("get", _unsigned(1)),
    "LONG_BINGET": ("get", _unsigned(4)),
    "GLOBAL": ("push", _named),
    "STACK_GLOBAL": ("stack_global", _nothing),
    "REDUCE": ("reduce", _nothing),
    "BUILD": ("build", _nothing),
}
"""Opcodes that are read, by Python's names for them: what the machine does, and the argument.

Not among them: instances (INST, OBJ, NEWOBJ, NEWOBJ_EX), extension codes, persistent ids,
out-of-band buffers, sets, the byte strings of Python 2, and POP, POP_MARK and DUP, which picklers
write for nothing that a timeline holds. GLOBAL, REDUCE and BUILD are there for numpy only.
"""

_NAMES: dict[int, str] = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


def scan(data: bytes) -> list[Instruction]:
    """Return the instructions of a pickle, every opcode of which is allowed.

    Raises
    ------
    InputError
        Empty, too large, truncated, an opcode that is unknown or not read, an argument beyond
        its limit, a name that is not read, frames that do not hold, or bytes after the end.
    """
    if not data:
        raise InputError("expected a pickle, the file is empty")
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"expected a pickle of at most {MAX_FILE_BYTES} bytes, got {len(data)}")
    reader = _Reader(data)
    _read_protocol(reader)
    instructions: list[Instruction] = []
    frame_end = 0
    while not instructions or instructions[-1][0] != "stop":
        if len(instructions) >= MAX_OPCODES:
            raise InputError(f"expected a pickle of at most {MAX_OPCODES} opcodes, there are more")
        name = _next_name(reader)
        if name == "FRAME":
            frame_end = _frame_end(reader, frame_end)
            continue
        action, argument = ALLOWED[name]
        instructions.append((action, argument(reader)))
        if reader.start < frame_end < reader.position:
            raise broken(f"{name} at byte {reader.start} crosses the end of its frame")
    _refuse_rest(reader, frame_end)
    return instructions


def _read_protocol(reader: _Reader) -> None:
    """Read the protocol, which pickles of protocol 0 and 1 do not say."""
    if reader.data[0] != 0x80:
        return
    reader.position, reader.opcode = 1, "PROTO"
    protocol = reader.number(1)
    if protocol > NEWEST_PROTOCOL:
        raise InputError(f"expected a pickle of protocol 0 to {NEWEST_PROTOCOL}, got {protocol}")


def _next_name(reader: _Reader) -> str:
    reader.start = reader.position
    if reader.position == len(reader.data):
        raise broken(f"it ends after {reader.position} bytes without STOP (truncated?)")
    code = reader.data[reader.position]
    name = _NAMES.get(code)
    if name is None:
        raise broken(f"no opcode is 0x{code:02x}, at byte {reader.position}")
    if name not in ALLOWED and name != "FRAME":
        raise InputError(f"the pickle uses {name} at byte {reader.position}; {ONLY}")
    reader.position += 1
    reader.opcode = name
    return name


def _frame_end(reader: _Reader, previous: int) -> int:
    """Return where the frame ends; frames hold whole opcodes and do not nest."""
    length = reader.number(8)
    left = len(reader.data) - reader.position
    if length > left:
        raise broken(
            f"FRAME at byte {reader.start} claims {length} bytes, {left} are left (truncated?)"
        )
    if reader.start < previous:
        raise broken(f"FRAME at byte {reader.start} lies in another frame")
    return reader.position + length


def _refuse_rest(reader: _Reader, frame_end: int) -> None:
    left = len(reader.data) - reader.position
    if left:
        raise broken(f"{left} more bytes follow its end at byte {reader.position}")
    if frame_end > reader.position:
        raise broken("its last frame goes on after its end")

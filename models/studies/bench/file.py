"""Benchmark results: a line for each item; files read whole, appended to, never half-written."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from ppsolve.models.core.result import (
    LARGEST,
    Figure,
    HeuristicStatus,
    OwnBoundStatus,
    Status,
    StopReason,
)
from ppsolve.models.documents.base import StrictModel
from ppsolve.models.documents.contents import (
    BYTES,
    TEXTS,
    describe_document,
    describe_text,
)
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import (
    BEGINNING,
    destination,
    opened,
    parse_json,
    write_bytes,
)

MOST_MOMENTS = 200
"""Most entries of `BenchRecord.anytime`: a curve that is drawn needs no more, and a line with them
stays below 10 kB."""

Value = Annotated[Figure, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(allow_inf_nan=False)]
Moment = tuple[Seconds, Value | None, Value | None]
"""Seconds since the start, best value and best bound at that moment."""


class Failure(StrEnum):
    """Why an item has no result."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    ERROR = "error"


class BenchLine(StrictModel):
    """Base of all that stands in a line: numbers are the nearest doubles, no fields are unknown."""

    @field_validator("*", mode="before")
    @classmethod
    def _plain_numbers(cls, value: Any) -> Any:
        return _without_decimals(value)


class BenchHeuristic(BenchLine):
    """One heuristic on one instance; `gap` is (its value - best value) / best value."""

    name: str
    status: HeuristicStatus
    value: Value | None = None
    gap: Share | None = None
    seconds: Seconds | None = None
    reason: str | None = None


class BenchBound(BenchLine):
    """One lower bound by name."""

    name: str
    value: Value


class BenchOwnBound(BenchLine):
    """A user's lower bound, which proves nothing, and why it has no value or a wrong one."""

    name: str
    status: OwnBoundStatus
    value: Value | None = None
    reason: str | None = None


class BenchPeer(BenchLine):
    """Another solver on the same instance, with the same limits."""

    name: str
    status: str
    value: Value | None = None
    bound: Value | None = None
    seconds: Seconds | None = None


class BenchRecord(BenchLine):
    """One item: every heuristic and the solver on one instance, or how that failed.

    `key` is a hash of the instance, the settings, the version and users' code, `content` one of the
    instance alone. `gap` is (value - bound) / value. `seconds_to_proof` is null where nothing was
    proved. An instance of a file is there as `instance_document`; one that was drawn comes again
    from its `recipe` and `recipe_seed`. Reports group by `factors`. `machine` names processor,
    cores, memory, platform and versions behind the times.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    key: str = Field(min_length=1)
    content: str | None = None
    instance: str
    family: str
    path: str | None = None
    recipe: str | None = None
    recipe_seed: int | None = None
    instance_document: dict[str, Any] | None = None
    factors: dict[str, str | float] = Field(default={})
    kind: str
    ops: int | None = Field(default=None, ge=0)
    objective: str | None = None
    time_unit: str
    status: Status
    value: Value | None = None
    bound: Value | None = None
    bound_by: str | None = None
    best_by: str | None = None
    gap: Share | None = None
    stop_reason: StopReason | None = None
    seconds: Seconds
    seconds_to_best: Seconds | None = None
    seconds_to_proof: Seconds | None = None
    bounds: tuple[BenchBound, ...] = ()
    own_bounds: tuple[BenchOwnBound, ...] | None = None
    heuristics: tuple[BenchHeuristic, ...] = ()
    anytime: tuple[Moment, ...] = Field(default=(), max_length=MOST_MOMENTS)
    peers: tuple[BenchPeer, ...] | None = None
    failure: Failure | None = None
    error: str | None = None
    attempts: int = Field(default=1, ge=1)
    time_limit: Seconds | None = None
    settings: dict[str, Any] = Field(default={})
    machine: str

    def line(self) -> bytes:
        """Return the record as one line of a file, its end included."""
        parts = ("own_bounds", "peers", "recipe", "recipe_seed", "instance_document")
        left_out = {name for name in parts if getattr(self, name) is None}
        return self.model_dump_json(exclude=left_out).encode() + b"\n"

    def answer(self) -> dict[str, Any]:
        """Return the part of the record that two runs of one key should share."""
        return {
            "status": self.status.value,
            "value": self.value,
            "bound": self.bound,
            "failure": None if self.failure is None else self.failure.value,
        }


def _without_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: _without_decimals(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_decimals(child) for child in value]
    return value


if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True)
class Records:
    """The records of a file, one for each line."""

    records: tuple[BenchRecord, ...] = ()
    torn: int = (
        0  # bytes behind the last whole line: a run was killed while it wrote them
    )


def read_records(path: str | Path) -> Records:
    """Read a file of results; raises InputError that names the line which is no record."""
    with opened(path) as stream:
        data = stream.read()
    _refuse_others(data, str(path))
    *lines, torn = data.split(b"\n")
    return Records(tuple(_records(lines, str(path))), len(torn))


def _refuse_others(data: bytes, source: str) -> None:
    """Refuse a file that is known to be something else, as a whole."""
    description = describe_text(data[:BEGINNING].decode("latin-1"), BYTES | TEXTS)
    if description is None:
        with suppress(InputError, UnicodeDecodeError):
            description = describe_document(parse_json(data.decode(), source))
    if description and "`ppsolve bench report FILE" not in description:
        raise InputError(
            f"expected results of a benchmark, {description}",
            source=source,
            code=ErrorCode.MISSING,
        )


def _records(lines: Iterable[bytes], path: str) -> Iterator[BenchRecord]:
    for number, line in enumerate(lines, 1):
        source = f"{path}: line {number}"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise InputError(
                "expected UTF-8 text", source=source, code=ErrorCode.SYNTAX
            ) from None
        if not text.strip():
            raise InputError(
                "expected a record, the line is empty",
                source=source,
                code=ErrorCode.SYNTAX,
            )
        yield BenchRecord.parse(parse_json(text, source), source)


def write_records(path: str | Path, records: Iterable[BenchRecord]) -> None:
    """Write a file of results, whole or not at all, in place of one that is there.

    Raises `InputError` where the file cannot be written.
    """
    write_bytes(path, b"".join(record.line() for record in records))


class BenchFile:
    """A file that one run appends to: one line, written at once and synced, for each item.

    It is made if it is missing, and locked until `close`.

    Raises `InputError`: the file cannot be written, another run is writing to it, or a
        line is no record.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = destination(path)
        self._handle = _locked(self.path)
        try:
            contents = read_records(self.path)
            if contents.torn:
                os.ftruncate(
                    self._handle, os.fstat(self._handle).st_size - contents.torn
                )
        except BaseException:
            self.close()
            raise
        self.records = list(contents.records)
        self.torn = contents.torn

    def keep(self, records: Iterable[BenchRecord]) -> None:
        """Replace the file by one with these records, under the same lock."""
        self.records = list(records)
        write_records(self.path, self.records)
        before, self._handle = self._handle, _locked(self.path)
        os.close(before)

    def append(self, record: BenchRecord) -> None:
        """Add a record as a line, and wait until it is on the disk.

        Raises `InputError` where the disk is full, or the file cannot be written; it then ends with
        the line before.
        """
        line, size = record.line(), os.fstat(self._handle).st_size
        try:
            if os.write(self._handle, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, size)
            message = f"cannot be written: {error.strerror}"
            raise InputError(
                message, source=str(self.path), code=ErrorCode.FILE
            ) from None
        finally:
            # An interrupt may come in between: what is in the file is done.
            if os.fstat(self._handle).st_size > size:
                self.records.append(record)

    def close(self) -> None:
        """Let other runs write to the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def _locked(path: Path) -> int:
    """Open a file to append to and lock it, whoever replaces it meanwhile."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}",
                source=str(path),
                code=ErrorCode.FILE,
            ) from None
        try:
            _lock(handle, path)
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = "another run is writing to it; give it a file of its own, or wait"
        raise InputError(text, source=str(path), code=ErrorCode.FILE) from None


def merged(files: Mapping[str, Records]) -> tuple[list[BenchRecord], list[str]]:
    """Return the records of all files, each key once, and how results of one key differ.

    A result is kept rather than a failure, else the record of the file named first; records are in
    the order of their first keys. There is a line for each record left out whose status, value,
    bound or failure is another.

    `files`: contents by name of the file.
    """
    kept: dict[str, tuple[str, BenchRecord]] = {}
    differences = []
    for name, contents in files.items():
        for record in contents.records:
            before = kept.setdefault(record.key, (name, record))
            if before[1].answer() != record.answer():
                preferred, dropped = before, (name, record)
                if before[1].failure is not None and record.failure is None:
                    preferred, dropped = dropped, preferred
                kept[record.key] = preferred
                differences.append(_difference(preferred, dropped))
    return [record for _, record in kept.values()], differences


def _difference(kept: tuple[str, BenchRecord], dropped: tuple[str, BenchRecord]) -> str:
    (kept_name, kept_record), (name, record) = kept, dropped
    differences = [
        f"{field} {mine} ({kept_name}) and {theirs} ({name})"
        for (field, mine), theirs in zip(
            kept_record.answer().items(), record.answer().values(), strict=True
        )
        if mine != theirs
    ]
    text = ", ".join(differences)
    return f"{record.instance} ({record.key}) differs: {text}; {kept_name} is kept"

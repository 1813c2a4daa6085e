"""Files of benchmark results: read whole, appended line by line, never half-written; merging."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import destination, opened, parse_json, write_bytes
from ppsolve.models.studies.bench.record import BenchRecord

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True)
class Records:
    """The records of a file, one for each line."""

    records: tuple[BenchRecord, ...] = ()
    torn: int = 0  # bytes behind the last whole line: a run was killed while it wrote them


def read_records(path: str | Path) -> Records:
    """Read a file of results; raises InputError that names the line which is no record."""
    with opened(path) as stream:
        data = stream.read()
    *lines, torn = data.split(b"\n")
    return Records(tuple(_records(lines, str(path))), len(torn))


def _records(lines: Iterable[bytes], path: str) -> Iterator[BenchRecord]:
    for number, line in enumerate(lines, 1):
        source = f"{path}: line {number}"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise InputError("expected UTF-8 text", source=source) from None
        if not text.strip():
            raise InputError("expected a record, the line is empty", source=source)
        data = parse_json(text, source)
        if isinstance(data, dict) and "wall_seconds" in data:
            raise InputError("this is a result; `ppsolve bench` writes records", source=path)
        yield BenchRecord.parse(data, source)


def write_records(path: str | Path, records: Iterable[BenchRecord]) -> None:
    """Write a file of results, whole or not at all.

    Parameters
    ----------
    path : str or Path
        The file; one that is there is replaced.
    records : iterable of BenchRecord
        What it is to hold.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    write_bytes(path, b"".join(record.line() for record in records))


class BenchFile:
    """A file that one run appends to: one line, written at once and synced, for each item.

    It is made if it is missing, and locked until `close`.

    Raises
    ------
    InputError
        The file cannot be written, another run is writing to it, or a line is no record.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = destination(path)
        self._handle = _locked(self.path)
        try:
            found = read_records(self.path)
            if found.torn:
                os.ftruncate(self._handle, os.fstat(self._handle).st_size - found.torn)
        except BaseException:
            self.close()
            raise
        self.records = list(found.records)
        self.torn = found.torn

    def keep(self, records: Iterable[BenchRecord]) -> None:
        """Replace the file by one with these records, under the same lock."""
        self.records = list(records)
        write_records(self.path, self.records)
        before, self._handle = self._handle, _locked(self.path)
        os.close(before)

    def append(self, record: BenchRecord) -> None:
        """Add a record as a line, and wait until it is on the disk.

        Raises
        ------
        InputError
            The disk is full, or the file cannot be written; it ends with the line before then.
        """
        line, size = record.line(), os.fstat(self._handle).st_size
        try:
            if os.write(self._handle, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, size)
            message = f"cannot be written: {error.strerror}"
            raise InputError(message, source=str(self.path)) from None
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
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
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
        raise InputError(text, source=str(path)) from None


def merged(files: Mapping[str, Records]) -> tuple[list[BenchRecord], list[str]]:
    """Return the records of all files, each key once, and how results of one key differ.

    A result is kept rather than a failure, else the record of the file named first.

    Parameters
    ----------
    files : mapping of str to Records
        Contents by name of the file.

    Returns
    -------
    records : list of BenchRecord
        In the order of their first keys.
    differences : list of str
        A line for each record left out whose status, value, bound or failure is another.
    """
    kept: dict[str, tuple[str, BenchRecord]] = {}
    differences = []
    for name, found in files.items():
        for record in found.records:
            before = kept.setdefault(record.key, (name, record))
            if before[1].answer() != record.answer():
                chosen, other = before, (name, record)
                if before[1].failure is not None and record.failure is None:
                    chosen, other = other, chosen
                kept[record.key] = chosen
                differences.append(_difference(chosen, other))
    return [record for _, record in kept.values()], differences


def _difference(kept: tuple[str, BenchRecord], other: tuple[str, BenchRecord]) -> str:
    (kept_name, kept_record), (name, record) = kept, other
    parts = [
        f"{field} {mine} ({kept_name}) and {theirs} ({name})"
        for (field, mine), theirs in zip(
            kept_record.answer().items(), record.answer().values(), strict=True
        )
        if mine != theirs
    ]
    return f"{record.instance} ({record.key}) differs: {', '.join(parts)}; {kept_name} is kept"

"""Reading of files that may be anything: bounded, and never waiting for one to be written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.opcodes import MAX_FILE_BYTES


def read_pickle_file(path: str | Path) -> bytes:
    """Return the bytes of a regular file.

    Raises
    ------
    InputError
        The file is missing, unreadable, too large, or a directory, pipe or device.
    """
    source = str(path)
    try:
        data = _read(path, source)
    except FileNotFoundError:
        raise InputError("no such file or folder", source=source) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", source=source) from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"expected a file of at most {MAX_FILE_BYTES} bytes", source=source)
    return data


def _read(path: str | Path, source: str) -> bytes:
    # A pipe that nobody writes to would make a plain opening wait.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _refuse_other_kinds(os.fstat(handle).st_mode, source)
        with open(handle, "rb", closefd=False) as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(handle)


def _refuse_other_kinds(mode: int, source: str) -> None:
    if stat.S_ISDIR(mode):
        raise InputError("expected a file, this is a directory", source=source)
    if not stat.S_ISREG(mode):
        raise InputError("expected a regular file, this is a pipe or device", source=source)

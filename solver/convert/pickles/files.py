"""Reading of files that may be anything: bounded, and never waiting for one to be written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.scan import MAX_FILE_BYTES


def read_pickle_file(path: str | Path) -> bytes:
    """Return the bytes of a regular file.

    Raises
    ------
    InputError
        The file is missing, unreadable, too large, or a directory, pipe or device.
    """
    source = str(path)
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise InputError("expected a regular file, this is a pipe or device", source=source)
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise InputError("no such file or folder", source=source) from None
    except IsADirectoryError:
        raise InputError("expected a file, this is a directory", source=source) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", source=source) from None
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"expected a file of at most {MAX_FILE_BYTES} bytes", source=source)
    return data


def _open_at_once(path: str, flags: int) -> int:
    # A pipe that nobody writes to would make a plain opening wait.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

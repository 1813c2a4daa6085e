"""Reading of files that may be anything: bounded."""

from __future__ import annotations

from pathlib import Path

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import opened
from ppsolve.solver.convert.pickles.scan import MAX_FILE_BYTES


def read_pickle_file(path: str | Path) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    InputError
        The file is missing, unreadable, too large, or a directory, named pipe or device.
    """
    with opened(path) as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"expected a file of at most {MAX_FILE_BYTES} bytes", source=str(path))
    return data

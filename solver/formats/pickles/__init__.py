"""Reading pickles that strangers wrote: nothing in them is ever imported, called or looked up.

The steps, each of which refuses with one `InputError`: a scan of all opcodes against an allow-list
and limits (`scan`); Python's own unpickler with fewer opcodes, marks for names and stand-ins for
numpy's numbers and arrays (`unpickler`); and a copy of the result under a limit while its form is
checked (`schema`).
"""

from __future__ import annotations

from pathlib import Path

from ppsolve.models.documents.errors import InputError, errors_in
from ppsolve.models.documents.files import opened
from ppsolve.solver.formats.pickles.scan import LIMITS
from ppsolve.solver.formats.pickles.schema import Timeline, as_timeline
from ppsolve.solver.formats.pickles.unpickler import unpickle

__all__ = ["Timeline", "load_timeline_pickle", "read_pickle_file"]


def load_timeline_pickle(data: bytes, source: str) -> Timeline:
    """Read a PipeFisher timeline, whatever else its bytes may try.

    Raises `InputError` for what is no pickle, too large, names, builds or does anything but
    numbers, texts, lists, tuples, dicts and numpy scalars and arrays, or has another form.

    Parameters
    ----------
    data : bytes
        The pickle, of protocol 0 to 5.
    source : str
        File name for errors.

    Returns
    -------
    dict of str to list of (number, number) or (None, None)
        Intervals by label, in the file's order and unit (nanoseconds); plain ints and floats.
    """
    with errors_in(source):
        return as_timeline(unpickle(data))


def read_pickle_file(path: str | Path) -> bytes:
    """Return the bytes of a file.

    Raises `InputError` where the file is missing, unreadable, too large, or a directory, named pipe
    or device.
    """
    with opened(path) as stream:
        data = stream.read(LIMITS.file_bytes + 1)
    if len(data) > LIMITS.file_bytes:
        raise InputError(f"expected a file of at most {LIMITS.file_bytes} bytes", source=str(path))
    return data

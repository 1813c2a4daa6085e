"""Reading pickles that strangers wrote: nothing in them is ever imported, called or looked up.

The steps, each of which refuses with one `InputError`: the opcodes are scanned against an
allow-list (`opcodes`), names against an exact table (`names`), a small stack machine of our own
runs them on plain values (`machine`), with stand-ins for numpy's numbers and arrays
(`numpy_parts`), and the result is copied under a limit while its form is checked (`schema`).
Python's own unpickler is not used.
"""

from __future__ import annotations

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.machine import run
from ppsolve.solver.convert.pickles.opcodes import scan
from ppsolve.solver.convert.pickles.schema import (
    ScheduleLabels,
    Timeline,
    as_schedule,
    as_timeline,
)

__all__ = [
    "ScheduleLabels",
    "Timeline",
    "load_schedule_pickle",
    "load_timeline_pickle",
]


def load_timeline_pickle(data: bytes, source: str) -> Timeline:
    """Read a PipeFisher timeline, whatever else its bytes may try.

    Parameters
    ----------
    data : bytes
        The pickle, of protocol 0 to 5.
    source : str
        File name for errors.

    Returns
    -------
    dict of str to list of (number, number) or (None, None)
        Intervals by label, in the file's order; plain ints (floats where they are floats) in the
        file's unit (nanoseconds). Numpy's numbers and arrays are unpacked.

    Raises
    ------
    InputError
        Not a pickle, too large, one that names, builds or does anything but numbers, texts,
        lists, tuples, dicts and numpy scalars and arrays, or one of another form.
    """
    try:
        return as_timeline(run(scan(data)))
    except InputError as error:
        raise error.located(source) from None


def load_schedule_pickle(data: bytes, source: str) -> ScheduleLabels:
    """Read a PipeFisher schedule, ``list[device][iteration][label]``.

    Raises
    ------
    InputError
        As `load_timeline_pickle`.
    """
    try:
        return as_schedule(run(scan(data)))
    except InputError as error:
        raise error.located(source) from None

"""Timelines as pickles hold them: read, and copied under a limit while their form is checked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.documents.files import opened
from ppsolve.models.kinds.kfac.labels import MAX_LABEL
from ppsolve.solver.formats.pickles.scan import LIMITS
from ppsolve.solver.formats.pickles.unpickler import PickledArray, unpickle

Pair = tuple[int | float | None, int | float | None]
Timeline = dict[str, list[Pair]]


def load_timeline_pickle(data: bytes, source: str) -> Timeline:
    """Read a PipeFisher timeline, whatever else its bytes may try.

    Intervals by label keep the file's order and unit (nanoseconds); they are plain ints and floats.
    Raises `InputError` for what is no pickle of protocol 0 to 5, too large, names, builds or does
    anything but numbers, texts, lists, tuples, dicts and numpy scalars and arrays, or has another
    form.
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
        raise InputError(
            f"expected a file of at most {LIMITS.file_bytes} bytes",
            source=str(path),
            code=ErrorCode.FILE,
        )
    return data


def as_timeline(value: Any) -> Timeline:
    """Return `value` as intervals by label, in plain numbers.

    Raises `InputError` for another form; the field is the label.
    """
    if type(value) is not dict:
        raise InputError(
            f"expected a dict of lists of (start, end), got {_described(value)}",
            code=ErrorCode.TYPE,
        )
    if not value:
        raise InputError(
            "expected a dict of lists of (start, end), the dict is empty",
            code=ErrorCode.TYPE,
        )
    rows = {_label(label): _items(label, items) for label, items in value.items()}
    if len(rows) + sum(map(len, rows.values())) > LIMITS.entries:
        raise InputError(
            f"expected at most {LIMITS.entries} entries, counted as often as they are referred to",
            code=ErrorCode.RANGE,
        )
    return {
        label: [_pair(f"{label}[{index}]", row) for index, row in enumerate(items)]
        for label, items in rows.items()
    }


def _items(field: str, value: Any) -> Any:
    # Not a copy: that is made only once the entries are counted.
    if type(value) is PickledArray and value.shape[1:] == (2,):
        return value.numbers
    if type(value) not in (list, tuple):
        raise InputError(
            f"expected a list of (start, end), got {_described(value)}",
            field=field,
            code=ErrorCode.TYPE,
        )
    return value


def _label(value: str) -> str:
    if not 0 < len(value) <= MAX_LABEL:
        raise InputError(
            f"expected labels of 1 to {MAX_LABEL} characters, got one of {len(value)}",
            code=ErrorCode.LENGTH,
        )
    if not value.isprintable():
        raise InputError(
            f"expected labels of printable characters, got {json.dumps(value[:40])}"
        )
    return value


def _pair(field: str, row: Any) -> Pair:
    if type(row) is PickledArray and row.shape == (2,):
        row = row.numbers
    pair = row.tolist() if type(row) is np.ndarray else row
    if type(pair) not in (list, tuple) or len(pair) != 2:
        raise InputError(
            f"expected a pair (start, end), got {_described(row)}",
            field=field,
            code=ErrorCode.TYPE,
        )
    start, end = pair
    if (start is None) != (end is None):
        raise InputError(
            "expected two numbers or (None, None), got one None",
            field=field,
            code=ErrorCode.TYPE,
        )
    if start is None:
        return (None, None)
    return (_number(field, start), _number(field, end))


def _number(field: str, value: Any) -> int | float:
    if type(value) is not int and type(value) is not float:
        raise InputError(
            f"expected a number, got {_described(value)}",
            field=field,
            code=ErrorCode.TYPE,
        )
    if type(value) is float and not math.isfinite(value):
        raise InputError(
            f"expected a finite number, got {value}", field=field, code=ErrorCode.TYPE
        )
    return value


def _described(value: Any) -> str:
    # A wrong value may be huge or hold itself.
    if value is None or type(value) in (bool, int, float):
        return str(value)[:40]
    if type(value) is str:
        return f"the text {json.dumps(value[:40])}"
    if type(value) in (list, tuple, dict):
        return f"a {type(value).__name__} of {len(value)}"
    if type(value) is PickledArray:
        return f"an array {value.shape}" if value.shape else "an array without data"
    return "bytes" if type(value) is bytes else "a part of numpy's own"

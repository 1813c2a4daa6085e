"""The forms that a read pickle must have, copied under a limit on everything it repeats."""

from __future__ import annotations

import json
import math
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.models.kfac.labels import MAX_LABEL
from ppsolve.solver.convert.pickles.names import Maker
from ppsolve.solver.convert.pickles.numpy_parts import Array, Dtype

Pair = tuple[int | float | None, int | float | None]
Timeline = dict[str, list[Pair]]
ScheduleLabels = list[list[list[str]]]

MAX_ITEMS = 500_000
"""Entries of a timeline or schedule, one that is referred to many times counting each time."""


class _Budget:
    def __init__(self) -> None:
        self._left = MAX_ITEMS

    def charge(self, items: int) -> None:
        self._left -= items
        if self._left < 0:
            raise InputError(
                f"expected at most {MAX_ITEMS} entries, counted as often as they are referred to"
            )


def as_timeline(value: Any) -> Timeline:
    """Return `value` as intervals by label, in plain numbers.

    Raises
    ------
    InputError
        Another form; the field is the label.
    """
    if type(value) is not dict:
        raise InputError(f"expected a dict of lists of (start, end), got {_described(value)}")
    if not value:
        raise InputError("expected a dict of lists of (start, end), the dict is empty")
    budget = _Budget()
    budget.charge(len(value))
    return {_label(label): _intervals(label, given, budget) for label, given in value.items()}


def _label(label: str) -> str:
    if not 0 < len(label) <= MAX_LABEL:
        raise InputError(f"expected labels of 1 to {MAX_LABEL} characters, got one of {len(label)}")
    if not label.isprintable():
        raise InputError(f"expected labels of printable characters, got {_shown(label)}")
    return label


def _intervals(label: str, given: Any, budget: _Budget) -> list[Pair]:
    rows: Any = given.pairs() if type(given) is Array else given
    if type(rows) not in (list, tuple):
        raise InputError(f"expected a list of (start, end), got {_described(given)}", field=label)
    budget.charge(len(rows))
    return [_pair(f"{label}[{place}]", row) for place, row in enumerate(rows)]


def _pair(field: str, row: Any) -> Pair:
    items = row.values if type(row) is Array and row.shape == (2,) else row
    if type(items) not in (list, tuple) or len(items) != 2:
        raise InputError(f"expected a pair (start, end), got {_described(row)}", field=field)
    start, end = items
    if (start is None) != (end is None):
        raise InputError("expected two numbers or (None, None), got one None", field=field)
    if start is None:
        return (None, None)
    return (_number(field, start), _number(field, end))


def _number(field: str, value: Any) -> int | float:
    if type(value) is not int and type(value) is not float:
        raise InputError(f"expected a number, got {_described(value)}", field=field)
    if type(value) is float and not math.isfinite(value):
        raise InputError(f"expected a finite number, got {value}", field=field)
    return value


def as_schedule(value: Any) -> ScheduleLabels:
    """Return `value` as labels by device and iteration.

    Raises
    ------
    InputError
        Another form; the field is the place in the list.
    """
    budget = _Budget()
    devices = _items(None, value, budget, "devices")
    return [_iterations(f"[{place}]", given, budget) for place, given in enumerate(devices)]


def _iterations(field: str, given: Any, budget: _Budget) -> list[list[str]]:
    iterations = _items(field, given, budget, "iterations")
    return [_labels(f"{field}[{place}]", labels, budget) for place, labels in enumerate(iterations)]


def _labels(field: str, given: Any, budget: _Budget) -> list[str]:
    labels = _items(field, given, budget, "labels")
    return [_text(f"{field}[{place}]", label) for place, label in enumerate(labels)]


def _items(field: str | None, value: Any, budget: _Budget, what: str) -> list[Any]:
    if type(value) is not list and type(value) is not tuple:
        raise InputError(f"expected a list of {what}, got {_described(value)}", field=field)
    budget.charge(len(value))
    return list(value)


def _text(field: str, label: Any) -> str:
    if type(label) is not str:
        raise InputError(f"expected a label, got {_described(label)}", field=field)
    return _label(label)


def _shown(text: str) -> str:
    return json.dumps(text[:40])


def _described(value: Any) -> str:
    """Return a short name of a wrong value, which may be huge or hold itself."""
    if value is None or type(value) in (bool, int, float):
        return str(value)[:40]
    if type(value) is str:
        return f"the text {_shown(value)}"
    if isinstance(value, Dtype | Maker):
        return "a part of numpy's own"
    if type(value) is Array:
        return "an array without data" if value.shape is None else f"an array {value.shape}"
    if type(value) in (list, tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "bytes" if type(value) is bytes else "a dict"

"""Parameters of which the default run takes the first ones, and examples of which it draws few."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

MORE = int(os.environ.get("PPSOLVE_EXAMPLES", "1"))
"""How many times as many random examples are drawn as in the default run."""

expression = ""
"""What `-m` says; thousands of tests that it leaves out need not even be made."""


def later(mark: str, values: Iterable[Any]) -> list[Any]:
    """Return `values` as parameters with a mark; none where `-m` leaves the mark out."""
    if f"not {mark}" in expression:
        return []
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=getattr(pytest.mark, mark)) for row in rows]


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Return `values`, all but the first `count` marked as slow."""
    every = list(values)
    return every[:count] + later("slow", every[count:])


def examples(count: int) -> settings:
    """Return the settings of a test of so many random examples, or `MORE` times as many."""
    return settings(max_examples=count * MORE, deadline=None)

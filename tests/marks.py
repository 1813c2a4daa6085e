"""Parameters of which the default run takes the first ones, and ``pytest -m slow`` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Return `values`, all but the first `count` marked as slow."""
    every = list(values)
    rest = (value if isinstance(value, tuple) else (value,) for value in every[count:])
    return every[:count] + [
        pytest.param(*values, marks=pytest.mark.slow) for values in rest
    ]

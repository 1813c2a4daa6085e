"""Documents in one line, as Python shows them: their names and figures, not all of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from pydantic import BaseModel

from ppsolve.models.documents.printable import printable

LONGEST_TEXT = 80
"""Characters of one text: a few of them fill a line of a wide terminal."""

Pairs = Iterator[tuple[str, Any]]
"""Names and values, as `BaseModel.__repr_args__` yields them."""


def some_of(model: BaseModel, *names: str) -> Pairs:
    """Yield some fields of a model that are not None.

    Parameters
    ----------
    model : BaseModel
        The model.
    *names : str
        Its fields.

    Yields
    ------
    (str, Any)
        Name and value.
    """
    for name in names:
        value = getattr(model, name)
        if value is not None:
            yield name, _short(value)


def counts_of(model: BaseModel) -> Pairs:
    """Yield the name and the numbers of a model, and how many items its lists have."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, tuple | list | dict):
            if value:
                yield name, len(value)
        elif name == "name" or (isinstance(value, int) and name != "schema_version"):
            yield name, _short(value)


def _short(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return printable(value, LONGEST_TEXT) if isinstance(value, str) else value

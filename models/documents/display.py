"""Displays of documents in notebooks and Python sessions.

Packages that know screens make them; `ppsolve` registers these by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ppsolve.models.documents.printable import printable

if TYPE_CHECKING:
    from pydantic import (
        BaseModel,
    )  # the package registers displays before pydantic is loaded

Way = Literal["html", "gantt", "frame"]

_homes: dict[str, str] = {}


def register_display(kind: Way, home: str) -> None:
    """Register the function that makes a display: ``module:function``, imported when first used.

    An ``html`` display is the text of a notebook's cell, ``gantt`` a figure, ``frame`` a data
    frame.
    """
    _homes[kind] = home


def display(kind: Way, *arguments: Any, **options: Any) -> Any:
    """Return a display of a document, the first argument; None where no function is registered."""
    if kind not in _homes:
        return None
    module, _, name = _homes[kind].partition(":")
    return getattr(import_module(module), name)(*arguments, **options)


class ShownInNotebooks:
    """A document that a notebook shows by a static page part, without any script."""

    def _repr_html_(self) -> str | None:
        text: str | None = display("html", self)
        return text


Pairs = Iterator[tuple[str, Any]]
"""Names and values, as `BaseModel.__repr_args__` yields them."""


def some_of(model: BaseModel, *names: str) -> Pairs:
    """Yield the name and value of some fields of a model that are not None."""
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
    return printable(value, 80) if isinstance(value, str) else value

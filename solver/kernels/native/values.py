"""Values while a kernel is translated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

INT, FLOAT, POINTER = "i64", "double", "ptr"
"""Kinds of numbers, by LLVM's names. Truth is an `INT`, 0 or 1."""


class UntranslatableError(Exception):
    """A kernel uses something that has no translation; kernels are written without it."""


class NoSourceError(UntranslatableError):
    """The text of a kernel is not here, as in programs that are shipped without it."""


@dataclass(frozen=True)
class Number:
    """A constant, or a register."""

    text: str
    kind: str = INT


@dataclass(frozen=True)
class Slot:
    """A number in memory, which LLVM turns into registers."""

    text: str
    kind: str


@dataclass(frozen=True)
class Array:
    """An int64 array: the address of its first number, and how many there are."""

    pointer: Number | Slot
    length: Number | Slot


@dataclass(frozen=True)
class Record:
    """A named tuple; or a tuple, which has no names."""

    names: tuple[str, ...]
    items: tuple[Value, ...]


Value: TypeAlias = Number | Slot | Array | Record


FAULT = "fault"
"""Kind of the last layout of checked code, which code that checks nothing does not have: an address
to which a kernel writes what was wrong, as the address of a text and two numbers."""


@dataclass(frozen=True)
class ArgumentLayout:
    """How an argument is passed, in words of 64 bits.

    Attributes
    ----------
    kind : str
        `INT` or `FLOAT`: the number; `POINTER`: address and length of an array; "record": the
        address of the words of all fields; `FAULT`.
    names, fields : tuple
        Names and layouts of the fields of a record.
    """

    kind: str
    names: tuple[str, ...] = ()
    fields: tuple[ArgumentLayout, ...] = ()


def layout_of(value: Any, annotation: str = "") -> ArgumentLayout:
    """Return the layout of an argument.

    Parameters
    ----------
    value : int, float, ndarray or NamedTuple
        The argument.
    annotation : str
        The type that its parameter or field is declared with: a float may come as 0.

    Returns
    -------
    ArgumentLayout
        Of this argument and all like it.
    """
    if isinstance(value, np.ndarray):
        return ArgumentLayout(POINTER)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", ())
        types = [_name_of(type(value).__annotations__.get(name)) for name in names]
        return ArgumentLayout("record", names, tuple(map(layout_of, value, types)))
    return ArgumentLayout(FLOAT if annotation == "float" or isinstance(value, float) else INT)


def _name_of(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", getattr(annotation, "__name__", annotation)))

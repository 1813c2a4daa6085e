"""The code of users' heuristics: part of what an item asks, as results hang on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from ppsolve.solver.heuristics.loading import is_spec, source_of
from ppsolve.solver.optimize.registry import ENTRY_POINTS

DIGITS = 16
"""Hexadecimal digits of a hash that are kept: two files agree in them by chance once in 10^19."""


class ChangedCodeError(Exception):
    """A heuristic's file is not the one that the item was asked with."""


def code_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the hash of the file of each user's heuristic that options run.

    Parameters
    ----------
    options : mapping
        Keywords of `ppsolve.optimize`; heuristics are given by name.

    Returns
    -------
    dict of str to str
        By name as it was given, sorted; installed heuristics too, where all that apply are run.
        Modules that a file imports are not looked at.
    """
    return {name: _hash(spec) for name, spec in sorted(set(_own(options)))}


def check_code(options: Mapping[str, Any], wanted: Mapping[str, str]) -> None:
    """Refuse to solve with other code than was asked for.

    Parameters
    ----------
    options : mapping
        Keywords of `ppsolve.optimize`.
    wanted : mapping of str to str
        From `code_of`, when the run began.

    Raises
    ------
    ChangedCodeError
        A file was edited meanwhile, or is another one on this machine; names the heuristic.
    """
    for name, found in code_of(options).items():
        if wanted.get(name) != found:
            raise ChangedCodeError(f"{name} is not the code that the run began with")


def _own(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the spec of each user's heuristic."""
    chosen = options.get("heuristics")
    for given in (*(chosen or ()), *options.get("more_heuristics", ())):
        if is_spec(given):
            yield given, given
    if chosen is None:
        yield from _installed()


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    return tuple((point.name, point.value) for point in entry_points(group=ENTRY_POINTS))


def _hash(spec: str) -> str:
    """Return the hash of the bytes of a module's file; that of nothing where it cannot be read."""
    path = source_of(spec)
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        data = b""
    return hashlib.sha256(data).hexdigest()[:DIGITS]

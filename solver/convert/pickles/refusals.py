"""Words of the errors that several steps raise."""

from __future__ import annotations

from ppsolve.models.documents.errors import InputError

ONLY = "only numbers, strings, lists, tuples, dicts and numpy scalars and arrays are read"


def broken(detail: str) -> InputError:
    """Return the error for bytes that no pickler writes."""
    return InputError(f"not a valid pickle: {detail}")

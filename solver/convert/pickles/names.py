"""The names that a pickle may have: those of numpy's numbers and arrays."""

from __future__ import annotations

from enum import Enum

from ppsolve.models.documents.errors import InputError

ONLY = "only numbers, strings, lists, tuples, dicts and numpy scalars and arrays are read"


class Name(Enum):
    """Stand-ins that a pickle gets for names: marks that can be compared, not called."""

    SCALAR = "numpy's scalar"
    RECONSTRUCT = "numpy's _reconstruct"
    FROMBUFFER = "numpy's _frombuffer"
    NDARRAY = "numpy.ndarray"
    DTYPE = "numpy.dtype"
    ENCODE = "_codecs.encode"


NAMES = {
    ("numpy", "ndarray"): Name.NDARRAY,
    ("numpy", "dtype"): Name.DTYPE,
    ("numpy.core.multiarray", "scalar"): Name.SCALAR,
    ("numpy._core.multiarray", "scalar"): Name.SCALAR,
    ("numpy.core.multiarray", "_reconstruct"): Name.RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): Name.RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): Name.FROMBUFFER,
    ("numpy._core.numeric", "_frombuffer"): Name.FROMBUFFER,
    ("_codecs", "encode"): Name.ENCODE,
}
"""Every name that a pickle may have, compared as a whole; numpy 2 has ``_core`` for ``core``."""


def broken(detail: object) -> InputError:
    """Return the error for bytes that no pickler writes."""
    return InputError(f"not a valid pickle: {detail}")


def lookup(module: str, name: str) -> Name:
    """Return the stand-in for a name.

    Parameters
    ----------
    module, name : str
        As the pickle says them; a dotted name is not followed.

    Returns
    -------
    Name
        A mark.

    Raises
    ------
    InputError
        Any name but those of `NAMES`.
    """
    if (module, name) not in NAMES:
        raise InputError(f"the pickle names {module[:60]}.{name[:60]}; {ONLY}")
    return NAMES[module, name]

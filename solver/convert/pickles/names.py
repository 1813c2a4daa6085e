"""The names that a pickle may have: those of numpy's numbers and arrays."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.pickles.refusals import ONLY, broken


class Maker(Enum):
    """What a name in a pickle stands for: a mark that the machine knows, not a function."""

    SCALAR = "numpy's scalar"
    RECONSTRUCT = "numpy's _reconstruct"
    FROMBUFFER = "numpy's _frombuffer"
    NDARRAY = "numpy.ndarray"
    DTYPE = "numpy.dtype"
    ENCODE = "_codecs.encode"


NAMES = {
    ("numpy", "ndarray"): Maker.NDARRAY,
    ("numpy", "dtype"): Maker.DTYPE,
    ("numpy.core.multiarray", "scalar"): Maker.SCALAR,
    ("numpy._core.multiarray", "scalar"): Maker.SCALAR,
    ("numpy.core.multiarray", "_reconstruct"): Maker.RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): Maker.RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): Maker.FROMBUFFER,
    ("numpy._core.numeric", "_frombuffer"): Maker.FROMBUFFER,
    ("_codecs", "encode"): Maker.ENCODE,
}
"""Every name that a pickle may have, compared as a whole, and nothing else is looked up.

A scalar is ``scalar(dtype, bytes)``; an array is ``_reconstruct(ndarray, ...)`` with a state, or
with protocol 5 ``_frombuffer``; protocols 0 to 2 have no bytes and write them as
``_codecs.encode(text, "latin1")``. numpy 2 renamed ``numpy.core`` to ``numpy._core``.
"""


def lookup(module: Any, name: Any) -> Maker:
    """Return what ``module.name`` stands for.

    Raises
    ------
    InputError
        Any name but those of `NAMES`.
    """
    if type(module) is not str or type(name) is not str:
        raise broken("a name in it is no text")
    maker = NAMES.get((module, name))
    if maker is None:
        shown = f"{module[:60]}.{name[:60]}".encode("ascii", "backslashreplace").decode()
        shown = "".join(c if c.isprintable() else "?" for c in shown)
        raise InputError(f"the pickle names {shown}; {ONLY}")
    return maker

"""Kernels: one function each, run by Python on lists or compiled by LLVM for arrays."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.kernels.cache import is_stored, is_warm
from ppsolve.solver.kernels.native.values import NoSourceError

PAYING_STEPS = 150_000
"""Steps of kernels (an op placed, an edge relaxed) from which compiled code pays, cold too.

List rules of a V placement of 24 x 72 (10,368 ops) place 43,000 ops a second by Python and 2.1
million compiled: so much work takes Python 3.5 s, and compiling for such a run 4.8 s, once on a
machine. Loading takes 0.1 s, so with a full cache less work would pay as well.
"""

COMPILING_SECONDS = 3.0
"""Seconds that must be left before a kernel is compiled that no cache holds. The longest take 0.9 s
of processor time, those of a V placement of 24 x 72 4.8 s in all; what is compiled is kept, so a
call that has no time for the last of them leaves them to the next one."""

ASKING_SECONDS = 0.25
"""Seconds between two looks into the cache for a kernel that another process may have compiled; a
look takes 0.1 ms."""

SWITCH = "PPSOLVE_COMPILE"
"""Environment variable: ``always``, ``never`` and ``checked`` decide instead of the sizes."""

_COMPILED = ("always", "checked")

_lock = threading.RLock()
_state = {"compiled": os.environ.get(SWITCH) in _COMPILED, "due": math.inf}
"""Whether kernels run compiled, and the moment of `time.monotonic` at which an answer is due."""

_parts: set[Callable[..., Any]] = set()


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call. It stays a plain function."""
    _parts.add(function)
    return function


def _asked() -> str:
    """Return the value of `SWITCH`, empty where sizes decide."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "never", *_COMPILED):
        raise InputError(f"{value!r} is none of always, never and checked", source=SWITCH)
    return value


def is_compiled() -> bool:
    """Return true if kernels run compiled from now on."""
    return bool(_state["compiled"])


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Compile kernels only while there is time for it before an answer is due.

    Parameters
    ----------
    seconds : float
        Seconds from now on; infinite without a limit.

    Raises
    ------
    InputError
        If the environment asks for a way to run kernels that there is not.
    """
    _asked()
    before = _state["due"]
    _state["due"] = time.monotonic() + seconds
    try:
        yield
    finally:
        _state["due"] = before


def is_time_to_compile() -> bool:
    """Return true if kernels that no cache holds may be compiled before the answer is due."""
    return _asked() in _COMPILED or _state["due"] - time.monotonic() >= COMPILING_SECONDS


def expect(steps: float) -> bool:
    """Announce work, so that compiled code is loaded where that pays.

    Answers do not depend on it: compiled or not, a kernel returns the same integers.

    Parameters
    ----------
    steps : float
        Ops placed or edges relaxed that are to come.

    Returns
    -------
    bool
        Whether so much work pays for compiled code.

    Raises
    ------
    InputError
        If the environment asks for a way to run kernels that there is not.
    """
    if _asked() == "never" or steps < PAYING_STEPS:
        return False
    if is_time_to_compile() or is_warm():
        _state["compiled"] = True
    return True


def load_compiler() -> None:
    """Import LLVM now where kernels run compiled, so that no phase's share of time pays for it."""
    if is_compiled():
        import ppsolve.solver.kernels.native.machine  # noqa: F401


class Kernel:
    """A function on arrays of integers that runs compiled, or by Python on lists.

    Records (named tuples of int64 arrays) and numbers are read; bare int64 arrays are read and
    written. The function uses numbers, the arrays that it is given, and functions marked with
    `part`, so both ways take the same steps. It makes no arrays or lists.

    Parameters
    ----------
    function : callable
        The function; returns a number or None.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self._machine_code: Callable[..., Any] | None = None
        self._asked_again = 0.0

    def __call__(self, *arguments: Any) -> Any:
        """Run the function on int64 arrays, records of them, and numbers."""
        if is_compiled():
            # Asking first costs a fifth of a call that times 32 ops.
            if self._machine_code is None and self._may_compile():
                self._compile(arguments)
            if self._machine_code is not None:
                return self._machine_code(*arguments)
        return self._by_python(*arguments)

    def _by_python(self, *arguments: Any) -> Any:
        plain = [_as_lists(argument) for argument in arguments]
        answer = self.function(*plain)
        for argument, values in zip(arguments, plain, strict=True):
            if isinstance(argument, np.ndarray):
                argument[:] = values
        return answer

    def _may_compile(self) -> bool:
        """Whether a cache may hold the kernel, or there is time to compile it."""
        if is_time_to_compile():
            return True
        if time.monotonic() < self._asked_again:
            return False
        self._asked_again = time.monotonic() + ASKING_SECONDS
        return is_stored(self.function.__name__)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Load the machine code, or make it where there is time.

        The cache may refuse what it seemed to hold.
        """
        with _lock:
            if self._machine_code is None:
                from ppsolve.solver.kernels.native.machine import machine_code

                try:
                    self._machine_code = machine_code(
                        self.function,
                        arguments,
                        _parts,
                        is_time_to_compile(),
                        _asked() == "checked",
                    )
                except NoSourceError:
                    self._machine_code = self._by_python


def _as_lists(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.tolist()
    if isinstance(argument, tuple):
        return type(argument)(*map(_as_lists, argument))  # a record
    return argument

"""Kernels: one function each, run by Python on lists or compiled by numba on arrays."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ppsolve.solver.kernels.cache import cached_in, is_warm

PAYING_STEPS = 150_000
"""Steps of kernels (an op placed, an edge relaxed) from which loading numba pays.

Import and first use take 0.7 to 0.9 s; Python places 130,000 to 180,000 ops a second, compiled code
2 to 3 million (``benchmarks/kernels.py``).
"""

COMPILING_SECONDS = 20.0
"""Seconds that must be left before kernels are compiled that no cache holds; all of them took 12
to 15 s on two cores."""

SWITCH = "PPSOLVE_COMPILE"
"""Environment variable: ``always`` and ``never`` decide instead of the sizes."""

_lock = threading.RLock()
_parts: list[Callable[..., Any]] = []
_state = {"compiled": os.environ.get(SWITCH) == "always", "registered": False}


def cells(count: int) -> list[int]:
    """Return `count` zeros: a list, or in compiled kernels an int64 array."""
    return [0] * count


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call. It stays a plain function."""
    _parts.append(function)
    return function


def is_compiled() -> bool:
    """Return true if kernels run compiled from now on."""
    return _state["compiled"]


def expect(steps: float, seconds: float = math.inf) -> None:
    """Announce work, so that compiled code is loaded where that pays.

    Answers do not depend on it: compiled or not, a kernel returns the same integers.

    Parameters
    ----------
    steps : float
        Ops placed or edges relaxed that are to come.
    seconds : float
        Seconds until the answer is due.
    """
    if os.environ.get(SWITCH) == "never" or steps < PAYING_STEPS:
        return
    if seconds >= COMPILING_SECONDS or is_warm():
        _state["compiled"] = True


class Kernel:
    """A function on arrays of integers that runs compiled, or by Python on lists.

    Records (named tuples of int64 arrays) and numbers are read; bare int64 arrays are read and
    written. The function uses numbers, lists, tuples, ``heapq`` and functions marked with `part`,
    all of which numba knows, so both ways take the same steps.

    Parameters
    ----------
    function : callable
        The function; returns a number or None.
    allocates : bool
        The function or a part of it makes arrays or lists. One that works on given arrays only
        needs no reference counts: 2.5 to 4 times faster, 0.4 s less to load, where records go
        through several parts (``place_in_order`` on 10,368 ops). Its parts return numbers.
    """

    def __init__(self, function: Callable[..., Any], *, allocates: bool = True) -> None:
        self.function = function
        self.allocates = allocates
        self.__doc__ = function.__doc__
        self._machine_code: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the function on int64 arrays, records of them, and numbers."""
        if is_compiled():
            return (self._machine_code or self._compile())(*arguments)
        plain = [_as_lists(argument) for argument in arguments]
        answer = self.function(*plain)
        for argument, values in zip(arguments, plain, strict=True):
            if isinstance(argument, np.ndarray):
                argument[:] = values
        return answer

    def _compile(self) -> Callable[..., Any]:
        with _lock:
            if self._machine_code is None:
                import numba

                _register_parts()
                self._machine_code = cached_in(
                    lambda cache: numba.njit(
                        self.function, cache=cache, nogil=True, _nrt=self.allocates
                    )
                )
            return self._machine_code


def fixed(function: Callable[..., Any]) -> Kernel:
    """Return the kernel of a function that makes no arrays or lists, all of which it is given."""
    return Kernel(function, allocates=False)


def _register_parts() -> None:
    from numba.extending import overload, register_jitable

    if not _state["registered"]:
        overload(cells)(lambda count: lambda count: np.zeros(count, dtype=np.int64))
        _state["registered"] = True
    while _parts:
        register_jitable(_parts.pop())


def _as_lists(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.tolist()
    if isinstance(argument, tuple):
        return type(argument)(*map(_as_lists, argument))  # a record
    return argument

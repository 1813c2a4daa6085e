"""Kernels: one function each, run by Python on lists or compiled by numba on arrays."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from ppsolve.solver.attended import unbroken
from ppsolve.solver.kernels.cache import cached_in, is_stored, is_warm

PAYING_STEPS = 150_000
"""Steps of kernels (an op placed, an edge relaxed) from which loading numba pays.

Import and first use take 0.7 to 0.9 s. List rules of a V placement of 24 x 72 (10,368 ops) place
43,000 ops a second by Python and 2.1 million compiled. Four shipped instances whose sweeps take
45,000 to 91,000 steps were solved in 0.7 to 1.5 s by Python, in 1.2 to 2.6 s where compiled code
was loaded; ``benchmarks/speed.py`` measures whole runs.
"""

COMPILING_SECONDS = 25.0
"""Seconds that must be left before kernels are compiled that no cache holds; all of them took
14 to 20 s on two cores."""

ASKING_SECONDS = 0.25
"""Seconds between two looks into the cache for a kernel that another process may be compiling; a
look takes 0.1 ms."""

SWITCH = "PPSOLVE_COMPILE"
"""Environment variable: ``always`` and ``never`` decide instead of the sizes."""

_lock = threading.RLock()
_state = {"compiled": os.environ.get(SWITCH) == "always", "due": math.inf}
"""Whether kernels run compiled, and the moment of `time.monotonic` at which an answer is due."""

_awaited: dict[str, Callable[[], bool]] = {}
"""Kernels that another process compiles, by name, and whether it still runs."""

_parts: set[Callable[..., Any]] = set()
_translations: dict[Callable[..., Any], Any] = {}


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call. It stays a plain function."""
    _parts.add(function)
    return function


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
    """
    before = _state["due"]
    _state["due"] = time.monotonic() + seconds
    try:
        yield
    finally:
        _state["due"] = before


def is_time_to_compile() -> bool:
    """Return true if kernels that no cache holds may be compiled before the answer is due."""
    is_asked = os.environ.get(SWITCH) == "always"
    return is_asked or _state["due"] - time.monotonic() >= COMPILING_SECONDS


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
    """
    if os.environ.get(SWITCH) == "never" or steps < PAYING_STEPS:
        return False
    if is_time_to_compile() or is_warm():
        _state["compiled"] = True
    return True


def load_compiler() -> None:
    """Import numba now where kernels run compiled, so that no phase's share of time pays for it."""
    if is_compiled():
        with unbroken():
            import numba  # noqa: F401


def await_kernels(names: Iterable[str], is_running: Callable[[], bool]) -> None:
    """Let cold kernels wait for a process that compiles them into the cache.

    Parameters
    ----------
    names : iterable of str
        The kernels.
    is_running : callable
        Returns whether the process still runs; once it has ended, nothing waits for it.
    """
    _awaited.update(dict.fromkeys(names, is_running))


def _wait_for(kernel: str) -> None:
    is_running = _awaited.pop(kernel, None)
    while is_running is not None and is_running() and not is_stored(kernel):
        time.sleep(0.02)


class Kernel:
    """A function on arrays of integers that runs compiled, or by Python on lists.

    Records (named tuples of int64 arrays) and numbers are read; bare int64 arrays are read and
    written. The function uses numbers, the arrays that it is given, and functions marked with
    `part`, so both ways take the same steps. It makes no arrays or lists: compiled code then counts
    no references, which is 2.5 to 4 times faster and 0.4 s less to load (placing 10,368 ops).

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
            if self._machine_code is not None:
                return self._machine_code(*arguments)
            if self._may_compile():
                # Numba ends its translation in the first call, under locks that whoever is broken
                # off in between never gives back: all later calls waited for them.
                with unbroken():
                    return self._compile()(*arguments)
        plain = [_as_lists(argument) for argument in arguments]
        answer = self.function(*plain)
        for argument, values in zip(arguments, plain, strict=True):
            if isinstance(argument, np.ndarray):
                argument[:] = values
        return answer

    def _may_compile(self) -> bool:
        """Whether a cache holds the kernel, or there is time to compile it."""
        if is_time_to_compile():
            _wait_for(self.function.__name__)
            return True
        if time.monotonic() < self._asked_again:
            return False
        self._asked_again = time.monotonic() + ASKING_SECONDS
        return is_stored(self.function.__name__)

    def _compile(self) -> Callable[..., Any]:
        with _lock, unbroken():
            if self._machine_code is None:
                self._machine_code = cached_in(partial(_translated, self.function, True))
            return self._machine_code


def _translated(function: Callable[..., Any], is_kernel: bool, cache: bool = False) -> Any:
    """Return numba's version of a function, for which the parts that it names are translated too.

    Numba's own way to let plain functions call each other (``register_jitable``) takes twice as
    long to compile.
    """
    import numba

    names = dict(getattr(function, "__globals__", {}))
    for name in function.__code__.co_names:
        if names.get(name) in _parts:
            if names[name] not in _translations:
                _translations[names[name]] = _translated(names[name], False)
            names[name] = _translations[names[name]]
    copy = FunctionType(function.__code__, names, function.__name__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    # Parts are called by compiled code alone: a wrapper for Python would take longer to compile.
    options = {"no_cfunc_wrapper": True, "_nrt": False}
    if not is_kernel:
        # `walk` places 1.9 million ops a second with inlined parts, else 1.05 million.
        options |= {"no_cpython_wrapper": True, "forceinline": True}
    return numba.njit(copy, cache=cache, nogil=True, **options)


def _as_lists(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.tolist()
    if isinstance(argument, tuple):
        return type(argument)(*map(_as_lists, argument))  # a record
    return argument

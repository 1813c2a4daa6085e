"""Kernels: one function each, run by Python on lists or compiled by LLVM for arrays."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.kernels.cache import is_stored, is_warm
from ppsolve.solver.kernels.native.body import NoSourceError


@dataclass(frozen=True)
class CompilationParams:
    """When compiling a kernel, or looking for one, is worth its time."""

    paying_steps: int = (
        150_000  # ops placed or edges relaxed from which it pays, cold too
    )
    in_all: int = 10  # times as many from which it pays if they are of many calls
    compiling_seconds: float = 3.0  # that must be left; the longest kernel takes 0.9
    asking_seconds: float = 0.25  # between two looks for what other processes compiled


PARAMS = CompilationParams()

SWITCH = "PPSOLVE_COMPILE"
"""Environment variable: ``always``, ``never`` and ``checked`` decide instead of the sizes."""

_COMPILED = ("always", "checked")

_lock = threading.RLock()
_state = {
    "compiled": os.environ.get(SWITCH) in _COMPILED,
    "due": math.inf,
    "steps": 0.0,
}
"""Whether kernels run compiled, when (`time.monotonic`) an answer is due, and steps so far."""

_parts: set[Callable[..., Any]] = set()


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call. It stays a plain function."""
    _parts.add(function)
    return function


def _asked() -> str:
    """Return the value of `SWITCH`, empty where sizes decide."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "never", *_COMPILED):
        raise InputError(
            f"{value!r} is none of always, never and checked",
            source=SWITCH,
            code=ErrorCode.UNKNOWN_NAME,
        )
    return value


def is_compiled() -> bool:
    """Whether kernels run compiled from now on."""
    return bool(_state["compiled"])


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Compile kernels only while there is time for it before an answer is due in some seconds.

    An `InputError` says that the environment asks for a way to run kernels that there is not.
    """
    _asked()
    before = _state["due"]
    _state["due"] = time.monotonic() + seconds
    try:
        yield
    finally:
        _state["due"] = before


def is_time_to_compile() -> bool:
    """Whether kernels that no cache holds may be compiled before the answer is due."""
    return (
        _asked() in _COMPILED
        or _state["due"] - time.monotonic() >= PARAMS.compiling_seconds
    )


def expect(steps: float) -> bool:
    """Announce so many ops to place or edges to relax, so that compiled code is loaded if it pays.

    Answers do not depend on it: compiled or not, a kernel returns the same integers. Returns
    whether so much work pays for compiled code. An `InputError` says that the environment asks for
    a way to run kernels that there is not.
    """
    _state["steps"] += steps
    if (
        _asked() == "never"
        or max(steps, _state["steps"] / PARAMS.in_all) < PARAMS.paying_steps
    ):
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
    `part`, so both ways take the same steps. It makes no arrays or lists, and returns a number or
    None.
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
        self._asked_again = time.monotonic() + PARAMS.asking_seconds
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

"""What an engine is: it calls one function on many items and returns answers as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ppsolve.models.bench.record import Failure, Machine
from ppsolve.models.documents.errors import PpsolveError

LIMIT_FACTOR = 1.05
"""Share of its time limit after which a solve is overdue. `ppsolve.optimize` keeps its limit within
a few tenths of a second (``benchmarks/limits.py``); what is later does not come."""

START_SECONDS = 5.0
"""Seconds beyond that for the process to start: a fork and the reading of the item, which take
0.02 s on an idle machine, and longer where memory is swapped."""

MARGIN_SECONDS = 5.0
"""Seconds beyond that for lowering and for the answer, which are not counted by the limit: 196,608
ops take up to 2 s (``benchmarks/large.py``), on processors that are shared twice as long."""


class EngineError(PpsolveError):
    """An engine cannot run anything: its helper or its cluster does not start."""


@dataclass(frozen=True)
class Limits:
    """Limits of one call, kept from outside its process.

    Parameters
    ----------
    seconds : float, optional
        Wall seconds after which the process is killed; none by default.
    memory : int, optional
        Bytes of resident memory of the process and all that it started; none by default.
    """

    seconds: float | None = None
    memory: int | None = None


def wall_cap(time_limit: float | None, *, is_kept: bool) -> float | None:
    """Return the seconds after which a solve with a time limit is overdue.

    Parameters
    ----------
    time_limit : float or None
        Seconds that the solve was given.
    is_kept : bool
        Whether the limit is one of wall time: deterministic runs have none.

    Returns
    -------
    float or None
        None where nothing says how long it may take: no limit, or 0, which lets heuristics end.
    """
    if not time_limit or not is_kept:
        return None
    return time_limit * LIMIT_FACTOR + START_SECONDS + MARGIN_SECONDS


@dataclass(frozen=True)
class Finished:
    """The answer to one item, or how it failed.

    Parameters
    ----------
    index : int
        Place of the item, from 0.
    value : object
        The function's answer, None where it failed.
    failure, error : Failure and str, or None
        How it failed, and that in words.
    seconds : float
        Wall time of the call.
    machine : Machine, optional
        Where it ran; none if that is not known.
    attempts : int
        How often the item was begun.
    """

    index: int
    value: Any = None
    failure: Failure | None = None
    error: str | None = None
    seconds: float = 0.0
    machine: Machine | None = None
    attempts: int = 1


class Engine(Protocol):
    """Calls a function on items, some of them side by side."""

    def map(
        self, function: Callable[[Any], Any], items: Iterable[Any], limits: Limits
    ) -> Iterator[Finished]:
        """Yield an answer for each item, in the order in which they finish.

        Closing the iterator ends what still runs.

        Parameters
        ----------
        function : callable
            Takes an item; importable by its name in another process.
        items : iterable
            Whatever can be pickled.
        limits : Limits
            Of each call.

        Yields
        ------
        Finished
            One for each item.
        """
        ...

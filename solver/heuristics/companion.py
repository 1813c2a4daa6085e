"""A search on a thread of its own, beside another one with which it exchanges schedules."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self
from weakref import WeakSet

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.sweep import Exchange, list_sweep

Search = Callable[[Clock, Exchange], object]
"""Searches until a clock is over, and exchanges schedules meanwhile."""


PATIENCE = 2.0
"""Seconds that a process waits at its end for companions, which look at their clocks every 0.05 s
while CP-SAT runs, and between two steps of compiled code else."""

_STARTED: WeakSet[threading.Thread] = WeakSet()
"""Threads of companions; those that still run are kept by their interpreter."""


class Companion:
    """A search at work beside another one; compiled code lets other threads run.

    Parameters
    ----------
    name : str
        Its name in reports.
    search : callable
        What it does.
    clock : Clock
        The search ends with it.
    """

    def __init__(self, name: str, search: Search, clock: Clock) -> None:
        self.name, self._search = name, search
        self._clock = Clock(clock.left if clock.is_limited else None)
        self._lock = threading.Lock()
        self._found: Schedule | None = None
        self._learnt: Schedule | None = None
        self._thread = threading.Thread(target=self._work, name="companion", daemon=True)

    @contextmanager
    def at_work(self) -> Iterator[Self]:
        """Search as long as the context lasts."""
        _STARTED.add(self._thread)
        self._thread.start()
        try:
            yield self
        finally:
            self._clock.stop()

    def found(self) -> Schedule | None:
        """Return the best schedule that was found so far, the same object until it is beaten."""
        with self._lock:
            return self._found

    def learn(self, schedule: Schedule) -> None:
        """Take a schedule that was found elsewhere."""
        with self._lock:
            self._learnt = schedule

    def _work(self) -> None:
        try:
            self._search(self._clock, self._exchange)
        except MemoryDeadlockError:
            return

    def _exchange(self, better: Schedule | None) -> Schedule | None:
        with self._lock:
            if better is not None:
                self._found = better.normalised()
            learnt, self._learnt = self._learnt, None
        return learnt


def sweeping(problem: Problem, known: Schedule | None, bound: int) -> Search:
    """Return the sweep as what a companion does.

    Parameters
    ----------
    problem : Problem
        n ops.
    known : Schedule or None
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.

    Returns
    -------
    callable
        Searches until its clock is over.
    """

    def search(clock: Clock, exchange: Exchange) -> None:
        list_sweep(problem, clock, known=known, bound=bound, exchange=exchange)

    return search


def await_companions(patience: float = PATIENCE) -> None:
    """Wait for companions that were told to end: one in compiled code would abort the process.

    Parameters
    ----------
    patience : float
        Seconds for all of them together.
    """
    deadline = time.monotonic() + patience
    for thread in list(_STARTED):
        thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(await_companions)

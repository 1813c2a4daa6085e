"""A search on a thread of its own, beside another one with which it exchanges schedules."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.sweep import list_sweep


class Companion:
    """The sweep at work beside an exact search; compiled kernels let other threads run.

    Parameters
    ----------
    problem : Problem
        n ops.
    clock : Clock
        The search ends with it.
    known : Schedule or None
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.
    """

    def __init__(self, problem: Problem, clock: Clock, known: Schedule | None, bound: int) -> None:
        self._problem, self._known, self._bound = problem, known, bound
        self._clock = Clock(clock.left if clock.is_limited else None)
        self._lock = threading.Lock()
        self._found: Schedule | None = None
        self._learnt: Schedule | None = None
        self._thread = threading.Thread(target=self._search, name="companion", daemon=True)

    @contextmanager
    def at_work(self) -> Iterator[Self]:
        """Search as long as the context lasts."""
        self._thread.start()
        try:
            yield self
        finally:
            self._clock.stop()

    def found(self) -> Schedule | None:
        """Return the best schedule that was found since the last call."""
        with self._lock:
            found, self._found = self._found, None
        return found

    def learn(self, schedule: Schedule) -> None:
        """Take a schedule that was found elsewhere."""
        with self._lock:
            self._learnt = schedule

    def _search(self) -> None:
        try:
            list_sweep(
                self._problem,
                self._clock,
                known=self._known,
                bound=self._bound,
                exchange=self._exchange,
            )
        except MemoryDeadlockError:
            return

    def _exchange(self, better: Schedule | None) -> Schedule | None:
        with self._lock:
            if better is not None:
                self._found = better.normalised()
            learnt, self._learnt = self._learnt, None
        return learnt

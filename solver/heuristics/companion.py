"""Searches on a thread of their own, beside another one with which they exchange schedules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, cycle
from typing import Self

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.attended import await_at_exit
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.order_search import order_search
from ppsolve.solver.heuristics.sweep import Exchange, Sweep

Search = Callable[[Clock, Exchange], object]
"""Searches until a clock is over, and exchanges schedules meanwhile."""


TURN_SHARE, LEAST_TURN, ENDLESS_TURN = 0.15, 0.5, 5.0
"""Share of the time that is left for one turn, where there are several, least seconds of it, and
seconds where there is no limit. With 0.3, three of four uneven 16 x 24 ended at the same values
after 30 s of a busy machine, and one 0.1 % lower, no more than two runs differ by."""

LEAST_SHARE, FADING = 0.125, 0.8
"""Share of a turn for a search that seldom finds anything where another one does, and what a turn
leaves of the credit for finds before. With equal turns the sweep had some 20 of 60 s of one thread
beside neighbourhoods of V 16 x 48 at 1.375p, and found none of the best schedules."""


class ParallelSearch:
    """Searches at work beside another one, in turn; compiled code lets other threads run.

    Parameters
    ----------
    searches : mapping of str to callable
        What it does, by name in reports. One alone gets all the time. Each of several is called
        again for each of its turns, until none finds anything before its turn is over. The more
        often one finds the best schedule, the longer are its turns.
    clock : Clock
        All end with it.
    """

    def __init__(self, searches: Mapping[str, Search], clock: Clock) -> None:
        self._searches = dict(searches)
        self._clock = clock.apart()
        self._lock = threading.Lock()
        self._found: tuple[str, Schedule] | None = None
        self._best: Schedule | None = None
        self._learnt: Schedule | None = None
        self._finders: set[str] = set()
        self._credit = dict.fromkeys(searches, 0.0)
        self._thread = threading.Thread(target=self._work, name="companion", daemon=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its searches."""
        return tuple(self._searches)

    @contextmanager
    def at_work(self) -> Iterator[Self]:
        """Search as long as the context lasts."""
        self._thread.start()
        try:
            yield self
        finally:
            self._clock.stop()
            await_at_exit(self._thread)

    def found(self) -> tuple[str, Schedule] | None:
        """Return the best schedule so far and who found it, the same object until it is beaten."""
        with self._lock:
            return self._found

    def learn(self, schedule: Schedule, by: str = "") -> None:
        """Take a schedule that was found elsewhere.

        Parameters
        ----------
        schedule : Schedule
            The schedule.
        by : str
            The name of what found it; a search of that name has longer turns for it here.
        """
        with self._lock:
            self._learnt = schedule
            self._hold(schedule, by)

    def _work(self) -> None:
        with suppress(MemoryDeadlockError):
            if len(self._searches) > 1:
                self._take_turns()
            else:
                for name, search in self._searches.items():
                    search(self._clock, partial(self._exchange, name))

    def _take_turns(self) -> None:
        """Let searches go on in turn until none finds anything before its turn is over."""
        resting: set[str] = set()
        for name, search in cycle(self._searches.items()):
            if len(resting) == len(self._searches) or self._clock.is_over:
                return
            before, turn = self._best, self._turn(name)
            search(turn, partial(self._exchange, name))
            if self._best is not before:
                resting.clear()
            elif not turn.is_over:
                resting.add(name)
            with self._lock:
                self._credit[name] = FADING * self._credit[name] + (name in self._finders)
                self._finders.discard(name)

    def _turn(self, name: str) -> Clock:
        """Return the clock of the next turn, at the beginning of which the best one is learnt."""
        with self._lock:
            self._learnt = self._best
        most = max(self._credit.values())
        shares = {
            each: max(LEAST_SHARE, credit / most) if most else 1.0
            for each, credit in self._credit.items()
        }
        seconds = TURN_SHARE * self._clock.left if self._clock.is_limited else ENDLESS_TURN
        # The least turn is one of the least share: others have as much more as that says.
        seconds = max(seconds, LEAST_TURN / min(shares.values()))
        return self._clock.within(shares[name] * seconds)

    def _exchange(self, name: str, better: Schedule | None) -> Schedule | None:
        with self._lock:
            if better is not None:
                found = better.normalised()
                if self._found is None or found.value < self._found[1].value:
                    self._found = name, found
                self._hold(found, name)
            learnt, self._learnt = self._learnt, None
        return learnt

    def _hold(self, schedule: Schedule, by: str) -> None:
        if self._best is None or schedule.value < self._best.value:
            self._best = schedule
            self._finders.add(by)


def ordering(known: Schedule, bound: int) -> Search:
    """Return the search over orders as one that takes turns.

    Parameters
    ----------
    known : Schedule
        The best schedule so far, of a problem without an obstacle to this search.
    bound : int
        A lower bound on the makespan in ticks.

    Returns
    -------
    callable
        Goes on from the best schedule, each time with other random numbers.
    """
    best, seeds = known, count(2)

    def search(clock: Clock, exchange: Exchange) -> None:
        nonlocal best
        best = min(best, exchange(None) or best, key=lambda schedule: schedule.value)

        def tell(better: Schedule) -> None:
            exchange(better)

        best = order_search(best, clock, bound=bound, seed=next(seeds), tell=tell)

    return search


def sweeping(problem: Problem, known: Schedule | None, bound: int) -> Search:
    """Return the sweep as a search that takes turns.

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
        Goes on where its last turn ended.
    """
    sweep: Sweep | None = None

    def search(clock: Clock, exchange: Exchange) -> None:
        nonlocal sweep
        sweep = sweep or Sweep(problem, clock, known, bound, exchange)
        sweep.take_turn(clock, exchange)

    return search

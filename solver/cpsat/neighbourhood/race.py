"""A race of searches through stretches: many starts, of which the best ones go on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.neighbourhood.search import Exchange, Stretches
from ppsolve.solver.structure.implied import ImpliedOrder

PROMOTED = 4
"""Of so many searches that have come as far one goes on. V 16 x 48 at 1.375p, two threads, 57 s:
some 14 searches of 3 to 9 s come to a pass that brings nothing, 0.37 to 0.60 % above the bound,
three or four go on for about 10 s and end at 0.31 to 0.40 %, and further passes rarely bring
more. Three such races ended at 0.308, 0.309 and 0.343 %; one search alone stops anywhere from 0.31
to 0.51 %, from the same start too (four times: 0.31 to 0.48 %)."""

LAST_SHARE = 0.2
"""Share of the time, at its end, in which none begins from a new start: one that has just begun
would end far behind. With 0.35 races ended no differently, at 0.308 to 0.335 %."""

MOST_WAITING = 60
"""Searches that may wait, above which the worst one is given up: runs of hours begin thousands, and
each holds some hundred bytes per op. Of as many one in four goes on, so it is far from its turn."""


@dataclass(eq=False)
class _Runner:
    """A search, and how many passes over its schedule have brought nothing."""

    search: Stretches
    rung: int = 0

    @property
    def value(self) -> int:
        """Value of its best schedule in ticks."""
        return self.search.best.value


class Race:
    """Searches from several starts, by one thread or more, of which the best go on.

    A search ends where no stretch can be better. Which schedule that is depends on chance more than
    on its start. So many begin, each until a pass over its schedule brings nothing, and one of
    `PROMOTED` that came as far makes its stretches longer: successive halving in which nobody waits
    for others (Li et al. 2020: ASHA).

    Parameters
    ----------
    implied : ImpliedOrder
        A problem of which parts are taken.
    known : Schedule
        A feasible schedule, the first start.
    draw : callable
        Gives a new start before a clock is over, None where it has none. One thread at a time
        calls it.
    bound : int
        A lower bound on the objective in ticks; the race ends where it is met.
    clock : Clock
        Of the whole race.
    seed : int
        Each search has the next.
    """

    def __init__(
        self,
        implied: ImpliedOrder,
        known: Schedule,
        draw: Callable[[Clock], Schedule | None],
        bound: int,
        clock: Clock,
        seed: int,
    ) -> None:
        self._implied, self._draw, self._bound, self._seed = implied, draw, bound, seed
        self._clock, self._last = clock, LAST_SHARE * clock.left if clock.is_limited else 0.0
        self._lock, self._drawing = Lock(), Lock()
        self._reached: dict[int, list[int]] = defaultdict(list)
        self._best = known
        self._waiting = [self._runner(known)]

    def run(self, clock: Clock, exchange: Exchange) -> None:
        """Search until a clock is over, the bound is met, or there is nothing to go on with.

        Parameters
        ----------
        clock : Clock
            Ends it.
        exchange : callable
            Told of schedules that are better than all others of the race, and asked for better
            ones, which become starts.
        """
        while not (clock.is_over or self._best.value <= self._bound):
            self._take(exchange(None))
            runner = self._next(clock)
            if runner is None:
                return
            runner.search.exchange = lambda better: self._trade(better, exchange)
            self._put_back(runner, has_stalled=runner.search.climb(clock))
            if runner.search.is_interrupted:
                return

    def _runner(self, start: Schedule) -> _Runner:
        self._seed += 1
        limits = SearchLimits(seconds=None, seed=self._seed)
        return _Runner(Stretches(self._implied, start, self._bound, limits))

    def _take(self, other: Schedule | None) -> None:
        """Let a schedule that was found elsewhere begin too if it is the best one."""
        with self._lock:
            if other is not None and other.value < self._best.value:
                self._best = other
                self._waiting.append(self._runner(other))

    def _trade(self, better: Schedule | None, exchange: Exchange) -> None:
        """Tell of a schedule if it is the best one of the race."""
        with self._lock:
            is_best = better is not None and better.value < self._best.value
            self._best = better if better is not None and is_best else self._best
        if is_best:
            exchange(better)

    def _put_back(self, runner: _Runner, *, has_stalled: bool) -> None:
        with self._lock:
            if has_stalled:
                runner.rung += 1
                self._reached[runner.rung].append(runner.value)
            if not runner.search.is_exhausted:
                self._waiting.append(runner)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.remove(max(self._waiting, key=lambda each: each.value))

    def _next(self, clock: Clock) -> _Runner | None:
        """Return a search that may go on, else one from a new start, else the best that waits."""
        if self._clock.left >= self._last:
            runner = self._called(self._promoted)
            if runner is not None:
                return runner
            with self._drawing:
                start = self._draw(clock)
            if start is not None:
                with self._lock:
                    return self._runner(start)
        return self._called(lambda: self._waiting)

    def _called(self, among: Callable[[], list[_Runner]]) -> _Runner | None:
        """Return the best of some that wait, which waits no longer."""
        with self._lock:
            runner = min(among(), key=lambda each: each.value, default=None)
            if runner is not None:
                self._waiting.remove(runner)
            return runner

    def _promoted(self) -> list[_Runner]:
        """Return the searches that wait and may go on, of those that came furthest."""
        for rung in sorted({runner.rung for runner in self._waiting}, reverse=True):
            reached = sorted(self._reached[rung])
            # Those that have not begun may.
            best = reached[: len(reached) // PROMOTED] if rung else [math.inf]
            waiting = [runner for runner in self._waiting if runner.rung == rung]
            if best and any(runner.value <= best[-1] for runner in waiting):
                return waiting
        return []

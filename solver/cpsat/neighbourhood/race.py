"""A race of searches through stretches: many starts, of which the best ones go on."""

from __future__ import annotations

import math
import time
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
"""Of so many searches that have come as far one goes on, where another one may begin. Of 80
searches of V 16 x 48 at 1.375p that were drawn from again, two threads of 50 s end at 0.3 % or less
in 69 % of all cases where each has one search, in 63 % where the better two of four go on after
8 s, in 52 % with six, in 45 % with eight. So each has its time before it is compared with others.
V 16 x 48 at 1.25p ended at 0.237 % where two passes without gain ended that time, at 0.118 % where
as much effort without gain as before does."""

LAST_SHARE = 0.5
"""Share of the time, at its end, in which none begins from a new start: it would end far behind. Of
the same 80 searches 13 came to 0.3 % within 30 s, 35 within 50 s. One that finds nothing in a pass
goes on from the best schedule of all then."""

MOST_WAITING_OPS, LEAST_WAITING = 300_000, 4
"""Ops of all searches that may wait, some 200 bytes each, and searches that may in any case; beyond
the worst one is given up. Runs of hours begin thousands, of which one in four goes on."""

PAUSE = 0.05
"""Seconds before a thread without a search asks again, while others have theirs."""


@dataclass(eq=False)
class _Runner:
    """A search, how often it found nothing better for long, and whether it did so the last time."""

    search: Stretches
    rung: int = 0
    has_stalled: bool = False

    @property
    def value(self) -> int:
        """Value of its best schedule in ticks."""
        return self.search.best.value


class Race:
    """Searches from several starts, by one thread or more, of which the best go on.

    A search ends where no stretch can be better. Which schedule that is depends on chance more than
    on its start. So several begin, each until it finds nothing better for as long as it took to
    come so far, and one of `PROMOTED` that came as far goes on: successive halving in which nobody
    waits for others (Li et al. 2020: ASHA). At the end all try to improve the best schedule.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem of which parts are taken.
    known : Schedule
        A feasible schedule, the first start of each worker.
    draw : callable
        Gives a new start before a clock is over, None where it has none. One thread at a time
        calls it.
    bound : int
        A lower bound on the objective in ticks; the race ends where it is met.
    clock : Clock
        Of the whole race.
    seed : int
        Each search has the next.
    workers : int
        Threads that take part.
    """

    def __init__(
        self,
        implied: ImpliedOrder,
        known: Schedule,
        draw: Callable[[Clock], Schedule | None],
        bound: int,
        clock: Clock,
        seed: int,
        workers: int,
    ) -> None:
        self._implied, self._draw, self._bound, self._seed = implied, draw, bound, seed
        self._clock, self._last = clock, LAST_SHARE * clock.left if clock.is_limited else 0.0
        self._most = max(LEAST_WAITING, MOST_WAITING_OPS // implied.problem.num_ops)
        self._lock, self._drawing = Lock(), Lock()
        self._clocks: list[Clock] = []
        self._at_work = 0
        self._reached: dict[int, list[int]] = defaultdict(list)
        self._best = known
        self._waiting = [_Runner(self._search(known)) for _ in range(workers)]

    def run(self, clock: Clock, exchange: Exchange) -> None:
        """Search until a clock is over, the bound is met, or no search is left to go on with.

        Parameters
        ----------
        clock : Clock
            Ends the part that this thread takes.
        exchange : callable
            Told of schedules that are better than all others of the race, and asked for better
            ones, which become starts.
        """
        own = clock.apart()
        self._clocks.append(own)
        try:
            while not (own.is_over or self._best.value <= self._bound):
                self._take(exchange(None))
                runner = self._next(own)
                if runner is not None:
                    self._go_on(runner, own, exchange)
                elif not self._at_work:
                    return
                else:
                    time.sleep(min(PAUSE, own.left))
        finally:
            self._clocks.remove(own)

    def _go_on(self, runner: _Runner, clock: Clock, exchange: Exchange) -> None:
        """Let a search go on until a pass brings nothing."""

        def trade(better: Schedule | None) -> None:
            self._trade(better, exchange)

        runner.search.exchange = trade
        early = self._clock.left - self._last
        is_late = early <= 0
        try:
            trade(runner.search.best)
            part = clock if is_late else clock.within(early)
            runner.has_stalled = runner.search.climb(part, is_patient=not is_late)
            self._put_back(runner)
        finally:
            with self._lock:
                self._at_work -= 1
        if runner.search.is_interrupted:
            clock.stop()

    def _search(self, start: Schedule) -> Stretches:
        with self._lock:
            self._seed += 1
            limits = SearchLimits(seconds=None, seed=self._seed)
        return Stretches(self._implied, start, self._bound, limits)

    def _keeps(self, schedule: Schedule | None) -> bool:
        """Keep a schedule if it is the best one, and end the race where it meets the bound."""
        with self._lock:
            if schedule is None or schedule.value >= self._best.value:
                return False
            self._best = schedule
        if schedule.value <= self._bound:
            for clock in self._clocks.copy():
                clock.stop()
        return True

    def _take(self, other: Schedule | None) -> None:
        """Let a schedule that was found elsewhere begin too if it is the best one."""
        if other is not None and self._keeps(other):
            runner = _Runner(self._search(other))
            with self._lock:
                self._waiting.append(runner)

    def _trade(self, better: Schedule | None, exchange: Exchange) -> None:
        """Tell of a schedule if it is the best one of the race, and take a better one."""
        self._take(exchange(better if self._keeps(better) else None))

    def _put_back(self, runner: _Runner) -> None:
        with self._lock:
            if runner.has_stalled:
                runner.rung += 1
                self._reached[runner.rung].append(runner.value)
            if not runner.search.is_exhausted:
                self._waiting.append(runner)
            if len(self._waiting) > self._most:
                self._waiting.remove(max(self._waiting, key=lambda each: each.value))

    def _next(self, clock: Clock) -> _Runner | None:
        """Return a search that may go on, else one from a new start, else the best that waits."""
        is_late = self._clock.left <= self._last
        if not is_late:
            runner = self._called(self._promoted) or self._drawn(clock)
            if runner is not None:
                return runner
        runner = self._called(lambda: self._waiting)
        if is_late and runner is not None and runner.has_stalled:
            runner.search.adopt(self._best)
        return runner

    def _drawn(self, clock: Clock) -> _Runner | None:
        """Return a search from a new start; None while another thread draws and searches wait."""
        if not self._drawing.acquire(blocking=not self._waiting):
            return None
        try:
            start = None if clock.is_over else self._draw(clock)
        finally:
            self._drawing.release()
        if start is None or clock.is_over:
            return None
        runner = _Runner(self._search(start))
        with self._lock:
            self._at_work += 1
        return runner

    def _called(self, among: Callable[[], list[_Runner]]) -> _Runner | None:
        """Return the best of some that wait, which waits no longer."""
        with self._lock:
            runner = min(among(), key=lambda each: each.value, default=None)
            if runner is not None:
                self._waiting.remove(runner)
                self._at_work += 1
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

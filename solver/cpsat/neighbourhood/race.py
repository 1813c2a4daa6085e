"""Successive halving of searches through stretches: many starts, of which the best ones go on."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.neighbourhood.search import Exchange, WindowLNS
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
the same 80 searches 13 came to 0.3 % within 30 s, 35 within 50 s. Who finds nothing in a pass then
turns to the best schedule of all."""

GROUP_SIZE = 2
"""Workers that improve one schedule together, each with a search of its own. They come down sooner
than one, and leave more of the schedules on which one is stuck: V 16 x 48 at 1.375p ended at 0.248,
0.249 (three times), 0.254, 0.282, 0.283 and 0.308 % above the bound after 60 s of two workers; a
schedule for each at 0.249 (twice), 0.254 (five), 0.281, 0.282 (twice) and 0.308 (five)."""

MOST_WAITING_OPS, LEAST_WAITING = 300_000, 4
"""Ops of all searches that may wait, some 200 bytes each, and searches that may in any case; beyond
the worst one is given up. Runs of hours begin thousands, of which one in four goes on."""

PAUSE = 0.05
"""Seconds before a thread without a search asks again, while others have theirs."""


@dataclass(eq=False)
class _SearchGroup:
    """A schedule that one worker or more improve.

    Parameters
    ----------
    best : Schedule
        The best one that any of them found.
    idle : list of WindowLNS
        Searches that no worker goes on with now.
    at_work : int
        Number of workers.
    level : int
        How often they found nothing better for long.
    has_stalled : bool
        Whether one of them did since all have left.
    is_exhausted : bool
        Whether one of them found that no stretch can be better.
    """

    best: Schedule
    idle: list[WindowLNS] = field(default_factory=list)
    at_work: int = 0
    level: int = 0
    has_stalled: bool = False
    is_exhausted: bool = False

    @property
    def value(self) -> int:
        """Value of its best schedule in ticks."""
        return self.best.value


class SuccessiveHalving:
    """Searches from several starts, by one thread or more, of which the best go on.

    A search ends where no stretch can be better. Which schedule that is depends on chance more than
    on its start. So several begin, by two workers each, until these find nothing better for as long
    as it took to come so far, and one of `PROMOTED` that came as far goes on: successive halving in
    which nobody waits for others (Li et al. 2020: ASHA). At the end all improve the best schedule.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem of which parts are taken.
    known : Schedule
        A feasible schedule, the first start of all workers.
    draw : callable
        Gives a new start before a clock is over, None where it has none. One thread at a time
        calls it.
    bound : int
        A lower bound on the objective in ticks; all end where it is met.
    clock : Clock
        Of all searches.
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
        self._reached: dict[int, list[int]] = defaultdict(list)
        self._best = known
        self._waiting = [_SearchGroup(known) for _ in range(0, workers, GROUP_SIZE)]
        self._at_work: list[_SearchGroup] = []

    @property
    def _early(self) -> float:
        """Seconds left in which searches begin from new starts, 0 or less behind them."""
        return self._clock.left - self._last

    def run(self, clock: Clock, exchange: Exchange) -> None:
        """Search until a clock is over, the bound is met, or no search is left to go on with.

        Parameters
        ----------
        clock : Clock
            Ends the part that this thread takes.
        exchange : callable
            Told of schedules that are better than all others here, and asked for better
            ones, which become starts.
        """
        own = clock.apart()
        self._clocks.append(own)
        try:
            while not (own.is_over or self._best.value <= self._bound):
                self._take(exchange(None))
                group = self._next(own)
                if group is not None:
                    self._go_on(group, own, exchange)
                elif not self._at_work:
                    return
                else:
                    time.sleep(min(PAUSE, own.left))
        finally:
            self._clocks.remove(own)

    def _go_on(self, group: _SearchGroup, clock: Clock, exchange: Exchange) -> None:
        """Improve the schedule of a group until a pass brings nothing."""

        def trade(better: Schedule | None) -> Schedule:
            with self._lock:
                group.best = min(group.best, better or group.best, key=lambda each: each.value)
            self._trade(better, exchange)
            return group.best

        early, ended = self._early, None
        try:
            search = self._searching(group)
            search.exchange = trade
            trade(search.best)
            part = clock if early <= 0 else clock.within(early)
            group.has_stalled |= search.climb(part, is_patient=early > 0)
            ended = search
        finally:
            self._put_back(group, ended)
        if search.is_interrupted:
            clock.stop()

    def _searching(self, group: _SearchGroup) -> WindowLNS:
        """Return a search that goes on from the best schedule of a group."""
        with self._lock:
            search = group.idle.pop() if group.idle else None
            self._seed += search is None
            seed = self._seed
        if search is None:
            limits = SearchLimits(seconds=None, seed=seed)
            return WindowLNS(self._implied, group.best, self._bound, limits)
        search.adopt(group.best)
        return search

    def _keeps(self, schedule: Schedule | None) -> bool:
        """Keep a schedule if it is the best one, and end all searches where it meets the bound."""
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
            with self._lock:
                self._waiting.append(_SearchGroup(other))

    def _trade(self, better: Schedule | None, exchange: Exchange) -> None:
        """Tell of a schedule if it is the best one here, and take a better one."""
        self._take(exchange(better if self._keeps(better) else None))

    def _put_back(self, group: _SearchGroup, search: WindowLNS | None) -> None:
        """Take a worker, whose search is None if it failed, from a group, which then may wait."""
        with self._lock:
            group.at_work -= 1
            if search is None or search.is_exhausted:
                group.is_exhausted = True
            else:
                group.idle.append(search)
            if group.at_work:
                return
            self._at_work.remove(group)
            if group.has_stalled:
                group.level, group.has_stalled = group.level + 1, False
                self._reached[group.level].append(group.value)
            if not group.is_exhausted:
                self._waiting.append(group)
            if len(self._waiting) > self._most:
                self._waiting.remove(max(self._waiting, key=lambda each: each.value))

    def _next(self, clock: Clock) -> _SearchGroup | None:
        """Return a group that may go on, else one to join, else a new one, else the best one."""
        if self._early > 0:
            group = self._called(self._promoted) or self._called(self._open) or self._drawn(clock)
            if group is not None:
                return group
        return self._called(lambda: self._waiting + self._open())

    def _open(self) -> list[_SearchGroup]:
        """Return the groups that another worker may join."""
        is_late = self._early <= 0
        return [
            group
            for group in self._at_work
            if group.at_work < GROUP_SIZE
            and not group.is_exhausted
            and (is_late or not group.has_stalled)
        ]

    def _drawn(self, clock: Clock) -> _SearchGroup | None:
        """Return a group from a new start; None while another thread draws and groups wait."""
        if not self._drawing.acquire(blocking=not self._waiting):
            return None
        try:
            start = None if clock.is_over else self._draw(clock)
        finally:
            self._drawing.release()
        if start is None or clock.is_over:
            return None
        with self._lock:
            self._at_work.append(_SearchGroup(start, at_work=1))
            return self._at_work[-1]

    def _called(self, among: Callable[[], list[_SearchGroup]]) -> _SearchGroup | None:
        """Return the best of some groups, at which one worker more is from now on."""
        with self._lock:
            group = min(among(), key=lambda each: each.value, default=None)
            if group is not None:
                group.at_work += 1
                if group in self._waiting:
                    self._waiting.remove(group)
                    self._at_work.append(group)
            return group

    def _promoted(self) -> list[_SearchGroup]:
        """Return the groups that wait and may go on, of those that came furthest."""
        for level in sorted({group.level for group in self._waiting}, reverse=True):
            reached = sorted(self._reached[level])
            # Those that have not begun may.
            best = reached[: len(reached) // PROMOTED] if level else [math.inf]
            waiting = [group for group in self._waiting if group.level == level]
            if best and any(group.value <= best[-1] for group in waiting):
                return waiting
        return []

"""The sweep: many list rules, each schedule justified, the best ones improved by local search."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from ppsolve.models.core.problem import FREE, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.parallel import generate_parallel
from ppsolve.solver.heuristics.rules import Recipe, RuleBook
from ppsolve.solver.heuristics.spans import compact_spans, right_shift
from ppsolve.solver.structure.implied import index_order

_MIN_EFFORT, _EFFORT_PER_OP, _MAX_EFFORT = 70_000, 110, 800_000
"""Ops placed in one sweep, a justified op counting 1 and one of the list scheduler 2.

Measured on 53 instances of up to 1,200 ops (20 random ones, and those under ``instances`` with
memory): the mean gap to the bound is 1.116 % in 31 s of CPU time. Half the effort: 1.192 %, 22 s;
twice the effort: 1.098 %, 82 s.
"""

_GENERATION_COST, _ROUND_COST = 2, 2
"""Effort per op of list scheduling one schedule, and of one round of justification (two passes)."""

_MAX_PASSES = 700
"""Passes over all ops at most, so that tiny problems, whose effort allows thousands, end soon."""

_RULES_SHARE = 0.6
"""Share of the effort that goes to rules, the rest to local search. On the 53 instances above 0.3
gives a mean gap of 1.182 %, 0.6 gives 1.116 %, 0.9 gives 1.127 %."""

_MIN_RULES = 6
"""Rules that are tried however large the problem is: one sweep beyond the effort for many ops."""

_KEPT = 3
"""Best schedules that are justified further; 1 and 6 give the same results on the 53 instances."""

_RESTART_AFTER = 60
"""Shakes without a better schedule after which another of the kept ones is shaken."""

_SECONDS_BETWEEN_TRADES = 0.25
"""Least time between two exchanges: of 24,576 ops with device spans one takes 0.1 s."""

Exchange = Callable[[Schedule | None], Schedule | None]
"""Takes a better schedule, or None where there is none, and gives one that was found elsewhere."""

_ARMS = ("shake", "change", "shake", "draw")
"""Ways to look for a better schedule, taken in turn once the effort is used up."""


@dataclass(frozen=True, eq=False)
class _RatedSchedule:
    """A schedule, the recipe of its rule where it comes from one, and what it is worth.

    `score` is what is minimised: the number of missed pins, then the objective in ticks.
    """

    score: tuple[int, int]
    number: int
    schedule: Schedule
    recipe: Recipe | None = None

    @property
    def key(self) -> tuple[tuple[int, int], int]:
        """Order among all: the earlier of equals first."""
        return self.score, self.number


@dataclass(frozen=True, eq=False)
class _Shaken:
    """A schedule that is shaken, where that began, and the number of shakes that did not help."""

    start: _RatedSchedule
    failures: int = 0
    moved: Schedule | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule to shake next."""
        return self.start.schedule if self.moved is None else self.moved


def list_sweep(
    problem: Problem,
    clock: Clock | None = None,
    *,
    known: Schedule | None = None,
    bound: int = 0,
    goes_on: bool = True,
    steps: int | None = None,
    exchange: Exchange | None = None,
) -> Schedule:
    """Return the best schedule of many list rules, justified, then improved by local search.

    Rules differ in patience, preferences and limits on micro-batches in flight. Each schedule is
    justified to the right and to the left, the best ones more often, then perturbed. Effort is
    counted in ops, and all choices come from a fixed random sequence: without a clock the same
    problem gets the same schedule on every machine. With a limited clock the search goes on until
    it is over: schedules are shaken, rules changed one choice at a time, new ones drawn.

    Parameters
    ----------
    problem : Problem
        n ops.
    clock : Clock, optional
        Once it is over, the best schedule so far is returned.
    known : Schedule, optional
        A feasible schedule to improve on as well.
    bound : int
        A lower bound on the objective in ticks; the search ends where it is met.
    goes_on : bool
        Whether it uses all the time of a limited clock, or ends once its effort is spent.
    steps : int, optional
        Schedules that are tried once the effort is spent, instead of going on until the clock is
        over, and half as many rules before: the same ones on every machine.
    exchange : callable, optional
        Told of better schedules while the search goes on, and asked now and then.

    Returns
    -------
    Schedule
        The best one found.

    Raises
    ------
    MemoryDeadlockError
        Every rule gets stuck for want of memory.
    """
    sweep = Sweep(problem, clock or Clock(), known, bound, exchange)
    return sweep.run(goes_on=goes_on, steps=steps)


class Sweep:
    """A sweep on its way, parameters as of `list_sweep`."""

    def __init__(
        self,
        problem: Problem,
        clock: Clock,
        known: Schedule | None,
        bound: int,
        exchange: Exchange | None,
    ) -> None:
        self.problem, self.clock, self.known, self.bound = problem, clock, known, bound
        self.exchange, self.told, self.next_trade = exchange, known, 0.0
        self.edges = index_order(problem)
        self.book = RuleBook(problem)
        self.recipes = self.book.recipes()
        self.rng = random.Random(1)
        self.spans_count = problem.objective is Objective.DEVICE_SPAN
        self.pinned = np.flatnonzero(problem.pinned != FREE)
        self.justifier = None if problem.is_anchored else Justifier(problem)
        effort = min(_MAX_EFFORT, _MIN_EFFORT + _EFFORT_PER_OP * problem.num_ops)
        self.passes = min(_MAX_PASSES, effort // max(problem.num_ops, 1))
        self.number = 0
        self.best: list[_RatedSchedule] = []
        self.stuck: MemoryDeadlockError | None = None

    def take_turn(self, clock: Clock, exchange: Exchange) -> None:
        """Search until a clock is over: from the beginning at first, then where it stopped.

        Parameters
        ----------
        clock : Clock
            Has a limit.
        exchange : callable
            As of `list_sweep`.
        """
        self.clock, self.exchange, self.next_trade = clock, exchange, 0.0
        if self.best:
            self._go_on(None)
        else:
            self.run(goes_on=True, steps=None)

    def run(self, *, goes_on: bool, steps: int | None) -> Schedule:
        """Return the best schedule found.

        Parameters
        ----------
        goes_on, steps
            As of `list_sweep`.

        Returns
        -------
        Schedule
            Feasible; device spans are compacted.
        """
        self._try_rules(max(_MIN_RULES, (steps or 0) // 2))
        if self.known is not None:
            self._keep(_RatedSchedule(self._score(self.known), self._count(), self.known))
        if self.stuck is not None and not self.best:
            raise self.stuck
        if self.justifier is not None:
            self._search(self.justifier)
        if goes_on and (self.clock.is_limited or steps is not None):
            self._go_on(steps)
        return self._compacted(self.best[0].schedule)

    @property
    def _is_over(self) -> bool:
        return self.clock.is_over or (bool(self.best) and self.best[0].score <= (0, self.bound))

    def _try_rules(self, least: int) -> None:
        """Keep the best schedules of many rules, each justified once."""
        cost = _GENERATION_COST + (_ROUND_COST if self.justifier else 0)
        share = _RULES_SHARE if self.justifier else 1.0
        for _ in range(max(least, int(self.passes * share) // cost)):
            if self.best:
                self._trade()
            if self.best and self._is_over:
                break
            self.passes -= cost
            self._try(next(self.recipes))

    def _try(self, recipe: Recipe) -> None:
        """Schedule by a recipe, justify once, and keep it if it is among the best.

        Nothing is done where precedences of the problem contradict the limits of the recipe.
        """
        try:
            rule, extra = self.book.rule(recipe)
        except DeadlockError:
            return
        number = self._count()
        try:
            schedule = generate_parallel(self.problem, rule, self.edges, extra)
        except MemoryDeadlockError as error:
            self.stuck = error if self.stuck is None or rule.promise else self.stuck
            return
        if self.justifier is not None:
            schedule = self.justifier.improve(schedule.normalised(), 1)
        self._keep(_RatedSchedule(self._score(schedule), number, schedule, recipe))

    def _count(self) -> int:
        self.number += 1
        return self.number

    def _keep(self, found: _RatedSchedule) -> None:
        self.best = sorted([*self.best, found], key=lambda kept: kept.key)[:_KEPT]

    def _search(self, justifier: Justifier) -> None:
        """Justify the best schedules further, then perturb the best of all."""
        for place, kept in enumerate(self.best):
            if (place and self.passes <= 0) or self._is_over:
                break
            self.passes -= 2 * _ROUND_COST
            better = justifier.improve(kept.schedule, 2)
            self.best[place] = replace(kept, schedule=better, score=self._score(better))
        self.best.sort(key=lambda kept: kept.key)
        best = self.best[0]
        current = best.schedule
        while self.passes > 0 and not self._is_over:
            self._trade()
            self.passes -= 2 * _ROUND_COST + 1
            current = justifier.shake(current, 2)
            score = self._score(current)
            if score > best.score:
                current = best.schedule
            elif score < best.score:
                best = self.best[0] = replace(best, schedule=current, score=score)

    def _go_on(self, steps: int | None) -> None:
        """Search in all ways in turn until the clock or the steps are over or the bound is met."""
        shaken = _Shaken(self.best[0])
        for arm in islice(cycle(_ARMS), steps):
            self._trade()
            if self._is_over:
                return
            if arm == "draw":
                self._try(next(self.recipes))
            elif arm == "change":
                known = [kept.recipe for kept in self.best if kept.recipe is not None]
                if known:
                    self._try(self.book.changed(self.rng.choice(known), self.rng))
            elif self.justifier is not None:
                shaken = self._shake(self.justifier, shaken)

    def _trade(self) -> None:
        """Tell of a better schedule, and take one in return."""
        if self.exchange is None or time.monotonic() < self.next_trade:
            return
        best = self.best[0].schedule
        other = self.exchange(None if best is self.told else self._compacted(best))
        self.told, self.next_trade = best, time.monotonic() + _SECONDS_BETWEEN_TRADES
        if other is not None:
            self._keep(_RatedSchedule(self._score(other), self._count(), other))

    def _compacted(self, schedule: Schedule) -> Schedule:
        return compact_spans(schedule, self.clock) if self.spans_count else schedule

    def _shake(self, justifier: Justifier, shaken: _Shaken) -> _Shaken:
        """Perturb a schedule; go on from the result unless it is worse."""
        if shaken.failures > _RESTART_AFTER:
            shaken = _Shaken(self.rng.choice(self.best))
        elif self.best[0].score < shaken.start.score:
            shaken = _Shaken(self.best[0])
        schedule = justifier.shake(shaken.schedule, 2)
        score = self._score(schedule)
        if score > shaken.start.score:
            return replace(shaken, moved=None, failures=shaken.failures + 1)
        if score == shaken.start.score:
            return replace(shaken, moved=schedule, failures=shaken.failures + 1)
        found = replace(shaken.start, schedule=schedule, score=score, number=self._count())
        self._keep(found)
        return _Shaken(found)

    def _score(self, schedule: Schedule) -> tuple[int, int]:
        pinned = self.pinned
        missed = int(np.count_nonzero(schedule.start[pinned] != self.problem.pinned[pinned]))
        if self.justifier is None and self.spans_count:
            schedule = right_shift(schedule)
        return missed, schedule.value

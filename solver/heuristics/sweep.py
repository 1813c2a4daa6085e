"""The sweep: many list rules, each schedule justified, the best ones improved by local search."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np

from ppsolve.models.core.problem import FREE, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.list_scheduling import generate_parallel
from ppsolve.solver.heuristics.params import RULES, SweepParams
from ppsolve.solver.heuristics.rules import Recipe, RuleBook
from ppsolve.solver.heuristics.spans import compact_spans, right_shift
from ppsolve.solver.structure.implied import index_order

SWEEP = "list-sweep"
"""Name of the sweep in reports."""


@dataclass(frozen=True, eq=False)
class _RatedSchedule:
    score: tuple[int, int]
    number: int
    schedule: Schedule

    @property
    def key(self) -> tuple[tuple[int, int], int]:
        """Order among all: the earlier of equals first."""
        return self.score, self.number


@dataclass(frozen=True, eq=False)
class _Shaken:
    start: _RatedSchedule
    failures: int = 0
    moved: Schedule | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule to shake next."""
        return self.start.schedule if self.moved is None else self.moved


def list_sweep(
    problem: Problem, effort: Effort | None = None, *, steps: int | None = None
) -> Schedule:
    """Return the best schedule of many list rules, justified, then improved by local search.

    Effort is counted in ops, and all choices come from a fixed random sequence: without a clock the
    same problem gets the same schedule on every machine. With a limited clock the search goes on
    until it is over: schedules are shaken and new rules drawn. With a number of steps it tries as
    many schedules once the effort is spent, and half as many rules before.

    The board's incumbent is improved on as well, better schedules are proposed to it, and the
    search ends at its bound. A `MemoryDeadlockError` says that every rule gets stuck for want of
    memory.
    """
    effort = effort or Effort()
    sweep = Sweep(problem, effort.board, effort.clock, effort.params.sweep)
    # Looks at the board come at moments that differ from run to run.
    sweep.shares = effort.clock.is_limited
    return sweep.run(goes_on=effort.uses_all, steps=steps)


class Sweep:
    """A sweep on its way, parameters as of `list_sweep`."""

    def __init__(
        self,
        problem: Problem,
        board: Board,
        clock: Clock,
        params: SweepParams | None = None,
    ) -> None:
        self.problem, self.board, self.clock = problem, board, clock
        self.params = params = params or SweepParams()
        self.known = self.taken = board.incumbent
        self.told: Schedule | None = None
        self.shares = True
        self.next_look = 0.0
        self.edges = index_order(problem)
        self.book = RuleBook(problem)
        self.recipes = self.book.recipes()
        self.rng = random.Random(1)
        self.spans_count = problem.objective is Objective.DEVICE_SPAN
        self.pinned = np.flatnonzero(problem.pinned != FREE)
        self.justifier = None if problem.is_anchored else Justifier(problem)
        effort = params.least_effort + params.effort_per_op * problem.num_ops
        effort = min(params.most_effort, effort)
        self.passes = min(params.most_passes, effort // max(problem.num_ops, 1))
        self.number = 0
        self.best: list[_RatedSchedule] = []
        self.stuck: MemoryDeadlockError | None = None

    def take_turn(self, clock: Clock) -> None:
        """Search until a clock with a limit is over: from the beginning, then where it stopped."""
        self.clock, self.next_look = clock, 0.0
        if self.best:
            self._go_on(None)
        else:
            self.run(goes_on=True, steps=None)

    def run(self, *, goes_on: bool, steps: int | None) -> Schedule:
        """Return the best schedule found; device spans are compacted."""
        self._try_rules(max(self.params.least_rules, (steps or 0) // 2))
        if self.known is not None:
            schedule = self.known.schedule
            self._keep(_RatedSchedule(self._score(schedule), self._count(), schedule))
        if self.stuck is not None and not self.best:
            raise self.stuck
        if self.justifier is not None:
            self._search(self.justifier)
        if goes_on and (self.clock.is_limited or steps is not None):
            self._go_on(steps)
        return self._compacted(self.best[0].schedule)

    @property
    def _is_over(self) -> bool:
        is_met = bool(self.best) and self.best[0].score <= (0, self.board.bound.value)
        return self.clock.is_over or is_met

    def _try_rules(self, fewest: int) -> None:
        cost = RULES.generation_cost + (RULES.round_cost if self.justifier else 0)
        share = self.params.rules_share if self.justifier else 1.0
        for _ in range(max(fewest, int(self.passes * share) // cost)):
            if self.best:
                self._share()
            if self.best and self._is_over:
                break
            self.passes -= cost
            self._try(next(self.recipes))

    def _try(self, recipe: Recipe) -> None:
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
        self._keep(_RatedSchedule(self._score(schedule), number, schedule))

    def _count(self) -> int:
        self.number += 1
        return self.number

    def _keep(self, rated: _RatedSchedule) -> None:
        self.best = sorted([*self.best, rated], key=lambda kept: kept.key)[
            : self.params.kept
        ]

    def _search(self, justifier: Justifier) -> None:
        for index, kept in enumerate(self.best):
            if (index and self.passes <= 0) or self._is_over:
                break
            self.passes -= 2 * RULES.round_cost
            better = justifier.improve(kept.schedule, 2)
            self.best[index] = replace(kept, schedule=better, score=self._score(better))
        self.best.sort(key=lambda kept: kept.key)
        shaken = _Shaken(self.best[0])
        while self.passes > 0 and not self._is_over:
            self._share()
            self.passes -= 2 * RULES.round_cost + 1
            shaken = self._shake(justifier, shaken)

    def _go_on(self, steps: int | None) -> None:
        shaken = _Shaken(self.best[0])
        for draws in islice(cycle((False, True)), steps):
            self._share()
            if self._is_over:
                return
            if draws:
                self._try(next(self.recipes))
            elif self.justifier is not None:
                shaken = self._shake(self.justifier, shaken)

    def _share(self) -> None:
        if not self.shares or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + self.params.sharing_seconds
        best, value = self.best[0], self.board.value
        if best.schedule is not self.told and best.score[0] == 0:
            self.told = best.schedule
            if value is None or best.score[1] < value:
                self.board.propose(self._compacted(best.schedule), SWEEP)
        incumbent = self.board.incumbent
        if incumbent is None or incumbent is self.taken:
            return
        self.taken = incumbent
        if incumbent.by != SWEEP:
            self._keep(
                _RatedSchedule(
                    self._score(incumbent.schedule), self._count(), incumbent.schedule
                )
            )

    def _compacted(self, schedule: Schedule) -> Schedule:
        return compact_spans(schedule, self.clock) if self.spans_count else schedule

    def _shake(self, justifier: Justifier, shaken: _Shaken) -> _Shaken:
        if shaken.failures > self.params.restart_after:
            shaken = _Shaken(self.rng.choice(self.best))
        elif self.best[0].score < shaken.start.score:
            shaken = _Shaken(self.best[0])
        schedule = justifier.shake(shaken.schedule, 2)
        score = self._score(schedule)
        if score > shaken.start.score:
            return replace(shaken, moved=None, failures=shaken.failures + 1)
        if score == shaken.start.score:
            return replace(shaken, moved=schedule, failures=shaken.failures + 1)
        rated = replace(
            shaken.start, schedule=schedule, score=score, number=self._count()
        )
        self._keep(rated)
        return _Shaken(rated)

    def _score(self, schedule: Schedule) -> tuple[int, int]:
        pinned = self.pinned
        missed = int(
            np.count_nonzero(schedule.start[pinned] != self.problem.pinned[pinned])
        )
        if self.justifier is None and self.spans_count:
            schedule = right_shift(schedule)
        return missed, schedule.value

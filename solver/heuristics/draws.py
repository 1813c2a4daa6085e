"""Schedules of random list rules, as starts of searches."""

from __future__ import annotations

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.parallel import generate_parallel
from ppsolve.solver.heuristics.rules import RuleBook
from ppsolve.solver.heuristics.spans import compact_spans
from ppsolve.solver.structure.implied import index_order

OPS_AT_ONCE, MOST_AT_ONCE = 460_000, 200
"""Ops that are placed for each start, by so many rules at most. With 100 rules starts of V 16 x 48
at 1.375p take 0.6 s and are 0.60 to 0.67 % above the bound, from where searches of stretches of 184
ops come to 0.45 % on average; with 30 rules they are 0.60 to 0.79 % and come to 0.51 %."""

KEPT = 30
"""Schedules that wait to be given: twice as many as a race of a minute takes."""

ROUNDS = 2
"""Pairs of passes of justification for each schedule."""


class RandomStarts:
    """Draws schedules by random list rules, and gives the best one that it has not given yet.

    Parameters
    ----------
    problem : Problem
        n ops, without release times and pinned starts.
    seed : int
        Seed of the random rules.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._edges = index_order(problem)
        self._book = RuleBook(problem)
        self._recipes = self._book.starts(seed)
        self._justifier = Justifier(problem)
        self._at_once = min(MOST_AT_ONCE, max(1, OPS_AT_ONCE // problem.num_ops))
        self._kept: list[Schedule] = []
        self._known: set[int] = set()

    def next(self, clock: Clock) -> Schedule | None:
        """Draw more schedules and return the best one that was not given before.

        Of schedules of one value one is kept: many rules make the same schedule. Where none of
        those drawn has a new value, half as many are drawn the next time.

        Parameters
        ----------
        clock : Clock
            Once it is over, no more are drawn.

        Returns
        -------
        Schedule or None
            Device spans are compacted; None where nothing new was found.
        """
        before = len(self._known)
        for _ in range(self._at_once):
            if clock.is_over:
                break
            self._draw()
        if len(self._known) == before:
            self._at_once = max(1, self._at_once // 2)
        self._kept = sorted(self._kept, key=lambda schedule: schedule.value)[:KEPT]
        return compact_spans(self._kept.pop(0), clock) if self._kept else None

    def _draw(self) -> None:
        try:
            rule, extra = self._book.rule(next(self._recipes))
            schedule = generate_parallel(self._problem, rule, self._edges, extra)
        except (DeadlockError, MemoryDeadlockError):
            return
        schedule = self._justifier.improve(schedule.normalised(), ROUNDS)
        if schedule.value not in self._known:
            self._known.add(schedule.value)
            self._kept.append(schedule)

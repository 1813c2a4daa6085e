"""The sweep: many list rules, each schedule justified, the best ones improved by local search."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import FREE, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.parallel import generate_parallel
from ppsolve.solver.heuristics.rules import rule_portfolio
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

_Scored = tuple[tuple[int, int], int, Schedule]


def list_sweep(problem: Problem, clock: Clock | None = None) -> Schedule:
    """Return the best schedule of many list rules, justified, then improved by local search.

    Rules differ in patience, preferences and limits on micro-batches in flight. Each schedule is
    justified to the right and to the left, the best ones more often, then perturbed. Effort is
    counted in ops, and all choices come from a fixed random sequence: the same problem gets the
    same schedule on every machine where the clock lets it end.

    Parameters
    ----------
    problem : Problem
        n ops.
    clock : Clock, optional
        Once it is over, the best schedule so far is returned.

    Returns
    -------
    Schedule
        The best one found.

    Raises
    ------
    MemoryDeadlockError
        Every rule gets stuck for want of memory.
    """
    return _Sweep(problem, clock or Clock()).run()


class _Sweep:
    def __init__(self, problem: Problem, clock: Clock) -> None:
        self.problem, self.clock = problem, clock
        self.spans_count = problem.objective is Objective.DEVICE_SPAN
        self.pinned = np.flatnonzero(problem.pinned != FREE)
        self.justifier = None if problem.is_anchored else Justifier(problem)
        effort = min(_MAX_EFFORT, _MIN_EFFORT + _EFFORT_PER_OP * problem.num_ops)
        self.passes = min(_MAX_PASSES, effort // max(problem.num_ops, 1))

    def run(self) -> Schedule:
        found = self._try_rules()
        if self.justifier is not None:
            found = self._search(self.justifier, found)
        best = found[0][2]
        return compact_spans(best) if self.spans_count else best

    def _try_rules(self) -> list[_Scored]:
        """Return the best schedules of many rules, each justified once."""
        edges, justifier = index_order(self.problem), self.justifier
        cost = _GENERATION_COST + (_ROUND_COST if justifier else 0)
        share = _RULES_SHARE if justifier else 1.0
        count = max(_MIN_RULES, int(self.passes * share) // cost)
        found: list[_Scored] = []
        stuck: MemoryDeadlockError | None = None
        for number, (rule, extra) in zip(range(count), rule_portfolio(self.problem), strict=False):
            if found and self.clock.is_over:
                break
            self.passes -= cost
            try:
                schedule = generate_parallel(self.problem, rule, edges, extra)
            except MemoryDeadlockError as error:
                stuck = error if stuck is None or rule.promise else stuck
                continue
            if justifier is not None:
                schedule = justifier.improve(schedule.normalised(), 1)
            found = sorted([*found, (self._score(schedule), number, schedule)], key=lambda f: f[:2])
            found = found[:_KEPT]
        if stuck is not None and not found:
            raise stuck
        return found

    def _search(self, justifier: Justifier, found: list[_Scored]) -> list[_Scored]:
        """Justify the best schedules further, then perturb the best of all."""
        for place, (_, number, schedule) in enumerate(found):
            if (place and self.passes <= 0) or self.clock.is_over:
                break
            self.passes -= 2 * _ROUND_COST
            better = justifier.improve(schedule, 2)
            found[place] = (self._score(better), number, better)
        _, number, best = min(found, key=lambda f: f[:2])
        current = best
        while self.passes > 0 and not self.clock.is_over:
            self.passes -= 2 * _ROUND_COST + 1
            current = justifier.improve(justifier.perturb(current), 2)
            if current.value > best.value:
                current = best
            elif current.value < best.value:
                best = current
        return [(self._score(best), number, best)]

    def _score(self, schedule: Schedule) -> tuple[int, int]:
        """Return the key to minimise: the number of missed pins, then the objective in ticks."""
        pinned = self.pinned
        missed = int(np.count_nonzero(schedule.start[pinned] != self.problem.pinned[pinned]))
        if self.justifier is None and self.spans_count:
            schedule = right_shift(schedule)
        return missed, schedule.value

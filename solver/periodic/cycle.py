"""The steady state of a pipeline as a small CP-SAT model: one turn of a cycle."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.parameters import configured
from ppsolve.solver.periodic.cut import FAR, Cut

EFFORT = 2.0
"""Deterministic time of CP-SAT for one cycle, 2 to 3 s of processor time. With 0.5 and no hint, no
cut of V 32 x 256 at 1p had a cycle; with 2 and the hint four of five have."""

MOST_PERIODS = 4
"""Reach of starts before and behind the cut, in periods, beyond what they wait for. With 60 the
same cuts of V 32 x 256 have cycles, and those that have none take up to 3 times as long."""


class CyclicSchedule(NamedTuple):
    """Turn 0 of a cycle.

    Attributes
    ----------
    start : int64[L]
        Ticks, by column.
    delay : int
        Ticks by which what follows is delayed beyond all turns.
    """

    start: IntArray
    delay: int


def find_cycle(cut: Cut, period: int, clock: Clock) -> CyclicSchedule | None:
    """Return the cycle that delays what follows least, or the best one within the effort.

    On every resource a turn takes no longer than the period, so turns follow each other and use the
    resource in the same order. A pool is as full before each turn as it was at the cut; what is in
    use when a column acquires follows from the order of the ops of its resource.

    Parameters
    ----------
    cut : Cut
        Where the cycle begins.
    period : int
        Ticks from one turn to the next, at least the work of each resource.
    clock : Clock
        Nothing is searched once it is over.

    Returns
    -------
    CyclicSchedule or None
        None where there is none, or none was found.
    """
    model = _CycleModel(cut, period)
    seconds = clock.left if clock.is_limited else None
    solver = configured(SearchLimits(seconds=seconds, deterministic=EFFORT, is_plain=True))
    if solver.solve(model.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    start = np.array([solver.value(one) for one in model.start], dtype=np.int64)
    return CyclicSchedule(start + cut.moment, solver.value(model.delay))


class _CycleModel:
    """Starts relative to the cut, one short method per rule."""

    def __init__(self, cut: Cut, period: int) -> None:
        self.cut, self.rows, self.period = cut, cut.rows, period
        self.model = cp_model.CpModel()
        earliest = np.maximum(cut.earliest(period) - cut.moment, -MOST_PERIODS * period)
        self.horizon = int(earliest.max(initial=0)) + MOST_PERIODS * period
        self.start = [self.model.new_int_var(low, self.horizon, "") for low in earliest.tolist()]
        self.delay = self.model.new_int_var(-self.horizon, 2 * self.horizon, "")
        self._add_precedences()
        self._add_resources()
        self._add_delays()
        self._add_memory()
        self._add_hints()
        self.model.minimize(self.delay)

    def _add_hints(self) -> None:
        """Hint at the next start of each column in the schedule that was cut."""
        last = len(self.cut.start) - 1
        for x, fired in enumerate(self.cut.fired.tolist()):
            following = int(self.cut.start[min(fired, last), x]) - self.cut.moment
            self.model.add_hint(self.start[x], min(following, self.horizon))

    def _add_precedences(self) -> None:
        """Let columns wait for the same micro-batch, some turns ago where they are behind."""
        rows, fired, length = self.rows, self.cut.fired, self.rows.length
        for y, x, lag in zip(rows.before, rows.after, rows.lag, strict=True):
            ahead = int(fired[y] - fired[x]) * self.period
            self.model.add(self.start[x] + ahead >= self.start[y] + int(length[y] + lag))

    def _add_resources(self) -> None:
        """Run the columns of a resource one at a time, all of them within a period."""
        rows, length = self.rows, self.rows.length.tolist()
        self.first: dict[tuple[int, int], cp_model.IntVar] = {}
        for resource in range(rows.problem.num_resources):
            mine = np.flatnonzero((rows.resource == resource) & (rows.length > 0)).tolist()
            for x, y in combinations(mine, 2):
                first = self.model.new_bool_var("")
                self.first[x, y], self.first[y, x] = first, first.negated()
                for a, b, holds in ((x, y, first), (y, x, first.negated())):
                    self.model.add(self.start[a] + length[a] <= self.start[b]).only_enforce_if(
                        holds
                    )
                    self.model.add(self.start[b] + length[b] <= self.start[a] + self.period)
            self.model.add_no_overlap(
                [self.model.new_fixed_size_interval_var(self.start[x], length[x], "") for x in mine]
            )

    def _add_delays(self) -> None:
        """Let what is behind the cut wait for the last turns."""
        moment = self.cut.moment
        for x, wait in enumerate(self.cut.follows(self.period).tolist()):
            if wait > -FAR // 2:
                self.model.add(self.delay >= self.start[x] + wait + moment)

    def _add_memory(self) -> None:
        """Keep every pool within its limit whenever a column acquires."""
        for use in self.cut.uses():
            for x, amount in use.takes.items():
                before = sum(a * self.first[y, x] for y, a in use.takes.items() if y != x)
                free = sum(a * self.first[y, x] for y, a in use.gives.items() if y != x)
                self.model.add(before - free + amount <= use.room)

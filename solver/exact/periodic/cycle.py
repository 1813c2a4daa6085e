"""A cut schedule, and one turn of the steady state put in there as a small CP-SAT model."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.parameters import configured
from ppsolve.solver.exact.question import SearchLimits

if TYPE_CHECKING:
    from ppsolve.solver.exact.periodic.steady_state import Rows

FAR = 2**60
"""Later than every time."""


@dataclass(frozen=True)
class CycleParams:
    """Size of the search for one cycle."""

    effort: float = 2.0  # CP-SAT's deterministic time: less misses cycles of large pipelines
    most_periods: int = (
        4  # reach of starts around the cut beyond what they wait for: more is slower
    )
    # Units of a pool's limit. The limit exceeds the capacity by 1e-9 of it, 1,099 units, more than
    # the amounts of a cycle lose when each is rounded to the nearest unit.
    levels: int = 2**40


PARAMS = CycleParams()


@dataclass(frozen=True, eq=False)
class Uses:
    """What one turn of a cycle takes from a pool and gives back, in units of its limit."""

    room: int  # free when the cycle begins
    takes: dict[int, int]  # amount by column
    gives: dict[int, int]


@dataclass(frozen=True, eq=False)
class Cut:
    """A schedule of a few micro-batches, cut where a cycle is put in.

    The cycle starts every column once per turn: in turn j column x runs micro-batch fired[x] + j,
    so that each turn leaves the state that it found. What was before the cut keeps its starts, what
    was behind is delayed by all turns and maybe more.

    Parameters
    ----------
    rows : Rows
        The micro-batches of the schedule.
    start : int64[m, L]
        Its starts in ticks, columns in index order.
    moment : int
        Ticks; what starts before it is before the cut.
    turns : int
        How often the cycle runs, at least m times: what waits across the cut waits for turns.
    """

    rows: Rows
    start: IntArray
    moment: int
    turns: int

    @property
    def fired(self) -> IntArray:
        """Micro-batches that have started each column before the cut, int64[L]."""
        found: IntArray = np.count_nonzero(self.start < self.moment, axis=0)
        return found

    def earliest(self, period: int) -> IntArray:
        """Return each column's earliest start in turn 0, for what was before the cut, in ticks."""
        rows, fired, length = self.rows, self.fired, self.rows.length
        found = np.full(len(length), self.moment - FAR, dtype=np.int64)
        for resource in range(rows.problem.num_resources):
            mine = np.flatnonzero((rows.resource == resource) & (length > 0))
            begun = [self.start[fired[x] - 1, x] + length[x] for x in mine if fired[x]]
            found[mine] = max(begun, default=self.moment - FAR)
        for y, x, lag in zip(rows.before, rows.after, rows.lag, strict=True):
            known = self.start[fired[x] : fired[y], y]
            waits = known + length[y] + lag - period * np.arange(len(known))
            found[x] = max(found[x], int(waits.max(initial=-FAR)))
        return found

    def follows(self, period: int) -> IntArray:
        """Return by how much each column's start in turn 0 delays what is behind the cut.

        In ticks; added to the start it is the least delay beyond that of all turns, which are no
        part of it; `-FAR` where it is none.
        """
        rows, fired, length = self.rows, self.fired, self.rows.length
        found = np.full(len(length), -FAR, dtype=np.int64)
        for resource in range(rows.problem.num_resources):
            mine = np.flatnonzero((rows.resource == resource) & (length > 0))
            behind = [self.start[fired[x], x] for x in mine if fired[x] < len(self.start)]
            if behind:
                found[mine] = length[mine] - period - min(behind)
        for y, x, lag in zip(rows.before, rows.after, rows.lag, strict=True):
            numbers = np.arange(fired[x], fired[y])
            waits = (numbers - fired[y]) * period + length[y] + lag - self.start[numbers, x]
            found[y] = max(found[y], int(waits.max(initial=-FAR)))
        return found

    def uses(self) -> list[Uses]:
        """Return the amounts that a turn of the cycle takes from each pool and gives back."""
        return [self._use(pool) for pool in range(len(self.rows.problem.pools))]

    def _use(self, number: int) -> Uses:
        pool = self.rows.problem.pools[number]
        column = np.argsort(self.rows.ops, axis=None) % self.rows.ops.shape[1]
        takes = _by_column(column[pool.acquire_op], pool.acquire_amount, pool.amounts)
        gives = _by_column(column[pool.release_op], pool.release_amount, pool.amounts)
        fired = self.fired.tolist()
        used = pool.initial + sum((fired[x] * amount for x, amount in takes.items()), Fraction(0))
        used -= sum((fired[x] * amount for x, amount in gives.items()), Fraction(0))
        scale = PARAMS.levels / pool.limit

        def whole(amounts: dict[int, Fraction]) -> dict[int, int]:
            return {x: round(amount * scale) for x, amount in amounts.items()}

        slack = len(takes) + len(gives)
        return Uses(int((pool.limit - used) * scale) - slack, whole(takes), whole(gives))

    def joined(self, cycle: IntArray, period: int, delay: int) -> IntArray:
        """Return the starts of all micro-batches, with the cycle in between.

        Parameters
        ----------
        cycle : int64[L]
            Starts of turn 0 in ticks.
        period, delay : int
            Ticks from one turn to the next, and by which what is behind the cut is delayed beyond
            all turns.

        Returns
        -------
        int64[m + turns, L]
            Ticks.
        """
        turns, count = self.turns, len(self.start)
        found = np.empty((count + turns, len(cycle)), dtype=np.int64)
        for x, fired in enumerate(self.fired.tolist()):
            found[:fired, x] = self.start[:fired, x]
            found[fired : fired + turns, x] = cycle[x] + period * np.arange(turns)
            found[fired + turns :, x] = self.start[fired:, x] + period * turns + delay
        return found


def _by_column(
    column: IntArray, index: IntArray, amounts: tuple[Fraction, ...]
) -> dict[int, Fraction]:
    """Return the amount that one op of each column acquires or releases."""
    pairs = np.unique(np.stack((column, index), axis=1), axis=0).tolist()
    found: dict[int, Fraction] = {}
    for x, number in pairs:
        found[x] = found.get(x, Fraction(0)) + amounts[number]
    return found


class CyclicSchedule(NamedTuple):
    """Turn 0 of a cycle."""

    start: IntArray  # int64[L]: ticks, by column
    delay: int  # ticks by which what follows is delayed beyond all turns


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
    solver = configured(SearchLimits(seconds=seconds, deterministic=PARAMS.effort, is_plain=True))
    if solver.solve(model.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    start = np.array([solver.value(one) for one in model.start], dtype=np.int64)
    return CyclicSchedule(start + cut.moment, solver.value(model.delay))


class _CycleModel:
    """Starts relative to the cut, one short method per rule."""

    def __init__(self, cut: Cut, period: int) -> None:
        self.cut, self.rows, self.period = cut, cut.rows, period
        self.model = cp_model.CpModel()
        earliest = np.maximum(cut.earliest(period) - cut.moment, -PARAMS.most_periods * period)
        self.horizon = int(earliest.max(initial=0)) + PARAMS.most_periods * period
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

"""A schedule cut at a moment, and what a steady state put in between has to keep."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.periodic.rows import Rows

FAR = 2**60
"""Later than every time."""

LEVELS = 2**40
"""Units of a pool's limit. The limit exceeds the capacity by 1e-9 of it, 1,099 units, more than the
amounts of a cycle lose when each is rounded to the nearest unit."""


@dataclass(frozen=True, eq=False)
class Uses:
    """What one turn of a cycle takes from a pool and gives back, in units of `LEVELS`.

    Parameters
    ----------
    room : int
        Free when the cycle begins.
    takes, gives : dict of int to int
        Amount by column.
    """

    room: int
    takes: dict[int, int]
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
        """Return the earliest start of each column in turn 0, for what was before the cut.

        Parameters
        ----------
        period : int
            Ticks from one turn to the next.

        Returns
        -------
        int64[L]
            Ticks.
        """
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

        Parameters
        ----------
        period : int
            Ticks from one turn to the next.

        Returns
        -------
        int64[L]
            Added to the start, the least delay beyond that of all turns, which are no part of it;
            `-FAR` where it is none.
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
        scale = LEVELS / pool.limit

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
        period : int
            Ticks from one turn to the next.
        delay : int
            Ticks by which what is behind the cut is delayed beyond all turns.

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

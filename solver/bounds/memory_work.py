"""Heads that count the work which a memory cap puts before an acquire."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ppsolve.models.problem import IntArray
from ppsolve.solver.implied import ImpliedOrder, Lane, PoolOrder

MAX_ROUNDS = 8
"""Rounds of tightening and propagation; each is valid by itself, so any number is."""

MAX_EFFORT = 10_000_000
"""Sums formed per round; beyond that some acquires and times c are left out, still validly."""


def memory_heads(implied: ImpliedOrder, heads: IntArray) -> IntArray:
    """Raise heads by the work that must precede each acquire on its own resource.

    Before acquire j of a lane, the resource has run the acquires 0..j-1 and enough releases to
    make room. Whatever releases those are, no op of that set starts before its head, so for every
    time c: start >= c + work of the set's ops with heads >= c. The least such time over all
    choices of releases is a head. Together with the tail of the last acquires this adds the idle
    time of the fill (no release has returned yet) to that of the drain (nothing left to acquire).

    Parameters
    ----------
    implied : ImpliedOrder
        The problem, n ops, with its implied order.
    heads : int64[n]
        Valid heads, e.g. longest paths; relative ones where only some ops are reached.

    Returns
    -------
    int64[n]
        Valid heads, nowhere lower than `heads`.
    """
    tasks = [
        _Lane(implied, order, lane)
        for order in implied.pools
        for lane in order.lanes
        if _is_local(implied, lane)
    ]
    effort = sum(task.effort for task in tasks)
    thinning = max(1, int((effort / MAX_EFFORT) ** 0.5 + 0.999))
    for _ in range(MAX_ROUNDS if tasks else 0):
        raised = heads.copy()
        for task in tasks:
            task.raise_heads(raised, thinning)
        raised = implied.full.heads(raised)
        if np.array_equal(raised, heads):
            break
        heads = raised
    return heads


def _is_local(implied: ImpliedOrder, lane: Lane) -> bool:
    """Whether a lane has at most two releases, all on the one resource of its acquire."""
    columns = [lane.acquire, *(column for column, _ in lane.releases)]
    resources = {tuple(implied.problem.resources_of(implied.ops(c)[0])) for c in columns}
    return len(columns) <= 3 and len(resources) == 1 and len(resources.pop()) == 1


class _Lane:
    """One lane: its acquires and the choices of releases that make room for each."""

    def __init__(self, implied: ImpliedOrder, order: PoolOrder, lane: Lane) -> None:
        problem = implied.problem
        level = implied.plain.level
        releases = sorted(lane.releases, key=lambda part: int(level[implied.ops(part[0])[0]]))
        self.acquires = implied.ops(lane.acquire)
        self.columns = [implied.ops(column) for column, _ in releases]
        self.lengths = [int(problem.duration[ops[0]]) for ops in (self.acquires, *self.columns)]
        shares = [share for _, share in releases]
        available = order.pool.limit - order.holds.base
        self.choices = [
            _choices((j + 1) * lane.amount - available, shares, j)
            for j in range(len(self.acquires))
        ]

    @property
    def effort(self) -> int:
        """Number of sums that one full round forms."""
        return sum(len(choice) * (j + 1) * 3 for j, choice in enumerate(self.choices))

    def raise_heads(self, heads: IntArray, thinning: int) -> None:
        """Raise the heads of every `thinning`-th acquire, the last included, in place."""
        series = [heads[self.acquires], *(heads[ops] for ops in self.columns)]
        for j in range(len(self.choices) - 1, -1, -thinning):
            if len(self.choices[j]):
                moment = self._earliest(series, j, thinning)
                op = self.acquires[j]
                heads[op] = max(heads[op], moment)

    def _earliest(self, series: list[IntArray], j: int, thinning: int) -> int:
        """Return the least time by which some choice of releases can be through."""
        choice = self.choices[j]
        cuts = np.unique(np.concatenate([part[: j + 1] for part in series]))[::thinning]
        counts = [np.full((len(choice), 1), j), *(choice[:, [t]] for t in range(choice.shape[1]))]
        finish = np.broadcast_to(cuts, (len(choice), len(cuts))).copy()
        used = np.zeros_like(finish)
        for part, length, count in zip(series, self.lengths, counts, strict=True):
            before = np.searchsorted(part, cuts)
            used += np.maximum(count - before, 0) * length
        finish = np.where(used > 0, finish + used, 0)
        return int(finish.max(axis=1).min())


def _choices(needed: Fraction, shares: list[Fraction], most: int) -> IntArray:
    """Return the minimal counts of releases that add up to `needed`, int64[choices, columns].

    With two columns the second follows the first in every row, so its count is no larger.
    """
    if needed <= 0:
        return np.zeros((0, len(shares)), dtype=np.int64)
    if len(shares) == 1:
        count = -((-needed) // shares[0])
        return np.array([[count]], dtype=np.int64) if count <= most else np.zeros((0, 1), np.int64)
    rows = []
    for first in range(1, most + 1):
        second = max(0, -((-(needed - first * shares[0])) // shares[1]))
        if second <= first:
            rows.append((first, second))
        if second == 0:
            break
    return np.array(rows, dtype=np.int64).reshape(-1, 2)

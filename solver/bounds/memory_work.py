"""Heads that count the work which a memory cap forces before an acquire."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.structure.implied import Column, ImpliedOrder, Lane, PoolOrder


@dataclass(frozen=True)
class _Key:
    """Amounts that fix the choices of releases; equal on all devices of regular pipelines."""

    amounts: tuple[Fraction, ...]
    shares: tuple[Fraction, ...]
    available: Fraction


MAX_ACQUIRES = 256
"""Acquires of one lane that are tightened; leaving some out only weakens the heads.

On 51 instances with memory (below 4,000 ops) 16 to 1024 give the same bounds.
"""

MAX_ROUNDS = 8
"""Rounds of tightening and propagation; each is valid by itself, so any number is.

On the 51 instances 1 round loses up to 3.6 % (``scan-4x8-2``), 2 rounds up to 1.8 %; 4, 8 and 16
give the same bounds.
"""

MAX_EFFORT = 10_000_000
"""Sums formed per round; beyond that some acquires and times c are left out, still validly.

On the 51 instances 1 to 100 million give the same bounds, 100,000 loses up to 1.1 % (16 x 48 at
capacity 1p).
"""


def memory_heads(implied: ImpliedOrder, heads: IntArray) -> IntArray:
    """Raise heads by the work that must precede each acquire on its own resource.

    Before acquire j of a lane, the resource has run its acquires 0..j-1, acquires 0..j of the
    lanes that enclose it, and enough releases to free memory. For any choice of these releases no
    op of the set starts before its head, so for every time c: start >= c + work of the set's ops
    with heads >= c. Nor can more acquires have started by c than fit beside the releases possible
    by then. The least such time over all choices of releases is a head. Together with the tail of
    the last acquires this adds the idle time of the fill (no release has returned yet) to that
    of the drain (no acquire is left).

    Parameters
    ----------
    implied : ImpliedOrder
        The problem, n ops, with its implied order.
    heads : int64[n]
        Valid heads in ticks, e.g. longest paths; for spans, relative to the start of a device.

    Returns
    -------
    int64[n]
        Valid heads in ticks, none lower than in `heads`.
    """
    table: dict[_Key, _Choices] = {}
    tasks = []
    for order in implied.pools:
        for lane in order.lanes:
            nest = implied.nest_of(order.lanes, lane)
            if _is_local(implied, nest) and not implied.may_be_instant(lane, nest):
                tasks.append(_Nest(implied, order, lane, nest, table))
    effort = sum(task.effort for task in tasks)
    # Both acquires and times are thinned, so the effort falls with the square.
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


def _is_local(implied: ImpliedOrder, nest: list[Lane]) -> bool:
    """Return true if all lanes have one release, or two in a fixed order, on one resource."""
    columns = [column for lane in nest for column in lane.columns]
    resources = {tuple(implied.problem.resources_of(implied.ops(c)[0])) for c in columns}
    counts = {len(lane.releases) for lane in nest}
    return (
        len(resources) == 1
        and len(resources.pop()) == 1
        and (counts == {1} or counts == {2})
        and all(_in_order(implied, lane) is not None for lane in nest)
    )


def _in_order(implied: ImpliedOrder, lane: Lane) -> list[tuple[Column, Fraction]] | None:
    """Return a lane's releases, each after the one before it; None if they have no fixed order."""
    for order in permutations(lane.releases):
        if all(implied.follows(a[0], b[0]) for a, b in pairwise(order)):
            return list(order)
    return None


class _Nest:
    """The nest of one lane, and the choices of releases that free memory for its acquires.

    The first releases of all lanes count as one series, the second ones as another. Each op of a
    series counts with the shortest duration and the largest share, which only lowers the heads.
    """

    def __init__(
        self,
        implied: ImpliedOrder,
        order: PoolOrder,
        lane: Lane,
        nest: list[Lane],
        table: dict[_Key, _Choices],
    ) -> None:
        self.acquires = implied.ops(lane.acquire)
        self.before = [(implied.ops(other.acquire), int(other is not lane)) for other in nest]
        releases = [_in_order(implied, other) or [] for other in nest]
        series = [list(parts) for parts in zip(*releases, strict=True)]
        self.columns = [np.concatenate([implied.ops(c) for c, _ in parts]) for parts in series]
        duration = implied.problem.duration
        self.lengths = [int(duration[ops[0]]) for ops, _ in self.before]
        self.lengths += [int(duration[ops].min()) for ops in self.columns]
        key = _Key(
            amounts=tuple(other.amount for other in nest),
            shares=tuple(max(share for _, share in parts) for parts in series),
            available=order.pool.limit - order.holds.base,
        )
        if key not in table:
            table[key] = _Choices(key)
        self.choices = table[key]

    @property
    def effort(self) -> int:
        """Number of sums that one round forms without thinning."""
        members = len(self.acquires)
        return sum(self.choices.estimate(j) * (j + 1) * 3 for j in range(members))

    def raise_heads(self, heads: IntArray, thinning: int) -> None:
        """Raise the heads of every `thinning`-th acquire, counted from the last one, in place.

        Parameters
        ----------
        heads : int64[n]
            Heads in ticks, changed in place.
        thinning : int
            1 takes every acquire.
        """
        series = [heads[ops] for ops, _ in self.before]
        series += [np.sort(heads[ops]) for ops in self.columns]
        last = len(self.acquires) - 1
        for j in range(last, -1, -max(thinning, last // MAX_ACQUIRES, 1)):
            choice = self.choices.at(j)
            if len(choice):
                op = self.acquires[j]
                heads[op] = max(heads[op], self._earliest(series, j, choice, thinning))

    def _earliest(self, series: list[IntArray], j: int, choice: IntArray, thinning: int) -> int:
        """Return the least time at which some choice of releases can have ended."""
        cuts = np.unique(np.concatenate([part[: j + 1] for part in series]))[::thinning]
        acquired, released = series[: len(self.before)], series[len(self.before) :]
        used = np.zeros((len(choice), len(cuts)), dtype=np.int64)
        used += np.maximum(self._by_heads(acquired, j, cuts), self._by_memory(released, j, cuts))
        for t, part in enumerate(released):
            started = np.searchsorted(part, cuts)
            used += np.maximum(choice[:, [t]] - started, 0) * self.lengths[len(self.before) + t]
        finish = np.where(used > 0, cuts + used, 0)
        return int(finish.max(axis=1).min())

    def _by_heads(self, acquired: list[IntArray], j: int, cuts: IntArray) -> IntArray:
        """Return the work of the acquires before acquire j that cannot start before each cut."""
        late = np.zeros(len(cuts), dtype=np.int64)
        parts = zip(acquired, self.before, self.lengths, strict=False)
        for part, (_, extra), length in parts:
            late += np.maximum(j + extra - np.searchsorted(part, cuts), 0) * length
        return late

    def _by_memory(self, released: list[IntArray], j: int, cuts: IntArray) -> IntArray:
        """Return the work of the acquires before acquire j that do not fit before each cut."""
        total = sum(j + extra for _, extra in self.before)
        fits = np.full(len(cuts), self.choices.available, dtype=object)
        for part, share in zip(released, self.choices.shares, strict=True):
            fits += np.searchsorted(part, cuts).astype(object) * share
        late = np.maximum(total - (fits // min(self.choices.amounts)).astype(np.int64), 0)
        work: IntArray = late * min(self.lengths[: len(self.before)])
        return work


class _Choices:
    """The minimal counts of releases that free memory for an acquire, made on first use.

    No series has more than j releases per lane; a second release follows a first one, so its
    count is no larger. Amounts are whole multiples of a common unit.
    """

    def __init__(self, key: _Key) -> None:
        parts = (key.available, *key.amounts, *key.shares)
        unit = math.lcm(*(part.denominator for part in parts))
        self.available = int(key.available * unit)
        self.amounts = [int(amount * unit) for amount in key.amounts]
        self.shares = [int(share * unit) for share in key.shares]
        self._known: dict[int, IntArray] = {}

    def estimate(self, j: int) -> int:
        """Return an upper estimate of the number of choices for acquire j."""
        span = self._counts(j)
        return len(span) if len(self.shares) > 1 else min(1, len(span))

    def at(self, j: int) -> IntArray:
        """Return the choices for acquire j, int64[choices, series]; none if it fits at once."""
        if j not in self._known:
            rows = list(self._rows(j))
            table = np.array(rows, dtype=np.int64).reshape(-1, len(self.shares))
            self._known[j] = table
        return self._known[j]

    def _counts(self, j: int) -> range:
        """Return the counts of first releases to try; with one series only the first is used."""
        shortage = self._shortage(j)
        if shortage <= 0:
            return range(0)
        fewest = -(-shortage // sum(self.shares))
        return range(fewest, min(j * len(self.amounts), -(-shortage // self.shares[0])) + 1)

    def _shortage(self, j: int) -> int:
        """Return the amount that releases must free before acquire j."""
        return (j + 1) * sum(self.amounts) - self.available

    def _rows(self, j: int) -> Iterator[tuple[int, ...]]:
        shortage = self._shortage(j)
        for count in self._counts(j):
            if len(self.shares) == 1:
                yield (count,)
                return
            second = max(0, -(-(shortage - count * self.shares[0]) // self.shares[1]))
            if second <= count:
                yield count, second

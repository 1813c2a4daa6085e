"""Limits on the micro-batches in flight per stage, as precedences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ppsolve.models.core.dag import Edges, edges_of
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.solver.heuristics.list_scheduling import tails


@dataclass(frozen=True, eq=False)
class RuleLane:
    """Acquires of one stage from one pool, micro-batch by micro-batch, and their releases."""

    pool: int  # number of the pool
    amount: Fraction  # largest amount that a micro-batch acquires
    # acquire, first_release, last_release: int64[micro-batches]: the acquiring op, the first and
    # the last releasing op
    acquire: IntArray
    first_release: IntArray
    last_release: IntArray
    # least time from the start of an acquire to the end of its first release, in ticks
    lifetime: int
    kept: Fraction  # largest amount that a micro-batch keeps until its last release


@dataclass(frozen=True)
class MemoryShare:
    """Rule that divides memory among lanes as numbers of micro-batches in flight.

    Each lane gets memory in proportion to its lifetime. By Little's law (in flight = rate x
    lifetime) all lanes then run at the same rate.
    """

    # factor, offset: A lane's limit is its share x `factor` + `offset`, rounded down, at least 1
    factor: float = 1.0
    offset: float = 0.0
    # true: the tightest pool sets the rate of all, so that a stage in front of a long pipe does not
    # run ahead of the others. False: each pool is divided by itself
    everywhere: bool = True
    wait_for_last: bool = (
        False  # a micro-batch counts until its last release instead of its first
    )


@dataclass(frozen=True, eq=False)
class Burst:
    """Limits of lanes between the fill and the last micro-batches, which may use all their room."""

    steady: IntArray  # int64[lanes]: micro-batches in flight between the first ones and the burst
    forwards: (
        int  # last micro-batches, whose acquires use all the room there is: the burst
    )
    kept: (
        int  # micro-batches whose last releases may wait before the next first release
    )
    free: int  # last micro-batches whose last releases may wait for ever


class Lanes:
    """The lanes of every pool of a problem; ops without a micro-batch have none."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.each: list[RuleLane] = []
        if problem.pools:
            tail = tails(problem, with_index_order=False)
            labels = problem.stage * (int(problem.microbatch.max(initial=FREE)) + 2)
            labels += problem.microbatch
            for number in range(len(problem.pools)):
                self.each += _lanes_of_pool(problem, number, labels, tail)

    def limits(self, share: MemoryShare) -> IntArray:
        """Return the micro-batches that each lane may have in flight, int64[lanes], at least 1."""
        amount_times: dict[int, float] = defaultdict(float)
        for lane in self.each:
            amount_times[lane.pool] += float(lane.amount) * lane.lifetime
        pools = self.problem.pools
        rate = {
            pool: float(pools[pool].limit - pools[pool].initial) / total
            for pool, total in amount_times.items()
        }
        lowest = min(rate.values(), default=0.0)
        shares = (
            lane.lifetime * (lowest if share.everywhere else rate[lane.pool])
            for lane in self.each
        )
        # A share of 3 that is 2.9999999 as a double stays 3.
        limits = (
            max(1, int(fitting * share.factor + share.offset + 1e-6))
            for fitting in shares
        )
        return np.fromiter(limits, dtype=np.int64)

    def warm_up_limits(self) -> IntArray:
        """Return the acquires of each lane before its first release can begin, int64[lanes].

        At least 1. One more in flight would hold up the first backward, and with it those of all
        earlier stages.
        """
        duration = self.problem.duration
        waits = (
            lane.lifetime - int(duration[lane.first_release[0]]) for lane in self.each
        )
        longest = (max(1, int(duration[lane.acquire].max())) for lane in self.each)
        limits = (
            max(1, wait // length) for wait, length in zip(waits, longest, strict=True)
        )
        return np.fromiter(limits, dtype=np.int64)

    @property
    def most_kept(self) -> int:
        """Micro-batches whose last releases may all wait, in the tightest pool."""
        return self._fitting([(lane.pool, lane.kept) for lane in self.each])

    @property
    def most_in_flight(self) -> int:
        """Micro-batches that fit into the tightest pool with the acquires of all its lanes."""
        return self._fitting([(lane.pool, lane.amount) for lane in self.each])

    def _fitting(self, amounts: Sequence[tuple[int, Fraction]]) -> int:
        total: dict[int, Fraction] = defaultdict(Fraction)
        for pool, amount in amounts:
            total[pool] += amount
        pools = ((self.problem.pools[pool], amount) for pool, amount in total.items())
        return min(int((pool.limit - pool.initial) / amount) for pool, amount in pools)

    def edges_within(self, limits: IntArray, *, wait_for_last: bool) -> Edges:
        """Return the precedences that keep every lane within its micro-batches in flight.

        They alone do not keep the capacity, as amounts that are held until later releases count
        too. All precedences here point from earlier to later micro-batches: they close no cycle.
        They run without lags from the release of micro-batch i, the first or the last one, to the
        acquire of micro-batch i + limit of the lane, which is at least 1.
        """
        pairs = []
        for lane, limit in zip(self.each, limits.tolist(), strict=True):
            gate = lane.last_release if wait_for_last else lane.first_release
            pairs.append((gate[:-limit], lane.acquire[limit:]))
        return edges_of(pairs)

    def edges_before_burst(self, limits: IntArray, burst: Burst) -> Edges:
        """Return the precedences that keep lanes within `burst` until its micro-batches begin.

        The first micro-batches fill the lanes up to their limits, at least 1 each, and those of the
        burst may do so again. Edges run without lags from first releases to acquires, and from last
        releases to first ones.
        """
        pairs = []
        for lane, limit, steady in zip(
            self.each, limits.tolist(), burst.steady.tolist(), strict=True
        ):
            number = np.arange(len(lane.acquire))
            is_full = (number < limit) | (number >= len(number) - burst.forwards)
            opener = number - np.where(is_full, limit, min(steady, limit))
            pairs.append(
                (lane.first_release[opener[opener >= 0]], lane.acquire[opener >= 0])
            )
            held = max(0, len(number) - burst.free - burst.kept)
            late = lane.first_release[burst.kept : burst.kept + held]
            pairs.append((lane.last_release[:held], late))
        return edges_of(pairs)


def _lanes_of_pool(
    problem: Problem, number: int, labels: IntArray, tail: IntArray
) -> list[RuleLane]:
    # Ops of one stage and micro-batch have one label.
    pool = problem.pools[number]
    counts = np.array([amount != 0 for amount in pool.amounts], dtype=np.bool_)
    back = _behind(
        pool.release_op[counts[pool.release_amount]], pool.acquire_op, labels
    )
    back = back[np.lexsort((-tail[back], labels[back]))]
    op, index = pool.acquire_op, pool.acquire_amount
    first = np.searchsorted(labels[back], labels[op], side="left")
    last = np.searchsorted(labels[back], labels[op], side="right") - 1
    rows = np.flatnonzero(
        counts[index] & (problem.microbatch[op] != FREE) & (first <= last)
    )
    rows = rows[np.lexsort((op[rows], problem.microbatch[op[rows]]))]
    stage = problem.stage[op[rows]]
    stages = dict.fromkeys(problem.stage[op[np.sort(rows)]].tolist())
    lanes = []
    for this in (rows[stage == value] for value in stages):
        releases = back[first[this]], back[last[this]]
        lifetime = int(
            np.max(tail[op[this]] - tail[releases[0]] + problem.duration[releases[0]])
        )
        largest = max(
            pool.amounts[amount] for amount in np.unique(index[this]).tolist()
        )
        returned = pool.release_amount[np.isin(pool.release_op, releases[1])]
        kept = max(pool.amounts[amount] for amount in np.unique(returned).tolist())
        lanes.append(
            RuleLane(number, largest, op[this], *releases, max(lifetime, 1), kept)
        )
    return lanes


def _behind(releases: IntArray, acquires: IntArray, labels: IntArray) -> IntArray:
    # The excess that a forward gives back itself says nothing of how long its micro-batch is held.
    is_acquire = np.isin(releases, acquires)
    return releases[
        ~(is_acquire & np.isin(labels[releases], labels[releases[~is_acquire]]))
    ]

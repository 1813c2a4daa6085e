"""Micro-batches shared among replicas: a first assignment, and search by exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.paths import Paths
from ppsolve.solver.kernels.microbatch_exchange import (
    Choice,
    ExchangePace,
    ExchangeSizes,
    ReplicaPatterns,
    exchange,
    time_each,
    timed_replicas,
)


def sizes_of(flow: Flow, alone: IntArray) -> ExchangeSizes:
    """Return durations and amounts as kernels read them.

    Parameters
    ----------
    flow : Flow
        m micro-batches, V positions.
    alone : int64[c]
        Durations of ops of no micro-batch.

    Returns
    -------
    ExchangeSizes
        Flat tables with a last row for ops of no micro-batch.
    """
    count, positions = flow.duration.shape
    shape = (count + 1, positions + len(alone))
    duration, acquire, release = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    duration[:count, :positions], duration[count, positions:] = flow.duration, alone
    acquire[:count, :positions], release[:count, :positions] = flow.acquire, flow.release
    load, edge = _loads(flow)
    return ExchangeSizes(
        duration.ravel(), acquire.ravel(), release.ravel(), load, edge, flow.room, shape[1], count
    )


def _loads(flow: Flow) -> tuple[IntArray, IntArray]:
    """Return the work of micro-batches on each resource, and least heads and tails together."""
    paths = Paths(flow)
    loads, edges = [], []
    for resource in np.unique(flow.resource[flow.resource != FREE]).tolist():
        mine = np.flatnonzero(flow.resource == resource)
        loads.append(flow.duration[:, mine].sum(axis=1))
        edges.append(int(paths.head[:, mine].min() + paths.tail[:, mine].min()))
    return np.stack(loads, axis=1).ravel(), np.array(edges, dtype=np.int64)


def arrangements(work: IntArray, members: Sequence[int]) -> Iterator[list[int]]:
    """Yield a few orders of the micro-batches of one replica.

    Parameters
    ----------
    work : int64[m]
        Work of each micro-batch in ticks.
    members : sequence of int
        Micro-batches of the replica, as given.

    Yields
    ------
    list of int
        As given, ascending, descending, and short ones at both ends, where pipelines fill and
        drain.
    """
    yield list(members)
    rising = [members[place] for place in np.argsort(work[list(members)], kind="stable").tolist()]
    yield rising
    yield rising[::-1]
    yield rising[::2] + rising[1::2][::-1]


class Exchange:
    """A search over the micro-batches of replicas.

    Parameters
    ----------
    patterns : ReplicaPatterns
        Orders of a replica.
    choice : Choice
        The pattern for each number of micro-batches.
    sizes : ExchangeSizes
        Durations and amounts.
    members : sequence of sequences of int
        Where to start: micro-batches of each replica by slot.
    way : int
        `REORDER`, `EXCHANGE` or `MOVE`.
    seed : int
        Seed of the random numbers, from 1.
    """

    def __init__(
        self,
        patterns: ReplicaPatterns,
        choice: Choice,
        sizes: ExchangeSizes,
        members: Sequence[Sequence[int]],
        way: int,
        seed: int = 1,
    ) -> None:
        self._problem = timed_replicas(patterns, sizes, choice, len(members))
        self._way, self._rng = way, np.array([seed], dtype=np.int64)
        # Each array has two halves: what is, and what was in the best assignment.
        count, half = len(members), len(members) * choice.width
        self._members = np.zeros(2 * half, dtype=np.int64)
        self._counts, self._values = np.zeros((2, 2 * count), dtype=np.int64)
        self.member, self.best_member = self._members[:half], self._members[half:]
        self.count, self.best_count = self._counts[:count], self._counts[count:]
        self.value, self.best_value = self._values[:count], self._values[count:]
        self.count[:] = self.best_count[:] = [len(those) for those in members]
        self.member[:] = self.best_member[:] = self._placed(members)
        self._time()
        self.best_value[:] = self.value

    def _placed(self, members: Sequence[Sequence[int]]) -> IntArray:
        table = np.zeros((len(members), self._problem.choice.width), dtype=np.int64)
        for row, those in zip(table, members, strict=True):
            row[: len(those)] = those
        return table.ravel()

    def _time(self) -> None:
        time_each(self._problem, self.member, self.count, self.value)

    def arrange(self, work: IntArray) -> None:
        """Put each replica into the best of a few orders; `work` is that of each micro-batch."""
        rows = self.member.reshape(len(self.count), -1)
        best, value = rows.copy(), self.value.copy()
        for orders in zip(*(arrangements(work, those) for those in self.members), strict=True):
            self.member[:] = self._placed(orders)
            self._time()
            better = self.value < value
            best[better], value[better] = rows[better], self.value[better]
        rows[:], self.value[:] = best, value
        self.best_member[:], self.best_value[:] = self.member, value

    def offer(self, members: Sequence[Sequence[int]]) -> None:
        """Go on from an order of the same micro-batches of each replica if it is the best."""
        self.member[:] = self._placed(members)
        self._time()
        if self.value.max() < self.best:
            self.best_member[:], self.best_value[:] = self.member, self.value
        self.return_to_best()

    @property
    def best(self) -> int:
        """Makespan of the slowest replica of the best assignment found, in ticks."""
        return int(self.best_value.max())

    @property
    def members(self) -> list[list[int]]:
        """Micro-batches of each replica by slot, in the best assignment found."""
        rows = self.best_member.reshape(len(self.count), -1).tolist()
        return [row[:count] for row, count in zip(rows, self.best_count.tolist(), strict=True)]

    def return_to_best(self) -> None:
        """Go on from the best assignment found."""
        self.member[:], self.count[:] = self.best_member, self.best_count
        self._time()

    def walk(self, steps: int, target: int, heat: int) -> int:
        """Go on for some steps.

        Parameters
        ----------
        steps : int
            Number of steps.
        target : int
            Makespan at which to stop.
        heat : int
            Most ticks by which a replica may get slower in a step, plus one.

        Returns
        -------
        int
            Steps that were left when the target was met.
        """
        pace = ExchangePace(steps, heat, target, self._way)
        arrays = (self._members, self._counts, self._values, self._rng)
        return int(exchange(self._problem, pace, *arrays))


FIRST_STEPS, WALK_SECONDS = 100, 0.002
"""Steps of the first walk, and length of the following ones, after each of which a search looks at
its clock."""

WORTH = 0.001
"""Share by which an answer must get better for a search to go on for as long again. What comes
later in smaller parts is left to those who wait for it."""

HEAT, ROUND_WALKS = 0.003, 4
"""Share of the makespan by which a replica may get slower at first, and walks of the first round,
over which that falls to 0; each round is twice as long and begins from the best found. Neither is
tuned: without heat and with 0.003 and 0.03 (one run each on a busy machine, heat falling once over
0.5 s) the mean of the slowest of 32 replicas over 16 recorded steps differs by 0.05 %, and first
rounds of 4, 8 and 16 walks differ by 0.4 % on 25 log-normal steps: no more than load changes."""


class Heat:
    """Heat of the walks of a search: it falls to 0 over each round."""

    def __init__(self) -> None:
        self._length, self._walk = ROUND_WALKS, 0

    def next(self, search: Exchange) -> int:
        """Return the heat of the next walk of a search in ticks, plus one."""
        if self._walk == self._length:
            self._length, self._walk = 2 * self._length, 0
            search.return_to_best()
        left = 1 - self._walk / self._length
        self._walk += 1
        return 1 + int(search.best * HEAT * left * left)


class WalkPace:
    """Steps of the next walk, chosen so that a walk takes a given time.

    Parameters
    ----------
    clock : Clock
        No walk is begun that would end after it.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.steps = clock, FIRST_STEPS
        self._began = clock.elapsed

    def note(self, steps: int) -> None:
        """Learn from a walk of so many steps, begun when the last one was noted."""
        now = self.clock.elapsed
        seconds, self._began = max(now - self._began, 1e-6), now
        wanted = min(WALK_SECONDS, self.clock.left / 2)
        self.steps = max(1, min(4 * self.steps, int(max(steps, 1) * wanted / seconds)))


def run(search: Exchange, clock: Clock, target: int, patience: float) -> None:
    """Search until the clock is over, the target is met, or nothing better was found for long.

    Parameters
    ----------
    search : Exchange
        Continued, and cooled down.
    clock : Clock
        Asked between walks of 2 ms.
    target : int
        Makespan at which to stop, in ticks.
    patience : float
        Seconds without an assignment that is better by 0.1 % after which to stop.
    """
    pace, best, since = WalkPace(clock), search.best, clock.elapsed
    heat = Heat()
    while search.best > target and not clock.is_over and clock.elapsed - since < patience:
        left = search.walk(pace.steps, target, heat.next(search))
        pace.note(pace.steps - left)
        if search.best < best * (1 - WORTH):
            best, since = search.best, clock.elapsed


def run_each(searches: Sequence[Exchange], target: int, clock: Clock, patience: float) -> None:
    """Search each of several replicas apart, always the slowest.

    Parameters
    ----------
    searches : sequence of Exchange
        One for each replica, of one replica each.
    target : int
        Makespan of the slowest at which to stop, in ticks.
    clock : Clock
        Asked between walks of 2 ms.
    patience : float
        Seconds on the slowest without an order that is better by 0.1 % after which to stop.
    """
    pace, heats = WalkPace(clock), [Heat() for _ in searches]
    spent = [0.0] * len(searches)
    while not clock.is_over:
        slowest = max(range(len(searches)), key=lambda number: searches[number].best)
        search, best = searches[slowest], searches[slowest].best
        if best <= target or spent[slowest] >= patience:
            return
        began = clock.elapsed
        left = search.walk(pace.steps, target, heats[slowest].next(search))
        pace.note(pace.steps - left)
        gained = search.best < best * (1 - WORTH)
        spent[slowest] = 0.0 if gained else spent[slowest] + clock.elapsed - began

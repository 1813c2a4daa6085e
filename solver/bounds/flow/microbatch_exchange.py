"""Micro-batches shared among replicas: a first assignment, and search by exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.flow.flow import Flow, Paths
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.microbatch_exchange import (
    Choice,
    ExchangePace,
    ExchangeSizes,
    ReplicaPatterns,
    exchange,
    time_each,
    timed_replicas,
)


def sizes_of(flow: Flow, free_duration: IntArray) -> ExchangeSizes:
    """Return durations and amounts as kernels read them: a last row is for ops of no micro-batch.

    Those ops take `free_duration`.
    """
    count, positions = flow.duration.shape
    shape = (count + 1, positions + len(free_duration))
    duration, acquire, release = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    duration[:count, :positions], duration[count, positions:] = (
        flow.duration,
        free_duration,
    )
    acquire[:count, :positions], release[:count, :positions] = (
        flow.acquire,
        flow.release,
    )
    load, edge = _loads(flow)
    return ExchangeSizes(
        duration.ravel(),
        acquire.ravel(),
        release.ravel(),
        load,
        edge,
        flow.room,
        shape[1],
        count,
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
    """Yield a few orders of the micro-batches of one replica, where pipelines fill and drain.

    `work` has the ticks of each micro-batch of all.
    """
    yield list(members)
    rising = [
        members[index]
        for index in np.argsort(work[list(members)], kind="stable").tolist()
    ]
    yield rising
    yield rising[::-1]
    yield rising[::2] + rising[1::2][::-1]


class MicrobatchExchange:
    """A search over the micro-batches of replicas.

    `patterns`: orders of a replica.
    `choice`: the pattern for each number of micro-batches.
    `members`: where to start: micro-batches of each replica by slot.
    `neighbourhood`: `REORDER`, `EXCHANGE` or `MOVE`.
    `seed`: seed of the random numbers, from 1.
    """

    def __init__(
        self,
        patterns: ReplicaPatterns,
        choice: Choice,
        sizes: ExchangeSizes,
        members: Sequence[Sequence[int]],
        neighbourhood: int,
        seed: int = 1,
    ) -> None:
        self._problem = timed_replicas(patterns, sizes, choice, len(members))
        self._way, self._rng = neighbourhood, np.array([seed], dtype=np.int64)
        # Each array has two halves: what is, and what was in the best assignment.
        count, half = len(members), len(members) * choice.width
        self._members = np.zeros(2 * half, dtype=np.int64)
        self._counts, self._values = np.zeros((2, 2 * count), dtype=np.int64)
        self.member, self.best_member = self._members[:half], self._members[half:]
        self.count, self.best_count = self._counts[:count], self._counts[count:]
        self.value, self.best_value = self._values[:count], self._values[count:]
        self.count[:] = self.best_count[:] = [len(replica) for replica in members]
        self.member[:] = self.best_member[:] = self._placed(members)
        self._time()
        self.best_value[:] = self.value

    def _placed(self, members: Sequence[Sequence[int]]) -> IntArray:
        table = np.zeros((len(members), self._problem.choice.width), dtype=np.int64)
        for row, replica in zip(table, members, strict=True):
            row[: len(replica)] = replica
        return table.ravel()

    def _time(self) -> None:
        time_each(self._problem, self.member, self.count, self.value)

    def arrange(self, work: IntArray) -> None:
        """Put each replica into the best of a few orders; `work` is that of each micro-batch."""
        rows = self.member.reshape(len(self.count), -1)
        best, value = rows.copy(), self.value.copy()
        for orders in zip(
            *(arrangements(work, replica) for replica in self.members), strict=True
        ):
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
        return [
            row[:count]
            for row, count in zip(rows, self.best_count.tolist(), strict=True)
        ]

    def return_to_best(self) -> None:
        """Go on from the best assignment found."""
        self.member[:], self.count[:] = self.best_member, self.best_count
        self._time()

    def walk(self, steps: int, target: int, heat: int) -> int:
        """Go on for some steps; return how many were left when the target was met.

        In a step a replica gets slower by less than `heat` ticks.
        """
        pace = ExchangePace(steps, heat, target, self._way)
        arrays = (self._members, self._counts, self._values, self._rng)
        return int(exchange(self._problem, pace, *arrays))


@dataclass(frozen=True)
class ExchangeParams:
    """Effort of searches by exchange of micro-batches."""

    first_steps: int = 100  # steps of the first walk
    walk_seconds: float = (
        0.002  # length of the others, after each of which the clock is asked
    )
    worth: float = (
        0.001  # share by which an answer must improve for patience to begin anew
    )
    heat: float = (
        0.003  # share of the makespan by which a replica may get slower at first
    )
    round_walks: int = (
        4  # walks of the first round, over which heat falls to 0; then twice as many
    )


EXCHANGE_PARAMS = ExchangeParams()


class Heat:
    """Heat of the walks of a search: it falls to 0 over each round, which begins from the best."""

    def __init__(self, params: ExchangeParams = EXCHANGE_PARAMS) -> None:
        self._share, self._length, self._walk = params.heat, params.round_walks, 0

    def next(self, search: MicrobatchExchange) -> int:
        """Return the heat of the next walk of a search in ticks, plus one."""
        if self._walk == self._length:
            self._length, self._walk = 2 * self._length, 0
            search.return_to_best()
        fraction = 1 - self._walk / self._length
        self._walk += 1
        return 1 + int(search.best * self._share * fraction * fraction)


def improve_slowest(
    searches: Sequence[MicrobatchExchange], target: int, clock: Clock, patience: float
) -> None:
    """Search, always where the slowest replica is, until it meets the target or is stuck.

    There is one search for all replicas, or one for each. The slowest is stuck once it has taken as
    many seconds as `patience` says without a gain that is worth it. The clock is asked between
    walks of a few milliseconds.
    """
    params, heats = EXCHANGE_PARAMS, [Heat() for _ in searches]
    steps = params.first_steps
    noted, spent = [search.best for search in searches], [0.0] * len(searches)
    while not clock.is_over:
        slowest = max(range(len(searches)), key=lambda number: searches[number].best)
        search = searches[slowest]
        if search.best <= target or spent[slowest] >= patience:
            return
        began = clock.elapsed
        unspent = search.walk(steps, target, heats[slowest].next(search))
        seconds = max(clock.elapsed - began, 1e-6)
        budget = min(params.walk_seconds, clock.left / 2)
        steps = max(1, min(4 * steps, int(max(steps - unspent, 1) * budget / seconds)))
        spent[slowest] += seconds
        if search.best < noted[slowest] * (1 - params.worth):
            noted[slowest], spent[slowest] = search.best, 0.0

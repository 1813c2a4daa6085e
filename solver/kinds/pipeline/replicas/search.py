"""A search over one step: the best way to order ops, then the micro-batches of each replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.replicas import longest_first
from ppsolve.solver.bounds.exchange import exchange_bound
from ppsolve.solver.bounds.flow.flow import Flow, rows_of
from ppsolve.solver.bounds.flow.microbatch_exchange import (
    MicrobatchExchange,
    improve_slowest,
    sizes_of,
)
from ppsolve.solver.bounds.flow.states import StatesParams, solve_states
from ppsolve.solver.bounds.registry import flow_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.microbatch_exchange import (
    EXCHANGE,
    MOVE,
    REORDER,
    TOO_LONG,
    Choice,
)
from ppsolve.solver.kinds.pipeline.replicas.shape import ReplicaShape, schedule_of


@dataclass(frozen=True)
class ReplicaSearchParams:
    """Bounds and proofs of fixed replicas; most of the time goes into orders."""

    bounds_share: float = 0.1  # of the time, for bounds of replicas, the slowest first
    search_share: float = (
        0.5  # of the time, for orders before the slowest is searched by states
    )
    most_states: int = (
        2**14
    )  # of a level of that search: a quarter proves a third fewer steps
    most_ops: int = 48  # of a replica that is searched through states


class ReplicaSearch:
    """A search over one step, from a seed of at least 1, by the clock of the step.

    Bounds of fixed replicas take a part of that time. `loads` has the work of each micro-batch on
    each device of a replica, int64[m, R] in ticks.
    """

    def __init__(
        self, shape: ReplicaShape, flow: Flow, seed: int, clock: Clock | None = None
    ) -> None:
        self.shape, self.flow, self.seed, self.params = (
            shape,
            flow,
            seed,
            ReplicaSearchParams(),
        )
        self.sizes = sizes_of(flow, shape.alone)
        self.loads = self.sizes.load.reshape(flow.num_microbatches, -1)
        self.work = self.loads.sum(axis=1)
        replicas, width = shape.replicas, shape.ways[0].width
        if replicas.is_free:
            members = longest_first(self.work.tolist(), replicas.count, width)
            self.bound = exchange_bound(
                flow, replicas.count, equal=replicas.counts == "equal"
            )
        else:
            members = list(map(list, replicas.blocks(len(self.work))))
        self._start(members)
        if not replicas.is_free:
            self.bound = self._bound_of_slowest(clock or Clock())

    def _start(self, members: Sequence[Sequence[int]]) -> None:
        shape = self.shape
        tries = [self._exchange(choice, members, REORDER) for choice in shape.ways]
        for exchange in tries:
            exchange.arrange(self.work)
        values = np.array([exchange.value for exchange in tries])
        if shape.replicas.is_free:
            numbers = np.full(len(members), int(np.argmin(values.max(axis=1))))
        else:
            numbers = np.argmin(values, axis=0)
        self.choices = [shape.ways[number] for number in numbers.tolist()]
        placed = [
            tries[number].members[replica]
            for replica, number in enumerate(numbers.tolist())
        ]
        if not shape.replicas.is_free:
            pairs = zip(self.choices, placed, strict=True)
            self.searches = [
                self._exchange(choice, [microbatches], REORDER)
                for choice, microbatches in pairs
            ]
            return
        kind = EXCHANGE if shape.replicas.counts == "equal" else MOVE
        self.searches = [self._exchange(self.choices[0], placed, kind)]

    def _bound_of_slowest(self, clock: Clock) -> int:
        clock, bound = clock.share(self.params.bounds_share), 0
        for search in sorted(self.searches, key=lambda search: -search.best):
            bound = max(
                bound,
                flow_bounds(rows_of(self.flow, search.members[0]), clock)[0].value,
            )
            if clock.is_over:
                break
        return bound

    def _exchange(
        self, choice: Choice, members: Sequence[Sequence[int]], kind: int
    ) -> MicrobatchExchange:
        return MicrobatchExchange(
            self.shape.sample, choice, self.sizes, members, kind, self.seed
        )

    def warm_up(self) -> None:
        """Load the compiled code that any step may need."""
        search = self.searches[0]
        search.walk(1, 0, 1)
        flow = rows_of(self.flow, search.members[0])
        if not self.shape.replicas.is_free and flow.ops.size <= self.params.most_ops:
            solve_states(flow, TOO_LONG, params=StatesParams(max_states=1))

    def run(self, clock: Clock, patience: float) -> None:
        """Search until the clock is over, the bound is met, or patience ends.

        It ends after so many seconds without something better by 0.1 %.
        """
        is_free = self.shape.replicas.is_free
        share = clock if is_free else clock.share(self.params.search_share)
        improve_slowest(self.searches, self.bound, share, patience)
        if not is_free:
            self._prove(clock)
            improve_slowest(self.searches, self.bound, clock, patience)

    def _prove(self, clock: Clock) -> None:
        while not clock.is_over and self.value > self.bound:
            slowest = max(self.searches, key=lambda search: search.best)
            members, best = slowest.members[0], slowest.best
            flow = rows_of(self.flow, members)
            if flow.ops.size > self.params.most_ops:
                return
            effort = StatesParams(max_states=self.params.most_states)
            answer = solve_states(flow, best, clock=clock, params=effort)
            if answer is None:
                return
            self.bound = max(self.bound, answer.bound)
            if answer.starts is not None:
                order = np.argsort(answer.starts.min(axis=1), kind="stable").tolist()
                slowest.offer([[members[slot] for slot in order]])
            if slowest.best == best and self.bound < best:
                return

    @property
    def value(self) -> int:
        """Makespan of the slowest replica in ticks."""
        return max(search.best for search in self.searches)

    @property
    def members(self) -> list[list[int]]:
        """Micro-batches of each replica by slot."""
        return [
            microbatches for search in self.searches for microbatches in search.members
        ]

    @property
    def schedule(self) -> Schedule:
        """The schedule in which every replica runs its best order."""
        return schedule_of(self.shape, self.choices, self.sizes, self.members)

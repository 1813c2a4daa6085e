"""A search over one step: the best way to order ops, then the micro-batches of each replica."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.replicas import longest_first
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.bounds import flow_bounds
from ppsolve.solver.flow.exchange_bounds import exchange_bound
from ppsolve.solver.flow.flow import Flow, rows_of
from ppsolve.solver.flow.trading import Exchange, run, run_each, sizes_of
from ppsolve.solver.kernels.exchange import EXCHANGE, MOVE, REORDER, Choice
from ppsolve.solver.pipeline.replicas.assembly import schedule_of
from ppsolve.solver.pipeline.replicas.shape import Shape


class Search:
    """A search over one step.

    Parameters
    ----------
    shape : Shape
        Structure of the pipeline.
    flow : Flow
        Durations and amounts of the step.
    seed : int
        Seed of the random numbers, from 1.
    """

    def __init__(self, shape: Shape, flow: Flow, seed: int) -> None:
        self.shape, self.seed = shape, seed
        self.sizes = sizes_of(flow, shape.alone)
        self.work = self.sizes.load.reshape(flow.num_microbatches, -1).sum(axis=1)
        replicas, width = shape.replicas, shape.ways[0].width
        if replicas.is_free:
            members = longest_first(self.work.tolist(), replicas.count, width)
            self.bound = exchange_bound(flow, replicas.count, equal=replicas.counts == "equal")
        else:
            members = list(map(list, replicas.blocks(len(self.work))))
            bounds = [flow_bounds(rows_of(flow, those))[0].value for those in members]
            self.bound = max(bounds)
        self._start(members)

    def _start(self, members: Sequence[Sequence[int]]) -> None:
        """Take the way and arrangement that are best for each replica, or for all where free."""
        shape = self.shape
        tries = [self._exchange(choice, members, REORDER) for choice in shape.ways]
        for found in tries:
            found.arrange(self.work)
        values = np.array([found.value for found in tries])
        if shape.replicas.is_free:
            way = np.full(len(members), int(np.argmin(values.max(axis=1))))
        else:
            way = np.argmin(values, axis=0)
        self.choices = [shape.ways[number] for number in way.tolist()]
        placed = [tries[number].members[replica] for replica, number in enumerate(way.tolist())]
        if not shape.replicas.is_free:
            pairs = zip(self.choices, placed, strict=True)
            self.searches = [self._exchange(choice, [those], REORDER) for choice, those in pairs]
            return
        kind = EXCHANGE if shape.replicas.counts == "equal" else MOVE
        self.searches = [self._exchange(self.choices[0], placed, kind)]

    def _exchange(self, choice: Choice, members: Sequence[Sequence[int]], way: int) -> Exchange:
        return Exchange(self.shape.sample, choice, self.sizes, members, way, self.seed)

    def run(self, clock: Clock, patience: float) -> None:
        """Search until the clock is over, the bound is met, or patience ends.

        Parameters
        ----------
        clock : Clock
            Asked every few milliseconds.
        patience : float
            Seconds without something better by 0.1 %.
        """
        if self.shape.replicas.is_free:
            run(self.searches[0], clock, self.bound, patience)
        else:
            run_each(self.searches, self.bound, clock, patience)

    @property
    def value(self) -> int:
        """Makespan of the slowest replica in ticks."""
        return max(search.best for search in self.searches)

    @property
    def members(self) -> list[list[int]]:
        """Micro-batches of each replica by slot."""
        return [those for search in self.searches for those in search.members]

    @property
    def schedule(self) -> Schedule:
        """The schedule in which every replica runs its best order."""
        return schedule_of(self.shape, self.choices, self.sizes, self.members)

"""Longest paths of a flow, for all of its micro-batches at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.flow.flow import Flow

Edge = tuple[int, int, int]
"""Position before, position after, lag in ticks."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Heads and tails of the positions of a flow, m micro-batches and V positions.

    Parameters
    ----------
    flow : Flow
        The flow.
    """

    flow: Flow

    @cached_property
    def edges(self) -> list[Edge]:
        """Precedences, every position's own after those into it."""
        flow = self.flow
        edges = list(zip(flow.before.tolist(), flow.after.tolist(), flow.lag.tolist(), strict=True))
        rank = [0] * flow.num_positions
        for _ in range(flow.num_positions):
            old = rank.copy()
            for before, after, _ in edges:
                rank[after] = max(rank[after], rank[before] + 1)
            if rank == old:
                break
        return sorted(edges, key=lambda edge: rank[edge[0]])

    @cached_property
    def head(self) -> IntArray:
        """Least time before the start of each position, int64[m, V] in ticks."""
        duration = self.flow.duration
        head = np.tile(self.flow.ahead, (len(duration), 1))
        for before, after, lag in self.edges:
            np.maximum(
                head[:, after], head[:, before] + duration[:, before] + lag, out=head[:, after]
            )
        return head

    @cached_property
    def tail(self) -> IntArray:
        """Least time after the end of each position, int64[m, V] in ticks."""
        duration = self.flow.duration
        tail = np.tile(self.flow.behind, (len(duration), 1))
        for before, after, lag in reversed(self.edges):
            np.maximum(
                tail[:, before], lag + duration[:, after] + tail[:, after], out=tail[:, before]
            )
        return tail

    @cached_property
    def precedes(self) -> np.typing.NDArray[np.bool_]:
        """Whether a position must end before another one starts, bool[V, V]."""
        reach = np.zeros((self.flow.num_positions, self.flow.num_positions), dtype=bool)
        for before, after, _ in reversed(self.edges):
            reach[before, after] = True
            reach[before] |= reach[after]
        return reach

    @cached_property
    def alone(self) -> list[int]:
        """Preemptive bound of each resource by itself, in ticks."""
        duration, resources = self.flow.duration, range(self.flow.num_resources)
        return [
            preemptive_bound(self.head[ops], duration[ops], self.tail[ops])
            for ops in map(self.ops_of, resources)
        ]

    def ops_of(self, resource: int) -> tuple[IntArray, IntArray]:
        """Return micro-batches and positions of the ops that occupy a resource."""
        positions = np.flatnonzero(self.flow.resource == resource)
        row, column = np.nonzero(self.flow.duration[:, positions])
        return row, positions[column]

    @cached_property
    def reversed(self) -> Paths:
        """The flow with time running backwards: heads are tails, acquires are releases."""
        flow = self.flow
        turned = replace(
            flow,
            before=flow.after,
            after=flow.before,
            acquire=flow.release,
            release=flow.acquire,
            ahead=flow.behind,
            behind=flow.ahead,
        )
        return Paths(turned)

    def gap(self, position: int) -> IntArray:
        """Return the least time from the end of a position to the start of each later one.

        Parameters
        ----------
        position : int
            The position.

        Returns
        -------
        int64[m, V]
            Ticks; 0 where a position is not later.
        """
        duration = self.flow.duration
        gap = np.zeros_like(duration)
        is_later = self.precedes[position]
        for before, after, lag in self.edges:
            if before == position:
                np.maximum(gap[:, after], lag, out=gap[:, after])
            elif is_later[before]:
                np.maximum(
                    gap[:, after], gap[:, before] + duration[:, before] + lag, out=gap[:, after]
                )
        return gap

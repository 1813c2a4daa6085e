"""Longest paths of a flow, for all of its micro-batches at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppsolve.models.core.problem import IntArray
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
        head = np.zeros_like(duration)
        for before, after, lag in self.edges:
            np.maximum(
                head[:, after], head[:, before] + duration[:, before] + lag, out=head[:, after]
            )
        return head

    @cached_property
    def tail(self) -> IntArray:
        """Least time after the end of each position, int64[m, V] in ticks."""
        duration = self.flow.duration
        tail = np.zeros_like(duration)
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

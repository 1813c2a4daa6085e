"""Longest paths in a directed acyclic graph, level by level in numpy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem

Edges = tuple[IntArray, IntArray, IntArray]
"""Precedences as arrays (before, after, lag): start(after) >= end(before) + lag."""


def chain_edges(chains: Iterable[IntArray]) -> Edges:
    """Return the precedences that make each chain of ops run in its order."""
    known = list(chains)
    none = np.zeros(0, dtype=np.int64)
    before = np.concatenate([none, *(chain[:-1] for chain in known)])
    after = np.concatenate([none, *(chain[1:] for chain in known)])
    return before, after, np.zeros(len(before), dtype=np.int64)


class CycleError(Exception):
    """The graph has a cycle; `nodes` lists it, each node after one that must precede it."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        super().__init__(f"cycle through {nodes}")


class Dag:
    """Nodes 0..n-1 and edges start(after) >= start(before) + delay.

    Parameters
    ----------
    num_nodes : int
        Number of nodes n.
    before, after, delay : int64[k]
        The edges.

    Raises
    ------
    CycleError
        The edges form a cycle.
    """

    def __init__(self, num_nodes: int, before: IntArray, after: IntArray, delay: IntArray) -> None:
        self.num_nodes = num_nodes
        self.before, self.after, self.delay = before, after, delay
        self.level = self._levels()

    @classmethod
    def of(cls, problem: Problem, *extra: Edges) -> Dag:
        """Build the graph of a problem's precedences.

        Parameters
        ----------
        problem : Problem
            The problem, n ops.
        *extra : Edges
            Further precedences; lags in ticks.

        Returns
        -------
        Dag
            n nodes; the delay of an edge is the duration of its first op + lag, in ticks.

        Raises
        ------
        CycleError
            The precedences form a cycle.
        """
        before = np.concatenate([problem.before, *(edges[0] for edges in extra)])
        after = np.concatenate([problem.after, *(edges[1] for edges in extra)])
        lag = np.concatenate([problem.lag, *(edges[2] for edges in extra)])
        return cls(problem.num_ops, before, after, problem.duration[before] + lag)

    def _levels(self) -> IntArray:
        order = np.argsort(self.before, kind="stable")
        heads = self.after[order]
        pointer = np.searchsorted(self.before[order], np.arange(self.num_nodes + 1))
        missing = np.bincount(self.after, minlength=self.num_nodes)
        level = np.full(self.num_nodes, -1, dtype=np.int64)
        frontier = np.flatnonzero(missing == 0)
        depth = 0
        while frontier.size:
            level[frontier] = depth
            reached = heads[_ranges(pointer[frontier], pointer[frontier + 1])]
            np.subtract.at(missing, reached, 1)
            candidates = np.unique(reached)
            frontier = candidates[missing[candidates] == 0]
            depth += 1
        if np.any(level < 0):
            raise CycleError(self._find_cycle(level < 0))
        return level

    def _find_cycle(self, stuck: Any) -> list[int]:
        inside = stuck[self.before] & stuck[self.after]
        predecessor = dict(
            zip(self.after[inside].tolist(), self.before[inside].tolist(), strict=True)
        )
        node = next(iter(predecessor))
        seen: dict[int, int] = {}
        path: list[int] = []
        while node not in seen:
            seen[node] = len(path)
            path.append(node)
            node = predecessor[node]
        return path[seen[node] :][::-1]

    def heads(self, initial: IntArray) -> IntArray:
        """Return the longest path into every node.

        Parameters
        ----------
        initial : int64[n] or int64[n, c]
            Lower bound of each node alone, for one or for c independent sets of bounds.

        Returns
        -------
        int64[n] or int64[n, c]
            Smallest values >= `initial` with value(after) >= value(before) + delay.
        """
        return _relax(initial, self.before, self.after, self.delay, self.level[self.after])

    def tails(self, initial: IntArray) -> IntArray:
        """Return the longest path out of every node, measured from the node's start.

        With the durations as `initial` this is the least time from an op's start to the end of
        the last op that depends on it. Shapes as in `heads`.
        """
        return _relax(initial, self.after, self.before, self.delay, -self.level[self.before])


def _ranges(first: IntArray, last: IntArray) -> IntArray:
    """Concatenate the ranges first[i] .. last[i] - 1."""
    sizes = last - first
    offsets = np.repeat(np.cumsum(sizes) - sizes, sizes)
    places: IntArray = np.arange(int(sizes.sum())) - offsets + np.repeat(first, sizes)
    return places


def _relax(
    initial: IntArray, source: IntArray, target: IntArray, delay: IntArray, rank: IntArray
) -> IntArray:
    value = initial.copy()
    order = np.lexsort((target, rank))
    source, target, delay, rank = source[order], target[order], delay[order], rank[order]
    wide = delay if value.ndim == 1 else delay[:, None]
    cuts = np.flatnonzero(np.diff(rank)) + 1
    for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rank)], strict=True):
        if first == last:
            continue
        block = slice(first, last)
        here = target[block]
        groups = np.concatenate(([0], np.flatnonzero(np.diff(here)) + 1))
        best = np.maximum.reduceat(value[source[block]] + wide[block], groups, axis=0)
        value[here[groups]] = np.maximum(value[here[groups]], best)
    return value

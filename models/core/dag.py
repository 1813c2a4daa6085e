"""Precedences as arrays, and their cycles."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable

import numpy as np

from ppsolve.models.core.problem import IntArray

Edges = tuple[IntArray, IntArray, IntArray]
"""Precedences as arrays (before, after, lag): start(after) >= end(before) + lag."""


def chain_edges(chains: Iterable[IntArray]) -> Edges:
    """Return the precedences that make each chain of ops run in its order."""
    return edges_of((chain[:-1], chain[1:]) for chain in chains)


def edges_of(pairs: Iterable[tuple[IntArray, IntArray]]) -> Edges:
    """Return the precedences between the ops of pairs of arrays, without lags."""
    none = np.zeros(0, dtype=np.int64)
    columns = zip((none, none), *pairs, strict=True)
    before, after = (np.concatenate(column) for column in columns)
    return before, after, np.zeros(len(before), dtype=np.int64)


class CycleError(Exception):
    """The graph has a cycle; `nodes` lists it, each node after one that must precede it."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        super().__init__(f"cycle through {nodes}")


def find_cycle(before: IntArray, after: IntArray) -> list[int]:
    """Return the nodes of a cycle from the smallest on, each before the next; none if acyclic."""
    graph: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    for first, second in zip(before.tolist(), after.tolist(), strict=True):
        graph.add(second, first)
    try:
        graph.prepare()
    except graphlib.CycleError as error:
        cycle: list[int] = error.args[1][:-1]
        first = cycle.index(min(cycle))
        return cycle[first:] + cycle[:first]
    return []

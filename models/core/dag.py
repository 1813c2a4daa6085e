"""Precedences as arrays, and their cycles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from ppsolve.models.core.problem import IntArray

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


def find_cycle(num_nodes: int, before: IntArray, after: IntArray) -> list[int]:
    """Return a cycle of a graph.

    Parameters
    ----------
    num_nodes : int
        Number of nodes n.
    before, after : int64[k]
        The edges.

    Returns
    -------
    list of int
        Its nodes, each before the next and the last one before the first; empty if there is none.
    """
    edges = list(zip(before.tolist(), after.tolist(), strict=True))
    stuck = _stuck(num_nodes, edges)
    predecessor = {b: a for a, b in edges if stuck[a] and stuck[b]}
    if not predecessor:
        return []
    node = next(iter(predecessor))
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = predecessor[node]
    return path[seen[node] :][::-1]


def _stuck(num_nodes: int, edges: list[tuple[int, int]]) -> list[bool]:
    """Return true for the nodes on cycles and behind them."""
    missing = [0] * num_nodes
    followers = defaultdict(list)
    for before, after in edges:
        missing[after] += 1
        followers[before].append(after)
    ready = [node for node in range(num_nodes) if not missing[node]]
    while ready:
        for node in followers[ready.pop()]:
            missing[node] -= 1
            if not missing[node]:
                ready.append(node)
    return [count > 0 for count in missing]

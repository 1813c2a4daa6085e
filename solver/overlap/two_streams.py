"""List scheduling of compute and collectives: a program order built along its own replay."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.solver.overlap.live_bytes import CapTracker
from ppsolve.solver.overlap.nodes import chained_deps, inverse_permutation, users_of

Urgency = Callable[["DependencyGraph"], list[tuple[int, ...]]]
"""From a graph to the key of each node; the smallest is the most urgent."""


@dataclass(frozen=True)
class DependencyGraph:
    """Nodes in program order and their dependencies; frozen collectives are chained."""

    kind: list[NodeKind]
    duration: Sequence[int]
    deps: list[list[int]]
    users: list[list[int]]

    def longest(self, length: Sequence[int]) -> list[int]:
        """Return the longest path from each node on, its own length included."""
        tail = list(length)
        for node in range(len(tail) - 1, -1, -1):
            tail[node] += max((tail[user] for user in self.users[node]), default=0)
        return tail


def _by_tail(graph: DependencyGraph) -> list[tuple[int, ...]]:
    return [(-tail,) for tail in graph.longest(graph.duration)]


def _by_communication(graph: DependencyGraph) -> list[tuple[int, ...]]:
    lengths = [
        length if kind is NodeKind.COMM else 0
        for kind, length in zip(graph.kind, graph.duration, strict=True)
    ]
    below, tails = graph.longest(lengths), graph.longest(graph.duration)
    return [(-comm, -tail) for comm, tail in zip(below, tails, strict=True)]


def _by_next_collective(graph: DependencyGraph) -> list[tuple[int, ...]]:
    first = [
        place if kind is NodeKind.COMM else len(graph.kind) for place, kind in enumerate(graph.kind)
    ]
    for node in range(len(first) - 1, -1, -1):
        for dep in graph.deps[node]:
            first[dep] = min(first[dep], first[node])
    return [
        (place, -tail) for place, tail in zip(first, graph.longest(graph.duration), strict=True)
    ]


def _by_place(graph: DependencyGraph) -> list[tuple[int, ...]]:
    return [()] * len(graph.kind)


@dataclass(frozen=True)
class ListRule:
    """Priority rule of the list scheduling.

    Parameters
    ----------
    urgency : callable
        Gives every node a key; the smallest goes first, ties by program order.
    fits : bool
        While a more urgent node waits for a collective, prefer compute that ends before it does,
        and wait for it rather than run compute of which half or more would stick out (the half is
        that of Inductor's reorder_compute_for_overlap).
    """

    urgency: Urgency
    fits: bool = False


LIST_RULES: dict[str, ListRule] = {
    name + suffix: ListRule(urgency, fits=bool(suffix))
    for suffix in ("", "-fit")
    for name, urgency in (
        ("tail", _by_tail),
        ("communication", _by_communication),
        ("next-collective", _by_next_collective),
        ("program", _by_place),
    )
}
"""Longest path below first, most communication on a path below first, ancestors of the earliest
collective first, program order; each also with compute chosen to fit."""


def list_overlap(
    instance: OverlapInstance, durations: Sequence[int], rule: str = "tail"
) -> list[int]:
    """Return a program order by list scheduling on the compute and comm streams.

    Collectives are launched as soon as they are ready, unless that breaks a cap; waits come once
    they cost nothing, or where there is no compute to run. Caps are kept where that leaves
    something to run: the order is valid always, but keeps them only if it can.

    Parameters
    ----------
    instance : OverlapInstance
        The graph, its collective order and its caps.
    durations : sequence of int
        Length of each node in ticks.
    rule : str
        A name in `LIST_RULES`.

    Returns
    -------
    list of int
        Places in the program, in the new order.
    """
    is_frozen = instance.collective_order == "frozen"
    deps = chained_deps(instance) if is_frozen else [list(direct) for direct in instance.deps]
    kinds = [node.kind for node in instance.nodes]
    graph = DependencyGraph(kinds, durations, deps, users_of(deps))
    return _OrderBuilder(instance, graph, LIST_RULES[rule]).run()


class _OrderBuilder:
    """The order so far and its replay; ready nodes are held by rank, the most urgent first."""

    def __init__(self, instance: OverlapInstance, graph: DependencyGraph, rule: ListRule) -> None:
        self.instance, self.graph, self.fits = instance, graph, rule.fits
        keys = rule.urgency(graph)
        self.by_rank = sorted(range(len(keys)), key=lambda node: (keys[node], node))
        self.rank = inverse_permutation(self.by_rank)
        self.missing = [len(deps) for deps in graph.deps]
        self.end = [0] * len(keys)
        self.clock = 0
        self.free: Counter[str] = Counter()
        self.caps = CapTracker(instance)
        self.order: list[int] = []
        self.compute: list[int] = []
        self.comms: list[int] = []
        self.waits: list[tuple[int, int]] = []
        for node, count in enumerate(self.missing):
            if not count:
                self._note(node)

    def run(self) -> list[int]:
        while len(self.order) < len(self.end):
            if self.waits and self.waits[0][0] <= self.clock:
                self._place(heapq.heappop(self.waits)[1])
            elif not self._launch() and not self._run_compute():
                self._force()
        return self.order

    def _note(self, node: int) -> None:
        kind = self.graph.kind[node]
        if kind is NodeKind.WAIT:
            heapq.heappush(self.waits, (self._ready(node), node))
        else:
            insort(self.comms if kind is NodeKind.COMM else self.compute, self.rank[node])

    def _ready(self, node: int) -> int:
        return max((self.end[dep] for dep in self.graph.deps[node]), default=0)

    def _launch(self) -> bool:
        for index, rank in enumerate(self.comms):
            if self.caps.admits(self.by_rank[rank]):
                self._place(self.by_rank[self.comms.pop(index)])
                return True
        return False

    def _run_compute(self) -> bool:
        """Run the compute that the rule chooses, if it chooses any."""
        allowed = (
            index for index, rank in enumerate(self.compute) if self.caps.admits(self.by_rank[rank])
        )
        index = self._fitting(allowed) if self._holds_back() else next(allowed, None)
        if index is None:
            return False
        self._place(self.by_rank[self.compute.pop(index)])
        return True

    def _holds_back(self) -> bool:
        """Return True if a node behind a collective is more urgent than all ready compute."""
        if not (self.fits and self.waits and self.compute):
            return False
        return self.rank[self.waits[0][1]] < self.compute[0]

    def _fitting(self, allowed: Iterator[int]) -> int | None:
        left = self.waits[0][0] - self.clock
        sticking_out = None
        for index in allowed:
            length = self.graph.duration[self.by_rank[self.compute[index]]]
            if length <= left:
                return index
            if sticking_out is None and 2 * left > length:
                sticking_out = index
        return sticking_out

    def _force(self) -> None:
        """Hold the compute stream for the next wait, or else go beyond a cap."""
        if self.waits:
            self._place(heapq.heappop(self.waits)[1])
        else:
            self._place(self.by_rank[(self.compute or self.comms).pop(0)])

    def _place(self, node: int) -> None:
        self.order.append(node)
        self.caps.place(node)
        ready = max(self.clock, self._ready(node))
        if self.graph.kind[node] is NodeKind.COMM:
            group = self.instance.group_of(node)
            self.end[node] = max(ready, self.free[group]) + self.graph.duration[node]
            self.free[group] = self.end[node]
        else:
            self.clock = self.end[node] = ready + self.graph.duration[node]
        for user in self.graph.users[node]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._note(user)

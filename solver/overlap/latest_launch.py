"""Launch every collective as late as its order's makespan allows, to hold buffers shorter."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.solver.overlap.nodes import users_of
from ppsolve.solver.overlap.replay import replay


def latest_safe_launch(
    instance: OverlapInstance, durations: Sequence[int], order: Sequence[int]
) -> list[int]:
    """Launch every collective as late as is safe.

    Compute and waits keep their order, and so do the collectives of each group; no collective moves
    forward. Going through the order from its end, a collective is put after the first compute or
    wait that ends early enough for it to start when it must. The makespan stays the same or falls,
    and so does the number in flight; outputs of collectives are made later, but their inputs may be
    held longer.

    Parameters
    ----------
    instance : OverlapInstance
        The graph.
    durations : sequence of int
        Length of each node in ticks.
    order : sequence of int
        A valid order.

    Returns
    -------
    list of int
        Places in the program, in the new order.
    """
    return _Delaying(instance, durations, order).run(order)


class _Delaying:
    """The new order, built from its end, and the longest path behind each of its nodes.

    For every node, start in the replayed order + tail in the new one is at most the makespan: a new
    launch is allowed only where it keeps this, and all other edges are those of the replayed order.
    """

    def __init__(
        self, instance: OverlapInstance, durations: Sequence[int], order: Sequence[int]
    ) -> None:
        self.kind = [node.kind for node in instance.nodes]
        self.durations = durations
        replayed = replay(instance, order, durations)
        self.end: list[int] = replayed.end.tolist()
        self.makespan = replayed.makespan
        deps = [list(own) for own in instance.deps]
        for previous, comm in _neighbours(instance, order):
            if previous not in deps[comm]:
                deps[comm].append(previous)
        self.deps, self.users = deps, users_of(deps)
        self.users_left = [len(users) for users in self.users]
        self.tail = [0] * len(deps)
        self.launches = 0
        self.reversed_order: list[int] = []
        self.held: list[tuple[int, int]] = []

    def run(self, order: Sequence[int]) -> list[int]:
        for node in reversed(order):
            if self.kind[node] is not NodeKind.COMM:
                self._launch(self.end[node])
                length = 0 if self.kind[node] is NodeKind.WAIT else self.durations[node]
                self._put(node, max(self.launches, self._below(node)) + length)
                self.launches = self.tail[node]
        self._launch(0)
        return self.reversed_order[::-1]

    def _below(self, node: int) -> int:
        return max((self.tail[user] for user in self.users[node]), default=0)

    def _launch(self, time: int) -> None:
        """Put the collectives that may start at `time` before all nodes put so far."""
        while self.held and -self.held[0][0] >= time:
            comm = heapq.heappop(self.held)[1]
            self._put(comm, self._below(comm) + self.durations[comm])
            self.launches = max(self.launches, self.tail[comm])

    def _put(self, node: int, tail: int) -> None:
        self.tail[node] = tail
        self.reversed_order.append(node)
        for dep in self.deps[node]:
            self.users_left[dep] -= 1
            if not self.users_left[dep] and self.kind[dep] is NodeKind.COMM:
                latest = self.makespan - self._below(dep) - self.durations[dep]
                heapq.heappush(self.held, (-latest, dep))


def _neighbours(instance: OverlapInstance, order: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of collectives that follow each other in a group along the order."""
    latest: dict[str, int] = {}
    pairs = []
    for node in order:
        if instance.nodes[node].kind is NodeKind.COMM:
            group = instance.group_of(node)
            if group in latest:
                pairs.append((latest[group], node))
            latest[group] = node
    return pairs

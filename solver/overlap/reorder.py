"""Inductor's reorder_compute_for_overlap: fill the time of each collective with compute."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import pairwise

from ppsolve.models.overlap.instance import NodeKind
from ppsolve.solver.overlap.nodes import OverlapProgram


def reorder_compute_for_overlap(program: OverlapProgram) -> list[int]:
    """Return Inductor's order; a program without collectives stays as it is."""
    if not program.comms:
        return list(range(program.size))
    return _Reordering(program).run()


class _Reordering:
    """Nodes emitted so far and, sorted as fillers are chosen, those that are ready.

    Fillers are chosen right after collective k-1 and nodes that do not descend from it, so a ready
    node descends from it only as a direct user. Descendants inside a set are found by one walk in
    program order.
    """

    def __init__(self, program: OverlapProgram) -> None:
        self.program = program
        self.first = program.first_collective()
        self.missing = [len(deps) for deps in program.deps]
        self.emitted = [False] * program.size
        self.order: list[int] = []
        self.fillers: list[tuple[int, int, int]] = []
        for node in range(program.size):
            self._note_if_ready(node)

    def run(self) -> list[int]:
        comms = self.program.comms
        self._sweep([*self._ancestors(comms[0]), comms[0]])
        rolled_over = 0
        for previous, comm in pairwise(comms):
            rolled_over = self._round(previous, comm, rolled_over)
        self._sweep(node for node, done in enumerate(self.emitted) if not done)
        return self.order

    def _round(self, previous: int, comm: int, rolled_over: int) -> int:
        duration = self.program.duration
        needed = self._ancestors(comm)
        below = self._descendants(previous, needed)
        free = [node for node in needed if node not in below]
        self._sweep(free)
        cost = rolled_over + sum(duration[node] for node in free)
        filled = self._fill(previous, cost)
        remaining = [node for node in needed if not self.emitted[node]]
        self._sweep(remaining)
        self._emit(comm)
        return 0 if remaining else filled

    def _ancestors(self, node: int) -> list[int]:
        """Return the nodes to emit before `node`, in program order."""
        found: set[int] = set()
        stack = [node]
        while stack:
            for dep in self.program.deps[stack.pop()]:
                if not self.emitted[dep] and dep not in found:
                    found.add(dep)
                    stack.append(dep)
        return sorted(found)

    def _descendants(self, node: int, within: list[int]) -> set[int]:
        found = {node}
        for other in within:
            if not found.isdisjoint(self.program.deps[other]):
                found.add(other)
        return found

    def _fill(self, previous: int, cost: int) -> int:
        """Emit ready nodes into the time of `previous` that `cost` leaves; return their time."""
        time, before = self.program.duration[previous], cost
        for _, _, node in list(self.fillers) if cost < time else []:
            length = self.program.duration[node]
            if cost >= time:
                break
            if 2 * (time - cost) <= length or previous in self.program.deps[node]:
                continue
            self._emit(node)
            cost += length
        return cost - before

    def _sweep(self, nodes: Iterable[int]) -> None:
        """Emit a set by sweeps in the order of ties, each node when it is reached and ready."""
        rank, inside = self.program.rank, set(nodes)
        heap = [(0, rank[node], node) for node in inside if not self.missing[node]]
        heapq.heapify(heap)
        while heap:
            sweep, place, node = heapq.heappop(heap)
            for user in self._emit(node):
                if user in inside:
                    later = sweep + (rank[user] < place)
                    heapq.heappush(heap, (later, rank[user], user))

    def _emit(self, node: int) -> list[int]:
        """Emit a ready node and return the nodes that it makes ready."""
        self.order.append(node)
        self.emitted[node] = True
        if self.program.kind[node] is not NodeKind.COMM:
            del self.fillers[bisect_left(self.fillers, self._key(node))]
        for user in self.program.users[node]:
            self.missing[user] -= 1
            self._note_if_ready(user)
        return [user for user in self.program.users[node] if not self.missing[user]]

    def _note_if_ready(self, node: int) -> None:
        if not self.missing[node] and self.program.kind[node] is not NodeKind.COMM:
            insort(self.fillers, self._key(node))

    def _key(self, node: int) -> tuple[int, int, int]:
        return self.first[node], self.program.rank[node], node

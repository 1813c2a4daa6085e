"""Inductor's newer passes: one topological list scheduling with three switches."""

from __future__ import annotations

import heapq
from typing import Self

from ppsolve.models.overlap.instance import NodeKind
from ppsolve.solver.overlap.nodes import OverlapProgram

Key = tuple[int, int, int]
"""First collective (raise), 1 for waits (sink), and place in the program; the smallest first."""


def list_sink(program: OverlapProgram) -> list[int]:
    """Return the list order that puts waits last among ready nodes."""
    return _Listing.of(program, sinks=True).run()


def list_raise(program: OverlapProgram) -> list[int]:
    """Return the list order that puts ancestors of the next collective first among ready nodes."""
    return _Listing.of(program, raises=True).run()


def list_reorder(program: OverlapProgram) -> list[int]:
    """Return the list order of both rules, with compute placed under each collective."""
    return _Listing.of(program, sinks=True, raises=True).run(fills=True)


class _Listing:
    def __init__(self, program: OverlapProgram, keys: list[Key]) -> None:
        self.program, self.keys = program, keys
        self.missing = [len(deps) for deps in program.deps]
        self.ready: dict[bool, list[Key]] = {True: [], False: []}
        self.order: list[int] = []
        for node, count in enumerate(self.missing):
            if not count:
                self._push(node)

    @classmethod
    def of(cls, program: OverlapProgram, *, sinks: bool = False, raises: bool = False) -> Self:
        first = program.first_collective() if raises else [len(program.comms)] * program.size
        is_wait = [kind is NodeKind.WAIT for kind in program.kind]
        return cls(program, [(first[i], int(sinks and is_wait[i]), i) for i in range(program.size)])

    def _push(self, node: int) -> None:
        heap = self.ready[self.program.kind[node] is NodeKind.COMPUTE]
        heapq.heappush(heap, self.keys[node])

    def run(self, *, fills: bool = False) -> list[int]:
        while heaps := [heap for heap in self.ready.values() if heap]:
            node = self._emit(min(heaps))
            if fills and self.program.kind[node] is NodeKind.COMM:
                self._fill(self.program.duration[node])
        return self.order

    def _emit(self, heap: list[Key]) -> int:
        node = heapq.heappop(heap)[2]
        self.order.append(node)
        for user in self.program.users[node]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._push(user)
        return node

    def _fill(self, time: int) -> None:
        while time > 0 and self.ready[True]:
            time -= self.program.duration[self._emit(self.ready[True])]

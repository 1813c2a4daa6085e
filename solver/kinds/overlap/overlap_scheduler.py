"""PyTorch Inductor's `OverlapScheduler`: the most hidden communication, kernels in their order.

The rule is that of torch/_inductor/fx_passes/overlap_scheduling.py (2.13) without bucketing and
limits in flight: collectives start beside the kernel that can hide them, waits are held back while
their collective is exposed. Buffers are taken to be in bytes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import islice

from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram, users_of
from ppsolve.solver.kinds.overlap.pass_memory import PassMemory

GIB = 1024**3
"""What is held may grow by so much, or by 5 %."""

PREFETCHED_KERNELS = 200
CANDIDATES = 200

_Time = int | float


def overlap_scheduler(program: OverlapProgram) -> list[int]:
    """Start collectives where kernels hide them; kernels of matrix products keep their order."""
    return _HidingScheduler(program).run()


class _HidingScheduler:
    # It runs first in its recipe: nodes have their places in the instance.

    def __init__(self, program: OverlapProgram) -> None:
        self.kind, self.duration = program.kind, program.duration
        instance = program.instance
        self.comm_of, self.wait_of = instance.collective_of, instance.wait_of
        self.deps = [list(dict.fromkeys(direct)) for direct in program.deps]
        if instance.collective_order == "free":
            self.deps = OverlapProgram.of(instance, chained=False).deps
        self.users = users_of(self.deps)
        self.is_heavy = program.matmul
        scatter = [node.collective == "reduce_scatter" for node in instance.nodes]
        self.next_kernel = self._first_below(self.is_heavy)
        self.next_scatter = self._first_below(scatter)
        # In the order of their waits.
        self.unstarted = dict.fromkeys(self.comm_of.values())
        self.exposed = {comm: self.duration[comm] for comm in self.unstarted}
        self.hidden_by: dict[int, set[int]] = {comm: set() for comm in self.unstarted}
        self.group = {comm: instance.group_of(comm) for comm in self.unstarted}
        self._count_bytes(program)
        self.missing = [len(deps) for deps in self.deps]
        self.on_path: list[tuple[tuple[_Time, int, int], int]] = []
        self.off_path: list[tuple[tuple[int, int], int]] = []
        self.in_flight: list[int] = []
        self.done: dict[int, None] = {}
        self.kernel = 0
        self.furthest = -1
        for node, count in enumerate(self.missing):
            if not count:
                self._queue(node)

    def _first_below(self, marked: Sequence[bool]) -> list[_Time]:
        """Return the number of the first marked node that each node is or leads to, else inf."""
        number = sum(marked)
        numbers: list[_Time] = [math.inf] * len(marked)
        for node in range(len(marked) - 1, -1, -1):
            number -= marked[node]
            below = min((numbers[user] for user in self.users[node]), default=math.inf)
            numbers[node] = number if marked[node] else below
        return numbers

    def _count_bytes(self, program: OverlapProgram) -> None:
        """Count what the program as it is holds up to each kernel, and what collectives touch."""
        memory = self.memory = PassMemory(program)
        self.before, peak = [], 0
        for node, is_heavy in enumerate(self.is_heavy):
            held = memory.live[node] - memory.free[node]
            peak = max(peak, held)
            if is_heavy:
                self.before.append(peak)
                peak = held
        self.prefetched = [0] * len(self.before)
        self.allowed = memory.peak + max(GIB * memory.factor, memory.peak // 20)
        self.uses = [len(users) for users in memory.users]
        self.held = 0
        self.bytes = {
            comm: memory.alloc[comm]
            + sum(memory.size[buffer] for buffer in memory.used[comm])
            for comm in self.unstarted
        }

    def run(self) -> list[int]:
        while self.on_path or self.off_path:
            node = self._next()
            if node in self.done:
                continue
            if self.kind[node] is NodeKind.COMM:
                self._start(node)
            elif self.kind[node] is NodeKind.WAIT:
                self._wait(node)
            else:
                self._run_kernel(node)
            if self.next_kernel[node] < math.inf:
                self.furthest = max(self.furthest, node)
        return list(self.done)

    def _queue(self, node: int) -> None:
        if self.next_kernel[node] == math.inf:
            score = int(self.next_scatter[node] == math.inf), node
            heapq.heappush(self.off_path, (score, node))
            return
        if self.kind[node] is NodeKind.WAIT:
            local = int(self.exposed[self.comm_of[node]] > 0)
        else:
            local = -self._feeds_collective(node)
        heapq.heappush(self.on_path, ((self.next_kernel[node], local, node), node))

    def _feeds_collective(self, node: int) -> bool:
        """Whether only a chain of light kernels lies between a node and a collective."""
        while len(self.users[node]) == 1:
            node = self.users[node][0]
            if len(self.deps[node]) != 1:
                return False
            if node in self.unstarted:
                return True
            if self.kind[node] is not NodeKind.COMPUTE or self.is_heavy[node]:
                return False
        return False

    def _next(self) -> int:
        if self.off_path and self._is_due(self.off_path[0][1]):
            return heapq.heappop(self.off_path)[1]
        return heapq.heappop(self.on_path)[1]

    def _is_due(self, node: int) -> bool:
        if not self.on_path or node in self.done:
            return True
        if self.kind[node] is NodeKind.WAIT:
            is_hidden = self.exposed[self.comm_of[node]] == 0
            return is_hidden or self.held > self.allowed
        return self.next_scatter[node] < math.inf and node <= self.furthest

    def _schedule(self, node: int) -> None:
        self.done[node] = None
        self.held += self.memory.alloc[node]
        for buffer in self.memory.used[node]:
            self.uses[buffer] -= 1
            if not self.uses[buffer]:
                self.held -= self.memory.size[buffer]
        for user in self.users[node]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._queue(user)

    def _run_kernel(self, node: int) -> None:
        self._start_beside(node, self._hide(node, self.duration[node]))
        self._schedule(node)
        self.kernel += self.is_heavy[node]

    def _start(self, comm: int) -> None:
        self.in_flight.append(comm)
        del self.unstarted[comm]
        self._schedule(comm)

    def _wait(self, node: int) -> None:
        comm = self.comm_of[node]
        group = self.group[comm]
        for earlier in self.in_flight[: self.in_flight.index(comm)]:
            if self.group[earlier] == group and earlier in self.in_flight:
                self._wait(self.wait_of[earlier])
        if self.exposed[comm] > 0:
            remaining = self._hide(node, self.exposed[comm], without=group)
            self._start_beside(node, remaining)
        if node in self.done:
            return
        self.in_flight.remove(comm)
        self._schedule(node)

    def _hide(self, node: int, time: int, without: str = "") -> dict[str, int]:
        """Hide what is in flight behind a node; return the time that each group has left."""
        remaining = {group: time for group in self.group.values() if group != without}
        for comm in self.in_flight:
            group = self.group[comm]
            if self.exposed[comm] and remaining.get(group, 0) > 0:
                hidden = min(self.exposed[comm], remaining[group])
                self.exposed[comm] -= hidden
                remaining[group] -= hidden
                self.hidden_by[comm].add(node)
        return remaining

    def _start_beside(self, node: int, remaining: dict[str, int]) -> None:
        """Start collectives that the time left beside a node can hide."""
        if all(time <= 0 for time in remaining.values()):
            return
        for comm in self._candidates(remaining):
            group = self.group[comm]
            if remaining[group] <= 0 or comm in self.done or self._is_too_large(comm):
                continue
            for step in self._path(comm, node):
                # A wait before this one may have brought it along.
                if step not in self.done:
                    self._wait(step) if step in self.comm_of else self._schedule(step)
            if comm in self.done or self.missing[comm]:
                continue
            self._start(comm)
            if self.next_kernel[comm] < math.inf:
                for kernel in range(self.kernel, int(self.next_kernel[comm])):
                    self.prefetched[kernel] += self.bytes[comm]
            hidden = min(remaining[group], self.exposed[comm])
            self.exposed[comm] -= hidden
            self.hidden_by[comm].add(node)
            remaining[group] -= hidden

    def _candidates(self, remaining: dict[str, int]) -> list[int]:
        near = (
            comm
            for comm in self.unstarted
            if remaining.get(self.group[comm], 0) > 0
            and not PREFETCHED_KERNELS < self.next_kernel[comm] - self.kernel < math.inf
        )
        rank = {comm: self._rank(comm, remaining) for comm in islice(near, CANDIDATES)}
        return sorted(rank, key=rank.__getitem__)

    def _rank(
        self, comm: int, remaining: dict[str, int]
    ) -> tuple[int, _Time, int, int]:
        first = self.next_kernel[comm]
        if first == self.kernel + 1:
            urgency = 0
        elif first < math.inf:
            urgency = 2
        else:
            urgency = 1 if self.next_scatter[comm] < math.inf else 3
        return (
            urgency,
            first,
            -min(remaining[self.group[comm]], self.exposed[comm]),
            comm,
        )

    def _is_too_large(self, comm: int) -> bool:
        """Whether a collective that starts now exceeds the memory until it is used."""
        first, size = self.next_kernel[comm], self.bytes[comm]
        if first == math.inf or not self.memory.is_counted:
            return False
        return self.held + size > self.allowed or any(
            self.before[kernel] + self.prefetched[kernel] + size > self.allowed
            for kernel in range(self.kernel, int(first))
        )

    def _path(self, comm: int, beside: int) -> list[int]:
        """Return the nodes that a collective needs, if no kernel or exposed wait is among them."""
        path: set[int] = set()
        stack = list(self.deps[comm])
        while stack:
            node = stack.pop()
            if node in self.done or node in path:
                continue
            if node == beside or self.is_heavy[node] or node in self.unstarted:
                return []
            if self.kind[node] is NodeKind.WAIT:
                collective = self.comm_of[node]
                if self.exposed[collective] or beside in self.hidden_by[collective]:
                    return []
            path.add(node)
            stack += self.deps[node]
        return sorted(path)

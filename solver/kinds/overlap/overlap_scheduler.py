"""PyTorch Inductor's `OverlapScheduler`: the most hidden communication, kernels in their order.

The rule is that of torch/_inductor/fx_passes/overlap_scheduling.py (2.13) with its defaults and
without bucketing: collectives start beside the kernel that can hide them, waits are held back while
their collective is exposed. Sizes are taken to be bytes.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from ppsolve.models.kinds.overlap.instance import NodeKind
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram, as_integers, users_of

GIB = 1024**3
MOST_IN_FLIGHT = 5 * GIB
MOST_INCREASE = GIB
MOST_BUCKET = GIB // 2  # of collectives that no kernel needs, started together
PREFETCHED_KERNELS = 200
CANDIDATES = 200

BUCKETED = {"all_gather", "reduce_scatter", "all_reduce"}

_Time = int | float


def overlap_scheduler(program: OverlapProgram) -> list[int]:
    """Start collectives where kernels hide them; kernels of matrix products keep their order.

    Where no kernel is said to run a matrix product, all that take time count as such.
    """
    return _HidingScheduler(program).run()


class _HidingScheduler:
    def __init__(self, program: OverlapProgram) -> None:
        self.program = program
        self.kind, self.duration = program.kind, program.duration
        self.deps = _kept(program)
        self.users = users_of(self.deps)
        self._find_kernels()
        self._find_collectives()
        self.memory = _ScheduledBytes(program, self.is_heavy)
        self.prefetched = [0] * self.memory.kernels
        self.missing = [len(deps) for deps in self.deps]
        self.on_path: list[tuple[tuple[_Time, int, int], int]] = []
        self.off_path: list[tuple[tuple[int, int], int]] = []
        self.waiting_bytes: dict[tuple[str, str], int] = defaultdict(int)
        self.in_flight: list[int] = []
        self.done: dict[int, None] = {}
        self.kernel = 0
        self.furthest = -1
        for node, count in enumerate(self.missing):
            if not count:
                self._queue(node)

    def _find_kernels(self) -> None:
        program, size = self.program, self.program.size
        computes = [kind is NodeKind.COMPUTE for kind in self.kind]
        heavy = program.matmul
        if not any(heavy):
            heavy = [computes[n] and self.duration[n] > 0 for n in range(size)]
        self.is_heavy = heavy
        scatter = [node.collective == "reduce_scatter" for node in program.instance.nodes]
        is_scatter = [scatter[place] for place in program.places]
        self.next_kernel = self._first_below(heavy)
        self.next_scatter = self._first_below(is_scatter)

    def _first_below(self, marked: Sequence[bool]) -> list[_Time]:
        """Return the number of the first marked node that each node is or leads to, else inf."""
        number = sum(marked)
        found: list[_Time] = [math.inf] * len(marked)
        for node in range(len(marked) - 1, -1, -1):
            if marked[node]:
                number -= 1
                found[node] = number
            else:
                found[node] = min((found[user] for user in self.users[node]), default=math.inf)
        return found

    def _find_collectives(self) -> None:
        program, instance = self.program, self.program.instance
        nodes = [instance.nodes[place] for place in program.places]
        at = program.node_of
        self.comm_of = {
            at[instance.nodes[wait].name]: at[instance.nodes[comm].name]
            for wait, comm in instance.collective_of.items()
        }
        self.comm_of = dict(sorted(self.comm_of.items()))
        self.wait_of = {comm: wait for wait, comm in self.comm_of.items()}
        self.unstarted = dict.fromkeys(self.comm_of.values())
        self.exposed = {comm: self.duration[comm] for comm in self.unstarted}
        self.hidden_by: dict[int, set[int]] = {comm: set() for comm in self.unstarted}
        self.group = {comm: instance.group_of(program.places[comm]) for comm in self.unstarted}
        self.bucket = {
            comm: (word, self.group[comm])
            if (word := nodes[comm].collective) in BUCKETED
            else ("", "")
            for comm in self.unstarted
        }
        sizes, _ = as_integers(nodes[comm].bytes for comm in self.unstarted)
        self.bytes = dict(zip(self.unstarted, sizes, strict=True))
        for buffer in instance.buffers or ():
            for name in {*filter(None, [buffer.producer]), *buffer.users}:
                if at[name] in self.bytes:
                    self.bytes[at[name]] += int(buffer.bytes)

    def run(self) -> list[int]:
        while self.on_path or self.off_path:
            if self.in_flight and self._in_flight_bytes() >= MOST_IN_FLIGHT:
                self._wait(self.wait_of[self.in_flight[0]])
                continue
            for node in self._next():
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
                elif self.kind[node] is NodeKind.COMM:
                    self.waiting_bytes[self.bucket[node]] -= self.bytes[node]
        return list(self.done)

    def _queue(self, node: int) -> None:
        if self.next_kernel[node] == math.inf:
            score = int(self.next_scatter[node] == math.inf), node
            heapq.heappush(self.off_path, (score, node))
            if self.kind[node] is NodeKind.COMM:
                self.waiting_bytes[self.bucket[node]] += self.bytes[node]
            return
        if self.kind[node] is NodeKind.WAIT:
            local = int(self.exposed[self.comm_of[node]] > 0)
        else:
            local = -self._feeds_collective(node)
        heapq.heappush(self.on_path, ((self.next_kernel[node], local, node), node))

    def _feeds_collective(self, node: int) -> bool:
        """Return True if only a chain of light kernels lies between a node and a collective."""
        while len(self.users[node]) == 1:
            node = self.users[node][0]
            if len(self.deps[node]) != 1:
                return False
            if node in self.unstarted:
                return True
            if self.kind[node] is not NodeKind.COMPUTE or self.is_heavy[node]:
                return False
        return False

    def _next(self) -> list[int]:
        if self.off_path:
            node = self.off_path[0][1]
            if self._is_due(node):
                heapq.heappop(self.off_path)
                return self._alike(node) if self.kind[node] is NodeKind.COMM else [node]
        return [heapq.heappop(self.on_path)[1]]

    def _is_due(self, node: int) -> bool:
        if not self.on_path or node in self.done:
            return True
        if self.kind[node] is NodeKind.WAIT:
            is_hidden = self.exposed[self.comm_of[node]] == 0
            return is_hidden or self.memory.held > self.memory.allowed
        if self.kind[node] is NodeKind.COMM:
            return self.waiting_bytes[self.bucket[node]] >= MOST_BUCKET
        return self.next_scatter[node] < math.inf and node <= self.furthest

    def _alike(self, comm: int) -> list[int]:
        """Take the collectives of a bucket that no kernel needs out of their queue."""
        found, total = [comm], self.bytes[comm]
        for _, other in list(self.off_path):
            if other in self.done or self.kind[other] is not NodeKind.COMM:
                continue
            if self.bucket[other] == self.bucket[comm]:
                if total + self.bytes[other] > MOST_BUCKET:
                    continue
                found.append(other)
                total += self.bytes[other]
        self.off_path = [entry for entry in self.off_path if entry[1] not in found]
        heapq.heapify(self.off_path)
        return found

    def _schedule(self, node: int) -> None:
        self.done[node] = None
        self.memory.run(node)
        for user in self.users[node]:
            self.missing[user] -= 1
            if not self.missing[user]:
                self._queue(user)

    def _run_kernel(self, node: int) -> None:
        if self.duration[node] or self.is_heavy[node]:
            left = self._hide(node, self.duration[node])
            self._start_beside(node, left)
        self._schedule(node)
        self.kernel += self.is_heavy[node]

    def _start(self, comm: int) -> None:
        self.in_flight.append(comm)
        del self.unstarted[comm]
        self._schedule(comm)

    def _wait(self, node: int) -> None:
        comm = self.comm_of[node]
        group = self.group[comm]
        for other in self.in_flight[: self.in_flight.index(comm)]:
            if self.group[other] == group and other in self.in_flight:
                self._wait(self.wait_of[other])
        if self.exposed[comm] > 0:
            left = self._hide(node, self.exposed[comm], without=group)
            self._start_beside(node, left)
        if node in self.done:
            return
        self.in_flight.remove(comm)
        self._schedule(node)

    def _hide(self, node: int, time: int, without: str = "") -> dict[str, int]:
        """Hide what is in flight behind a node; return the time that each group has left."""
        left = {group: time for group in self.group.values() if group != without}
        for comm in self.in_flight:
            group = self.group[comm]
            if self.exposed[comm] and left.get(group, 0) > 0:
                hidden = min(self.exposed[comm], left[group])
                self.exposed[comm] -= hidden
                left[group] -= hidden
                self.hidden_by[comm].add(node)
        return left

    def _start_beside(self, node: int, left: dict[str, int]) -> None:
        """Start collectives that the time left beside a node can hide."""
        if all(time <= 0 for time in left.values()):
            return
        for comm in self._candidates(left):
            group = self.group[comm]
            if left[group] <= 0 or comm in self.done or self._is_too_large(comm):
                continue
            path = self._path(comm, node)
            if path is None or not self._make_room(comm, node):
                continue
            for step in sorted(path):
                # A wait before this one may have brought it along.
                if step not in self.done:
                    self._wait(step) if step in self.comm_of else self._schedule(step)
            if comm in self.done:
                continue
            self._start(comm)
            if self.next_kernel[comm] < math.inf:
                for kernel in range(self.kernel, int(self.next_kernel[comm])):
                    self.prefetched[kernel] += self.bytes[comm]
            hidden = min(left[group], self.exposed[comm])
            self.exposed[comm] -= hidden
            self.hidden_by[comm].add(node)
            left[group] -= hidden
            if not any(left.values()):
                return

    def _candidates(self, left: dict[str, int]) -> list[int]:
        near = (
            comm
            for comm in self.unstarted
            if left.get(self.group[comm], 0) > 0
            and (
                self.next_kernel[comm] == math.inf
                or self.next_kernel[comm] - self.kernel <= PREFETCHED_KERNELS
            )
        )
        rank = {comm: self._rank(comm, left) for comm in islice(near, CANDIDATES)}
        buckets: dict[tuple[str, str], list[int]] = defaultdict(list)
        for comm in sorted(rank, key=rank.__getitem__):
            buckets[self.bucket[comm]].append(comm)
        # Buckets come by their best collective.
        return [comm for bucket in buckets.values() for comm in bucket]

    def _rank(self, comm: int, left: dict[str, int]) -> tuple[int, _Time, int, int]:
        first = self.next_kernel[comm]
        if first == self.kernel + 1:
            urgency = 0
        elif first < math.inf:
            urgency = 2
        else:
            urgency = 1 if self.next_scatter[comm] < math.inf else 3
        return urgency, first, -min(left[self.group[comm]], self.exposed[comm]), comm

    def _is_too_large(self, comm: int) -> bool:
        """Return True if a collective that starts now exceeds the memory until it is used."""
        first, size, memory = self.next_kernel[comm], self.bytes[comm], self.memory
        if first == math.inf:
            return False
        if memory.held + size > memory.allowed:
            return True
        total = sum(self.bytes.values())
        if memory.peak + total <= memory.allowed and total <= MOST_IN_FLIGHT:
            return False
        return any(
            self.prefetched[kernel] + size > MOST_IN_FLIGHT
            or memory.before[kernel] + self.prefetched[kernel] + size > memory.allowed
            for kernel in range(self.kernel, int(first))
        )

    def _in_flight_bytes(self) -> int:
        return sum(self.bytes[comm] for comm in self.in_flight)

    def _make_room(self, comm: int, node: int) -> bool:
        most = MOST_IN_FLIGHT - self.bytes[comm]
        while self.in_flight and self._in_flight_bytes() > most:
            oldest = self.in_flight[0]
            if self.exposed[oldest] or node in self.hidden_by[oldest]:
                break
            self._wait(self.wait_of[oldest])
        return self._in_flight_bytes() <= most

    def _path(self, comm: int, beside: int) -> set[int] | None:
        """Return the nodes that a collective needs, unless a kernel or an exposed wait is among them."""
        found: set[int] = set()
        stack = list(self.deps[comm])
        while stack:
            node = stack.pop()
            if node in self.done or node in found:
                continue
            if node == beside or self.is_heavy[node] or node in self.unstarted:
                return None
            if self.kind[node] is NodeKind.WAIT:
                other = self.comm_of[node]
                if self.exposed[other] or beside in self.hidden_by[other]:
                    return None
            found.add(node)
            stack += self.deps[node]
        return found


def _kept(program: OverlapProgram) -> list[list[int]]:
    """Return the dependencies that every order keeps."""
    if program.instance.collective_order == "frozen":
        return [list(dict.fromkeys(own)) for own in program.deps]
    numbers = {place: node for node, place in enumerate(program.places)}
    deps = [list(own) for own in program.data]
    for before, after in program.instance.orders:
        deps[numbers[after]].append(numbers[before])
    return deps


class _ScheduledBytes:
    """Bytes of buffers while nodes are scheduled, and those of the program as it is."""

    def __init__(self, program: OverlapProgram, is_kernel: Sequence[bool]) -> None:
        at, buffers = program.node_of, program.instance.buffers or ()
        self.size, _ = as_integers(buffer.bytes for buffer in buffers)
        self.made: list[list[int]] = [[] for _ in range(program.size)]
        self.used: list[list[int]] = [[] for _ in range(program.size)]
        self.uses = [0] * len(buffers)
        start = 0
        for number, buffer in enumerate(buffers):
            if buffer.producer is None:
                start += self.size[number]
            else:
                self.made[at[buffer.producer]].append(number)
            users = set() if buffer.kept else {*buffer.users, *filter(None, [buffer.producer])}
            self.uses[number] = len(users)
            for name in users:
                self.used[at[name]].append(number)
        self.held = self.peak = most = start
        self.before: list[int] = []
        uses = list(self.uses)
        for node in range(program.size):
            self.run(node)
            most, self.peak = max(most, self.held), max(self.peak, self.held)
            if is_kernel[node]:
                self.before.append(most)
                most = self.held
        self.kernels = len(self.before)
        self.uses, self.held = uses, start
        self.allowed = self.peak + max(MOST_INCREASE, self.peak // 20)

    def run(self, node: int) -> None:
        """Allocate what a node makes, then free what it was the last to use."""
        self.held += sum(self.size[buffer] for buffer in self.made[node])
        for buffer in self.used[node]:
            self.uses[buffer] -= 1
            if not self.uses[buffer]:
                self.held -= self.size[buffer]

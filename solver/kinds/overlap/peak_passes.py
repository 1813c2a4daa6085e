"""PyTorch Inductor's passes that move a node at a time and keep the peak of memory in sight.

The rules are those of torch/_inductor/comms.py (2.13; `simple_overlap` 2.14) with its defaults,
its approximate count of bytes included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from ppsolve.models.kinds.overlap.instance import NodeKind
from ppsolve.solver.kinds.overlap.nodes import OverlapProgram, as_integers, users_of

BUDGET = Fraction(1, 5)
"""Share of the peak by which `reorder_communication` and `sink_waits_iterative` may exceed it."""


class _PassMemory:
    """Bytes along an order, corrected after each move as the passes do.

    A move towards the end tells a buffer its new last user; one towards the beginning does not, and
    the peak of a group that has moved is only looked up anew where some buffer has another last
    user. So the count may drift from the true one.
    """

    def __init__(self, program: OverlapProgram) -> None:
        self.alloc, self.free = [0] * program.size, [0] * program.size
        self.size: list[int] = []
        self.last: list[int] = []
        self.users: list[set[int]] = []
        self.is_counted = program.instance.buffers is not None
        self.used: list[list[int]] = [[] for _ in range(program.size)]
        self._add_buffers(program)
        self.live: list[int] = []  # just before a node frees what it used last
        held = 0
        for alloc, free in zip(self.alloc, self.free, strict=True):
            self.live.append(held + alloc)
            held += alloc - free
        self.peak = max(self.live, default=0)

    def _add_buffers(self, program: OverlapProgram) -> None:
        at = program.node_of
        buffers = program.instance.buffers or ()
        amounts, _ = as_integers(buffer.bytes for buffer in buffers)
        makers = set()
        for buffer, amount in zip(buffers, amounts, strict=True):
            # Inputs are allocated by the first node of all.
            maker = 0 if buffer.producer is None else at[buffer.producer]
            makers |= set() if buffer.producer is None else {maker}
            self.alloc[maker] += amount
            if not buffer.kept:
                self._add_buffer(amount, {at[name] for name in buffer.users} or {maker})
        # What allocates nothing has a buffer of no size, whose last user counts as well.
        for node, users in enumerate(users_of(program.data)):
            if node not in makers and users:
                self._add_buffer(0, set(users))

    def _add_buffer(self, amount: int, users: set[int]) -> None:
        for user in users:
            self.used[user].append(len(self.size))
        self.size.append(amount)
        self.last.append(max(users))
        self.users.append(users)
        self.free[max(users)] += amount

    def push_back(self, node: int, group: Sequence[int], peak: int, cap: Fraction) -> bool:
        """Move a node from before a group to behind it, unless more than `cap` would be held."""
        if not self.is_counted:
            return True
        inside = set(group)
        taken: dict[int, list[int]] = defaultdict(list)
        for buffer in self.used[node]:
            if self.last[buffer] in inside:
                taken[self.last[buffer]].append(buffer)
        shift = self.free[node] - self.alloc[node]
        live = {}
        for other in group:
            live[other] = self.live[other] + shift
            shift += sum(self.size[buffer] for buffer in taken.get(other, ()))
        tail = group[-1]
        live[node] = self.live[tail] - self.free[tail] + shift + self.alloc[node]
        most = max(live.values()) if taken else max(peak + shift, live[node])
        if most > cap:
            return False
        for other, buffers in taken.items():
            moved = sum(self.size[buffer] for buffer in buffers)
            self.free[other] -= moved
            self.free[node] += moved
            for buffer in buffers:
                self.last[buffer] = node
        self._set(live)
        return True

    def pull_forward(self, node: int, group: Sequence[int], peak: int, cap: Fraction) -> bool:
        """Move a node from behind a group to before it, unless more than `cap` would be held."""
        if not self.is_counted:
            return True
        given: dict[int, int] = defaultdict(int)
        for buffer in self.used[node]:
            if self.last[buffer] == node:
                users = [other for other in group if other in self.users[buffer]]
                if users:
                    given[users[-1]] += self.size[buffer]
        head = group[0]
        live = {node: self.live[head] - self.alloc[head] + self.alloc[node]}
        shift = self.alloc[node] - self.free[node] + sum(given.values())
        for other in group:
            live[other] = self.live[other] + shift
            shift -= given.get(other, 0)
        most = max(live.values()) if given else max(peak + shift, live[node])
        if most > cap:
            return False
        for other, moved in given.items():
            self.free[other] += moved
            self.free[node] -= moved
        self._set(live)
        return True

    def _set(self, live: dict[int, int]) -> None:
        for node, amount in live.items():
            self.live[node] = amount


def reorder_communication(program: OverlapProgram) -> list[int]:
    """Move each collective up, with the nodes that it needs, within the budget of memory.

    It passes other collectives only where the instance leaves their order free.
    """
    order, memory = list(range(program.size)), _PassMemory(program)
    cap = memory.peak * (1 + BUDGET)
    is_frozen = program.instance.collective_order == "frozen"
    for comm in program.comms:
        if comm == program.size - 1:
            break
        head = tail = comm
        needed, peak = set(program.data[comm]), memory.live[comm]
        while head:
            node = order[head - 1]
            is_comm = program.kind[node] is NodeKind.COMM
            if is_comm and is_frozen:
                break
            if node in needed:
                if is_comm or program.matmul[node]:
                    break
                needed.update(program.data[node])
                peak = max(peak, memory.live[node])
                head -= 1
                continue
            group = order[head : tail + 1]
            if not memory.push_back(node, group, peak, cap):
                break
            order[head - 1 : tail + 1] = [*group, node]
            head, tail = head - 1, tail - 1
    return order


def sink_waits_iterative(program: OverlapProgram) -> list[int]:
    """Move each wait down to the next collective, with its users, within the budget of memory."""
    order, memory = list(range(program.size)), _PassMemory(program)
    cap = memory.peak * (1 + BUDGET)
    for wait in range(program.size - 1, 0, -1):
        if program.kind[wait] is not NodeKind.WAIT:
            continue
        head = tail = wait
        moving, peak = {wait}, memory.live[wait]
        while tail < program.size - 1:
            node = order[tail + 1]
            if program.kind[node] is NodeKind.COMM:
                break
            if not moving.isdisjoint(program.data[node]):
                if program.kind[node] is NodeKind.WAIT or program.matmul[node]:
                    break
                moving.add(node)
                peak = max(peak, memory.live[node])
                tail += 1
                continue
            group = order[head : tail + 1]
            if not memory.pull_forward(node, group, peak, cap):
                break
            order[head : tail + 2] = [node, *group]
            head, tail = head + 1, tail + 1
    return order


def simple_overlap(program: OverlapProgram) -> list[int]:
    """Move collectives up and waits down one place at a time, never above the peak."""
    order, memory = list(range(program.size)), _PassMemory(program)
    cap, live = Fraction(memory.peak), memory.live
    for comm in program.comms:
        place = comm
        while place:
            node = order[place - 1]
            if node in program.deps[comm] or program.kind[node] is NodeKind.COMM:
                break
            if not memory.push_back(node, [comm], live[comm], cap):
                break
            order[place - 1 : place + 1] = [comm, node]
            place -= 1
    for wait in reversed([n for n in range(program.size) if program.kind[n] is NodeKind.WAIT]):
        place = order.index(wait)
        while place < program.size - 1:
            node = order[place + 1]
            if wait in program.deps[node] or program.kind[node] is NodeKind.WAIT:
                break
            if not memory.pull_forward(node, [wait], live[wait], cap):
                break
            order[place : place + 2] = [node, wait]
            place += 1
    return order

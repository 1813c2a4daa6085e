"""Bytes along a program order as Inductor's passes count them, corrected move by move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from ppsolve.solver.kinds.overlap.nodes import OverlapProgram, as_integers


class PassMemory:
    """Bytes along an order, corrected after each move as the passes do.

    A move towards the end tells a buffer its new last user; one towards the beginning does not, and
    the peak of a group that has moved is only looked up anew where some buffer has another last
    user. So the count may drift from the true one.
    """

    def __init__(self, program: OverlapProgram) -> None:
        self.alloc, self.free = [0] * program.size, [0] * program.size
        self.last: list[int] = []
        self.users: list[set[int]] = []
        self.is_counted = program.instance.buffers is not None
        self.used: list[list[int]] = [[] for _ in range(program.size)]
        node_of, buffers = program.node_of, program.instance.buffers or ()
        self.size, self.factor = as_integers(buffer.bytes for buffer in buffers)
        for number, buffer in enumerate(buffers):
            # Inputs are allocated by the first node of all.
            maker = 0 if buffer.producer is None else node_of[buffer.producer]
            self.alloc[maker] += self.size[number]
            users = (
                set()
                if buffer.kept
                else {node_of[name] for name in buffer.users} or {maker}
            )
            for user in users:
                self.used[user].append(number)
            self.users.append(users)
            self.last.append(max(users, default=-1))
            if users:
                self.free[max(users)] += self.size[number]
        self.live: dict[
            int, int
        ] = {}  # by node, just before a node frees what it used last
        held = 0
        for node, (alloc, free) in enumerate(zip(self.alloc, self.free, strict=True)):
            self.live[node] = held + alloc
            held += alloc - free
        self.peak = max(self.live.values(), default=0)

    def push_back(
        self, node: int, group: Sequence[int], peak: int, cap: Fraction
    ) -> bool:
        """Move a node from before a group to behind it; false where the peak does not allow it.

        `group`: the nodes behind the node, in their order.
        `peak`: bytes that the group holds at most, as it was put together.
        `cap`: most bytes that it may hold then.
        """
        if not self.is_counted:
            return True
        inside = set(group)
        released: dict[int, list[int]] = defaultdict(list)
        for buffer in self.used[node]:
            if self.last[buffer] in inside:
                released[self.last[buffer]].append(buffer)
        shift = self.free[node] - self.alloc[node]
        live = {}
        for member in group:
            live[member] = self.live[member] + shift
            shift += sum(self.size[buffer] for buffer in released.get(member, ()))
        tail = group[-1]
        live[node] = self.live[tail] - self.free[tail] + shift + self.alloc[node]
        highest = max(live.values()) if released else max(peak + shift, live[node])
        if highest > cap:
            return False
        for member, buffers in released.items():
            moved = sum(self.size[buffer] for buffer in buffers)
            self.free[member] -= moved
            self.free[node] += moved
            for buffer in buffers:
                self.last[buffer] = node
        self.live.update(live)
        return True

    def pull_forward(
        self, node: int, group: Sequence[int], peak: int, cap: Fraction
    ) -> bool:
        """Move a node from behind a group to before it, as `push_back` does."""
        if not self.is_counted:
            return True
        released: dict[int, int] = defaultdict(int)
        for buffer in self.used[node]:
            if self.last[buffer] == node:
                users = [member for member in group if member in self.users[buffer]]
                if users:
                    released[users[-1]] += self.size[buffer]
        head = group[0]
        live = {node: self.live[head] - self.alloc[head] + self.alloc[node]}
        shift = self.alloc[node] - self.free[node] + sum(released.values())
        for member in group:
            live[member] = self.live[member] + shift
            shift -= released.get(member, 0)
        highest = max(live.values()) if released else max(peak + shift, live[node])
        if highest > cap:
            return False
        for member, moved in released.items():
            self.free[member] += moved
            self.free[node] -= moved
        self.live.update(live)
        return True

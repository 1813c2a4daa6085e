"""Collectives in flight and bytes held along a program order that is being built."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.solver.overlap.nodes import as_integers, users_of
from ppsolve.solver.overlap.replay import last_uses


class CapTracker:
    """Remaining capacity of an instance's caps while an order is built.

    Bytes count from a node's place in the order until its last use is placed; a collective uses its
    inputs until its wait is placed. That is never less than the replay holds.
    """

    def __init__(self, instance: OverlapInstance) -> None:
        self.instance = instance
        self.flying: Counter[str] = Counter()
        self.bytes, factor = as_integers(node.bytes for node in instance.nodes)
        cap = instance.max_live_bytes
        self.bytes_left = None if cap is None else int(Fraction(cap) * factor)
        self.uses = [] if cap is None else self._uses()
        self.used_by = users_of(self.uses)
        self.uses_left = [len(used) for used in self.used_by]

    def _uses(self) -> list[list[int]]:
        """Return for every node the outputs that are held until it is placed."""
        ends = [
            {self.instance.wait_of.get(use, use) for use in uses}
            for uses in last_uses(self.instance)
        ]
        found: list[list[int]] = [[] for _ in ends]
        for node, uses in enumerate(ends):
            if self.bytes[node]:
                for use in uses:
                    found[use].append(node)
        return found

    def admits(self, node: int) -> bool:
        """Return True if the caps allow a node to be placed now."""
        if self.bytes_left is not None and self.bytes[node] > max(self.bytes_left, 0):
            return False
        if self.instance.nodes[node].kind is not NodeKind.COMM:
            return True
        group = self.instance.group_of(node)
        cap = self.instance.cap_of(group)
        return cap is None or self.flying[group] < cap

    def place(self, node: int) -> None:
        """Count a node as placed."""
        kind = self.instance.nodes[node].kind
        if kind is NodeKind.COMM:
            self.flying[self.instance.group_of(node)] += 1
        elif kind is NodeKind.WAIT:
            collective = self.instance.collective_of[node]
            self.flying[self.instance.group_of(collective)] -= 1
        if self.bytes_left is not None:
            self.bytes_left -= self.bytes[node]
            for output in self.uses[node]:
                self.uses_left[output] -= 1
                if not self.uses_left[output]:
                    self.bytes_left += self.bytes[output]

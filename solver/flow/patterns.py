"""Patterns: the order of ops on every device, apart from which micro-batch is which."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.flow.flow import Flow


@dataclass(frozen=True, eq=False)
class Pattern:
    """An order of m slots at V positions on every resource; micro-batches fill the slots.

    Parameters
    ----------
    line : int64[m * V]
        All nodes (``slot * V + position``) in an order in which each comes after those that it
        waits for. A resource serves its nodes in this order.
    resource : int64[V]
        Resource of each position, or `FREE`.
    """

    line: IntArray
    resource: IntArray

    @classmethod
    def of(
        cls, flow: Flow, schedule: Schedule, permutation: IntArray | None = None
    ) -> tuple[Pattern, IntArray]:
        """Return the pattern of a schedule and the micro-batches that fill its slots.

        Parameters
        ----------
        flow : Flow
            The flow of the problem of the schedule.
        schedule : Schedule
            Any schedule that keeps precedences and resources.
        permutation : int64[m], optional
            Micro-batch of each slot; by default in the order of their first starts.

        Returns
        -------
        Pattern, int64[m]
            The pattern, and the micro-batch of each slot.
        """
        return cls.of_starts(flow, schedule.start[flow.ops], permutation)

    @classmethod
    def of_starts(
        cls, flow: Flow, start: IntArray, permutation: IntArray | None = None
    ) -> tuple[Pattern, IntArray]:
        """Return the pattern of starts and the micro-batches that fill its slots.

        Parameters
        ----------
        flow : Flow
            The flow.
        start : int64[m, V]
            Starts in ticks of a schedule that keeps precedences and resources.
        permutation : int64[m], optional
            Micro-batch of each slot; by default in the order of their first starts.

        Returns
        -------
        Pattern, int64[m]
            The pattern, and the micro-batch of each slot.
        """
        if permutation is None:
            permutation = by_first_start(start.min(axis=1))
        placed = start[permutation]
        end = placed + flow.duration[permutation]
        # Of one moment: what ends first, then what precedes, as ops of no length end at once.
        depth = np.broadcast_to(_depths(flow), placed.shape)
        line = np.lexsort((depth.ravel(), end.ravel(), placed.ravel()))
        return cls(line.astype(np.int64), flow.resource), permutation

    @cached_property
    def before(self) -> IntArray:
        """Node before each one on its resource, or m * V."""
        size, count = len(self.line), len(self.resource)
        before = np.full(size, size, dtype=np.int64)
        resource = self.resource[self.line % count]
        for number in np.unique(resource[resource != FREE]):
            nodes = self.line[resource == number]
            before[nodes[1:]] = nodes[:-1]
        return before

    @property
    def key(self) -> bytes:
        """What patterns share that order all resources alike."""
        return self.before.tobytes()

    def orders(self, flow: Flow, permutation: IntArray) -> list[IntArray]:
        """Return the ops of each resource in order.

        Parameters
        ----------
        flow : Flow
            The flow.
        permutation : int64[m]
            Micro-batch of each slot.

        Returns
        -------
        list of int64[...]
            Op numbers by resource, of those that any op occupies.
        """
        slot, position = np.divmod(self.line, flow.num_positions)
        ops, resource = flow.ops[permutation[slot], position], flow.resource[position]
        return [ops[resource == r] for r in np.unique(resource[resource != FREE])]


def by_first_start(first: IntArray) -> IntArray:
    """Return the micro-batch of each slot: slots are filled in the order of first starts.

    Parameters
    ----------
    first : int64[m]
        Start of the first op of each micro-batch in ticks; those of equals go by number.

    Returns
    -------
    int64[m]
        Numbers of micro-batches.
    """
    return np.argsort(first, kind="stable").astype(np.int64)


def _depths(flow: Flow) -> IntArray:
    """Return the number of precedences of the longest chain into each position."""
    depth = np.zeros(flow.num_positions, dtype=np.int64)
    for _ in range(flow.num_positions):
        deeper = depth.copy()
        np.maximum.at(deeper, flow.after, depth[flow.before] + 1)
        if (deeper == depth).all():
            break
        depth = deeper
    return depth

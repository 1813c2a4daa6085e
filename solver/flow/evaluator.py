"""Times of permutations under a pattern, with tables that are made once for a flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.patterns import Pattern
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.topological_order import (
    Chain,
    Lengths,
    LineOrder,
    LineTimes,
    time_line,
    time_permutations,
)

_UNLIMITED = 2**61
"""Room of a resource without a pool."""


@dataclass(frozen=True, eq=False)
class Timed:
    """A pattern, the micro-batches in its slots, and their makespan in ticks.

    Parameters
    ----------
    value : int
        Makespan; `NEVER` where a pool is overrun.
    pattern : Pattern
        Order of the slots on every resource.
    permutation : int64[m]
        Micro-batch of each slot.
    """

    value: int
    pattern: Pattern
    permutation: IntArray

    @property
    def is_feasible(self) -> bool:
        """Whether no pool is overrun."""
        return self.value < NEVER


class Evaluator:
    """Times lines of a flow. Tables and room are made once; durations can be replaced.

    Parameters
    ----------
    flow : Flow
        The flow: m micro-batches, V positions, R resources.

    Raises
    ------
    ValueError
        A pool is used from several resources, so that no order says how full it is.
    """

    def __init__(self, flow: Flow) -> None:
        if not follows_orders(flow):
            raise ValueError("expected each pool to be used from one resource of its own")
        count, length = flow.duration.shape
        self.flow = flow
        slot, position = np.divmod(np.arange(count * length, dtype=np.int64), length)
        by = np.argsort(flow.after, kind="stable")
        pointer = np.searchsorted(flow.after[by], np.arange(length + 1)).astype(np.int64)
        first = np.flatnonzero(np.diff(pointer) == 0)
        self.chain = Chain(
            slot, position, pointer, flow.before[by], flow.lag[by], flow.resource, first
        )
        self._steps = _backwards(flow)
        self.room = _room(flow)
        self.lengths = self.lengths_of(flow.duration)

    def lengths_of(self, duration: IntArray, rows: IntArray | None = None) -> Lengths:
        """Return the tables of other durations.

        Parameters
        ----------
        duration : int64[m, V]
            Durations in ticks.
        rows : int64[m], optional
            Micro-batches of the flow whose amounts go with them; all in order by default.

        Returns
        -------
        Lengths
            For `values`, `timed`, and searches.
        """
        flow = self.flow
        acquire, release = flow.acquire, flow.release
        if rows is not None:
            acquire, release = acquire[rows], release[rows]
        after = np.tile(self.flow.behind, (len(duration), 1))
        for before, position, lag in self._steps:
            np.maximum(
                after[:, before],
                lag + duration[:, position] + after[:, position],
                out=after[:, before],
            )
        return Lengths(
            self.chain,
            _flat(duration),
            _flat(after),
            _flat(acquire),
            _flat(acquire - release),
            self.room,
            _rest(flow, duration, after),
        )

    def scratch(self) -> LineTimes:
        """Return room for the times of a line."""
        size = self.flow.ops.size + 1
        return LineTimes(*(np.zeros(size, dtype=np.int64) for _ in range(4)))

    def values(
        self, pattern: Pattern, permutations: IntArray, lengths: Lengths | None = None
    ) -> IntArray:
        """Return the makespans of permutations under a pattern.

        Parameters
        ----------
        pattern : Pattern
            The pattern.
        permutations : int64[K, m]
            Micro-batch of each slot, one permutation in a row.
        lengths : Lengths, optional
            Other durations, from `lengths_of`.

        Returns
        -------
        int64[K]
            Makespans in ticks; `NEVER` where a pool is overrun.
        """
        value = np.zeros(len(permutations), dtype=np.int64)
        row = np.zeros(self.flow.num_microbatches, dtype=np.int64)
        time_permutations(
            self.lengths if lengths is None else lengths,
            LineOrder(pattern.line, pattern.before, row),
            self.scratch(),
            (permutations * self.flow.num_positions).ravel(),
            value,
        )
        return value

    def timed(
        self, pattern: Pattern, permutation: IntArray, lengths: Lengths | None = None
    ) -> Timed:
        """Return a permutation under a pattern with its makespan.

        Parameters
        ----------
        pattern : Pattern
            The pattern.
        permutation : int64[m]
            Micro-batch of each slot.
        lengths : Lengths, optional
            Other durations, from `lengths_of`.

        Returns
        -------
        Timed
            With its makespan in ticks.
        """
        value = self.values(pattern, permutation[None], lengths)
        return Timed(int(value[0]), pattern, permutation)

    def starts(self, timed: Timed, lengths: Lengths | None = None) -> IntArray:
        """Return the starts of all ops.

        Parameters
        ----------
        timed : Timed
            A pattern and its permutation.
        lengths : Lengths, optional
            Other durations, from `lengths_of`.

        Returns
        -------
        int64[m, V]
            Starts in ticks, by micro-batch and position.
        """
        lengths = self.lengths if lengths is None else lengths
        length, end = self.flow.num_positions, np.zeros(self.flow.ops.size + 1, dtype=np.int64)
        pattern, row = timed.pattern, timed.permutation * length
        time_line(lengths, LineOrder(pattern.line, pattern.before, row), self.scratch(), end)
        start = np.empty((len(row), length), dtype=np.int64)
        start[timed.permutation] = end[:-1].reshape(start.shape)
        start -= lengths.duration.reshape(start.shape)
        return start


def _flat(table: IntArray) -> IntArray:
    return np.ascontiguousarray(table, dtype=np.int64).ravel()


def follows_orders(flow: Flow) -> bool:
    """Return true if the order of each resource says how full its pool is."""
    used = np.flatnonzero(flow.pool != FREE)
    pairs = set(zip(flow.pool[used].tolist(), flow.resource[used].tolist(), strict=True))
    pools, resources = {pool for pool, _ in pairs}, {resource for _, resource in pairs}
    return FREE not in resources and len(pairs) == len(pools) == len(resources)


def _room(flow: Flow) -> IntArray:
    """Return the free amount of the pool of each resource."""
    room = np.full(flow.num_resources, _UNLIMITED, dtype=np.int64)
    used = flow.pool != FREE
    room[flow.resource[used]] = flow.room[flow.pool[used]]
    return room


def _rest(flow: Flow, duration: IntArray, after: IntArray) -> IntArray:
    """Return the work of each resource and the least chain behind one of its positions."""
    rest = np.zeros(flow.num_resources, dtype=np.int64)
    for resource in range(flow.num_resources):
        own = flow.resource == resource
        if own.any():
            rest[resource] = duration[:, own].sum() + after[:, own].min()
    return rest


def _backwards(flow: Flow) -> list[tuple[int, int, int]]:
    """Return precedences (before, after, lag), those that come last in a micro-batch first."""
    edges = list(zip(*(a.tolist() for a in (flow.before, flow.after, flow.lag)), strict=True))
    waiting = [0] * flow.num_positions
    for before, _, _ in edges:
        waiting[before] += 1
    done = [position for position, count in enumerate(waiting) if not count]
    found = []
    for position in done:
        for edge in edges:
            if edge[1] == position:
                found.append(edge)
                waiting[edge[0]] -= 1
                if not waiting[edge[0]]:
                    done.append(edge[0])
    return found

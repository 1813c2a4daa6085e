"""Times of permutations of micro-batches under a pattern."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.flow.flow import Flow, Paths
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.topological_order import (
    Chain,
    Lengths,
    LineOrder,
    LineTimes,
    time_line,
    time_permutations,
)


@dataclass(frozen=True, eq=False)
class Timed:
    """A pattern, the micro-batches in its slots, and their makespan."""

    value: int  # ticks; `NEVER` where a pool is overrun
    pattern: Pattern
    permutation: IntArray  # int64[m], micro-batch of each slot

    @property
    def is_feasible(self) -> bool:
        """Whether no pool is overrun."""
        return self.value < NEVER


class Evaluator:
    """Times lines of a flow. Tables and room are made once; durations can be replaced.

    `flow`: the flow: m micro-batches, V positions, R resources.
    Raises `ValueError`: a pool is used from several resources, so that no order says
        how full it is.
    """

    def __init__(self, flow: Flow) -> None:
        if not follows_orders(flow):
            raise ValueError(
                "expected each pool to be used from one resource of its own"
            )
        count, length = flow.duration.shape
        self.flow = flow
        slot, position = np.divmod(np.arange(count * length, dtype=np.int64), length)
        by = np.argsort(flow.after, kind="stable")
        pointer = np.searchsorted(flow.after[by], np.arange(length + 1)).astype(
            np.int64
        )
        first = np.flatnonzero(np.diff(pointer) == 0)
        self.chain = Chain(
            slot, position, pointer, flow.before[by], flow.lag[by], flow.resource, first
        )
        after = Paths(flow).tail
        self.lengths = Lengths(
            self.chain,
            _flat(flow.duration),
            _flat(after),
            _flat(flow.acquire),
            _flat(flow.acquire - flow.release),
            _room(flow),
            _rest(flow, after),
        )

    def scratch(self) -> LineTimes:
        """Return room for the times of a line."""
        size = self.flow.ops.size + 1
        return LineTimes(*(np.zeros(size, dtype=np.int64) for _ in range(4)))

    def values(self, pattern: Pattern, permutations: IntArray) -> IntArray:
        """Return the makespans of permutations under a pattern, `NEVER` where a pool is overrun.

        Each row of `permutations`, int64[K, m], has the micro-batch of each slot.
        """
        value = np.zeros(len(permutations), dtype=np.int64)
        row = np.zeros(self.flow.num_microbatches, dtype=np.int64)
        time_permutations(
            self.lengths,
            LineOrder(pattern.line, pattern.before, row),
            self.scratch(),
            (permutations * self.flow.num_positions).ravel(),
            value,
        )
        return value

    def timed(self, pattern: Pattern, permutation: IntArray) -> Timed:
        """Return a permutation, the micro-batch of each slot, under a pattern with its makespan."""
        value = self.values(pattern, permutation[None])
        return Timed(int(value[0]), pattern, permutation)

    def starts(self, timed: Timed) -> IntArray:
        """Return the starts of all ops in ticks, int64[m, V]."""
        length, end = (
            self.flow.num_positions,
            np.zeros(self.flow.ops.size + 1, dtype=np.int64),
        )
        pattern, row = timed.pattern, timed.permutation * length
        time_line(
            self.lengths,
            LineOrder(pattern.line, pattern.before, row),
            self.scratch(),
            end,
        )
        start = np.empty((len(row), length), dtype=np.int64)
        start[timed.permutation] = end[:-1].reshape(start.shape)
        start -= self.flow.duration
        return start


def _flat(table: IntArray) -> IntArray:
    return np.ascontiguousarray(table, dtype=np.int64).ravel()


def follows_orders(flow: Flow) -> bool:
    """Whether the order of each resource says how full its pool is."""
    used = np.flatnonzero(flow.pool != FREE)
    pairs = set(
        zip(flow.pool[used].tolist(), flow.resource[used].tolist(), strict=True)
    )
    pools, resources = {pool for pool, _ in pairs}, {resource for _, resource in pairs}
    return FREE not in resources and len(pairs) == len(pools) == len(resources)


def _room(flow: Flow) -> IntArray:
    """Return the free amount of the pool of each resource, without limit where it has none."""
    room = np.full(flow.num_resources, 2**61, dtype=np.int64)
    used = flow.pool != FREE
    room[flow.resource[used]] = flow.room[flow.pool[used]]
    return room


def _rest(flow: Flow, after: IntArray) -> IntArray:
    """Return the work of each resource and the least chain behind one of its positions."""
    work = np.zeros(flow.num_resources, dtype=np.int64)
    for resource in range(flow.num_resources):
        positions = flow.resource == resource
        if positions.any():
            work[resource] = (
                flow.duration[:, positions].sum() + after[:, positions].min()
            )
    return work

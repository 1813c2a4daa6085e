"""Patterns: the order of ops on every device, apart from which micro-batch is which.

A `Pattern` knows the positions of a flow alone, which is what timing many permutations needs; a
`ReplicaPattern` is one of a whole pipeline, ops of no micro-batch and all that is waited for
included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds.flow.flow import Flow, Paths
from ppsolve.solver.kernels.microbatch_exchange import ReplicaPatterns
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.tables import joined


@dataclass(frozen=True, eq=False)
class Pattern:
    """An order of m slots at V positions on every resource; micro-batches fill the slots.

    The line has all nodes (``slot * V + position``), each after those that it waits for. A resource
    serves its nodes in this order.
    """

    line: IntArray  # int64[m * V]
    resource: IntArray  # int64[V], `FREE` where a position occupies none

    @classmethod
    def of(cls, flow: Flow, schedule: Schedule) -> tuple[Pattern, IntArray]:
        """Return the pattern of a schedule and the micro-batches that fill its slots.

        Slots are filled in the order of first starts. The schedule has to keep precedences and
        resources alone.
        """
        return cls.of_starts(flow, schedule.start[flow.ops])

    @classmethod
    def of_starts(
        cls, flow: Flow, start: IntArray, permutation: IntArray | None = None
    ) -> tuple[Pattern, IntArray]:
        """Return the pattern of starts, int64[m, V], and the micro-batches that fill its slots.

        The starts keep precedences and resources. By default slots are filled in the order of first
        starts.
        """
        if permutation is None:
            permutation = np.argsort(start.min(axis=1), kind="stable")
        placed = start[permutation]
        end = placed + flow.duration[permutation]
        # Of one moment: what ends first, then what precedes, as ops of no length end at once.
        depth = np.broadcast_to(Paths(flow).rank, placed.shape)
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
        """Return the op numbers of each resource that any op occupies, in order.

        `permutation` has the micro-batch of each slot.
        """
        slot, position = np.divmod(self.line, flow.num_positions)
        ops, resource = flow.ops[permutation[slot], position], flow.resource[position]
        return [ops[resource == r] for r in np.unique(resource[resource != FREE])]


@dataclass(frozen=True, eq=False)
class ReplicaPattern:
    """An order of the ops of a pipeline, with slots in place of its micro-batches.

    Ops of no micro-batch have slot -1 and the positions behind those of the flow. Rows of `source`
    and `lag` are places in `ops` that an op waits for, and ticks after their ends.
    """

    schedule: Schedule  # that it was read off, of n ops
    ops: IntArray  # int64[n], each after all that it waits for
    slot: IntArray  # int64[n]
    position: IntArray  # int64[n]
    pointer: IntArray  # int64[n + 1]
    source: IntArray  # int64[...]
    lag: IntArray  # int64[...]

    @property
    def microbatches(self) -> IntArray:
        """Micro-batch of the schedule in each slot, int64[slots]."""
        slots = np.zeros(int(self.slot.max()) + 1, dtype=np.int64)
        owned = self.slot != FREE
        slots[self.slot[owned]] = self.schedule.problem.microbatch[self.ops[owned]]
        return slots


def replica_pattern_of(schedule: Schedule, flow: Flow) -> ReplicaPattern:
    """Read the order of ops off a schedule of a pipeline.

    A micro-batch has the slot of its place among all by the start of their first op. An op waits
    for those before it by the precedences of the problem and for the one before it on its
    resources. So whatever the durations, running the order as early as possible keeps all
    precedences and overlaps nothing. The flow may have any number of micro-batches.
    """
    problem = schedule.problem
    keys = Dag.of(problem).level, schedule.end, schedule.start
    ops = np.lexsort(keys).astype(np.int64)  # each behind all that it waits for
    rank = np.empty(problem.num_ops, dtype=np.int64)
    rank[ops] = np.arange(problem.num_ops)
    orders = (users[np.argsort(rank[users])] for users in problem.ops_by_resource)
    before, after, lag = joined(problem, chain_edges(orders))
    rows = np.lexsort((rank[before], rank[after]))
    pointer = np.searchsorted(rank[after][rows], np.arange(problem.num_ops + 1))
    return ReplicaPattern(
        schedule,
        ops,
        _slots(schedule, ops),
        _positions_of(problem, flow)[ops],
        pointer.astype(np.int64),
        rank[before][rows],
        lag[rows],
    )


def _positions_of(problem: Problem, flow: Flow) -> IntArray:
    """Return the position of each op; ops of no micro-batch come behind those of the flow."""
    stages = int(max(flow.stage.max(), problem.stage.max())) + 1
    column = np.zeros(len(problem.kinds) * stages, dtype=np.int64)
    column[flow.kind * stages + flow.stage] = np.arange(flow.num_positions)
    is_free = problem.microbatch == FREE
    return np.where(
        is_free,
        flow.num_positions - 1 + np.cumsum(is_free),
        column[problem.kind * stages + problem.stage],
    )


def _slots(schedule: Schedule, ops: IntArray) -> IntArray:
    microbatch = schedule.problem.microbatch
    first = np.full(int(microbatch.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, microbatch, schedule.start)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first[:-1], kind="stable")] = np.arange(len(first) - 1)
    rank[FREE] = FREE
    return rank[microbatch[ops]]


def together(patterns: Sequence[ReplicaPattern], flow: Flow) -> ReplicaPatterns:
    """Return the record of several patterns that kernels read, in the same order."""
    pool = np.append(flow.pool, np.full(len(patterns[0].ops), FREE))
    counts = [len(pattern.source) for pattern in patterns]
    shift = np.concatenate(([0], np.cumsum(counts)))
    pointers = [
        pattern.pointer[:-1] + by for pattern, by in zip(patterns, shift, strict=False)
    ]
    position = np.concatenate([pattern.position for pattern in patterns])
    return ReplicaPatterns(
        np.cumsum([0, *(len(pattern.ops) for pattern in patterns)], dtype=np.int64),
        np.concatenate([pattern.slot for pattern in patterns]),
        position,
        np.append(np.concatenate(pointers), shift[-1]).astype(np.int64),
        np.concatenate([pattern.source for pattern in patterns]),
        np.concatenate([pattern.lag for pattern in patterns]),
        np.ascontiguousarray(pool[position]),
    )

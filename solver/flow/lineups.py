"""Patterns of whole pipelines, ops of no micro-batch and all that is waited for included.

A `Pattern` knows the positions of a flow alone, which is what timing many permutations needs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.patterns import by_first_start
from ppsolve.solver.kernels.microbatch_exchange import ReplicaPatterns


@dataclass(frozen=True, eq=False)
class ReplicaPattern:
    """An order of the ops of a pipeline, with slots in place of its micro-batches.

    Parameters
    ----------
    schedule : Schedule
        The schedule that it was read off, of n ops.
    ops : int64[n]
        Ops in an order in which each follows all that it waits for.
    slot, position : int64[n]
        Slot of the micro-batch of each of them, -1 for an op of none, and its position; ops of no
        micro-batch have the positions behind those of the flow.
    pointer : int64[n + 1]
        Rows of `source` and `lag`.
    source, lag : int64[...]
        Place in `ops` of what is waited for, and ticks after its end.
    """

    schedule: Schedule
    ops: IntArray
    slot: IntArray
    position: IntArray
    pointer: IntArray
    source: IntArray
    lag: IntArray

    @property
    def microbatches(self) -> IntArray:
        """Micro-batch of the schedule in each slot, int64[slots]."""
        slots = np.zeros(int(self.slot.max()) + 1, dtype=np.int64)
        owned = self.slot != FREE
        slots[self.slot[owned]] = self.schedule.problem.microbatch[self.ops[owned]]
        return slots


def replica_pattern_of(schedule: Schedule, flow: Flow) -> ReplicaPattern:
    """Read the order of ops off a schedule.

    A micro-batch has the slot of its place among all by the start of their first op. An op waits
    for those before it by the precedences of the problem and for the one before it on its
    resources.

    Parameters
    ----------
    schedule : Schedule
        A schedule of a pipeline.
    flow : Flow
        A flow of the same pipeline, with any number of micro-batches.

    Returns
    -------
    ReplicaPattern
        The order; whatever the durations, running it as early as possible keeps all precedences
        and overlaps nothing.
    """
    problem = schedule.problem
    ops = _in_order(schedule)
    place = np.empty(problem.num_ops, dtype=np.int64)
    place[ops] = np.arange(problem.num_ops)
    before, after, lag = _waits(problem, ops)
    rows = np.lexsort((place[before], place[after]))
    pointer = np.searchsorted(place[after][rows], np.arange(problem.num_ops + 1))
    return ReplicaPattern(
        schedule,
        ops,
        _slots(schedule, ops),
        positions_of(problem, flow)[ops],
        pointer.astype(np.int64),
        place[before][rows],
        lag[rows],
    )


def positions_of(problem: Problem, flow: Flow) -> IntArray:
    """Return the position of each op; ops of no micro-batch are numbered behind those of the flow.

    Parameters
    ----------
    problem : Problem
        A pipeline, n ops.
    flow : Flow
        A flow of the same pipeline.

    Returns
    -------
    int64[n]
        Positions.
    """
    stages = int(max(flow.stage.max(), problem.stage.max())) + 1
    column = np.zeros(len(problem.kinds) * stages, dtype=np.int64)
    column[flow.kind * stages + flow.stage] = np.arange(flow.num_positions)
    alone = problem.microbatch == FREE
    return np.where(
        alone,
        flow.num_positions - 1 + np.cumsum(alone),
        column[problem.kind * stages + problem.stage],
    )


def _in_order(schedule: Schedule) -> IntArray:
    """Return the ops by their starts, each behind all that it waits for."""
    problem = schedule.problem
    successors: list[list[int]] = [[] for _ in range(problem.num_ops)]
    for before, after in zip(problem.before.tolist(), problem.after.tolist(), strict=True):
        successors[before].append(after)
    missing = np.bincount(problem.after, minlength=problem.num_ops).tolist()
    start, end = schedule.start.tolist(), schedule.end.tolist()
    heap = [(start[op], end[op], op) for op, count in enumerate(missing) if not count]
    heapq.heapify(heap)
    ops = []
    while heap:
        op = heapq.heappop(heap)[2]
        ops.append(op)
        for after in successors[op]:
            missing[after] -= 1
            if not missing[after]:
                heapq.heappush(heap, (start[after], end[after], after))
    return np.array(ops, dtype=np.int64)


def _waits(problem: Problem, ops: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return precedences and the pairs of neighbours on resources: before, after, lag."""
    place = np.empty(problem.num_ops, dtype=np.int64)
    place[ops] = np.arange(len(ops))
    orders = [users[np.argsort(place[users])] for users in problem.ops_by_resource]
    first = [order[:-1] for order in orders]
    second = [order[1:] for order in orders]
    return (
        np.concatenate([problem.before, *first]),
        np.concatenate([problem.after, *second]),
        np.concatenate([problem.lag, *(np.zeros_like(order) for order in first)]),
    )


def _slots(schedule: Schedule, ops: IntArray) -> IntArray:
    microbatch = schedule.problem.microbatch
    first = np.full(int(microbatch.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, microbatch, schedule.start)
    rank = np.empty(len(first), dtype=np.int64)
    rank[by_first_start(first[:-1])] = np.arange(len(first) - 1)
    rank[FREE] = FREE
    slots: IntArray = rank[microbatch[ops]]
    return slots


def together(patterns: Sequence[ReplicaPattern], flow: Flow) -> ReplicaPatterns:
    """Return the record of several patterns that kernels read.

    Parameters
    ----------
    patterns : sequence of ReplicaPattern
        At least one.
    flow : Flow
        The flow of their positions.

    Returns
    -------
    ReplicaPatterns
        In the same order.
    """
    pool = np.append(flow.pool, np.full(len(patterns[0].ops), FREE))
    counts = [len(pattern.source) for pattern in patterns]
    shift = np.concatenate(([0], np.cumsum(counts)))
    pointers = [pattern.pointer[:-1] + by for pattern, by in zip(patterns, shift, strict=False)]
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

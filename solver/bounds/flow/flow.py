"""A problem as a flow: every micro-batch passes the same positions, with durations of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.tables import memory_of


@dataclass(frozen=True, eq=False)
class Flow:
    """What m micro-batches pass through: V positions on R resources, with P pools of memory.

    A position is an op of one micro-batch: forward, backward or transfer of a stage. Micro-batches
    differ in durations and amounts only. Times are in ticks, amounts in whole units of each pool.

    `ops`: int64[m, V], op numbers in the problem.
    `duration`: int64[m, V].
    `kind`, `stage`: int64[V], labels of the positions; `kind` indexes the kinds of the
        problem.
    `resource`: int64[V], resource that a position occupies, or `FREE`.
    `num_resources`: number of resources R of the problem.
    `before`, `after`, `lag`: int64[k], precedences between positions of the same
        micro-batch.
    `room`: int64[P], free amount of each pool before any op.
    `pool`: int64[V], pool that a position uses, or `FREE`.
    `acquire`, `release`: int64[m, V], amounts that are acquired at the start and
        released at the end.
    `ahead`, `behind`: int64[V], least ticks before each position starts, and after it
        ends, for ops of no micro-batch: all-gathers come before the ops of their stage,
        optimizers and all-reduces follow them.
    """

    ops: IntArray
    duration: IntArray
    kind: IntArray
    stage: IntArray
    resource: IntArray
    num_resources: int
    before: IntArray
    after: IntArray
    lag: IntArray
    room: IntArray
    pool: IntArray
    acquire: IntArray
    release: IntArray
    ahead: IntArray
    behind: IntArray

    @property
    def num_microbatches(self) -> int:
        """Number of micro-batches m."""
        return len(self.ops)

    @property
    def num_positions(self) -> int:
        """Number of positions V."""
        return len(self.kind)


def earlier_twins(table: IntArray) -> IntArray:
    """Return for each row of a table the last earlier row that is the same, or -1."""
    latest: dict[bytes, int] = {}
    twins = np.full(len(table), -1, dtype=np.int64)
    for number, row in enumerate(table):
        twins[number] = latest.get(row.tobytes(), -1)
        latest[row.tobytes()] = number
    return twins


def rows_of(flow: Flow, microbatches: Sequence[int]) -> Flow:
    """Return the flow of some micro-batches alone, in their new order."""
    rows = np.array(microbatches, dtype=np.int64)
    tables = {
        name: getattr(flow, name)[rows]
        for name in ("ops", "duration", "acquire", "release")
    }
    return replace(flow, **tables)


def flow_of(problem: Problem) -> Flow | None:
    """Return a problem as a flow.

    Ops of no micro-batch (optimizer, all-reduce) are left out, but for the time that they take
    before or after others. None where micro-batches pass different positions (bidirectional
    pipes), wait for each other, occupy two resources at once or two pools, or where starts are
    given.
    """
    if problem.is_anchored or len(problem.points):
        return None
    ops = _vectors(problem)
    if ops is None:
        return None
    resource, edges = _resources(problem, ops), _edges(problem, ops)
    amounts = _amounts(problem, ops)
    if resource is None or edges is None or amounts is None:
        return None
    return Flow(
        ops,
        problem.duration[ops],
        problem.kind[ops[0]],
        problem.stage[ops[0]],
        resource,
        problem.num_resources,
        *edges,
        memory_of(problem).size,
        *amounts,
        *_alone(problem, ops),
    )


def _alone(problem: Problem, ops: IntArray) -> tuple[IntArray, IntArray]:
    """Return the longest chains of ops of no micro-batch ahead of each position, and behind it."""
    is_free, duration = problem.microbatch == FREE, problem.duration
    delay = duration[problem.before] + problem.lag
    ahead, behind = (
        Dag(problem.num_ops, problem.before[kept], problem.after[kept], delay[kept])
        for kept in (is_free[problem.before], is_free[problem.after])
    )
    head, tail = ahead.heads(np.zeros_like(duration)), behind.tails(duration) - duration
    return head[ops].min(axis=0), tail[ops].min(axis=0)


def _vectors(problem: Problem) -> IntArray | None:
    """Return the ops of each micro-batch in one row, by kind and stage."""
    owned = np.flatnonzero(problem.microbatch != FREE)
    owner = problem.microbatch[owned]
    count = int(owner.max(initial=FREE)) + 1
    if not count or len(owned) % count:
        return None
    ops: IntArray = owned[
        np.lexsort((problem.stage[owned], problem.kind[owned], owner))
    ]
    ops = ops.reshape(count, -1)
    labels = problem.kind[ops], problem.stage[ops]
    is_alike = all((label == label[0]).all() for label in labels)
    is_owned = (problem.microbatch[ops] == np.arange(count)[:, None]).all()
    return ops if is_alike and is_owned else None


def _resources(problem: Problem, ops: IntArray) -> IntArray | None:
    counts = np.diff(problem.resource_ptr)
    if (counts[ops] > 1).any():
        return None
    padded = np.append(problem.resource_idx, FREE)
    resource: IntArray = np.where(
        counts[ops] == 1, padded[problem.resource_ptr[ops]], FREE
    )
    return resource[0] if (resource == resource[0]).all() else None


def _edges(
    problem: Problem, ops: IntArray
) -> tuple[IntArray, IntArray, IntArray] | None:
    """Return the precedences inside a micro-batch, or None where micro-batches differ in them."""
    position = np.full(problem.num_ops, FREE, dtype=np.int64)
    position[ops] = np.arange(ops.shape[1])
    before, after = position[problem.before], position[problem.after]
    inner = (before != FREE) & (after != FREE)
    owners = problem.microbatch[problem.before], problem.microbatch[problem.after]
    table = np.stack([before, after, problem.lag, *owners])[:, inner]
    rows, counts = np.unique(table[:3], axis=1, return_counts=True)
    if (table[3] != table[4]).any() or (counts != len(ops)).any():
        return None
    return rows[0], rows[1], rows[2]


def _amounts(
    problem: Problem, ops: IntArray
) -> tuple[IntArray, IntArray, IntArray] | None:
    """Return pool, acquired and released amount of each position."""
    memory = memory_of(problem)
    pool = np.full(ops.shape[1], FREE, dtype=np.int64)
    tables = []
    for pointer, pools, amounts in (
        (memory.acquire_pointer, memory.acquire_pool, memory.acquire_amount),
        (memory.release_pointer, memory.release_pool, memory.release_amount),
    ):
        owner = np.repeat(np.arange(problem.num_ops), np.diff(pointer))
        table = np.zeros((len(problem.pools) + 1, problem.num_ops), dtype=np.int64)
        np.add.at(table, (pools, owner), amounts)
        tables.append(table[:, ops])
        for number in range(len(problem.pools)):
            used = np.flatnonzero(table[number, ops].any(axis=0))
            if ((pool[used] != FREE) & (pool[used] != number)).any():
                return None
            pool[used] = number
    acquire, release = (table[pool, :, np.arange(len(pool))].T for table in tables)
    return pool, np.ascontiguousarray(acquire), np.ascontiguousarray(release)


@dataclass(frozen=True, eq=False)
class Paths:
    """Heads and tails of the positions of a flow, m micro-batches and V positions."""

    flow: Flow

    @cached_property
    def rank(self) -> IntArray:
        """Number of precedences of the longest chain into each position, int64[V]."""
        rank = np.zeros(self.flow.num_positions, dtype=np.int64)
        for _ in range(self.flow.num_positions):
            old = rank.copy()
            np.maximum.at(rank, self.flow.after, old[self.flow.before] + 1)
            if (rank == old).all():
                break
        return rank

    @cached_property
    def edges(self) -> list[tuple[int, int, int]]:
        """Precedences (before, after, lag), every position's own after those into it."""
        flow = self.flow
        edges = zip(
            flow.before.tolist(), flow.after.tolist(), flow.lag.tolist(), strict=True
        )
        return sorted(edges, key=lambda edge: int(self.rank[edge[0]]))

    @cached_property
    def head(self) -> IntArray:
        """Least time before the start of each position, int64[m, V] in ticks."""
        duration = self.flow.duration
        head = np.tile(self.flow.ahead, (len(duration), 1))
        for before, after, lag in self.edges:
            np.maximum(
                head[:, after],
                head[:, before] + duration[:, before] + lag,
                out=head[:, after],
            )
        return head

    @cached_property
    def tail(self) -> IntArray:
        """Least time after the end of each position, int64[m, V] in ticks."""
        return self.reversed.head

    @cached_property
    def precedes(self) -> np.typing.NDArray[np.bool_]:
        """Whether a position must end before another one starts, bool[V, V]."""
        reach = np.zeros((self.flow.num_positions, self.flow.num_positions), dtype=bool)
        for before, after, _ in reversed(self.edges):
            reach[before, after] = True
            reach[before] |= reach[after]
        return reach

    def ops_of(self, resource: int) -> tuple[IntArray, IntArray]:
        """Return micro-batches and positions of the ops that occupy a resource."""
        positions = np.flatnonzero(self.flow.resource == resource)
        row, column = np.nonzero(self.flow.duration[:, positions])
        return row, positions[column]

    @cached_property
    def reversed(self) -> Paths:
        """The flow with time running backwards: heads are tails, acquires are releases."""
        flow = self.flow
        turned = replace(
            flow,
            before=flow.after,
            after=flow.before,
            acquire=flow.release,
            release=flow.acquire,
            ahead=flow.behind,
            behind=flow.ahead,
        )
        return Paths(turned)

    def gap(self, position: int) -> IntArray:
        """Return the least ticks from the end of a position to the start of each later one.

        int64[m, V]; 0 where a position is not later.
        """
        duration = self.flow.duration
        gap = np.zeros_like(duration)
        is_later = self.precedes[position]
        for before, after, lag in self.edges:
            if before == position:
                np.maximum(gap[:, after], lag, out=gap[:, after])
            elif is_later[before]:
                np.maximum(
                    gap[:, after],
                    gap[:, before] + duration[:, before] + lag,
                    out=gap[:, after],
                )
        return gap

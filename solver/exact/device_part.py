"""Some devices of a problem as a problem of its own: all others run any number of ops at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import (
    FREE,
    BoolArray,
    IntArray,
    Objective,
    Pool,
    Problem,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.bounds.relaxations import start_heads
from ppsolve.solver.bounds.spans import busy_ops
from ppsolve.solver.exact.params import MODEL
from ppsolve.solver.exact.subproblem import kept_fields
from ppsolve.solver.heuristics.order_search import obstacle as order_obstacle
from ppsolve.solver.structure.implied import ImpliedOrder


class TooManyWaysError(Exception):
    """Left-out ops connect too many pairs of kept ones."""


class Ways(NamedTuple):
    """Longest paths from the starts of kept ops, in ticks."""

    # to the starts of other kept ops, through left-out ones or none
    between: dict[tuple[int, int], int]
    out: dict[int, int]  # to the end of all left-out ops behind, or to its own end


def obstacle(problem: Problem) -> str | None:
    """Return in words why few devices do not bound a problem, None where they do."""
    if problem.objective is not Objective.MAKESPAN:
        return "needs the makespan"
    if not problem.families:
        return "needs alike micro-batches"
    return order_obstacle(problem)


class Machines:
    """A problem without given starts, of which some resources become a problem of their own."""

    def __init__(self, implied: ImpliedOrder) -> None:
        self.implied, self.problem = implied, implied.problem
        self.resources = [r for r, ops in enumerate(busy_ops(self.problem)) if len(ops)]

    @cached_property
    def heads(self) -> IntArray:
        """Earliest starts by precedences alone, int64[n] in ticks."""
        return start_heads(self.problem, self.implied.plain)

    @cached_property
    def followers(self) -> list[list[tuple[int, int]]]:
        """For each op, the ops behind it with the delays from start to start."""
        graph = self.implied.plain
        behind: list[list[tuple[int, int]]] = [[] for _ in range(self.problem.num_ops)]
        edges = zip(
            graph.before.tolist(),
            graph.after.tolist(),
            graph.delay.tolist(),
            strict=True,
        )
        for before, after, delay in edges:
            behind[before].append((after, delay))
        return behind

    def part(self, resources: Collection[int]) -> DevicePart:
        """Return the ops of some resources as a problem.

        The longest path between two ops through left-out ones becomes a lag, that to the first and
        from the last op one from the beginning and to the end. Pools of other resources are left
        out: every schedule of the whole is one of the part. A `TooManyWaysError` says that there
        are more than `ModelParams.device_paths` paths from left-out ops.
        """
        kept = np.zeros(self.problem.num_ops, dtype=np.bool_)
        for resource in resources:
            kept[self.problem.ops_by_resource[resource]] = True
        return DevicePart(
            self, tuple(resources), np.flatnonzero(kept), self._ways(kept)
        )

    def _ways(self, kept: BoolArray) -> Ways:
        exits: list[dict[int, int]] = [{} for _ in range(len(kept))]
        end = self.problem.duration.tolist()
        is_kept, edges, count = kept.tolist(), Ways({}, {}), 0
        for op in np.argsort(-self.implied.plain.level, kind="stable").tolist():
            reach = exits[op]
            for follower, delay in self.followers[op]:
                behind = {follower: 0} if is_kept[follower] else exits[follower]
                for target, length in behind.items():
                    reach[target] = max(reach.get(target, 0), delay + length)
                if not is_kept[follower]:
                    end[op] = max(end[op], delay + end[follower])
            count += len(reach)
            if count > MODEL.device_paths:
                raise TooManyWaysError
            if is_kept[op]:
                edges.between.update(
                    {(op, target): length for target, length in reach.items()}
                )
                edges.out[op] = end[op]
        return edges

    def most_violated(self, subset: DevicePart, schedule: Schedule) -> list[int]:
        """Return the left-out resources, those with least room in a schedule of a part first.

        Kept ops stay where they start; the one-machine bound of each other resource says how long
        it takes at least.
        """
        problem, start = self.problem, schedule.start[: len(subset.ops)]
        heads = np.zeros(problem.num_ops, dtype=np.int64)
        tails = problem.duration.copy()
        heads[subset.ops], tails[subset.ops] = start, schedule.value - start
        heads, tails = self.implied.full.heads(heads), self.implied.full.tails(tails)
        busy, duration = busy_ops(problem), problem.duration

        def least(resource: int) -> int:
            ops = busy[resource]
            return preemptive_bound(
                heads[ops], duration[ops], tails[ops] - duration[ops]
            )

        left_out = [r for r in self.resources if r not in subset.resources]
        return sorted(left_out, key=least, reverse=True)


@dataclass(frozen=True, eq=False)
class DevicePart:
    """The ops of some resources as a problem, see `Machines.part`."""

    machines: Machines  # the whole
    resources: tuple[int, ...]  # the resources that hold one op at a time
    # int64[k]: their ops, ascending: op i of `problem` is ``ops[i]``, behind them come beginnings
    # and the end
    ops: IntArray
    ways: Ways  # longest paths between these ops

    @cached_property
    def problem(self) -> Problem:
        """The problem, k + b + 1 ops: b beginnings, each as long as the path to some ops."""
        problem, ops = self.machines.problem, self.ops
        edges, lengths = self._with_begins(self._between())
        beside = len(lengths) + 1
        before, after, lag = edges
        return Problem(
            **kept_fields(problem, ops, beside),
            duration=np.concatenate([problem.duration[ops], lengths, [0]]),
            before=before,
            after=after,
            lag=lag,
            release=np.zeros(len(ops) + beside, dtype=np.int64),
            pools=self._pools(),
            families=self._families(),
        )

    def of(self, schedule: Schedule) -> Schedule:
        """Return the schedule of the part by a schedule of the whole, as long as the whole."""
        beside = self.problem.num_ops - len(self.ops)
        start = np.append(schedule.start[self.ops], np.zeros(beside, dtype=np.int64))
        start[-1] = schedule.makespan
        return Schedule(self.problem, start)

    @cached_property
    def _number(self) -> IntArray:
        number = np.full(self.machines.problem.num_ops, FREE, dtype=np.int64)
        number[self.ops] = np.arange(len(self.ops))
        return number

    def _between(self) -> Edges:
        pairs = np.array(list(self.ways.between), dtype=np.int64).reshape(-1, 2)
        length = np.array(list(self.ways.between.values()), dtype=np.int64)
        lag = length - self.machines.problem.duration[pairs[:, 0]]
        return self._number[pairs[:, 0]], self._number[pairs[:, 1]], lag

    def _with_begins(self, edges: Edges) -> tuple[Edges, IntArray]:
        before, after, lag = edges
        duration = self.machines.problem.duration[self.ops]
        count = len(self.ops)
        heads, reached = self.machines.heads[self.ops], np.zeros_like(duration)
        np.maximum.at(reached, after, heads[before] + duration[before] + lag)
        late = np.flatnonzero(heads > reached)
        lengths, which = np.unique(heads[late], return_inverse=True)
        tail = (
            np.array([self.ways.out[op] for op in self.ops.tolist()], dtype=np.int64)
            - duration
        )
        last = np.flatnonzero(tail > 0)
        end = np.full(len(last), count + len(lengths))
        joined = (
            np.concatenate([before, count + which, last]),
            np.concatenate([after, late, end]),
            np.concatenate([lag, np.zeros_like(late), tail[last]]),
        )
        return joined, lengths

    def _families(self) -> tuple[IntArray, ...]:
        kept = [self._number[family] for family in self.machines.problem.families]
        return tuple(
            np.ascontiguousarray(family[:, (family != FREE).all(axis=0)])
            for family in kept
            if (family != FREE).all(axis=0).any()
        )

    def _pools(self) -> tuple[Pool, ...]:
        number = self._number
        return tuple(
            replace(
                pool,
                acquire_op=number[pool.acquire_op],
                release_op=number[pool.release_op],
            )
            for pool in self.machines.problem.pools
            if (number[pool.acquire_op] != FREE).all()
            and (number[pool.release_op] != FREE).all()
        )

"""Serial schedule generation: take ops by priority, put each into the first gap that fits."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Sequence

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.heuristics.ledger import Ledger
from ppsolve.solver.structure.timing import Network

_NEVER = 2**62


def generate_serial(problem: Problem, rank: IntArray, *edges: Edges) -> Schedule:
    """Build a schedule by serial schedule generation: place ops one by one.

    Of the ops whose predecessors are placed, the one of the lowest rank goes to the earliest
    moment at which its resources are free for its whole duration and its memory from then on
    (Kolisch 1996: the serial method). An op without memory waits until a placed op releases some.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    rank : int64[n]
        Priorities, all different; lowest first.
    *edges : Edges
        Precedences beside those of the problem.

    Returns
    -------
    Schedule
        Starts in ticks, pinned ops at their pins.

    Raises
    ------
    MemoryDeadlockError
        All ops that are left wait for memory that is never released.
    """
    return _Builder(problem, rank, edges).run()


class Gaps:
    """Free intervals of one resource, in time order."""

    def __init__(self) -> None:
        self.begins, self.ends = [0], [_NEVER]

    def first(self, time: int, length: int) -> int:
        """Return the earliest free interval.

        Parameters
        ----------
        time : int
            Earliest moment, in ticks.
        length : int
            Free ticks required.

        Returns
        -------
        int
            Begin of the interval, >= `time`.
        """
        if time >= self.begins[-1]:
            return time
        index = max(0, bisect_right(self.begins, time) - 1)
        while max(time, self.begins[index]) + length > self.ends[index]:
            index += 1
        return max(time, self.begins[index])

    def take(self, time: int, length: int) -> None:
        """Occupy an interval, any part of which may be occupied already.

        Parameters
        ----------
        time, length : int
            Begin and length of the interval, in ticks.
        """
        if time >= self.begins[-1]:
            self._take_behind(time, length)
            return
        index = max(0, bisect_right(self.begins, time) - 1)
        while index < len(self.begins) and self.begins[index] < time + length:
            begin, end = self.begins[index], self.ends[index]
            left, right = (begin, min(end, time)), (max(begin, time + length), end)
            parts = [part for part in (left, right) if part[0] < part[1]]
            self.begins[index : index + 1] = [part[0] for part in parts]
            self.ends[index : index + 1] = [part[1] for part in parts]
            index += len(parts)

    def _take_behind(self, time: int, length: int) -> None:
        """Occupy an interval behind all others: the usual case."""
        if time == self.begins[-1]:
            self.begins[-1] = time + length
        else:
            self.ends[-1] = time
            self.begins.append(time + length)
            self.ends.append(_NEVER)


class Usage:
    """Use of one pool over time by the ops placed so far."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int]] = []
        self.final = 0

    def add(self, time: int, amount: int) -> None:
        """Change the use from a moment on.

        Parameters
        ----------
        time : int
            Moment in ticks.
        amount : int
            Change in the pool's unit; negative for a release.
        """
        insort(self.changes, (time, amount))
        self.final += amount

    def first(self, time: int, limit: int) -> int:
        """Return the earliest moment from which the use never exceeds a limit.

        Parameters
        ----------
        time : int
            Earliest moment, in ticks.
        limit : int
            Largest use allowed, in the pool's unit.

        Returns
        -------
        int
            Moment in ticks, >= `time`.
        """
        level = self.final
        for index in range(len(self.changes) - 1, -1, -1):
            moment, amount = self.changes[index]
            level -= amount
            if moment <= time:
                return time
            # Of one moment releases sort first, so no level inside it is above those around it.
            if level > limit:
                return moment
        return time


class _Builder:
    def __init__(self, problem: Problem, rank: IntArray, edges: Sequence[Edges]) -> None:
        self.problem = problem
        self.network = network = Network(problem, *edges)
        self.rank: list[int] = rank.tolist()
        self.resources = network.occupied()
        self.ready = list(network.earliest)
        self.missing = list(network.num_predecessors)
        self.start = [FREE] * problem.num_ops
        self.gaps = [Gaps() for _ in problem.resource_names]
        self.ledger = Ledger(problem)
        self.usage = [Usage() for _ in problem.pools]
        self.waiting: list[list[int]] = [[] for _ in problem.pools]
        self.pinned = dict(
            zip(
                np.flatnonzero(problem.pinned != FREE).tolist(),
                problem.pinned[problem.pinned != FREE].tolist(),
                strict=True,
            )
        )

    def run(self) -> Schedule:
        for op, moment in self.pinned.items():
            self._take(op, moment)
        self.heap = [(self.rank[op], op) for op, count in enumerate(self.missing) if not count]
        heapq.heapify(self.heap)
        while self.heap:
            op = heapq.heappop(self.heap)[1]
            pool = self.ledger.shortage(op)
            if pool != FREE:
                self.waiting[pool].append(op)
            else:
                self._place(op)
        for pool, ops in enumerate(self.waiting):
            if ops:
                name = self.problem.op_name(min(ops))
                raise MemoryDeadlockError(name, self.problem.pools[pool].name)
        return Schedule(self.problem, np.array(self.start, dtype=np.int64))

    def _place(self, op: int) -> None:
        time = self._earliest(op)
        self.start[op] = time
        end = time + self.network.duration[op]
        if self.pinned.get(op) != time:
            self._take(op, time)
        for pool, amount in self.ledger.acquires.get(op, ()):
            self.usage[pool].add(time, amount)
        for pool, amount in self.ledger.releases.get(op, ()):
            self.usage[pool].add(end, -amount)
        self.ledger.start(op)
        for pool in self.ledger.finish(op):
            ops, self.waiting[pool] = self.waiting[pool], []
            for waiter in ops:
                heapq.heappush(self.heap, (self.rank[waiter], waiter))
        self._unlock(op, end)

    def _unlock(self, op: int, end: int) -> None:
        network = self.network
        for position in range(network.pointer[op], network.pointer[op + 1]):
            waiter = network.successor[position]
            self.ready[waiter] = max(self.ready[waiter], end + network.lag[position])
            self.missing[waiter] -= 1
            if not self.missing[waiter]:
                heapq.heappush(self.heap, (self.rank[waiter], waiter))

    def _earliest(self, op: int) -> int:
        time = self.ready[op]
        for pool, amount in self.ledger.net(op):
            time = self.usage[pool].first(time, self.ledger.size[pool] - amount)
        if self.pinned.get(op) == time:
            return time
        length, moved = self.network.duration[op], True
        while moved:
            moved = False
            for resource in self.resources[op]:
                moment = self.gaps[resource].first(time, length)
                moved = moved or moment > time
                time = moment
        return time

    def _take(self, op: int, time: int) -> None:
        for resource in self.resources[op]:
            self.gaps[resource].take(time, self.network.duration[op])

"""Parallel schedule generation: walk through time, start the best op wherever one can start."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.heuristics.ledger import Ledger
from ppsolve.solver.structure.timing import Network, short_cycle

_Heap = list[tuple[int, int]]
_LAST = (2**62, 0)


@dataclass(frozen=True, eq=False)
class Rule:
    """Priorities and preferences of a list scheduler.

    Parameters
    ----------
    rank : int64[n]
        Priority of each op, all different; the lowest goes first.
    filler : bool[n]
        Ops that fill idle time (weight-gradient backwards): they start where no other op can.
    patience : float
        An op that would delay one of better rank with a known arrival waits for it if the idle
        time is at most `patience` x the delay that it would cause; 0: never wait.
    filler_patience : float
        The same for fillers, which yield to every op that is no filler.
    frees_memory : bool
        A filler goes first where an op waits for the memory that it releases.
    reserve, promise : bool
        See `Ledger`.
    first_come : bool
        Ops outside the compute streams (transfers, collectives) are served first come first served
        instead of by rank.
    """

    rank: IntArray
    filler: BoolArray
    patience: float = 0.0
    filler_patience: float = 0.0
    frees_memory: bool = False
    reserve: bool = True
    promise: bool = True
    first_come: bool = False


def generate_parallel(
    problem: Problem, rule: Rule, *edges: Edges, with_memory: bool = True
) -> Schedule:
    """Build a schedule by parallel schedule generation: walk through time, start what can start.

    At every moment, every idle resource starts the waiting op of the lowest rank that can start:
    all its resources are idle, its memory is free, and it ends before the next pinned op. Transfers
    and collectives outside the compute streams follow the same ranks (Kolisch 1996: the parallel
    method).

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    rule : Rule
        Priorities.
    *edges : Edges
        Precedences beside those of the problem, e.g. index order of alike micro-batches.
    with_memory : bool
        Ops wait for memory; otherwise capacities are ignored.

    Returns
    -------
    Schedule
        Starts in ticks; a pin that cannot be kept is overrun, which the checker reports.

    Raises
    ------
    MemoryDeadlockError
        Every op that is left waits for memory that is never released.
    DeadlockError
        The precedences have a cycle.
    """
    return _Walk(problem, rule, edges, with_memory).run()


class _Walk:
    def __init__(
        self, problem: Problem, rule: Rule, edges: Sequence[Edges], with_memory: bool
    ) -> None:
        self.problem, self.rule = problem, rule
        self.network = network = Network(problem, *edges)
        self.rank: list[int] = rule.rank.tolist()
        self.filler: list[bool] = rule.filler.tolist()
        self.by_rank: list[bool] = problem.is_compute.tolist()
        self.waits = bool(rule.patience or rule.filler_patience)
        self.resources = network.occupied()
        # One more queue, never busy, for ops that occupy nothing.
        self.unlimited = problem.num_resources
        self.home = [used[0] if used else self.unlimited for used in self.resources]
        self.ready = list(network.earliest)
        self.missing = list(network.num_predecessors)
        self.start = [FREE] * problem.num_ops
        self.idle = [True] * (problem.num_resources + 1)
        self.queues: list[_Heap] = [[] for _ in self.idle]
        self.fillers: list[_Heap] = [[] for _ in self.idle]
        self.upcoming: list[_Heap] = [[] for _ in self.idle]
        self.waiting_resource: list[list[int]] = [[] for _ in self.idle]
        self.waiting_pool: list[list[int]] = [[] for _ in problem.pools]
        self.ledger = (
            Ledger(problem, reserve=rule.reserve, promise=rule.promise)
            if with_memory and problem.pools
            else None
        )
        self.events: _Heap = []
        self.dirty: set[int] = set()
        self.pins = _pins_by_resource(problem, self.resources)
        self.now = 0

    def run(self) -> Schedule:
        for op, count in enumerate(self.missing):
            if not count:
                self._announce(op)
        self._walk()
        if self.pins and FREE in self.start:
            self._give_up_pins()
        if FREE in self.start:
            self._explain()
        return Schedule(self.problem, np.array(self.start, dtype=np.int64))

    def _walk(self) -> None:
        events = self.events
        while events:
            self.now = events[0][0]
            while events and events[0][0] == self.now:
                self._happen(heapq.heappop(events)[1])
                if self.unlimited in self.dirty and not (events and events[0][0] == self.now):
                    self._dispatch_unlimited()
            dirty, self.dirty = self._in_turn(), set()
            for resource in dirty:
                if self.idle[resource]:
                    self._dispatch(resource)

    def _in_turn(self) -> list[int]:
        """Return the resources to serve now; with patience those of the best rank first."""
        if not self.waits:
            return sorted(self.dirty)
        return sorted(self.dirty, key=lambda r: (self.queues[r][0] if self.queues[r] else _LAST, r))

    def _give_up_pins(self) -> None:
        """Let ops overrun pinned starts that cannot be kept; the checker reports them."""
        self.pins = {}
        for waiting in self.waiting_resource:
            for op in waiting:
                heapq.heappush(self.events, (self.now, op))
            waiting.clear()
        self._walk()

    def _happen(self, code: int) -> None:
        if code >= 0:
            self._queue(code)
            return
        op = -code - 1
        for resource in self.resources[op]:
            self.idle[resource] = True
            self.dirty.add(resource)
            if self.waiting_resource[resource]:
                self._wake(self.waiting_resource, resource)
        if self.ledger is not None:
            for pool in self.ledger.finish(op):
                if self.waiting_pool[pool]:
                    self._wake(self.waiting_pool, pool)

    def _wake(self, waiting: list[list[int]], place: int) -> None:
        ops, waiting[place] = waiting[place], []
        for op in ops:
            self._queue(op)

    def _queue(self, op: int) -> None:
        home = self.home[op]
        fills = self.filler[op] and home != self.unlimited
        by_rank = not self.rule.first_come or self.by_rank[op]
        entry = (self.rank[op] if by_rank else self.ready[op], op)
        heapq.heappush((self.fillers if fills else self.queues)[home], entry)
        self.dirty.add(home)

    def _announce(self, op: int) -> None:
        """Schedule the arrival of an op whose predecessors have all started."""
        heapq.heappush(self.events, (self.ready[op], op))
        if self.waits and not self.filler[op]:
            heapq.heappush(self.upcoming[self.home[op]], (self.ready[op], self.rank[op]))

    def _dispatch_unlimited(self) -> None:
        self.dirty.discard(self.unlimited)
        queue = self.queues[self.unlimited]
        while queue:
            op = heapq.heappop(queue)[1]
            if not self._held_up(op):
                self._start(op)

    def _dispatch(self, resource: int) -> None:
        fillers = self.fillers[resource]
        if fillers and self.rule.frees_memory and self._memory_is_awaited(fillers[0][1]):
            self._start_best(fillers, 0.0)
        if self.idle[resource]:
            self._start_best(self.queues[resource], self.rule.patience)
        if self.idle[resource] and fillers:
            awaited = self._memory_is_awaited(fillers[0][1])
            self._start_best(fillers, 0.0 if awaited else self.rule.filler_patience)

    def _start_best(self, queue: _Heap, patience: float) -> None:
        while queue:
            op = queue[0][1]
            if patience and self._worth_waiting(op, patience):
                return
            heapq.heappop(queue)
            if not self._held_up(op):
                self._start(op)
                return

    def _worth_waiting(self, op: int, patience: float) -> bool:
        """Return true if `op` should wait for a better one that is known to arrive soon."""
        upcoming, now = self.upcoming[self.home[op]], self.now
        while upcoming and upcoming[0][0] <= now:
            heapq.heappop(upcoming)
        if not upcoming:
            return False
        moment, rank = upcoming[0]
        if not self.filler[op] and rank > self.rank[op]:
            return False
        delay = now + self.network.duration[op] - moment
        return delay > 0 and moment - now <= patience * delay

    def _memory_is_awaited(self, op: int) -> bool:
        if self.ledger is None:
            return False
        return any(self.waiting_pool[pool] for pool, _ in self.ledger.releases.get(op, ()))

    def _held_up(self, op: int) -> bool:
        """Queue `op` where it waits and return true if it cannot start now."""
        for resource in self.resources[op]:
            if not self.idle[resource] or self._meets_pin(op, resource):
                self.waiting_resource[resource].append(op)
                return True
        if self.ledger is not None:
            pool = self.ledger.shortage(op)
            if pool != FREE:
                self.waiting_pool[pool].append(op)
                return True
        return False

    def _meets_pin(self, op: int, resource: int) -> bool:
        """Return true if `op` would still run when the next pinned op of `resource` starts."""
        pins = self.pins.get(resource, [])
        while pins and self.start[pins[-1][1]] != FREE:
            pins.pop()
        if not pins or op == pins[-1][1]:
            return False
        return pins[-1][0] < self.now + self.network.duration[op]

    def _start(self, op: int) -> None:
        network, now = self.network, self.now
        self.start[op] = now
        for resource in self.resources[op]:
            self.idle[resource] = False
        if self.ledger is not None:
            self.ledger.start(op)
        end = now + network.duration[op]
        heapq.heappush(self.events, (end, -op - 1))
        for position in range(network.pointer[op], network.pointer[op + 1]):
            waiter = network.successor[position]
            moment = end + network.lag[position]
            if moment > self.ready[waiter]:
                self.ready[waiter] = moment
            self.missing[waiter] -= 1
            if not self.missing[waiter]:
                self._announce(waiter)

    def _explain(self) -> NoReturn:
        problem = self.problem
        for pool, ops in enumerate(self.waiting_pool):
            if ops and self.ledger is not None:
                op = min(ops)
                raise MemoryDeadlockError(problem.op_name(op), problem.pools[pool].name)
        stuck = {op for op, start in enumerate(self.start) if start == FREE}
        raise DeadlockError(problem.op_names(short_cycle(self.network, stuck)))


def _pins_by_resource(
    problem: Problem, resources: Sequence[Sequence[int]]
) -> dict[int, list[tuple[int, int]]]:
    """Return (start, op) of the pinned ops of each resource, the last first."""
    pins: dict[int, list[tuple[int, int]]] = {}
    for op in np.flatnonzero(problem.pinned != FREE).tolist():
        for resource in resources[op]:
            pins.setdefault(resource, []).append((int(problem.pinned[op]), op))
    return {resource: sorted(found, reverse=True) for resource, found in pins.items()}

"""From op orders to earliest starts, by an event simulation on plain lists."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

from ppsolve.models.core.dag import Edges, chain_edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError

_CYCLE_SEARCHES = 64
"""Ops of a cycle from which a shorter one is searched; each search walks the stuck ops once. With
fewer the reported cycle may be longer, never wrong."""


class Network:
    """A problem and extra precedences as plain Python lists, several times faster to walk.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    extra : Edges
        Precedences beside those of the problem.
    """

    def __init__(self, problem: Problem, *extra: Edges) -> None:
        before = np.concatenate([problem.before, *(edges[0] for edges in extra)])
        after = np.concatenate([problem.after, *(edges[1] for edges in extra)])
        lag = np.concatenate([problem.lag, *(edges[2] for edges in extra)])
        order = np.argsort(before, kind="stable")
        self.problem = problem
        self.duration: list[int] = problem.duration.tolist()
        self.pointer: list[int] = np.searchsorted(
            before[order], np.arange(problem.num_ops + 1)
        ).tolist()
        self.successor: list[int] = after[order].tolist()
        self.lag: list[int] = lag[order].tolist()
        self.num_predecessors: list[int] = np.bincount(after, minlength=problem.num_ops).tolist()
        self.earliest: list[int] = np.maximum(problem.release, problem.pinned).tolist()

    def occupied(self) -> list[list[int]]:
        """Return the resources that each op occupies: none for ops of length zero."""
        flat = self.problem.resource_idx.tolist()
        pointer = self.problem.resource_ptr.tolist()
        return [
            flat[pointer[op] : pointer[op + 1]] if length else []
            for op, length in enumerate(self.duration)
        ]

    def successors(self, op: int) -> list[int]:
        """Return the ops that wait for `op`."""
        return self.successor[self.pointer[op] : self.pointer[op + 1]]


def time_orders(
    problem: Problem, orders: Sequence[IntArray], extra: Edges | None = None
) -> Schedule:
    """Start every op as early as the orders allow.

    Every op starts at the largest of: the end of the op before it in an order, the end of each
    predecessor plus its lag, its release time, its pinned start. A resource whose ops are not all
    in one of the orders serves them first come first served, ties by op number. An op that is in
    no order runs as soon as it is ready.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    orders : sequence of int64[...]
        Chains of op numbers; each op runs after the one before it.
    extra : (before, after, lag), each int64[k], optional
        Further precedences, e.g. of a fused backward whose halves are separate ops.

    Returns
    -------
    Schedule
        Starts in ticks. Where an order makes a pinned start impossible, that op starts later than
        its pin; memory is ignored. The checker reports both.

    Raises
    ------
    DeadlockError
        The orders and precedences form a cycle; names the ops of a short one.
    """
    chains = chain_edges(orders)
    network = Network(problem, chains, *([extra] if extra is not None else []))
    served = _first_come_resources(problem, orders, network)
    return Schedule(problem, np.array(_simulate(network, served), dtype=np.int64))


def _first_come_resources(
    problem: Problem, orders: Sequence[IntArray], network: Network
) -> list[list[int]]:
    """Return, per op, its resources whose ops are not all in one order."""
    owner = np.repeat(np.arange(problem.num_ops), np.diff(problem.resource_ptr))
    busy = problem.duration[owner] > 0
    users = np.bincount(problem.resource_idx[busy], minlength=problem.num_resources)
    ordered = np.zeros(problem.num_resources, dtype=np.bool_)
    member = np.zeros(problem.num_ops, dtype=np.bool_)
    for order in orders:
        member[:] = False
        member[order] = True
        inside = np.bincount(
            problem.resource_idx[busy & member[owner]], minlength=problem.num_resources
        )
        ordered |= inside == users
    if ordered.all():
        return [[] for _ in range(problem.num_ops)]
    covered = ordered.tolist()
    return [[r for r in used if not covered[r]] for used in network.occupied()]


def _simulate(network: Network, served: list[list[int]]) -> list[int]:
    """Return the starts of ops that are served in the order in which they become ready."""
    duration, pointer = network.duration, network.pointer
    successor, lag = network.successor, network.lag
    ready, missing = list(network.earliest), list(network.num_predecessors)
    free = [0] * network.problem.num_resources
    reserved = _PinnedIntervals(network.problem, served)
    start = [FREE] * len(duration)
    heap = [(ready[op], op) for op, count in enumerate(missing) if not count]
    heapq.heapify(heap)
    done = 0
    while heap:
        time, op = heapq.heappop(heap)
        if served[op]:
            if not (reserved.exist and reserved.is_kept(op, time)):
                time = max(time, *(free[resource] for resource in served[op]))
                time = reserved.earliest(op, time, duration[op]) if reserved.exist else time
            for resource in served[op]:
                free[resource] = max(free[resource], time + duration[op])
        start[op] = time
        done += 1
        end = time + duration[op]
        for position in range(pointer[op], pointer[op + 1]):
            waiter = successor[position]
            ready[waiter] = max(ready[waiter], end + lag[position])
            missing[waiter] -= 1
            if not missing[waiter]:
                heapq.heappush(heap, (ready[waiter], waiter))
    if done < len(duration):
        stuck = {op for op, time in enumerate(start) if time == FREE}
        raise DeadlockError(network.problem.op_names(short_cycle(network, stuck)))
    return start


class _PinnedIntervals:
    """Intervals that pinned ops keep free on the resources that are served first come."""

    def __init__(self, problem: Problem, served: list[list[int]]) -> None:
        self.served = served
        self.pins = {
            op: int(problem.pinned[op]) for op in np.flatnonzero(problem.pinned != FREE).tolist()
        }
        self.busy: dict[int, list[tuple[int, int]]] = {}
        for op, begin in self.pins.items():
            for resource in served[op]:
                interval = (begin, begin + int(problem.duration[op]))
                self.busy.setdefault(resource, []).append(interval)
        for intervals in self.busy.values():
            intervals.sort()
        self.exist = bool(self.busy)

    def is_kept(self, op: int, time: int) -> bool:
        """Return true if an op that is ready at `time` takes the interval that is kept for it."""
        return self.pins.get(op) == time

    def earliest(self, op: int, time: int, length: int) -> int:
        """Return the first moment >= `time` at which `op` overlaps no pinned interval."""
        moved = True
        while moved:
            moved = False
            for resource in self.served[op]:
                for begin, end in self.busy.get(resource, ()):
                    if begin < time + length and time < end:
                        time, moved = end, True
        return time


def short_cycle(network: Network, stuck: set[int]) -> list[int]:
    """Return a short cycle among the ops in `stuck`, each op waiting for the one before it.

    Parameters
    ----------
    network : Network
        The precedences.
    stuck : set of int
        Ops of which each waits for another one of them, so that they contain a cycle.

    Returns
    -------
    list of int
        Op numbers, the smallest first.
    """
    best = _any_cycle(network, stuck)
    for origin in sorted(best)[:_CYCLE_SEARCHES]:
        cycle = _shortest_through(network, stuck, origin, len(best))
        if cycle is not None:
            best = cycle
    first = best.index(min(best))
    return best[first:] + best[:first]


def _any_cycle(network: Network, stuck: set[int]) -> list[int]:
    blocker = {
        waiter: op for op in sorted(stuck) for waiter in network.successors(op) if waiter in stuck
    }
    place: dict[int, int] = {}
    path: list[int] = []
    op = min(blocker)
    while op not in place:
        place[op] = len(path)
        path.append(op)
        op = blocker[op]
    return path[place[op] :][::-1]


def _shortest_through(
    network: Network, stuck: set[int], origin: int, limit: int
) -> list[int] | None:
    """Return the shortest cycle through `origin`, None unless it is shorter than `limit`."""
    parent = {origin: origin}
    frontier = deque([(origin, 1)])
    while frontier:
        op, length = frontier.popleft()
        if length >= limit:
            return None
        for waiter in network.successors(op):
            if waiter == origin:
                path = [op]
                while path[-1] != origin:
                    path.append(parent[path[-1]])
                return path[::-1]
            if waiter in stuck and waiter not in parent:
                parent[waiter] = op
                frontier.append((waiter, length + 1))
    return None

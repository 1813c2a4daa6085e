"""Queues that serve micro-batches while time goes by, from one event to the next."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.solver.pipeline.event_driven.route import Route, RouteRun, Visit

Waits = Mapping[Visit, Iterable[Visit]]
"""Visits, each with those that have to end before it arrives at its queue."""


class Server(Protocol):
    """Decides what a queue serves next."""

    def arrive(self, visit: Visit) -> None:
        """Note what has arrived."""

    def choose(self) -> Visit | None:
        """Return the visit that is served now, or None to wait."""


class FirstCome:
    """Serves what arrived first."""

    def __init__(self) -> None:
        self._waiting: deque[Visit] = deque()

    def arrive(self, visit: Visit) -> None:
        """Note what has arrived."""
        self._waiting.append(visit)

    def choose(self) -> Visit | None:
        """Return the first to arrive."""
        return self._waiting.popleft() if self._waiting else None


class InTurn:
    """Serves by a plan, and waits for what is next in it.

    Parameters
    ----------
    plan : iterable of keys
        Key of each visit in the order in which they are served.
    key : callable
        Returns the key of a visit; of several with one key the first to arrive is served.
    """

    def __init__(self, plan: Iterable[Hashable], key: Callable[[Visit], Hashable]) -> None:
        self._plan = deque(plan)
        self._key = key
        self._waiting: dict[Hashable, deque[Visit]] = defaultdict(deque)

    def arrive(self, visit: Visit) -> None:
        """Note what has arrived."""
        self._waiting[self._key(visit)].append(visit)

    def choose(self) -> Visit | None:
        """Return the next visit of the plan, or None where it has not arrived."""
        if not self._plan or not self._waiting[self._plan[0]]:
            return None
        return self._waiting[self._plan.popleft()].popleft()


class BackwardsFirst:
    """Serves backwards before forwards, and of each the lowest micro-batch.

    Parameters
    ----------
    is_forward : callable
        Says if a position is on the way there.
    limit : int
        Most forwards that are served ahead of backwards.
    """

    def __init__(self, is_forward: Callable[[int], bool], limit: int) -> None:
        self._is_forward = is_forward
        self._waiting: list[Visit] = []
        self._room = limit

    def arrive(self, visit: Visit) -> None:
        """Note what has arrived."""
        self._waiting.append(visit)
        self._waiting.sort(key=lambda each: (self._is_forward(each.position), each.microbatch))

    def choose(self) -> Visit | None:
        """Return the first that may run, or None where all that waits is too far ahead."""
        if not self._waiting:
            return None
        is_forward = self._is_forward(self._waiting[0].position)
        if is_forward and not self._room:
            return None
        self._room += -1 if is_forward else 1
        return self._waiting.pop(0)


class _End(NamedTuple):
    time: int
    visit: Visit
    arrives: bool

    def __lt__(self, other: Any) -> bool:
        # By time alone: ties leave a heap as it holds them.
        return bool(self.time < other.time)


def serve(route: Route, servers: Sequence[Server], waits: Waits | None = None) -> RouteRun:
    """Run all micro-batches over a route, from one event to the next.

    At every event each idle queue may start one visit, by the number of the queue. What ends at
    one moment is handled together (DynaPipe's simulator, Jiang et al., EuroSys 2024).

    Parameters
    ----------
    route : Route
        All micro-batches are at its first position at time 0, in their order.
    servers : sequence of Server
    waits : Waits, optional

    Returns
    -------
    RouteRun
        Not complete where queues wait for each other.
    """
    return _Events(route, servers, waits or {}).run()


class _Events:
    def __init__(self, route: Route, servers: Sequence[Server], waits: Waits) -> None:
        self.route, self.servers = route, servers
        self.missing = {visit: set(others) for visit, others in waits.items()}
        self.held: set[Visit] = set()
        self.waiting: dict[Visit, list[Visit]] = defaultdict(list)
        for visit, others in waits.items():
            for other in others:
                self.waiting[other].append(visit)
        self.duration = route.duration.tolist()
        self.queue: list[int] = route.queue.tolist()
        self.lag: list[int] = route.lag.tolist()
        self.start = np.full_like(route.duration, FREE)
        self.served: list[list[Visit]] = [[] for _ in servers]
        self.is_busy = [False] * len(servers)
        self.touched: set[int] = set()
        self.ends: list[_End] = []
        self.now = 0

    def run(self) -> RouteRun:
        for microbatch in range(self.route.num_microbatches):
            self._arrive(Visit(0, microbatch))
        while self._start_all():
            for end in self._next_ends():
                self._finish(end)
        return RouteRun(self.route, self.served, self.start)

    def _arrive(self, visit: Visit) -> None:
        if self.missing.get(visit):
            self.held.add(visit)
            return
        queue = self.queue[visit.position]
        self.servers[queue].arrive(visit)
        self.touched.add(queue)

    def _start_all(self) -> bool:
        # A queue to which nothing has happened would decide as it did before.
        for queue in sorted(self.touched):
            visit = None if self.is_busy[queue] else self.servers[queue].choose()
            if visit is not None:
                self.is_busy[queue] = True
                self.served[queue].append(visit)
                self.start[visit] = self.now
                end = self.now + self.duration[visit.position][visit.microbatch]
                heappush(self.ends, _End(end, visit, False))
        self.touched.clear()
        return bool(self.ends)

    def _next_ends(self) -> list[_End]:
        found = [heappop(self.ends)]
        self.now = found[0].time
        while self.ends:
            end = heappop(self.ends)
            if end.time > self.now:
                # Taken out and put back as published: that changes how the heap holds ties.
                heappush(self.ends, end)
                break
            found.append(end)
        return found

    def _finish(self, end: _End) -> None:
        if end.arrives:
            self._arrive(end.visit)
            return
        position, microbatch = end.visit
        queue = self.queue[position]
        self.is_busy[queue] = False
        self.touched.add(queue)
        for visit in self.waiting.get(end.visit, ()):
            self.missing[visit].discard(end.visit)
            if visit in self.held and not self.missing[visit]:
                self.held.remove(visit)
                self._arrive(visit)
        if position + 1 == len(self.queue):
            return
        following = Visit(position + 1, microbatch)
        if self.lag[position]:
            heappush(self.ends, _End(end.time + self.lag[position], following, True))
        else:
            self._arrive(following)

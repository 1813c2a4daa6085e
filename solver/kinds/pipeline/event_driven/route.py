"""Pipelines as routes through queues, and queues that serve micro-batches event by event."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.kinds.pipeline.grammar import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
)
from ppsolve.solver.structure.tables import memory_of


class Visit(NamedTuple):
    """A micro-batch at a position of the route."""

    position: int
    microbatch: int


class RouteShape(NamedTuple):
    """Positions of a route through S stages: F0, its transfer, F1, ..., B1, its transfer, B0.

    Every stage boundary has a transfer each way, between stages of one device too, where it takes
    no time: published simulators send it through the queue as well.
    """

    num_stages: int

    @property
    def num_positions(self) -> int:
        """Number of positions V = 4 S - 2."""
        return 4 * self.num_stages - 2

    @property
    def positions(self) -> IntArray:
        """All positions, int64[V]."""
        return np.arange(self.num_positions)

    def is_forward(self, position: Any) -> Any:
        """Whether a position, or each of several, is a forward or the transfer of one."""
        return position < 2 * self.num_stages - 1

    def is_transfer(self, position: Any) -> Any:
        """Whether a position, or each of several, is a transfer."""
        return (position % 2 == 1) == self.is_forward(position)

    def stage(self, position: Any) -> Any:
        """Return the stage that computes at a position, or sends; or that of each of several."""
        from_end = self.num_positions - 1 - position + self.is_transfer(position)
        return np.minimum(position, from_end) // 2


class RouteMemory(NamedTuple):
    """Memory on a route."""

    # int64[S, m]: what a forward needs while it runs, and leaves until the backward ends.
    peak: IntArray
    stored: IntArray
    room: IntArray  # int64[p]: memory of each device before any op


@dataclass(frozen=True, eq=False)
class Route:
    """What m micro-batches pass, one position after the other, and the queues that serve them."""

    stage_to_device: Sequence[int]  # device of each of the S stages
    duration: (
        IntArray  # int64[V, m]: durations in ticks; see `RouteShape` for the positions
    )
    # int64[V]: queue of each position. Queues are asked in the order of their numbers: all that
    # send first, then the compute queue of each device.
    queue: IntArray
    lag: IntArray  # int64[V]: ticks between the end of a position and the arrival at the next one
    memory: RouteMemory | None = None

    @property
    def shape(self) -> RouteShape:
        """Which position is which."""
        return RouteShape(len(self.stage_to_device))

    @property
    def num_devices(self) -> int:
        """Number of devices p."""
        return max(self.stage_to_device) + 1

    @property
    def num_microbatches(self) -> int:
        """Number of micro-batches m."""
        return int(self.duration.shape[1])

    @property
    def num_queues(self) -> int:
        """Number of queues: those that send, then one per device."""
        return int(self.queue.max()) + 1

    def compute_queue(self, device: int) -> int:
        """Return the queue of a device's compute ops."""
        return self.num_queues - self.num_devices + device

    def permuted(self, permutation: IntArray) -> Route:
        """Return the route whose micro-batch k is `permutation[k]` of this one."""
        memory = self.memory
        if memory is not None:
            peak, stored = memory.peak[:, permutation], memory.stored[:, permutation]
            memory = RouteMemory(peak, stored, memory.room)
        return replace(self, duration=self.duration[:, permutation], memory=memory)


@dataclass(frozen=True, eq=False)
class RouteRun:
    """What became of all micro-batches on a route."""

    route: Route
    served: Sequence[list[Visit]]
    start: IntArray  # int64[V, m]: starts in ticks, -1 for what was never served

    @property
    def is_complete(self) -> bool:
        """Whether every micro-batch has passed every position."""
        return bool((self.start >= 0).all())

    @property
    def makespan(self) -> int:
        """End of the last visit in ticks."""
        return int((self.start + self.route.duration).max())

    def levels(self) -> IntArray:
        """Return the most memory that the ops of each device use at once, int64[p]."""
        memory, shape = self.route.memory, self.route.shape
        peaks = np.zeros(self.route.num_devices, dtype=np.int64)
        if memory is None:
            return peaks
        for device in range(len(peaks)):
            served = self.served[self.route.compute_queue(device)]
            position, microbatch = np.array(served, dtype=np.int64).reshape(-1, 2).T
            index, is_forward = (
                (shape.stage(position), microbatch),
                shape.is_forward(position),
            )
            change = np.where(is_forward, 1, -1) * memory.stored[index]
            needed = np.cumsum(change) - change + memory.peak[index]
            peaks[device] = needed[is_forward].max(initial=0)
        return peaks

    @property
    def fits(self) -> bool:
        """Whether no device needs more memory than it has."""
        memory = self.route.memory
        return memory is None or bool((self.levels() <= memory.room).all())


def route_of(instance: PipelineInstance, problem: Problem) -> Route:
    """Return a pipeline as published simulators see it.

    A split backward is one visit. A transfer occupies a queue of its sender: one per link where
    links are modelled, else one for both directions, whatever it occupies of the receiver.
    Durations are in ticks, memory is in whole units of each pool.
    """
    devices, shape = np.array(instance.stage_to_device), RouteShape(instance.num_stages)
    stage, sends = shape.stage(shape.positions), shape.is_transfer(shape.positions)
    device = devices[stage]
    target = devices[stage + sends * np.where(shape.is_forward(shape.positions), 1, -1)]
    senders = device * len(devices) + (target if instance.p2p.mode == "link" else 0)
    sending, number = np.unique(senders[sends], return_inverse=True)
    queue = len(sending) + device
    queue[sends] = number
    lag = [
        problem.scale.ticks(entry_at(instance.p2p.latency, a, b)) if a != b else 0
        for a, b in zip(device.tolist(), target.tolist(), strict=True)
    ]
    ops = visit_ops(problem, shape)
    length = np.append(problem.duration, 0)[ops].sum(axis=0)
    memory = _memory(problem, ops[0])
    return Route(instance.stage_to_device, length, queue, np.array(lag), memory)


def visit_ops(problem: Problem, shape: RouteShape) -> IntArray:
    """Return the ops of each visit, int64[2, V, m]: the first and the last, of split backwards.

    The second of one op is `FREE`, as are both of a transfer that takes no op.
    """
    forward, sends = (
        shape.is_forward(shape.positions),
        shape.is_transfer(shape.positions),
    )
    is_split = BACKWARD_INPUT in problem.kinds
    there = problem.grid(FORWARD)
    rows = np.full((2, shape.num_positions, there.shape[1]), FREE, dtype=np.int64)
    rows[0, forward & ~sends] = there
    rows[0, forward & sends] = problem.grid("TF")[:-1]
    rows[0, ~forward & sends] = problem.grid("TB")[:0:-1]
    rows[0, ~forward & ~sends] = problem.grid(BACKWARD_INPUT if is_split else BACKWARD)[
        ::-1
    ]
    if is_split:
        rows[1, ~forward & ~sends] = problem.grid(BACKWARD_WEIGHT)[::-1]
    return rows


def _memory(problem: Problem, ops: IntArray) -> RouteMemory | None:
    if not problem.pools:
        return None
    memory = memory_of(problem)
    forwards = ops[: len(ops) // 2 : 2]
    totals = []
    for pointer, amounts in (
        (memory.acquire_pointer, memory.acquire_amount),
        (memory.release_pointer, memory.release_amount),
    ):
        total = np.zeros(problem.num_ops, dtype=np.int64)
        np.add.at(
            total, np.repeat(np.arange(problem.num_ops), np.diff(pointer)), amounts
        )
        totals.append(total[forwards])
    return RouteMemory(totals[0], totals[0] - totals[1], memory.size)


Waits = Mapping[Visit, Iterable[Visit]]
"""Visits, each with those that have to end before it arrives at its queue."""


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

    The plan has the key of each visit in the order in which they are served. Of several visits with
    one key the first to arrive is served.
    """

    def __init__(
        self, plan: Iterable[Hashable], key: Callable[[Visit], Hashable]
    ) -> None:
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

    At most as many forwards as the limit are served ahead of backwards.
    """

    def __init__(self, is_forward: Callable[[int], bool], limit: int) -> None:
        self._is_forward = is_forward
        self._waiting: list[Visit] = []
        self._room = limit

    def arrive(self, visit: Visit) -> None:
        """Note what has arrived."""
        self._waiting.append(visit)
        self._waiting.sort(
            key=lambda queued: (self._is_forward(queued.position), queued.microbatch)
        )

    def choose(self) -> Visit | None:
        """Return the first that may run, or None where all that waits is too far ahead."""
        if not self._waiting:
            return None
        is_forward = self._is_forward(self._waiting[0].position)
        if is_forward and not self._room:
            return None
        self._room += -1 if is_forward else 1
        return self._waiting.pop(0)


Server = FirstCome | InTurn | BackwardsFirst
"""Decides what a queue serves next."""


class _End(NamedTuple):
    time: int
    visit: Visit
    arrives: bool

    def __lt__(self, other: Any) -> bool:
        # By time alone: ties leave a heap as it holds them.
        return bool(self.time < other.time)


def serve(
    route: Route, servers: Sequence[Server], waits: Waits | None = None
) -> RouteRun:
    """Run all micro-batches over a route, from one event to the next.

    All are at its first position at time 0, in their order. At every event each idle queue may
    start one visit, by the number of the queue. What ends at one moment is handled together
    (DynaPipe's simulator, Jiang et al., EuroSys 2024). The run is not complete where queues wait
    for each other.
    """
    return _Events(route, servers, waits or {}).run()


class _Events:
    def __init__(self, route: Route, servers: Sequence[Server], waits: Waits) -> None:
        self.route, self.servers = route, servers
        # What each visit still waits for, its own arrival included.
        self.missing = {visit: {visit, *events} for visit, events in waits.items()}
        self.waiting: dict[Visit, list[Visit]] = defaultdict(list)
        for visit, events in waits.items():
            for event in events:
                self.waiting[event].append(visit)
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
            self._arrive(Visit(0, microbatch), Visit(0, microbatch))
        while self._start_all():
            for end in self._next_ends():
                self._finish(end)
        return RouteRun(self.route, self.served, self.start)

    def _arrive(self, visit: Visit, event: Visit) -> None:
        missing = self.missing.get(visit, set())
        missing.discard(event)
        if missing:
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
        popped = [heappop(self.ends)]
        self.now = popped[0].time
        while self.ends:
            end = heappop(self.ends)
            if end.time > self.now:
                # Taken out and put back as published: that changes how the heap holds ties.
                heappush(self.ends, end)
                break
            popped.append(end)
        return popped

    def _finish(self, end: _End) -> None:
        if end.arrives:
            self._arrive(end.visit, end.visit)
            return
        position, microbatch = end.visit
        queue = self.queue[position]
        self.is_busy[queue] = False
        self.touched.add(queue)
        for visit in self.waiting.get(end.visit, ()):
            self._arrive(visit, end.visit)
        if position + 1 == len(self.queue):
            return
        following = Visit(position + 1, microbatch)
        if self.lag[position]:
            heappush(self.ends, _End(end.time + self.lag[position], following, True))
        else:
            self._arrive(following, following)

"""DynaPipe's cyclic scheduler: rounds with a barrier, and the same orders without it."""

from __future__ import annotations

from collections import deque
from itertools import chain, zip_longest

import numpy as np

from ppsolve.models.core.problem import FREE
from ppsolve.solver.pipeline.event_driven.events import InTurn, serve
from ppsolve.solver.pipeline.event_driven.route import Route, RouteRun, Visit


def cyclic(route: Route, *, keeps_room: bool = False) -> RouteRun:
    """Run all micro-batches in rounds (DynaPipe, Jiang et al., EuroSys 2024, section 5).

    In a round each queue serves the first waiting visit of each of its positions, backwards and
    forwards in turn, a backward first, lower micro-batches first. What becomes ready waits for the
    next round; only transfers of what a round computes go out in that round, from its start, as
    published: where transfers take time, no real schedule does that.

    Parameters
    ----------
    route : Route
    keeps_room : bool
        Put off a forward that would need more memory than its device has; never one of the first
        micro-batch, or of one that the device has begun.

    Returns
    -------
    RouteRun
        Starts and orders; not complete where all that is left is put off.
    """
    return _Rounds(route, keeps_room=keeps_room).run()


def wait_free_cyclic(route: Route) -> RouteRun:
    """Run the orders of `cyclic` without waiting for rounds.

    As published, the rounds know nothing about memory as long as their orders fit by themselves.
    """
    rounds = cyclic(route)
    if not rounds.fits:
        careful = cyclic(route, keeps_room=True)
        rounds = careful if careful.is_complete else rounds
    return serve(route, [InTurn(served, _itself) for served in rounds.served])


def _itself(visit: Visit) -> Visit:
    return visit


class _Rounds:
    def __init__(self, route: Route, *, keeps_room: bool) -> None:
        self.route = route
        self.duration = route.duration.tolist()
        self.queue: list[int] = route.queue.tolist()
        self.forwards: list[list[int]] = [[] for _ in range(route.num_queues)]
        self.backwards: list[list[int]] = [[] for _ in range(route.num_queues)]
        for position, queue in enumerate(self.queue):
            side = self.forwards if route.shape.is_forward(position) else self.backwards
            side[queue].append(position)
        self.waiting: list[deque[int]] = [deque() for _ in self.queue]
        self.waiting[0].extend(range(route.num_microbatches))
        self.ready: list[Visit] = []
        self.start = np.full_like(route.duration, FREE)
        self.served: list[list[Visit]] = [[] for _ in self.forwards]
        self.memory = _Levels(route) if keeps_room else None
        self.now = self.end = 0

    def run(self) -> RouteRun:
        queues = range(len(self.served))
        sending = queues[: -self.route.num_devices]
        moved = True
        while moved:
            moved = self._take_turns(queues)
            # What a round computes is sent in that round.
            moved |= self._take_turns(sending)
            self.now = self.end
        return RouteRun(self.route, self.served, self.start)

    def _take_turns(self, queues: range) -> bool:
        moved = [self._serve(queue) for queue in queues]
        for position, microbatch in self.ready:
            self.waiting[position].append(microbatch)
        self.ready.clear()
        return any(moved)

    def _serve(self, queue: int) -> bool:
        heads = self._first_of_each(queue)
        if not heads:
            return False
        time, count = self.now, len(self.served[queue])
        for visit in heads:
            if self.memory is not None and not self.memory.admits(visit):
                continue
            position, microbatch = visit
            self.waiting[position].popleft()
            self.start[visit] = time
            time += self.duration[position][microbatch]
            self.served[queue].append(visit)
            if position + 1 < len(self.queue):
                self.ready.append(Visit(position + 1, microbatch))
        self.end = max(self.end, time)
        return len(self.served[queue]) > count

    def _first_of_each(self, queue: int) -> list[Visit]:
        # Backwards and forwards in turn.
        backwards, forwards = (
            sorted((self.waiting[v][0], v) for v in side[queue] if self.waiting[v])
            for side in (self.backwards, self.forwards)
        )
        heads = chain.from_iterable(zip_longest(backwards, forwards))
        return [Visit(head[1], head[0]) for head in heads if head is not None]


class _Levels:
    def __init__(self, route: Route) -> None:
        self.route, self.shape = route, route.shape
        self.used = [0] * route.num_devices
        self.latest = [0] * route.num_devices

    def admits(self, visit: Visit) -> bool:
        """Say if a visit has room, and use the memory if it has."""
        position, microbatch = visit
        route, shape = self.route, self.shape
        if route.peak is None or route.stored is None or route.room is None:
            return True
        if shape.is_transfer(position):
            return True
        stage = shape.stage(position)
        device = route.stage_to_device[stage]
        if not shape.is_forward(position):
            self.used[device] -= int(route.stored[stage, microbatch])
            return True
        needed = self.used[device] + int(route.peak[stage, microbatch])
        if microbatch > self.latest[device] and needed > int(route.room[device]):
            return False
        self.latest[device] = max(self.latest[device], microbatch)
        self.used[device] += int(route.stored[stage, microbatch])
        return True

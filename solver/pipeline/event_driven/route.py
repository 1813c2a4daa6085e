"""The way of a micro-batch through the queues of a pipeline, as published simulators see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray


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

    def is_forward(self, position: int) -> bool:
        """Say if a position is a forward or the transfer of one."""
        return position < 2 * self.num_stages - 1

    def is_transfer(self, position: int) -> bool:
        """Say if a position is a transfer."""
        return (position % 2 == 1) == self.is_forward(position)

    def stage(self, position: int) -> int:
        """Return the stage that computes at a position, or sends."""
        if self.is_forward(position):
            return position // 2
        return (self.num_positions - 1 - position + self.is_transfer(position)) // 2


@dataclass(frozen=True, eq=False)
class Route:
    """What m micro-batches pass, one position after the other, and the queues that serve them.

    Parameters
    ----------
    stage_to_device : sequence of int
        Device of each of the S stages.
    duration : int64[V, m]
        Durations in ticks; see `RouteShape` for the positions.
    queue : int64[V]
        Queue of each position. Queues are asked in the order of their numbers: all that send
        first, then the compute queue of each device.
    lag : int64[V]
        Ticks between the end of a position and the arrival at the next one.
    peak, stored : int64[S, m], optional
        Memory that a forward needs while it runs, and that it leaves until the backward ends.
    room : int64[p], optional
        Memory of each device before any op.
    """

    stage_to_device: Sequence[int]
    duration: IntArray
    queue: IntArray
    lag: IntArray
    peak: IntArray | None = None
    stored: IntArray | None = None
    room: IntArray | None = None

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

    @property
    def sending(self) -> list[tuple[int, set[bool]]]:
        """Device of each queue that sends, and whether it serves forwards, backwards or both."""
        shape, found = self.shape, dict[int, tuple[int, set[bool]]]()
        for position, queue in enumerate(self.queue.tolist()):
            if shape.is_transfer(position):
                device = self.stage_to_device[shape.stage(position)]
                _, directions = found.setdefault(queue, (device, set()))
                directions.add(shape.is_forward(position))
        return [served for _, served in sorted(found.items())]

    def compute_queue(self, device: int) -> int:
        """Return the queue of a device's compute ops."""
        return self.num_queues - self.num_devices + device

    def permuted(self, permutation: IntArray) -> Route:
        """Return the route of the same micro-batches in another order."""
        return replace(
            self,
            duration=self.duration[:, permutation],
            peak=None if self.peak is None else self.peak[:, permutation],
            stored=None if self.stored is None else self.stored[:, permutation],
        )


@dataclass(frozen=True, eq=False)
class RouteRun:
    """What became of all micro-batches on a route.

    Parameters
    ----------
    route : Route
        The route.
    served : sequence of list of Visit
        What each queue served, in order.
    start : int64[V, m]
        Starts in ticks, -1 for what was never served.
    """

    route: Route
    served: Sequence[list[Visit]]
    start: IntArray

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
        route, shape = self.route, self.route.shape
        most = np.zeros(route.num_devices, dtype=np.int64)
        if route.peak is None or route.stored is None:
            return most
        for device in range(route.num_devices):
            level = 0
            for position, microbatch in self.served[route.compute_queue(device)]:
                stage = shape.stage(position)
                if shape.is_forward(position):
                    most[device] = max(most[device], level + route.peak[stage, microbatch])
                    level += int(route.stored[stage, microbatch])
                else:
                    level -= int(route.stored[stage, microbatch])
        return most

    @property
    def fits(self) -> bool:
        """Whether no device needs more memory than it has."""
        return self.route.room is None or bool((self.levels() <= self.route.room).all())

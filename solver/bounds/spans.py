"""Bounds on device spans: heads and tails relative to the first and last op of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from ppsolve.models.core.problem import BoolArray, IntArray, Problem
from ppsolve.solver.bounds.one_machine import (
    Reason,
    acquiring,
    largest,
    preemptive_bound,
    return_bound,
)
from ppsolve.solver.bounds.params import ENDLESS, BoundsEffort
from ppsolve.solver.clock import Clock
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import PoolOrder

T = TypeVar("T")

NEVER = -(2**62)
"""Head or tail of an op that no path connects with the device."""


def busy_ops(problem: Problem) -> list[IntArray]:
    """Return, per resource, its ops of positive length."""
    return [ops[problem.duration[ops] > 0] for ops in problem.ops_by_resource]


def in_time(items: Iterable[T], clock: Clock) -> Iterator[T]:
    """Yield the first item, and the others until a clock is over."""
    for number, item in enumerate(items):
        if number and clock.is_over:
            return
        yield item


class Around(NamedTuple):
    """Longest paths from the first start, and to the last end, on one device.

    `head`, `tail`: int64[n], ticks; `NEVER` where no op of the device precedes, or
        follows.
    """

    head: IntArray
    tail: IntArray

    def between(self, ops: IntArray) -> IntArray:
        """Return the ops of `ops` that lie between two ops of the device."""
        inside: BoolArray = self.head[ops] > NEVER // 2
        inside &= self.tail[ops] > NEVER // 2
        return ops[inside]


class Spans:
    """Heads and tails relative to the first start and the last end on each span resource.

    `problem`: n ops, D span resources.
    `graph`: precedences that hold in some optimal schedule.
    `effort`: once its clock is over, the devices that are left give no bound; the first
        one always does.
    `resources`: the span resources: devices 0..D-1.
    """

    def __init__(
        self, problem: Problem, graph: Dag, effort: BoundsEffort = ENDLESS
    ) -> None:
        self.problem = problem
        self.busy = busy_ops(problem)
        self.resources: list[int] = problem.span_resources.tolist()
        self._graph = graph
        self._clock, self._params = effort
        self._kept: dict[int, Around] = {}

    def around(self, device: int) -> Around:
        """Return the heads and tails relative to a device."""
        if device in self._kept:
            return self._kept[device]
        ops = self.problem.ops_by_resource[self.resources[device]]
        tail = np.full(self.problem.num_ops, NEVER, dtype=np.int64)
        tail[ops] = self.problem.duration[ops]
        distances = Around(self._heads(ops), self._graph.tails(tail))
        if (
            len(self._kept) + 1
        ) * 2 * self.problem.num_ops <= self._params.kept_numbers:
            self._kept[device] = distances
        return distances

    def _heads(self, ops: IntArray) -> IntArray:
        head = np.full(self.problem.num_ops, NEVER, dtype=np.int64)
        head[ops] = 0
        return self._graph.heads(head)

    def _devices(self) -> Iterator[int]:
        return in_time(range(len(self.resources)), self._clock)

    def work(self) -> Reason:
        """Return the largest load of a device."""
        duration = self.problem.duration
        return largest(
            Reason(int(duration[self.busy[r]].sum()), r) for r in self.resources
        )

    def longest_path(self) -> Reason:
        """Return the longest chain from an op of a device to an op of the same device."""
        return largest(self._longest_path(device) for device in self._devices())

    def _longest_path(self, device: int) -> Reason:
        ops = self.problem.ops_by_resource[self.resources[device]]
        heads = self._kept[device].head if device in self._kept else self._heads(ops)
        value = int((heads[ops] + self.problem.duration[ops]).max(initial=0))
        return Reason(value, self.resources[device])

    def own(self) -> Reason:
        """Return the largest preemptive one-machine bound of a device."""
        return largest(
            Reason(bound, self.resources[d]) for bound, d in self._own_bounds
        )

    def returns(self, pools: Sequence[PoolOrder]) -> Reason:
        """Return the largest first-return bound of a device."""
        near = self._pools_near(pools)
        return largest(
            Reason(self._returns(d, near[d], self.around(d).head, 1), self.resources[d])
            for d in self._devices()
            if near[d]
        )

    def strongest(
        self, pools: Sequence[PoolOrder], strengthen: Callable[[IntArray], IntArray]
    ) -> Reason:
        """Return the largest bound of a device with raised heads.

        Only the few devices with the largest plain bounds are tried; of equals the outer ones,
        where round trips are longest and shortest. `strengthen` maps heads relative to a device to
        valid heads that are no lower; the pools are for the first-return bound.
        """
        best, near = Reason(0), self._pools_near(pools)
        last, params = len(self.resources) - 1, self._params
        tried = sorted(
            self._own_bounds, key=lambda pair: (-pair[0], min(pair[1], last - pair[1]))
        )
        for bound, device in in_time(tried[: params.raised_devices], self._clock):
            heads = strengthen(self.around(device).head)
            last_end = self._end(self.around(device), self._ops(device), heads)
            returns = self._returns(device, near[device], heads, params.return_moments)
            reason = Reason(max(bound, last_end, returns), self.resources[device])
            best = largest((best, reason))
        return best

    @cached_property
    def _own_bounds(self) -> list[tuple[int, int]]:
        return [(self._end(self.around(d), self._ops(d)), d) for d in self._devices()]

    def _ops(self, device: int) -> IntArray:
        return self.busy[self.resources[device]]

    def _pools_near(self, pools: Sequence[PoolOrder]) -> list[list[PoolOrder]]:
        """Return, per device, the pools from which its ops acquire."""
        using = [(order, set(acquiring(self.problem, order))) for order in pools]
        return [[order for order, used in using if r in used] for r in self.resources]

    def _returns(
        self, device: int, pools: Sequence[PoolOrder], heads: IntArray, moments: int
    ) -> int:
        around = self.around(device)
        ops, tails = (
            around.between(self._ops(device)),
            around.tail - self.problem.duration,
        )
        bounds = (
            return_bound(self.problem, o, ops, heads, tails, moments) for o in pools
        )
        return max(bounds, default=0)

    def through_others(self) -> Reason:
        """Bound each device's span by the work of any resource between its ops."""
        clock = self._clock.share(self._params.others_share)
        devices = in_time(range(len(self.resources)), clock)
        return largest(
            self.end_after(device, self.around(device).head) for device in devices
        )

    def together(self) -> Reason:
        """Return a lower bound on the device span by the spans of all devices together.

        Let no device begin before b, a time for each; G(b) bounds when each ends. Begins that all
        move by c move all ends by c. Take a schedule of span T with begins b*, and c, the least of
        b* - b: the device where it is least begins at b + c and ends no sooner than G(b) + c, so
        that T is at least the least of G(b) - b. In the same way k T is at least the least of
        x - b, where x comes from b by k rounds of G. Each round takes the ends of the one before
        for begins: where devices wait for each other in a circle, all grow by the mean of the
        longest circle after some rounds. A round that the clock cuts is not counted.
        """
        devices = [d for d, r in enumerate(self.resources) if len(self.busy[r])]
        begins: list[IntArray] = [np.zeros(len(self.resources), dtype=np.int64)]
        best = 0
        while devices and len(begins) <= self._params.joint_rounds:
            latest = self._ends(devices, begins[-1])
            if latest is None:
                break
            for rounds, earlier in enumerate(reversed(begins), 1):
                best = max(best, -(int((earlier - latest)[devices].max()) // rounds))
            if int((latest - begins[-1]).max()) <= best:
                break
            begins.append(latest)
        return Reason(best)

    def _ends(self, devices: list[int], begins: IntArray) -> IntArray | None:
        """Return bounds on the ends of devices, None if there is no time to find all of them."""
        heads, latest = self.heads_from(begins), begins.copy()
        for device in devices:
            if self._clock.is_over:
                return None
            latest[device] = self.end_after(device, heads).value
        return latest

    def heads_from(self, begins: IntArray) -> IntArray:
        """Return heads of all ops where no device begins before a time, int64[D] in ticks.

        int64[n]; about `NEVER` where no op of a device precedes.
        """
        head = np.full(self.problem.num_ops, NEVER, dtype=np.int64)
        for resource, begin in zip(self.resources, begins.tolist(), strict=True):
            head[self.problem.ops_by_resource[resource]] = begin
        return self._graph.heads(head)

    def end_after(self, device: int, heads: IntArray) -> Reason:
        """Return a lower bound on the last end of a device, by the work of any resource before it.

        Heads are about `NEVER` for ops that have none, and 0 or later on devices.
        """
        around = self.around(device)._replace(head=heads)
        return largest(
            Reason(self._end(around, ops), resource)
            for resource, ops in enumerate(self.busy)
            if len(ops)
        )

    def _end(self, around: Around, ops: IntArray, heads: IntArray | None = None) -> int:
        ops = around.between(ops)
        lengths = self.problem.duration[ops]
        starts = around.head[ops] if heads is None else heads[ops]
        return preemptive_bound(starts, lengths, around.tail[ops] - lengths)

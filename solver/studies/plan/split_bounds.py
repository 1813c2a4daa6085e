"""Lower bounds on the makespan of a configuration under every split of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.studies.plan.request import Link
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.split_problem import Boundaries

NEVER = 2**62
"""Bound of a stage that does not fit its device."""


@dataclass(frozen=True)
class SplitEffort:
    """How far splits are listed."""

    # Splits that may be better: all are scheduled, more are not listed.
    most: int = 500
    # Beginnings of splits that are looked at: a second at most.
    most_nodes: int = 40_000
    # Entries of tables of bounds; larger ones are not made, and the bound is that of all work.
    most_entries: int = 4_000_000


class SplitBounds:
    """What a stage takes that has the layers from a to b, whatever the other stages have.

    Rows and columns of tables count a and b from the first place that they can have at the stage:
    one layer each for the stages before and after. All figures are at most those of
    `PipelineArrays` under any split, in ticks.

    Parameters
    ----------
    builder : PipelineBuilder
        Of the request.
    configuration : Configuration
        The configuration; its own split is ignored.
    effort : SplitEffort
        Limits of tables and lists.
    """

    def __init__(
        self,
        builder: PipelineBuilder,
        configuration: Configuration,
        effort: SplitEffort = SplitEffort(),
    ) -> None:
        self._builder, self._configuration, self._effort = builder, configuration, effort
        self._layers = builder.layers(configuration.microbatch_size)
        self._devices = builder.stage_to_device(configuration)
        self._count = configuration.microbatches
        self._is_fused = configuration.backward == "fused"
        self._rows = len(self._layers.work) - len(self._devices) + 1
        back = "backward" if self._is_fused else "backward_input"
        self._forward, self._backward = self._prefix("forward"), self._prefix(back)
        self._weight = self._prefix("backward_weight")
        if self._is_fused:
            self._weight = np.zeros_like(self._forward)
        self._work = self._forward + self._backward + self._weight
        self._lags = np.cumsum([0, *self._least_lags()])

    def _prefix(self, name: str) -> IntArray:
        return np.array(self._layers.prefix(name))

    def _least_lags(self) -> Iterator[int]:
        # Of the smallest tensor that may pass from each stage to the next.
        c, layers = self._configuration, self._layers
        shape = (c.pipeline_depth, c.replicas)
        for stage in range(len(self._devices) - 1):
            a, b = self._devices[stage : stage + 2]
            smallest = min(layers.output[stage : stage + self._rows])
            link = self._builder.p2p(a, b, shape, c.rank_order)
            yield 0 if a == b else layers.ticks(link.transfer(smallest))

    @property
    def bound(self) -> int:
        """Lower bound on the makespan of every split: stage by stage, and of all work."""
        by_stage = int(self._reach[0][0]) if self._tables else 0
        return max(by_stage, self._work_bound())

    def _work_bound(self) -> int:
        # Devices share the work, some device has several of the longest layers, and none works
        # before its first stage may begin.
        spare = [self._head(stage, stage) + self._home(stage, stage) for stage in self._firsts]
        shared = -(-(self._count * int(self._work[-1]) + sum(spare)) // len(spare))
        slowest = self._builder.slowest_device(self._configuration.microbatch_size, self._devices)
        return max(shared, self._count * slowest + min(spare))

    @cached_property
    def _firsts(self) -> list[int]:
        return [self._devices.index(d) for d in range(self._configuration.pipeline_depth)]

    def _head(self, stage: int, first: int) -> int:
        return int(self._forward[first] + self._lags[stage])

    def _home(self, stage: int, first: int) -> int:
        # What follows the last op of the device of which this is the first stage.
        after = self._least_after[self._devices[stage]]
        if not self._is_fused or stage == 0:
            return after
        return max(after, int(self._backward[first] + self._lags[stage]))

    @cached_property
    def _least_after(self) -> list[int]:
        # Of any stage of each device, with a single layer.
        first = np.arange(self._rows)
        least = [
            int(self._after(stage, stage + first, stage + first + 1).min())
            for stage in range(len(self._devices))
        ]
        depth = self._configuration.pipeline_depth
        return [
            min(time for time, own in zip(least, self._devices, strict=True) if own == device)
            for device in range(depth)
        ]

    @cached_property
    def _tables(self) -> list[IntArray]:
        stages, rows = len(self._devices), self._rows
        if rows < 1 or stages * rows * rows > self._effort.most_entries:
            return []
        return [self._table(stage) for stage in range(stages)]

    @cached_property
    def _reach(self) -> list[IntArray]:
        """For each stage and its first layer the least bound of it and all that follow it."""
        last = np.full(self._rows, NEVER)
        last[-1] = 0
        found = [last]
        for table in reversed(self._tables):
            found.append(np.maximum(table, found[-1]).min(axis=1))
        return found[::-1]

    def _table(self, stage: int) -> IntArray:
        first = np.arange(stage, stage + self._rows)[:, None]
        end = first.T + 1
        after = self._after(stage, first, end)
        head = self._forward[first] + self._lags[stage]
        # The last micro-batch goes home through all earlier stages.
        home = self._backward[first] + self._lags[stage] if stage else np.zeros_like(first)
        tail = np.maximum(after, home) if self._is_fused else after
        work = self._count * (self._work[end] - self._work[first])
        later = self._count * (self._weight[end] - self._weight[first])
        found = np.maximum(head + work + tail, head + work - later + np.maximum(after, home))
        found = np.maximum(found, self._by_memory(stage, first, end, head + tail))
        found[end <= first] = NEVER
        return np.asarray(found)

    def _by_memory(self, stage: int, first: IntArray, end: IntArray, fixed: IntArray) -> IntArray:
        # A micro-batch is held while it passes all later stages and comes back; only so many fit.
        capacity = self._builder.capacity
        if capacity is None:
            return fixed
        state, activation = self._prefix("state"), self._prefix("activation")
        room = self._layers.grains(capacity) - (state[end] - state[first])
        held = activation[end] - activation[first]
        share = Fraction(self._builder.request.model.released_by_backward_weight)
        is_whole = self._is_fused or share.denominator == 1
        # Parts of a grain are given back late.
        fitting = (room if is_whole else room + held) // np.maximum(held, 1)
        both = self._forward + self._backward
        trip = both[-1] - both[first] + 2 * (self._lags[-1] - self._lags[stage])
        if is_whole and share:
            trip = trip + self._weight[end] - self._weight[first]
        takes = -(-self._count * trip // np.maximum(fitting, 1))
        found = np.where(held > 0, fixed + takes, fixed)
        found[held > room] = NEVER
        return found

    def _after(self, stage: int, first: IntArray, end: IntArray) -> IntArray:
        # What all-reduce and optimizer add to the last backward, at least.
        c, layers = self._configuration, self._layers
        optimizer = self._prefix("optimizer")
        found = optimizer[end] - optimizer[first]
        if c.replicas == 1:
            return found
        shape = (c.pipeline_depth, c.replicas)
        link = self._builder.ring(self._devices[stage], shape, c.rank_order)
        sent = self._builder.sent(c.microbatch_size)
        ring = partial(_ring_ticks, link=link, members=c.replicas, tick=float(layers.tick))
        if self._builder.request.cluster.gradient_buckets == "stage":
            return found + ring(np.maximum(sent[end] - sent[first], 0.0))
        # The last bucket is sent after the backward; all of them after that of the last layer.
        each = ring(np.diff(sent))
        sums = np.concatenate([[0], np.cumsum(each)])
        grads = self._backward if self._is_fused else self._weight
        rest = sums[end] - sums[first] - (grads[end - 1] - grads[first])
        least: IntArray = found + np.maximum(each[first], rest)
        return least

    def below(self, limit: int) -> list[Boundaries] | None:
        """Return all splits that are not proved to take at least `limit` ticks.

        Parameters
        ----------
        limit : int
            A makespan.

        Returns
        -------
        list of tuple of int, or None
            Boundaries, a list that may be empty; None if there are too many.
        """
        if not self._tables:
            return None
        found: list[Boundaries] = []
        nothing = (0,) * self._configuration.pipeline_depth
        stack: list[tuple[Boundaries, tuple[int, ...]]] = [((0,), nothing)]
        nodes = 0
        while stack:
            split, loads = stack.pop()
            stage = len(split) - 1
            if stage == len(self._devices):
                found.append(split)
                continue
            row = self._tables[stage][split[-1] - stage]
            ends = np.flatnonzero(np.maximum(row, self._reach[stage + 1]) < limit)
            nodes += len(ends) + 1
            if nodes > self._effort.most_nodes or len(found) > self._effort.most:
                return None
            for end in ends.tolist():
                longer = (*split, end + stage + 1)
                grown = self._grown(longer, loads)
                if self._is_open(longer, grown, limit):
                    stack.append((longer, grown))
        return found if len(found) <= self._effort.most else None

    def _grown(self, split: Boundaries, loads: tuple[int, ...]) -> tuple[int, ...]:
        device = self._devices[len(split) - 2]
        work = int(self._work[split[-1]] - self._work[split[-2]])
        return (*loads[:device], loads[device] + work, *loads[device + 1 :])

    def _is_open(self, split: Boundaries, loads: tuple[int, ...], limit: int) -> bool:
        # Whether the devices that have further stages can take the layers that are left.
        placed = len(split) - 1
        room = 0
        for device, (stage, load) in enumerate(zip(self._firsts, loads, strict=True)):
            first = split[stage] if stage < placed else stage - placed + split[-1]
            spare = limit - 1 - self._head(stage, first) - self._home(stage, first)
            left = spare // self._count - load
            if left < 0:
                return False
            room += left if device in self._devices[placed:] else 0
        return room >= int(self._work[-1] - self._work[split[-1]])


MOST_TICKS = 2.0**58
"""Longer all-reduces count as this long: sums of a few of them stay whole numbers."""


def _ring_ticks(amounts: np.ndarray, *, link: Link, members: int, tick: float) -> IntArray:
    # `Link.ring_allreduce` in doubles, rounded down.
    transfer = float(link.latency) + amounts / members / float(link.bandwidth)
    time = 2 * (members - 1) * transfer / tick
    found: IntArray = np.floor(np.minimum(time * (1 - 1e-9) - 1, MOST_TICKS)).astype(np.int64)
    return np.asarray(np.where(amounts > 0, np.maximum(found, 0), 0))

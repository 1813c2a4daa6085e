"""A bound on all splits of a chain of devices in any order, stage by stage from the last one.

Before the first backward of a device only forwards run there, of as many micro-batches as fit its
memory; behind its last forward only backwards, of the others that fit. A micro-batch is away for as
long as later stages take, so that a device idles at both ends, the longer the fewer fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.entries import entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import Layers
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.layers.linear import SplitTimes, rounding_of

MOST_LOADS = 4_000
"""Numbers of layers by type that stages may have; where there are more, none is tried."""

UNREACHED = 2**55
"""Ticks behind stages that cannot have so many layers."""


def is_chain(instance: PipelineInstance) -> bool:
    """Whether micro-batches pass devices that have one stage and a limit of memory each."""
    inside = (instance.overlap, instance.collectives, instance.slices)
    return (
        instance.placement == "linear"
        and instance.num_devices > 1
        and instance.is_one_plain_step
        and instance.replicas is None
        and instance.memory is not None
        and all(part is None for part in inside)
    )


@dataclass(frozen=True)
class StageLoads:
    """What one stage may have of the layers, each load an entry of every array."""

    layers: IntArray  # number of layers
    forward: IntArray  # ticks of an op
    backward: IntArray
    weight: IntArray
    in_flight: IntArray  # micro-batches that fit the memory at once
    waiting: IntArray  # those of which only the weight gradient is left
    beside: IntArray  # the same, beside one that is in flight
    rounds: IntArray  # how often all that fit have to leave before the last forward

    def within(self, limit: int, microbatches: int) -> StageLoads:
        """Return the loads that keep a device busy for so many ticks at the most."""
        busy = microbatches * (self.forward + self.backward + self.weight)
        return StageLoads(*(column[busy <= limit] for column in astuple(self)))


class LayerChain:
    """Devices with one stage each that share layers out.

    `instance`: a pipeline for which `is_chain` holds.
    `times`: ticks of its layers.
    """

    def __init__(
        self, instance: PipelineInstance, scale: TimeScale, times: SplitTimes
    ) -> None:
        layers, stages = instance.layers, instance.num_stages
        assert layers is not None
        self.instance, self._layers, self._times = instance, layers, times
        self._rounding = rounding_of(instance, scale)
        counts = np.zeros((len(layers.names), stages), dtype=np.int64)
        self._fixed = times.ticks(counts)
        counts[0] = 1
        self._layer = times.ticks(counts) - self._fixed
        latency = instance.p2p.latency
        # Ticks of the transfers between each stage and the one before, there and back.
        self._links = np.array(
            [[0, 0]]
            + [
                [
                    scale.ticks(entry_at(latency, *way))
                    for way in ((s - 1, s), (s, s - 1))
                ]
                for s in range(1, stages)
            ]
        )

    def bound(self, least: int, clock: Clock) -> int:
        """Return a bound on the makespan in ticks, `least` where nothing better is known."""
        low = least + self._rounding
        high = 2 * low
        stages = self._loads(high)
        while stages is not None and not self._may_end(high, stages):
            low, high = high + 1, 2 * high
            if high > UNREACHED:
                return least
            if clock.is_over:
                break
            stages = self._loads(high)
        else:
            low = low if stages is None else self._bisected(low, high, stages, clock)
        return max(least, low - self._rounding)

    def _bisected(
        self, low: int, high: int, stages: list[StageLoads], clock: Clock
    ) -> int:
        """Return the least makespan that is not refuted, between a bound and what is none."""
        while low < high and not clock.is_over:
            middle = (low + high) // 2
            if self._may_end(middle, stages):
                high = middle
            else:
                low = middle + 1
        return low

    def _may_end(self, limit: int, stages: list[StageLoads]) -> bool:
        """Whether some split is not shown to take longer than so many ticks.

        Of each number of layers on later stages only the shortest way there and back counts: a
        longer one makes earlier stages idle no less.
        """
        count, microbatches = self._layers.body.count, self.instance.num_microbatches
        away = np.full(count + 1, UNREACHED)
        away[0] = 0
        for stage in reversed(range(len(stages))):
            loads = stages[stage].within(limit, microbatches)
            later = np.flatnonzero(away < UNREACHED)[:, None]
            before = count - later - loads.layers
            fits = before == 0 if stage == 0 else before >= 0
            fits &= self._least_time(stage, loads, away[later], before) <= limit
            through = away[later] + loads.forward + loads.backward
            away = np.full(count + 1, UNREACHED)
            ends = (later + loads.layers)[fits]
            np.minimum.at(away, ends, (through + self._links[stage].sum())[fits])
        return bool(away[count] < UNREACHED)

    def _least_time(
        self, stage: int, loads: StageLoads, away: IntArray, before: IntArray
    ) -> IntArray:
        """Return ticks that no schedule is below with these loads of a stage.

        `away`: ticks between the forward of a micro-batch and its backward.
        `before`: layers on the stages before.
        """
        count = self.instance.num_microbatches
        forward, backward, weight = loads.forward, loads.backward, loads.weight
        others = loads.in_flight - 1
        idle = np.maximum(0, away - others * forward)
        at_end = away - others * backward - loads.beside * weight
        idle += np.where(loads.in_flight < count, np.maximum(0, at_end), 0)
        ready, after = (self._passed(stage, row, before) for row in (0, 1))
        work = count * (forward + backward)
        done = np.maximum(0, count - loads.waiting) * weight
        last = (count - 1 - loads.rounds * loads.in_flight) * forward
        trip = forward + away + backward
        turns = loads.rounds * (trip + weight) + last + trip
        return ready + np.maximum(
            np.maximum(work + done + idle, turns) + after,
            work + count * weight + idle,
        )

    def _passed(self, stage: int, row: int, before: IntArray) -> IntArray:
        """Return the least ticks that a micro-batch needs on the stages before, one way."""
        if stage == 0:
            return np.zeros_like(before)
        fixed = int(
            self._fixed[row, :stage].sum() + self._links[: stage + 1, row].sum()
        )
        return fixed + before * int(self._layer[row, :stage].min())

    def _loads(self, limit: int) -> list[StageLoads] | None:
        """Return the loads of each stage within a limit, None where there are too many."""
        layer = self.instance.num_microbatches * self._layer.sum(axis=0).min()
        most = min(self._layers.body.count, int(limit // max(1, layer)))
        rows: list[IntArray] = []
        for front in fronts(self._layers, most):
            rows += front
            if len(rows) > MOST_LOADS:
                return None
        counts = np.array(rows)
        return [self._loads_of(stage, counts) for stage in range(len(self._links))]

    def _loads_of(self, stage: int, counts: IntArray) -> StageLoads:
        instance, layers = self.instance, self._layers
        memory, microbatches = instance.memory, instance.num_microbatches
        assert memory is not None
        ticks = np.array(
            [
                self._times.ticks(_on_all(row, len(self._links)))[:, stage]
                for row in counts
            ]
        ).T
        ends = {0: layers.first, len(self._links) - 1: layers.last}
        end, static = ends.get(stage), Fraction(layers.body.static)
        held = _weighed(counts, layers.held)
        room = entry_at(memory.capacity, stage) - static * counts.sum(axis=1)
        if end is not None:
            held, room = held + Fraction(end.activation), room - Fraction(end.static)
        share = entry_at(memory.released_by_backward_weight, stage)
        if memory.left_to_weight is not None:
            share = Fraction(0)
        has_weights = len(ticks) > 2
        waits = held * share if has_weights else held
        in_flight = _fitting(room, held, microbatches)
        is_given_back_at_once = not has_weights or share == 1
        columns = (
            counts.sum(axis=1),
            *ticks[:2],
            ticks[2] if has_weights else np.zeros_like(ticks[0]),
            in_flight,
            _fitting(room, waits, microbatches),
            _fitting(room - held, waits, microbatches),
            (microbatches - 1) // np.maximum(in_flight, 1) * is_given_back_at_once,
        )
        return StageLoads(*(column[in_flight > 0] for column in columns))


def fronts(layers: Layers, most: int) -> Iterator[list[IntArray]]:
    """Yield for 0 to `most` layers which numbers of each type may be best, int64[types] each.

    Any other one takes as long and holds as much as one of them.
    """
    units = np.eye(len(layers.names), dtype=np.int64)
    front = [np.zeros(len(layers.names), dtype=np.int64)]
    yield front
    for _ in range(most):
        rows = np.unique([row + unit for row in front for unit in units], axis=0)
        extra, held = (_weighed(rows, row) for row in (layers.extra, layers.held))
        front, lowest = [], None
        for index in np.lexsort((held, extra)).tolist():
            if lowest is None or held[index] < lowest:
                front.append(rows[index])
                lowest = held[index]
        yield front


def _on_all(row: IntArray, stages: int) -> IntArray:
    return np.repeat(row[:, None], stages, axis=1)


def _weighed(counts: IntArray, amounts: Any) -> Any:
    """Return the sum of what layers of each type take, as fractions, one for each row."""
    return counts.astype(object) @ np.array(
        [Fraction(a) for a in amounts], dtype=object
    )


def _fitting(room: Any, amounts: Any, most: int) -> IntArray:
    """Return the number of times that amounts fit into rooms, up to a most; 0 without room."""
    return np.array(
        [
            0 if space < 0 else most if not amount else min(most, space // amount)
            for space, amount in zip(room, amounts, strict=True)
        ],
        dtype=np.int64,
    )

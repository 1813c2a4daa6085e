"""Pipelines of one shape as arrays of stages: what bounds and list schedules of all of them read.

Columns are pipelines, so that a bound of thousands takes a few calls. The planner has one column.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.problem import BoolArray, IntArray, Problem
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.kernels.in_flight import starts_in_flight

Array = NDArray[Any]

UNLIMITED = 2**62
"""Room of a device whose memory has no limit."""


class StageArrays(NamedTuple):
    """Times in ticks and memory in grains of N pipelines of S stages on D devices."""

    device: IntArray  # int64[S]
    microbatches: int
    duration: IntArray  # int64[rows, S, N]: forward, backward, weight gradient if split
    lag: IntArray  # int64[1 + 2 * S, N]: none, to the next stage, to the one before
    after: IntArray  # int64[S, N]: what follows the last backward of each stage
    held: IntArray  # int64[S, N]: activation, up to its backward
    late: IntArray  # int64[S, N]: what the weight gradient gives back of it
    room: IntArray  # int64[D, N]

    def columns(self, selection: slice) -> StageArrays:
        """Return some of the pipelines."""
        return StageArrays(*self[:2], *(table[..., selection] for table in self[2:]))

    @property
    def links(self) -> tuple[IntArray, IntArray]:
        """Lags from each stage to the next and to the one before, int64[S, N] each."""
        stages = len(self.device)
        return self.lag[1 : 1 + stages], self.lag[1 + stages :]

    def with_whole_rooms(self, is_exact: BoolArray | bool) -> StageArrays:
        """Round rooms down to what activations can fill, in pipelines whose amounts are exact."""
        unit = np.maximum(self._by_device(np.gcd, np.gcd(self.held, self.late)), 1)
        is_rounded = is_exact & (self.room < UNLIMITED)
        return self._replace(room=self.room - is_rounded * (self.room % unit))

    def lacks_room(self) -> BoolArray:
        """Mark pipelines of which a device has no room for one micro-batch: nothing fits."""
        needed = self._by_device(np.add, self.held)
        return np.asarray((needed > self.room).any(axis=0))

    def _by_device(self, ufunc: np.ufunc, table: Array) -> Array:
        """Reduce a table of stages to one of devices."""
        order = np.argsort(self.device, kind="stable")
        first = np.searchsorted(self.device[order], np.arange(len(self.room)))
        return ufunc.reduceat(table[order], first)

    def starts(
        self, column: int, limits: IntArray | None = None, patience: int = 1
    ) -> IntArray | None:
        """Return the starts of the ops of one pipeline, backwards first, None where none fits.

        `limits`: int64[S], most micro-batches in flight; as many as the memory holds by default.
        `patience`: how long weight gradients wait, as of `InFlightPipeline`.
        """
        count, late = self.microbatches, self.late[:, column]
        duration = self.duration[:, :, column]
        arrival = duration.copy()
        arrival[:2] += [lag[:, column] for lag in self.links]
        freed = np.zeros_like(duration)
        freed[1] = self.held[:, column] - late
        freed[-1] += late
        if limits is None:
            limits = np.full(len(self.device), count)
        times = duration.ravel(), arrival.ravel()
        memory = self.held[:, column], freed.ravel(), self.room[:, column]
        return starts_in_flight(self.device, times, memory, limits, count, patience)

    def bounds(self) -> dict[str, IntArray]:
        """Return lower bounds on the makespans by name, int64[N] each.

        As micro-batches are alike, heads and tails are those of one of them. Some optimal schedule
        starts every op at a sum of times, so the optimum is whole in ticks.

        ``work``: weight gradients may all run while the last micro-batch goes home.
        ``memory-time``: a stage holds a micro-batch while that passes all later stages and comes
        back; amounts times times are at most the room times the time of the device.
        ``first-return``: until the first backward ends, no more forwards run than the room holds.
        """
        count, (there, back) = self.microbatches, self.links
        forward, returning = self.duration[:2]
        is_split = len(self.duration) == 3
        weight = self.duration[2] if is_split else np.zeros_like(forward)
        head = np.zeros_like(forward)
        head[1:] = np.cumsum(forward + there, axis=0)[:-1]
        home = weight + self.after
        for stage in range(1, len(home)):
            path = back[stage] + returning[stage - 1] + home[stage - 1]
            home[stage] = np.maximum(home[stage], path)
        tail = np.minimum(home, self.after) if is_split else home
        trip = forward + returning
        load, passing = count * (trip + weight), count * trip
        trip[:-1] += there[:-1] + back[1:]
        trip = np.cumsum(trip[::-1], axis=0)[::-1]
        held, late = self.held.astype(np.float64), self.late.astype(np.float64)
        area = held * trip + late * weight
        first, last, back_home = (
            self._by_device(np.minimum, table) for table in (head, tail, home)
        )
        inside = self._by_device(np.add, load) + last
        through = self._by_device(np.add, passing) + back_home
        shared = _shared(count * self._by_device(np.add, area), self.room)
        alone = np.flatnonzero(np.bincount(self.device)[self.device] == 1)
        returns = (head + trip + tail)[alone] + self._beyond_first_trip(alone)
        return {
            "critical-path": head[-1] + forward[-1] + returning[-1] + home[-1],
            "work": (first + np.maximum(inside, through)).max(axis=0),
            "memory-time": (first + shared + last).max(axis=0),
            "first-return": returns.max(axis=0, initial=0),
        }

    def _beyond_first_trip(self, stages: IntArray) -> IntArray:
        """Work of stages alone on their devices, but for forwards before the first backward ends.

        None of it where all forwards fit.
        """
        held, rows = self.held[stages], self.duration[:, stages]
        room, count = self.room[self.device[stages]], self.microbatches
        fit = np.where(held > 0, np.clip(room // np.maximum(held, 1), 0, count), count)
        left = count * rows.sum(axis=0) - fit * rows[0] - rows[1]
        return np.where(fit < count, left, 0)


def _shared(area: IntArray, room: IntArray) -> IntArray:
    # Sums, products and the quotient of doubles are off by less than 1e-12 of themselves.
    is_limited = (room > 0) & (room < UNLIMITED)
    time = area / np.where(is_limited, room, np.inf) * (1 - 1e-12)
    return np.asarray(np.ceil(time).astype(np.int64))


# Callers take pipelines of one shape one after the other.
@lru_cache(maxsize=8)
def skeleton(
    devices: tuple[int, ...],
    microbatches: int,
    *,
    is_split: bool,
    tails: tuple[str, ...] = (),
) -> tuple[PipelineInstance, Problem]:
    """Return the pipeline of a shape whose times are all 1, and its problem.

    `devices`: device of each stage.
    `tails`: fields of ops behind the last backwards.
    """
    backwards = ("backward_input", "backward_weight") if is_split else ("backward",)
    document = {
        "num_devices": max(devices) + 1,
        "num_microbatches": microbatches,
        "placement": {"stage_to_device": devices},
        "times": dict.fromkeys(("forward", *backwards), 1),
        "p2p": {"latency": 1},
        **dict.fromkeys(tails, 1),
    }
    instance = PipelineInstance.parse(document)
    return instance, lower_pipeline(instance)


def lag_rows(problem: Problem, before: IntArray, after: IntArray) -> IntArray:
    """Return the row of `StageArrays.lag` of what passes from ops to others of a pipeline."""
    stage, device = problem.stage, problem.device
    row = 1 + stage[before] + (stage.max() + 1) * (stage[after] < stage[before])
    return np.where(device[before] == device[after], 0, row)

"""Ops and memory of a choice of modes: recomputing (R), copies to the host (O) and back (L)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, pairwise
from typing import Any

import numpy as np

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.problem import FREE, IntArray, Pool
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.entries import decimals, entry_at
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import (
    OFFLOAD_KIND,
    RECOMPUTE_KIND,
    RELOAD_KIND,
)
from ppsolve.models.kinds.pipeline.modes import RELAXED, MemoryModes, modes_of
from ppsolve.models.kinds.pipeline.pools import UsesOfMemory


def mode_times(modes: MemoryModes) -> Iterator[Fraction]:
    """Yield all times of modes, in the unit of the instance."""
    entries = [modes.mode(number).time for number in modes.recomputing]
    if modes.offload is not None:
        entries += [modes.offload.out, modes.offload.back]
    for entry in entries:
        yield from map(Fraction, decimals(entry))


def recomputing_times(
    instance: PipelineInstance, choice: IntArray
) -> list[list[Fraction]]:
    """Return the time by which each backward recomputes before, [S][m].

    `choice`: int64[S, m], number of the mode of each stage and micro-batch, or
        `RELAXED`; int64[0] without modes.
    """
    modes = modes_of(instance)
    none = [
        [Fraction(0)] * instance.num_microbatches for _ in range(instance.num_stages)
    ]
    if modes is None or modes.is_anytime:
        return none
    return [
        [
            entry_at(modes.mode(number).time, stage)
            if number in modes.recomputing
            else Fraction(0)
            for number in row
        ]
        for stage, row in enumerate(choice.tolist())
    ]


@dataclass
class ModeOps:
    """Adds the ops of a choice to a problem.

    `choice`: int64[S, m], number of the mode of each stage and micro-batch, or
        `RELAXED`.
    `devices`: int64[S, m], device of each stage and micro-batch.
    """

    modes: MemoryModes
    choice: IntArray
    builder: ProblemBuilder
    scale: TimeScale
    devices: IntArray
    grids: dict[str, IntArray] = field(default_factory=dict)

    def extra(self, stage: int) -> IntArray:
        """Return the ticks by which modes lengthen the backwards of a stage, int64[m]."""
        ticks = np.zeros(self.choice.shape[1], dtype=np.int64)
        if not self.modes.is_anytime:
            for number in self.modes.recomputing:
                time = self.scale.ticks(entry_at(self.modes.mode(number).time, stage))
                ticks[self.choice[stage] == number] = time
        return ticks

    def _all_rest(self, stage: int) -> Any:
        # m fractions; of open modes the most.
        modes, row = self.modes, self.choice[stage]
        none = np.zeros(len(row), dtype=object)
        rests = np.stack(
            [none + modes.rest(stage, each) for each in range(len(modes.names))]
        )
        return np.where(
            row == RELAXED, rests.max(axis=0), rests[row, np.arange(len(row))]
        )

    def add(self, compute: list[int], forward: IntArray, returning: IntArray) -> None:
        """Add the ops and their precedences.

        `compute`: compute stream of each device.
        `forward`, `returning`: int64[S, m], last op of each forward, first op of the
            backward that needs the activation.
        """
        streams = np.asarray(compute)
        if self.modes.is_anytime:
            times = [self.modes.mode(number).time for number in self.modes.recomputing]
            self._add_grid(RECOMPUTE_KIND, times, streams)
        if (offload := self.modes.offload) is not None:
            out, back = self._channels()
            self._add_grid(OFFLOAD_KIND, [offload.out], out)
            self._add_grid(RELOAD_KIND, [offload.back], back)
        for kinds in ((RECOMPUTE_KIND,), (OFFLOAD_KIND, RELOAD_KIND)):
            grids = [self.grids[kind] for kind in kinds if kind in self.grids]
            if grids:
                here = grids[0] != FREE
                for before, after in pairwise([forward, *grids, returning]):
                    self.builder.add_precedences(before[here], after[here])

    def _add_grid(self, kind: str, entries: list[Any], streams: IntArray) -> None:
        # Nothing is copied where nothing leaves; a mode that recomputes takes its time always.
        is_copy = kind != RECOMPUTE_KIND
        numbers = (
            [len(self.modes.names) - 1] if is_copy else list(self.modes.recomputing)
        )
        here, ticks = (
            np.zeros(self.choice.shape, dtype=np.bool_),
            np.zeros_like(self.choice),
        )
        for stage, row in enumerate(self.choice):
            for number, entry in zip(numbers, entries, strict=True):
                has_op = row == number
                if is_copy:
                    has_op = has_op & (self.modes.rest(stage, number) != 0)
                here[stage] |= has_op
                ticks[stage, has_op] = self.scale.ticks(entry_at(entry, stage))
        if not here.any():
            return
        stages, microbatches = np.nonzero(here)
        device = self.devices[here]
        labels = OpLabels(stages, device, microbatches)
        self.grids[kind] = np.full(self.choice.shape, FREE, dtype=np.int64)
        self.grids[kind][here] = self.builder.add_ops(
            kind, ticks[here], streams[device][:, None], labels
        )

    def _channels(self) -> tuple[IntArray, IntArray]:
        """Return the channels out and back of each device."""
        keys = [
            self.modes.channels(device)
            for device in range(self.modes.instance.num_devices)
        ]
        distinct = dict.fromkeys(chain.from_iterable(keys))
        number = {key: self.builder.add_resource(key) for key in distinct}
        table = np.array(
            [[number[key] for key in pair] for pair in keys], dtype=np.int64
        )
        return table[:, 0], table[:, 1]

    def use_memory(
        self, uses: UsesOfMemory, forward: IntArray, returning: IntArray
    ) -> None:
        """Add what modes give back and take again.

        `uses`: uses of the memory of devices.
        `forward`, `returning`: int64[S, m], last op of each forward, first op of the
            backward that needs the activation.
        """
        rests = [self._all_rest(stage) for stage in range(self.choice.shape[0])]
        dropping = self._with(forward, OFFLOAD_KIND)
        taking = self._with(self._with(returning, RECOMPUTE_KIND), RELOAD_KIND)
        # What is dropped is a part of what the forward took: it is told before the backwards.
        uses.releases.insert(0, (dropping, rests))
        uses.acquires.append((taking, rests))

    def _with(self, ops: IntArray, kind: str) -> IntArray:
        grid = self.grids.get(kind)
        return ops if grid is None else np.where(grid == FREE, ops, grid)

    def host_pools(self) -> Iterator[Pool]:
        """Yield the host memory of each device, where it has a limit."""
        offload, out = self.modes.offload, self.grids.get(OFFLOAD_KIND)
        if offload is None or offload.host_capacity is None or out is None:
            return
        back = self.grids[RELOAD_KIND]
        for device in range(self.modes.instance.num_devices):
            here = (out != FREE) & (self.devices == device)
            amounts = [
                entry_at(offload.amount, stage)
                for stage in np.nonzero(here)[0].tolist()
            ]
            taken, given = (
                list(zip(ops[here].tolist(), amounts, strict=True))
                for ops in (out, back)
            )
            capacity = entry_at(offload.host_capacity, device)
            key = self.modes.host(device)
            yield Pool.of(
                key, capacity, taken, given, unit=self.modes.instance.unit_of_memory
            )

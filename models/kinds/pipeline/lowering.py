"""Lowering of a pipeline instance to the integer problem, a few numpy calls per op kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.collective_ops import (
    CollectiveOps,
    OpGrid,
    collective_times,
    ticks_of,
)
from ppsolve.models.kinds.pipeline.collectives import DATA_PARALLEL
from ppsolve.models.kinds.pipeline.entries import (
    decimals,
    entry_at,
    row_of,
    rows_per_microbatch,
)
from ppsolve.models.kinds.pipeline.filling import filler_times, with_fillers
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import (
    ALL_GATHER_KIND,
    ALLREDUCE_KIND,
    OPTIMIZER_KIND,
    REDUCE_SCATTER_KIND,
)
from ppsolve.models.kinds.pipeline.layers import (
    CHOSEN_LAYERS,
    split_by,
    times_of_layers,
)
from ppsolve.models.kinds.pipeline.mode_ops import ModeOps, mode_times
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES, MemoryModes, modes_of
from ppsolve.models.kinds.pipeline.overlap_blocks import block_times
from ppsolve.models.kinds.pipeline.pools import (
    UsesOfMemory,
    exact,
    left_of,
    pools_of,
    stored_of,
)
from ppsolve.models.kinds.pipeline.slices import (
    add_slice_order,
    units_of,
    with_key_values,
)
from ppsolve.models.kinds.pipeline.transfers import hops, transfer_times


class Addition(NamedTuple):
    """What a part of a pipeline adds to its lowered problem: jobs beside its ops."""

    # of pipelines: there, or true, where they have any
    attribute: str
    # takes the pipeline in numbers; yields times that must become whole ticks
    times: Callable[[PipelineInstance], Iterator[Fraction]]
    # takes the pipeline and its problem; returns the problem with more, or the same
    add: Callable[[PipelineInstance, Problem], Problem]


ADDITIONS = (Addition("has_fillers_or_steps", filler_times, with_fillers),)
"""The parts that add something, in the order in which they do."""

MAX_LOWERED = 1_000_000
"""Most ops of all micro-batches that are scheduled, at 2.5 KB each; instances may describe more."""


def _additions_to(instance: PipelineInstance) -> list[Addition]:
    return [added for added in ADDITIONS if getattr(instance, added.attribute)]


def lower_pipeline(
    instance: PipelineInstance,
    *,
    exact: bool = False,
    extra_times: Iterable[Fraction] = (),
    scale: TimeScale | None = None,
    choice: IntArray | None = None,
) -> Problem:
    """Lower `instance` to ops, resources, precedences and pools.

    Ops are numbered kind by kind, stage by stage, micro-batch by micro-batch; collectives inside
    ops and all-gathers follow where there are any, then transfers, then all-reduces (or
    reduce-scatters) of gradients and optimizer ops. An op with collectives inside is several ops,
    see `ppsolve.models.kinds.pipeline.collective_ops`; it acquires its activation at the start of
    its first piece and releases at the end of its last piece.

    Times, and `extra_times` in the unit of the instance, become whole ticks. They are rounded up to
    the tick of `scale`, if there is one. Otherwise those without a common tick within the limit are
    refused if `exact`, else rounded up.

    `choice` has the number of the mode of each stage and micro-batch, int64[S, m], or `RELAXED`
    where it is open; by default what the instance gives.

    An `InputError` says that times are refused, that there are more than `MAX_LOWERED` ops, that
    the pipeline has replicas, or that modes are open and no choice is given.
    """
    if instance.replicas is not None:
        raise InputError(
            "expected a pipeline without replicas",
            field="replicas",
            code=ErrorCode.CONFLICT,
        )
    refuse_huge(instance)
    instance = instance.in_numbers()
    scale = scale or scale_of(instance, exact=exact, extra_times=extra_times)
    modes = modes_of(instance) if instance.has_modes else None
    if modes is not None and choice is None:
        choice = modes.given
        if choice is None:
            raise InputError(
                "expected a list with the mode of each stage, where modes cannot be searched",
                source=instance.name,
                field=f"memory.{'offload' if modes.recompute is None else 'recompute'}.decide",
                code=ErrorCode.UNSUPPORTED,
            )
    problem = _PipelineLowering(instance, scale, modes, choice).run()
    for addition in _additions_to(instance):
        problem = addition.add(instance, problem)
    return problem


def lower_split(
    instance: PipelineInstance,
    counts: IntArray,
    *,
    exact: bool = False,
    scale: TimeScale | None = None,
) -> Problem:
    """Lower a split of a pipeline's layers: those of each type and stage, int64[types, S].

    The split is the `choice` of the problem; all splits have one tick.
    """
    problem = lower_pipeline(
        split_by(instance, counts),
        exact=exact,
        extra_times=times_of_layers(instance),
        scale=scale,
    )
    return replace(problem, choices={**problem.choices, CHOSEN_LAYERS: counts})


def scale_of(
    instance: PipelineInstance, *, exact: bool, extra_times: Iterable[Fraction] = ()
) -> TimeScale:
    """Return the tick of all times of a pipeline without costs over lengths."""
    times = chain(_all_times(instance), extra_times)
    return TimeScale.fit(times, instance.time_unit, exact=exact)


def _all_times(instance: PipelineInstance) -> Iterator[Fraction]:
    entries = [
        *instance.times.by_kind().values(),
        instance.allreduce,
        instance.optimizer,
    ]
    for entry in entries:
        yield from map(Fraction, set(decimals(entry)))
    yield from collective_times(instance)
    modes = modes_of(instance) if instance.has_modes else None
    again = [] if modes is None else list(mode_times(modes))
    yield from again
    if instance.overlap is not None:
        yield from block_times(instance, again)
    for addition in _additions_to(instance):
        yield from addition.times(instance)
    over = hops(instance)
    yield from (
        entry_at(instance.p2p.latency, source, target) for _, source, target in over
    )
    yield from transfer_times(instance, over)


def refuse_huge(instance: PipelineInstance) -> None:
    """Refuse a pipeline with more than `MAX_LOWERED` ops, as an `InputError`."""
    ops = instance.num_stages * instance.num_units * len(instance.times.by_kind())
    ops *= instance.steps
    if ops > MAX_LOWERED:
        raise InputError(
            f"expected at most {MAX_LOWERED} ops (stages x micro-batches x kinds of op), which "
            f"need about 2.7 GB of memory, got {ops}",
            source=instance.name,
            field="num_microbatches",
            code=ErrorCode.RANGE,
        )


class _PipelineLowering:
    def __init__(
        self,
        instance: PipelineInstance,
        scale: TimeScale,
        modes: MemoryModes | None,
        choice: IntArray | None,
    ) -> None:
        self.instance = instance
        self.pipes = instance.stage_devices_of_pipes()
        self.boundary_pairs = hops(instance)
        self.scale = scale
        self.builder = ProblemBuilder(instance.name, scale, instance.objective)
        self.builder.slices = instance.num_slices
        self.devices = instance.device_grid
        self.collectives = CollectiveOps(instance, self.builder, scale, self.devices)
        self.grid: dict[str, OpGrid] = {}
        self.transfers: list[tuple[IntArray, IntArray]] = []
        self.modes: ModeOps | None = None
        if modes is not None and choice is not None:
            # All slices of a micro-batch have its mode.
            of_units = np.repeat(choice, instance.num_slices, axis=1)
            self.modes = ModeOps(modes, of_units, self.builder, scale, self.devices)
            self.builder.choices[CHOSEN_MODES] = choice

    def _lag(self, source: int, target: int) -> int:
        return self.scale.ticks(entry_at(self.instance.p2p.latency, source, target))

    def _transfer_ticks(self, boundary: int, source: int, target: int) -> IntArray:
        bandwidth = entry_at(self.instance.p2p.bandwidth, source, target)
        row = ticks_of(
            row_of(self.instance.p2p.bytes, boundary), self.scale, 1 / bandwidth
        )
        return np.broadcast_to(row, self.instance.num_units)

    def run(self) -> Problem:
        instance, builder = self.instance, self.builder
        self.compute = [
            builder.add_resource(DeviceName("device", (d,)))
            for d in range(instance.num_devices)
        ]
        self._add_compute_ops()
        self._add_local_precedences()
        if self.modes is not None:
            self.modes.add(self.compute, self.grid["F"].last, self.returning.first)
        self._add_all_gathers()
        if instance.p2p.has_ops:
            self._add_transfers()
        else:
            self._add_delays()
        self._add_stage_tail_ops()
        builder.span_resources = self.compute
        builder.pools = self._pools()
        builder.families = self._families()
        problem = builder.build()
        if not instance.is_by_rank:
            return problem
        points = np.flatnonzero(problem.is_compute & (problem.duration == 0))
        return replace(problem, points=points)

    def _add_compute_ops(self) -> None:
        pieces: dict[str, list[IntArray]] = {}
        for kind, entry in self.instance.times.by_kind().items():
            if kind in self.collectives.inside:
                pieces[kind] = self.collectives.add_pieces(
                    kind, entry, self.compute, self._recomputing(kind)
                )
            else:
                self.grid[kind] = OpGrid.whole(self._add_grid(kind, entry))
        for kind, stage_pieces in pieces.items():
            self.grid[kind] = self.collectives.with_collectives(kind, stage_pieces)

    def _add_grid(self, kind: str, entry: Any) -> IntArray:
        num_stages, num_microbatches = self.devices.shape
        rows = [
            self._ticks_row(entry, stage, num_microbatches)
            for stage in range(num_stages)
        ]
        return self.builder.add_ops(
            kind,
            np.stack(rows) + self._recomputing(kind),
            np.asarray(self.compute)[self.devices][..., None],
            OpLabels(
                np.arange(num_stages)[:, None],
                self.devices,
                np.arange(num_microbatches),
            ),
        )

    def _recomputing(self, kind: str) -> IntArray:
        """Return the ticks by which modes lengthen the ops of a kind, int64[S, m]."""
        if self.modes is None or kind not in {"I", "B"}:
            return np.zeros(self.devices.shape, dtype=np.int64)
        return np.stack([self.modes.extra(stage) for stage in range(len(self.devices))])

    def _ticks_row(self, entry: Any, stage: int, num_microbatches: int) -> IntArray:
        return np.broadcast_to(
            ticks_of(row_of(entry, stage), self.scale), num_microbatches
        )

    @property
    def returning(self) -> OpGrid:
        # Ops that carry the gradient to the previous stage.
        return self.grid["I"] if self.instance.times.is_split else self.grid["B"]

    @property
    def finishing(self) -> OpGrid:
        # Ops after which a stage's weight gradient is complete.
        return self.grid["W"] if self.instance.times.is_split else self.grid["B"]

    def _add_local_precedences(self) -> None:
        self.builder.add_precedences(self.grid["F"].done, self.returning.first)
        if self.instance.times.is_split:
            self.builder.add_precedences(self.grid["I"].last, self.grid["W"].first)
        if self.instance.slices is not None:
            add_slice_order(self.builder, self.instance, self.grid["F"], self.returning)

    def _add_all_gathers(self) -> None:
        entry = self.collectives.given.all_gather
        if entry is None:
            return
        comm = self.collectives.streams(DATA_PARALLEL)
        for stage in range(self.instance.num_stages):
            holders = self._holders(stage)
            streams = [comm[device] for device in holders]
            gather = self._single_op(ALL_GATHER_KIND, entry, stage, streams, holders)
            self.builder.add_precedences(gather, self.grid["F"].first[stage])

    def _holders(self, stage: int) -> list[int]:
        return sorted({devices[stage] for devices in self.pipes})

    def _add_delays(self) -> None:
        table = np.zeros((self.instance.num_devices,) * 2, dtype=np.int64)
        for _, source, target in self.boundary_pairs:
            table[source, target] = self._lag(source, target)
        up, down = self.devices[:-1], self.devices[1:]
        forward, returning = self.grid["F"], self.returning
        self.builder.add_precedences(
            forward.done[:-1], forward.first[1:], table[up, down]
        )
        self.builder.add_precedences(
            returning.done[1:], returning.first[:-1], table[down, up]
        )

    def _add_transfers(self) -> None:
        resources = self._transfer_resources()
        for boundary in range(self.instance.num_stages - 1):
            for kind, grid, sender, receiver in (
                ("TF", self.grid["F"], boundary, boundary + 1),
                ("TB", self.returning, boundary + 1, boundary),
            ):
                for pipe, devices in enumerate(self.pipes):
                    columns = np.flatnonzero(self.instance.pipe_of_microbatch == pipe)
                    source, target = devices[sender], devices[receiver]
                    before, after = (
                        grid.done[sender, columns],
                        grid.first[receiver, columns],
                    )
                    if source == target:
                        self.builder.add_precedences(before, after)
                        continue
                    transfer = self.builder.add_ops(
                        kind,
                        self._transfer_ticks(boundary, source, target)[columns],
                        np.array(resources[source, target]),
                        OpLabels(sender, source, columns),
                    )
                    self.transfers.append((columns, transfer))
                    self.builder.add_precedences(before, transfer)
                    self.builder.add_precedences(
                        transfer, after, self._lag(source, target)
                    )

    def _transfer_resources(self) -> dict[tuple[int, int], list[int]]:
        pairs = sorted({(source, target) for _, source, target in self.boundary_pairs})
        if self.instance.p2p.mode == "link":
            return {
                pair: [self.builder.add_resource(DeviceName("link", pair, "->"))]
                for pair in pairs
            }
        if self.instance.p2p.mode == "send_queue":
            senders = sorted({source for source, _ in pairs})
            queues = {
                d: self.builder.add_resource(DeviceName("send", (d,))) for d in senders
            }
            return {(a, b): [queues[a]] for a, b in pairs}
        used = sorted({device for pair in pairs for device in pair})
        nics = {d: self.builder.add_resource(DeviceName("nic", (d,))) for d in used}
        return {(a, b): [nics[a], nics[b]] for a, b in pairs}

    def _add_stage_tail_ops(self) -> None:
        instance = self.instance
        kind, entry = ALLREDUCE_KIND, instance.allreduce
        if self.collectives.given.reduce_scatter is not None:
            kind, entry = REDUCE_SCATTER_KIND, self.collectives.given.reduce_scatter
        comm = [] if entry is None else self.collectives.streams(DATA_PARALLEL)
        for stage in range(instance.num_stages):
            holders = self._holders(stage)
            gradients = self.finishing.last[stage]
            if entry is not None:
                reduce = self._single_op(
                    kind, entry, stage, [comm[d] for d in holders], holders
                )
                self.builder.add_precedences(gradients, reduce)
                gradients = np.array([reduce])
            if instance.optimizer is not None:
                for device in holders:
                    step = self._single_op(
                        OPTIMIZER_KIND,
                        instance.optimizer,
                        stage,
                        [self.compute[device]],
                        [device],
                    )
                    if len(holders) > 1:
                        self.builder.explicit_names[step] = (
                            f"{OPTIMIZER_KIND}{stage}@{device}"
                        )
                    is_here = self.devices[stage] == device
                    before = gradients if entry is not None else gradients[is_here]
                    self.builder.add_precedences(before, step)
                    if (
                        instance.is_by_rank
                    ):  # the optimizer runs when the rank has run its rows
                        rows = self.finishing.last[self.devices == device]
                        self.builder.add_precedences(rows, step)

    def _single_op(
        self,
        kind: str,
        entry: Any,
        stage: int,
        resources: list[int],
        devices: list[int],
    ) -> int:
        ticks = np.array([self.scale.ticks(entry_at(entry, stage))], dtype=np.int64)
        labels = OpLabels(stage, devices[0])
        ops = self.builder.add_ops(kind, ticks, np.array(resources), labels)
        return int(ops[0])

    def _families(self) -> list[IntArray]:
        entries = self.instance.amounts().values()
        rows = [row for entry in entries for row in rows_per_microbatch(entry)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        pipes, count = (
            self.instance.pipe_of_microbatch.tolist(),
            self.instance.num_slices,
        )
        for unit in range(0, len(pipes), count):
            key: tuple[Any, ...] = (
                pipes[unit],
                *(row[unit : unit + count] for row in rows),
            )
            if self.modes is not None:
                key += tuple(self.modes.choice[:, unit].tolist())
            groups.setdefault(key, []).append(unit // count)
        return [
            self._vectors(np.array(members))
            for members in groups.values()
            if len(members) > 1
        ]

    def _vectors(self, members: IntArray) -> IntArray:
        count = len(members)
        if self.instance.slices is not None:
            members = units_of(members, self.instance.num_slices)
        columns = [
            grid.rows[:, members].T.reshape(count, -1) for grid in self.grid.values()
        ]
        for microbatches, transfer in self.transfers:
            shared = np.isin(microbatches, members)
            if shared.any():
                columns.append(transfer[shared].reshape(count, -1))
        for grid in () if self.modes is None else self.modes.grids.values():
            rows = grid[:, members]
            columns.append(rows[rows[:, 0] != FREE].T.reshape(count, -1))
        return np.concatenate(columns, axis=1)

    def _pools(self) -> list[Pool]:
        # A forward acquires its peak at the start of its first piece, and gives back what it does
        # not store at the end of its last piece. Backwards give back at the end of their last one.
        instance, memory, grid = self.instance, self.instance.memory, self.grid
        if memory is None:
            return []
        stages = range(instance.num_stages)
        stored = [stored_of(memory, stage) for stage in stages]
        acquired, released = stored, [(self.returning.last, stored)]
        grown: list[Any] = []
        if instance.times.is_split:
            late = [left_of(memory, stage) for stage in stages]
            change = [
                row - late_row for row, late_row in zip(stored, late, strict=True)
            ]
            early = [np.maximum(row, 0) for row in change]
            # An input gradient that keeps more than the activation takes the rest first.
            grown = [np.maximum(-row, 0) for row in change]
            released = [(grid["I"].last, early), (grid["W"].last, late)]
        if memory.forward_peak is not None:
            acquired = [exact(row_of(memory.forward_peak, stage)) for stage in stages]
            excess = [high - low for high, low in zip(acquired, stored, strict=True)]
            released.insert(0, (grid["F"].last, excess))
        if memory.key_value is not None:
            acquired, last = with_key_values(instance, memory.key_value, acquired)
            released.append((self.returning.last, last))
        uses = UsesOfMemory([(grid["F"].first, acquired)], released)
        if grown:
            uses.acquires.append((grid["I"].first, grown))
        if self.modes is None:
            return pools_of(instance, memory, uses, self.devices)
        self.modes.use_memory(uses, grid["F"].last, self.returning.first)
        return [
            *pools_of(instance, memory, uses, self.devices),
            *self.modes.host_pools(),
        ]

"""Lowering of a pipeline instance to the integer problem, a few numpy calls per op kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray, OpLabels, Problem, ProblemBuilder
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.collectives import (
    ALL_GATHER_KIND,
    DATA_PARALLEL,
    REDUCE_SCATTER_KIND,
    CommStreams,
    OpGrid,
    SegmentedOps,
    collective_times,
)
from ppsolve.models.pipeline.entries import decimals, entry_at, row_of, rows_per_microbatch
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.memory import pools_of
from ppsolve.models.pipeline.replicas import Members, replica_of
from ppsolve.models.pipeline.transfers import hops

ALLREDUCE_KIND = "AR"
OPTIMIZER_KIND = "OPT"

MAX_LOWERED = 1_000_000
"""Ops of all micro-batches that are scheduled: in a whole run without search 196,608 (64 devices,
split) were measured to take 540 MB and 499,200 to take 1.3 GB, 2.5 KB for each further op, so that
this many stay below 2.7 GB. An instance may describe more."""


def lower_pipeline(
    instance: PipelineInstance, *, exact: bool = False, extra_times: Iterable[Fraction] = ()
) -> Problem:
    """Lower `instance` to ops, resources, precedences and pools.

    Ops are numbered kind by kind, stage by stage, micro-batch by micro-batch; all-reduces inside
    ops and all-gathers follow where there are any, then transfers, then all-reduces (or
    reduce-scatters) of gradients and optimizer ops. An op with collectives inside is several ops,
    see `ppsolve.models.pipeline.collectives`; it acquires its activation at the start of its first
    piece and releases at the end of its last piece.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.
    extra_times : iterable of Fraction
        Further times, in the unit of the instance, that must become whole ticks too.

    Returns
    -------
    Problem
        n ops: per stage and micro-batch one F and one B, or F, I and W, and the others above.

    Raises
    ------
    InputError
        The times have no common tick within the limit and `exact` is true, or there are more
        than `MAX_LOWERED` ops, or the pipeline has replicas.
    """
    if instance.replicas is not None:
        raise InputError("expected a pipeline without replicas", field="replicas")
    _refuse_huge(instance)
    return _PipelineLowering(instance.in_numbers(), exact=exact, extra_times=extra_times).run()


def lower_replicas(
    instance: PipelineInstance,
    members: Members,
    *,
    exact: bool = False,
    scale: TimeScale | None = None,
) -> list[Problem]:
    """Lower each replica of a pipeline to a problem of its own, all with the same tick.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline with replicas.
    members : tuple of tuple of int
        Micro-batches of each replica.
    exact : bool
        As for `lower_pipeline`.
    scale : TimeScale, optional
        Tick of all problems, up to whose multiples times are rounded; one of which all times are
        multiples by default.

    Returns
    -------
    list of Problem
        One for each replica, its micro-batches numbered from 0 in the order of its members;
        `ppsolve.models.pipeline.joint` puts them together.

    Raises
    ------
    InputError
        As for `lower_pipeline`.
    """
    _refuse_huge(instance)
    instance = instance.in_numbers()
    scale = scale or _PipelineLowering(instance, exact=exact).scale
    parts = [replica_of(instance, those) for those in members]
    return [_PipelineLowering(part, scale=scale).run() for part in parts]


def _refuse_huge(instance: PipelineInstance) -> None:
    ops = instance.num_stages * instance.num_microbatches * len(instance.times.by_kind())
    if ops > MAX_LOWERED:
        raise InputError(
            f"expected at most {MAX_LOWERED} ops (stages x micro-batches x kinds of op), which "
            f"need about 2.7 GB of memory, got {ops}",
            source=instance.name,
            field="num_microbatches",
        )


class _PipelineLowering:
    def __init__(
        self,
        instance: PipelineInstance,
        *,
        exact: bool = False,
        extra_times: Iterable[Fraction] = (),
        scale: TimeScale | None = None,
    ) -> None:
        self.instance = instance
        self.pipes = instance.stage_devices_of_pipes()
        self.boundary_pairs = hops(instance)
        times = chain(self._all_times(), extra_times)
        self.scale = scale or TimeScale.fit(times, instance.time_unit, exact=exact)
        self.builder = ProblemBuilder(instance.name, self.scale, instance.objective)
        self.devices = instance.device_grid
        self.grid: dict[str, OpGrid] = {}
        self.transfers: list[tuple[IntArray, IntArray]] = []
        self.explicit_names = self.builder.explicit_names
        self._known_ticks: dict[tuple[Decimal, int], int] = {}

    def _all_times(self) -> Iterator[Fraction]:
        instance = self.instance
        entries = [*instance.times.by_kind().values(), instance.allreduce, instance.optimizer]
        for entry in entries:
            yield from map(Fraction, set(decimals(entry)))
        yield from collective_times(instance)
        for boundary, source, target in self.boundary_pairs:
            yield self._latency(source, target)
            if instance.p2p.mode != "delay":
                for size in set(self._sizes(boundary)):
                    yield self._transfer_time(size, source, target)

    def _latency(self, source: int, target: int) -> Fraction:
        return entry_at(self.instance.p2p.latency, source, target)

    def _sizes(self, boundary: int) -> tuple[Decimal, ...]:
        """Return the bytes of the transfers over a boundary: one number for all, or m."""
        return row_of(self.instance.p2p.bytes, boundary)

    def _transfer_time(self, size: Decimal, source: int, target: int) -> Fraction:
        return Fraction(size) / entry_at(self.instance.p2p.bandwidth, source, target)

    def _transfer_ticks(self, boundary: int, source: int, target: int) -> IntArray:
        """Return the duration of the transfer of each micro-batch, int64[m]."""
        sizes = self._sizes(boundary)
        ticks = {
            size: self.scale.ticks(self._transfer_time(size, source, target)) for size in set(sizes)
        }
        row = np.array([ticks[size] for size in sizes], dtype=np.int64)
        return np.broadcast_to(row, self.instance.num_microbatches)

    def run(self) -> Problem:
        instance, builder = self.instance, self.builder
        self.compute = [builder.add_resource(f"device {d}") for d in range(instance.num_devices)]
        self.streams = CommStreams(instance, builder)
        self._add_compute_ops()
        self._add_local_precedences()
        self._add_all_gathers()
        if instance.p2p.mode == "delay":
            self._add_delays()
        else:
            self._add_transfers()
        self._add_stage_tail_ops()
        builder.span_resources = self.compute
        builder.pools = pools_of(self.instance, self.grid, self.devices)
        builder.families = self._families()
        return builder.build()

    def _add_compute_ops(self) -> None:
        cut = SegmentedOps(self.builder, self.streams, self.scale, self.explicit_names)
        for kind, entry in self.instance.times.by_kind().items():
            if kind in cut.inside:
                self._add_segments(cut, kind, entry)
            else:
                self.grid[kind] = OpGrid.whole(self._add_grid(kind, entry))
        for kind in cut.inside:
            self.grid[kind] = cut.with_allreduces(kind, self.devices)

    def _add_grid(self, kind: str, entry: Any) -> IntArray:
        num_stages, num_microbatches = self.devices.shape
        rows = [self._ticks_row(entry, stage, num_microbatches) for stage in range(num_stages)]
        return self.builder.add_ops(
            kind,
            np.stack(rows),
            np.asarray(self.compute)[self.devices][..., None],
            OpLabels(np.arange(num_stages)[:, None], self.devices, np.arange(num_microbatches)),
        )

    def _add_segments(self, cut: SegmentedOps, kind: str, entry: Any) -> None:
        for stage, devices in enumerate(self.devices):
            segments = int(entry_at(cut.inside[kind].segments, stage))
            row = self._ticks_row(entry, stage, len(devices), segments)
            resources = np.asarray(self.compute)[devices][:, None]
            cut.add_pieces(kind, row, segments, resources, stage=stage, device=devices)

    def _ticks_row(
        self, entry: Any, stage: int, num_microbatches: int, segments: int = 1
    ) -> IntArray:
        row = row_of(entry, stage)
        for value in row:
            if (value, segments) not in self._known_ticks:
                ticks = self.scale.ticks(Fraction(value) / segments)
                self._known_ticks[value, segments] = ticks
        ticks_of_row = [self._known_ticks[value, segments] for value in row]
        return np.broadcast_to(np.array(ticks_of_row, dtype=np.int64), num_microbatches)

    @property
    def returning(self) -> OpGrid:
        """Ops that carry the gradient to the previous stage: I, or B where fused."""
        return self.grid["I"] if self.instance.times.is_split else self.grid["B"]

    @property
    def finishing(self) -> OpGrid:
        """Ops after which a stage's weight gradient is complete: W, or B where fused."""
        return self.grid["W"] if self.instance.times.is_split else self.grid["B"]

    def _add_local_precedences(self) -> None:
        self.builder.add_precedences(self.grid["F"].done, self.returning.first)
        if self.instance.times.is_split:
            self.builder.add_precedences(self.grid["I"].last, self.grid["W"].first)

    def _add_all_gathers(self) -> None:
        collectives = self.instance.collectives
        if collectives is None or collectives.all_gather is None:
            return
        comm = self.streams.of(DATA_PARALLEL)
        for stage in range(self.instance.num_stages):
            holders = self._holders(stage)
            gather = self._single_op(
                ALL_GATHER_KIND, collectives.all_gather, stage, [comm[d] for d in holders], holders
            )
            self.builder.add_precedences(gather, self.grid["F"].first[stage])

    def _holders(self, stage: int) -> list[int]:
        return sorted({devices[stage] for devices in self.pipes})

    def _add_delays(self) -> None:
        table = np.zeros((self.instance.num_devices,) * 2, dtype=np.int64)
        for _, source, target in self.boundary_pairs:
            table[source, target] = self.scale.ticks(self._latency(source, target))
        up, down = self.devices[:-1], self.devices[1:]
        forward, returning = self.grid["F"], self.returning
        self.builder.add_precedences(forward.done[:-1], forward.first[1:], table[up, down])
        self.builder.add_precedences(returning.done[1:], returning.first[:-1], table[down, up])

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
                    before, after = grid.done[sender, columns], grid.first[receiver, columns]
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
                    lag = self.scale.ticks(self._latency(source, target))
                    self.builder.add_precedences(transfer, after, lag)

    def _transfer_resources(self) -> dict[tuple[int, int], list[int]]:
        pairs = sorted({(source, target) for _, source, target in self.boundary_pairs})
        if self.instance.p2p.mode == "link":
            return {(a, b): [self.builder.add_resource(f"link {a}->{b}")] for a, b in pairs}
        if self.instance.p2p.mode == "send_queue":
            senders = sorted({source for source, _ in pairs})
            queues = {device: self.builder.add_resource(f"send {device}") for device in senders}
            return {(a, b): [queues[a]] for a, b in pairs}
        used = sorted({device for pair in pairs for device in pair})
        nics = {device: self.builder.add_resource(f"nic {device}") for device in used}
        return {(a, b): [nics[a], nics[b]] for a, b in pairs}

    def _add_stage_tail_ops(self) -> None:
        instance = self.instance
        kind, entry = self._reduction()
        comm = [] if entry is None else self.streams.of(DATA_PARALLEL)
        for stage in range(instance.num_stages):
            holders = self._holders(stage)
            ready = self.finishing.last[stage]
            if entry is not None:
                reduce = self._single_op(kind, entry, stage, [comm[d] for d in holders], holders)
                self.builder.add_precedences(ready, reduce)
                ready = np.array([reduce])
            if instance.optimizer is not None:
                for device in holders:
                    step = self._single_op(
                        OPTIMIZER_KIND, instance.optimizer, stage, [self.compute[device]], [device]
                    )
                    if len(holders) > 1:
                        self.explicit_names[step] = f"{OPTIMIZER_KIND}{stage}@{device}"
                    own = self.devices[stage] == device
                    before = ready if entry is not None else ready[own]
                    self.builder.add_precedences(before, step)

    def _reduction(self) -> tuple[str, Any]:
        """Return kind and time of the collective that combines the gradients of a stage."""
        collectives = self.instance.collectives
        if collectives is not None and collectives.reduce_scatter is not None:
            return REDUCE_SCATTER_KIND, collectives.reduce_scatter
        return ALLREDUCE_KIND, self.instance.allreduce

    def _single_op(
        self, kind: str, entry: Any, stage: int, resources: list[int], devices: list[int]
    ) -> int:
        ticks = np.array([self.scale.ticks(entry_at(entry, stage))], dtype=np.int64)
        labels = OpLabels(stage, devices[0])
        ops = self.builder.add_ops(kind, ticks, np.array(resources), labels)
        return int(ops[0])

    def _families(self) -> list[IntArray]:
        """Group the micro-batches of each pipe that have equal times, amounts and transfers."""
        entries = self.instance.amounts().values()
        rows = [row for entry in entries for row in rows_per_microbatch(entry)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for microbatch, pipe in enumerate(self.instance.pipe_of_microbatch.tolist()):
            key = (pipe, *(row[microbatch] for row in rows))
            groups.setdefault(key, []).append(microbatch)
        return [self._vectors(np.array(members)) for members in groups.values() if len(members) > 1]

    def _vectors(self, members: IntArray) -> IntArray:
        columns = [grid.rows[:, members].T for grid in self.grid.values()]
        for microbatches, transfer in self.transfers:
            shared = np.isin(microbatches, members)
            if shared.any():
                columns.append(transfer[shared][:, None])
        return np.concatenate(columns, axis=1)

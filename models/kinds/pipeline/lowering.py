"""Lowering of a pipeline instance to the integer problem, a few numpy calls per op kind.

An op of k segments becomes k ops, named ``F0.1/0``, ``F0.1/1``, ... (``F0.1`` where k is 1), and
k all-reduces on the comm stream, one after each piece, named ``ARF0.1/0``, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any, Self

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, OpLabels, Pool, Problem, ProblemBuilder
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.entries import decimals, entry_at, row_of, rows_per_microbatch
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import split_by, times_of_layers
from ppsolve.models.kinds.pipeline.mode_ops import ModeOps, mode_times
from ppsolve.models.kinds.pipeline.modes import MemoryModes, modes_of
from ppsolve.models.kinds.pipeline.pools import UsesOfMemory, exact, left_of, pools_of, stored_of
from ppsolve.models.kinds.pipeline.slices import add_slice_order, units_of, with_key_values
from ppsolve.models.kinds.pipeline.transfers import hops, transfer_times

ALLREDUCE_KINDS = {"F": "ARF", "B": "ARB", "I": "ARI"}
"""Kind of the all-reduces inside the ops of each kind."""

REDUCE_SCATTER_KIND = "RS"
ALL_GATHER_KIND = "AG"

TENSOR_PARALLEL, DATA_PARALLEL = "tp", "dp"


@dataclass(frozen=True, eq=False)
class _OpGrid:
    # The ops of one kind: S stages, m micro-batches.

    first: IntArray  # int64[S, m]: first and last piece of each op on the compute stream
    last: IntArray
    # int64[S, m]: op that ends when the result can be used: the last all-reduce, or the last
    # piece.
    done: IntArray
    rows: IntArray  # int64[r, m]: all pieces and all-reduces: column i is micro-batch i

    @classmethod
    def whole(cls, ops: IntArray) -> Self:
        return cls(ops, ops, ops, ops)


def _collective_times(instance: PipelineInstance) -> Iterator[Fraction]:
    collectives = instance.collectives
    if collectives is None:
        return
    durations = instance.times.by_kind()
    for stage in range(instance.num_stages):
        for kind, inside in collectives.by_kind().items():
            yield entry_at(inside.allreduce, stage)
            segments = entry_at(inside.segments, stage)
            for duration in sorted(set(row_of(durations[kind], stage))):
                yield Fraction(duration) / segments
        for entry in (collectives.reduce_scatter, collectives.all_gather):
            if entry is not None:
                yield entry_at(entry, stage)


ALLREDUCE_KIND = "AR"
OPTIMIZER_KIND = "OPT"

MAX_LOWERED = 1_000_000
"""Most ops of all micro-batches that are scheduled, at 2.5 KB each; instances may describe more."""


def lower_pipeline(
    instance: PipelineInstance,
    *,
    exact: bool = False,
    extra_times: Iterable[Fraction] = (),
    scale: TimeScale | None = None,
    choice: IntArray | None = None,
) -> Problem:
    """Lower `instance` to ops, resources, precedences and pools.

    Ops are numbered kind by kind, stage by stage, micro-batch by micro-batch; all-reduces inside
    ops and all-gathers follow where there are any, then transfers, then all-reduces (or
    reduce-scatters) of gradients and optimizer ops. An op with collectives inside is several ops,
    see `ppsolve.models.kinds.pipeline.lowering`; it acquires its activation at the start of its
    first piece and releases at the end of its last piece.

    Parameters
    ----------
    instance : PipelineInstance
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.
    extra_times : iterable of Fraction
        Further times, in the unit of the instance, that must become whole ticks too.
    scale : TimeScale, optional
        Tick up to whose multiples times are rounded, instead of that of all times.
    choice : int64[S, m], optional
        Number of the mode of each stage and micro-batch, or `RELAXED` where it is open; by default
        what the instance gives.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        The times have no common tick within the limit and `exact` is true, or there are more
        than `MAX_LOWERED` ops, or the pipeline has replicas, or modes are open and no choice is
        given.
    """
    if instance.replicas is not None:
        raise InputError("expected a pipeline without replicas", field="replicas")
    refuse_huge(instance)
    instance = instance.in_numbers()
    scale = scale or scale_of(instance, exact=exact, extra_times=extra_times)
    modes = modes_of(instance)
    if modes is not None and choice is None:
        choice = modes.given
        if choice is None:
            raise InputError(
                "expected a list with the mode of each stage, where modes cannot be searched",
                source=instance.name,
                field=f"memory.{'offload' if modes.recompute is None else 'recompute'}.decide",
            )
    return _PipelineLowering(instance, scale, modes, choice).run()


def lower_split(
    instance: PipelineInstance,
    counts: IntArray,
    *,
    exact: bool = False,
    scale: TimeScale | None = None,
) -> Problem:
    """Lower a split of the layers of a pipeline.

    Parameters
    ----------
    instance : PipelineInstance
        A pipeline with layers.
    counts : int64[types, S]
        Layers of each type and stage.
    exact, scale
        As for `lower_pipeline`, with the same errors.

    Returns
    -------
    Problem
        Its `choice` is the split; all splits have one tick.
    """
    assert instance.layers is not None
    problem = lower_pipeline(
        split_by(instance, counts),
        exact=exact,
        extra_times=times_of_layers(instance.layers),
        scale=scale,
    )
    return replace(problem, choice=counts)


def scale_of(
    instance: PipelineInstance, *, exact: bool, extra_times: Iterable[Fraction] = ()
) -> TimeScale:
    """Return the tick of all times of a pipeline without costs over lengths.

    Parameters
    ----------
    instance : PipelineInstance
    exact, extra_times

    Returns
    -------
    TimeScale
    """
    times = chain(_all_times(instance), extra_times)
    return TimeScale.fit(times, instance.time_unit, exact=exact)


def _all_times(instance: PipelineInstance) -> Iterator[Fraction]:
    entries = [*instance.times.by_kind().values(), instance.allreduce, instance.optimizer]
    for entry in entries:
        yield from map(Fraction, set(decimals(entry)))
    yield from _collective_times(instance)
    modes = modes_of(instance)
    if modes is not None:
        yield from mode_times(modes)
    over = hops(instance)
    yield from (entry_at(instance.p2p.latency, source, target) for _, source, target in over)
    yield from transfer_times(instance, over)


def refuse_huge(instance: PipelineInstance) -> None:
    """Refuse a pipeline with more than `MAX_LOWERED` ops, as an `InputError`."""
    ops = instance.num_stages * instance.num_units * len(instance.times.by_kind())
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
        collectives = instance.collectives
        self.inside = {} if collectives is None else collectives.by_kind()
        self.comm: dict[str, list[int]] = {}
        self.grid: dict[str, _OpGrid] = {}
        self.transfers: list[tuple[IntArray, IntArray]] = []
        self.explicit_names = self.builder.explicit_names
        self._ticks = cache(lambda value, segments: scale.ticks(Fraction(value) / segments))
        self.modes: ModeOps | None = None
        if modes is not None and choice is not None:
            self.modes = ModeOps(modes, choice, self.builder, scale, self.devices)
            self.builder.choice = choice

    def _lag(self, source: int, target: int) -> int:
        return self.scale.ticks(entry_at(self.instance.p2p.latency, source, target))

    def _transfer_ticks(self, boundary: int, source: int, target: int) -> IntArray:
        sizes = row_of(self.instance.p2p.bytes, boundary)
        bandwidth = entry_at(self.instance.p2p.bandwidth, source, target)
        ticks = {size: self.scale.ticks(Fraction(size) / bandwidth) for size in set(sizes)}
        row = np.array([ticks[size] for size in sizes], dtype=np.int64)
        return np.broadcast_to(row, self.instance.num_units)

    def run(self) -> Problem:
        instance, builder = self.instance, self.builder
        self.compute = [builder.add_resource(f"device {d}") for d in range(instance.num_devices)]
        self._add_compute_ops()
        self._add_local_precedences()
        if self.modes is not None:
            self.modes.add(self.compute, self.grid["F"].last, self.returning.first)
        self._add_all_gathers()
        if instance.p2p.mode == "delay":
            self._add_delays()
        else:
            self._add_transfers()
        self._add_stage_tail_ops()
        builder.span_resources = self.compute
        builder.pools = self._pools()
        builder.families = self._families()
        return builder.build()

    def _add_compute_ops(self) -> None:
        pieces: dict[str, list[IntArray]] = {}
        for kind, entry in self.instance.times.by_kind().items():
            inside = self.inside.get(kind)
            if inside is None:
                self.grid[kind] = _OpGrid.whole(self._add_grid(kind, entry))
                continue
            pieces[kind] = []
            for stage, devices in enumerate(self.devices):
                segments = int(entry_at(inside.segments, stage))
                row = self._ticks_row(entry, stage, len(devices), segments)
                duration = np.broadcast_to(row, (segments, len(row)))
                pieces[kind].append(self._add_pieces(kind, duration, self.compute, stage))
        for kind, parts in pieces.items():
            self.grid[kind] = self._with_allreduces(kind, parts)

    def _add_grid(self, kind: str, entry: Any) -> IntArray:
        num_stages, num_microbatches = self.devices.shape
        rows = [self._ticks_row(entry, stage, num_microbatches) for stage in range(num_stages)]
        if self.modes is not None and kind in {"I", "B"}:
            rows = [row + self.modes.extra(stage) for stage, row in enumerate(rows)]
        return self.builder.add_ops(
            kind,
            np.stack(rows),
            np.asarray(self.compute)[self.devices][..., None],
            OpLabels(np.arange(num_stages)[:, None], self.devices, np.arange(num_microbatches)),
        )

    def _add_pieces(
        self, kind: str, duration: IntArray, streams: list[int], stage: int
    ) -> IntArray:
        devices = self.devices[stage]
        ops = self.builder.add_ops(
            kind,
            duration,
            np.asarray(streams)[devices][:, None],
            OpLabels(stage, devices, np.arange(duration.shape[1])),
        )
        if len(ops) > 1:
            for (segment, i), op in np.ndenumerate(ops):
                self.explicit_names[int(op)] = f"{kind}{stage}{self.builder.unit_name(i)}/{segment}"
        return ops

    def _with_allreduces(self, kind: str, pieces: list[IntArray]) -> _OpGrid:
        # Megatron-LM's tensor parallelism (Shoeybi et al. 2019): an all-reduce of activations in
        # forwards and of input gradients in backwards.
        reduces = []
        for stage, parts in enumerate(pieces):
            ticks = self.scale.ticks(entry_at(self.inside[kind].allreduce, stage))
            duration = np.full(parts.shape, ticks, dtype=np.int64)
            comm = self._comm_streams(TENSOR_PARALLEL)
            added = self._add_pieces(ALLREDUCE_KINDS[kind], duration, comm, stage)
            self.builder.add_precedences(parts, added)
            self.builder.add_precedences(added[:-1], parts[1:])
            reduces.append(added)
        return _OpGrid(
            first=np.stack([parts[0] for parts in pieces]),
            last=np.stack([parts[-1] for parts in pieces]),
            done=np.stack([parts[-1] for parts in reduces]),
            rows=np.concatenate([*pieces, *reduces]),
        )

    def _comm_streams(self, purpose: str) -> list[int]:
        # The stream of each device, added on first use.
        collectives = self.instance.collectives
        shared = collectives is None or collectives.comm_streams == "shared"
        name = "comm" if shared else f"{purpose} comm"
        if name not in self.comm:
            devices = range(self.instance.num_devices)
            self.comm[name] = [self.builder.add_resource(f"{name} {d}") for d in devices]
        return self.comm[name]

    def _ticks_row(
        self, entry: Any, stage: int, num_microbatches: int, segments: int = 1
    ) -> IntArray:
        row = [self._ticks(value, segments) for value in row_of(entry, stage)]
        return np.broadcast_to(np.array(row, dtype=np.int64), num_microbatches)

    @property
    def returning(self) -> _OpGrid:
        # Ops that carry the gradient to the previous stage.
        return self.grid["I"] if self.instance.times.is_split else self.grid["B"]

    @property
    def finishing(self) -> _OpGrid:
        # Ops after which a stage's weight gradient is complete.
        return self.grid["W"] if self.instance.times.is_split else self.grid["B"]

    def _add_local_precedences(self) -> None:
        self.builder.add_precedences(self.grid["F"].done, self.returning.first)
        if self.instance.times.is_split:
            self.builder.add_precedences(self.grid["I"].last, self.grid["W"].first)
        add_slice_order(self.builder, self.instance, self.grid["F"], self.returning)

    def _add_all_gathers(self) -> None:
        collectives = self.instance.collectives
        if collectives is None or collectives.all_gather is None:
            return
        comm = self._comm_streams(DATA_PARALLEL)
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
            table[source, target] = self._lag(source, target)
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
                    self.builder.add_precedences(transfer, after, self._lag(source, target))

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
        kind, entry = ALLREDUCE_KIND, instance.allreduce
        if instance.collectives is not None and instance.collectives.reduce_scatter is not None:
            kind, entry = REDUCE_SCATTER_KIND, instance.collectives.reduce_scatter
        comm = [] if entry is None else self._comm_streams(DATA_PARALLEL)
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

    def _single_op(
        self, kind: str, entry: Any, stage: int, resources: list[int], devices: list[int]
    ) -> int:
        ticks = np.array([self.scale.ticks(entry_at(entry, stage))], dtype=np.int64)
        labels = OpLabels(stage, devices[0])
        ops = self.builder.add_ops(kind, ticks, np.array(resources), labels)
        return int(ops[0])

    def _families(self) -> list[IntArray]:
        entries = self.instance.amounts().values()
        rows = [row for entry in entries for row in rows_per_microbatch(entry)]
        groups: dict[tuple[Any, ...], list[int]] = {}
        pipes, count = self.instance.pipe_of_microbatch.tolist(), self.instance.num_slices
        for unit in range(0, len(pipes), count):
            key: tuple[Any, ...] = (pipes[unit], *(row[unit : unit + count] for row in rows))
            if self.modes is not None:
                key += tuple(self.modes.choice[:, unit].tolist())
            groups.setdefault(key, []).append(unit // count)
        return [self._vectors(np.array(members)) for members in groups.values() if len(members) > 1]

    def _vectors(self, members: IntArray) -> IntArray:
        count, members = len(members), units_of(members, self.instance.num_slices)
        columns = [grid.rows[:, members].T.reshape(count, -1) for grid in self.grid.values()]
        for microbatches, transfer in self.transfers:
            shared = np.isin(microbatches, members)
            if shared.any():
                columns.append(transfer[shared].reshape(count, -1))
        for grid in () if self.modes is None else self.modes.grids.values():
            own = grid[:, members]
            columns.append(own[own[:, 0] != FREE].T)
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
        if instance.times.is_split:
            late = [left_of(memory, stage) for stage in stages]
            early = [row - part for row, part in zip(stored, late, strict=True)]
            released = [(grid["I"].last, early), (grid["W"].last, late)]
        if memory.forward_peak is not None:
            acquired = [exact(row_of(memory.forward_peak, stage)) for stage in stages]
            excess = [high - low for high, low in zip(acquired, stored, strict=True)]
            released.insert(0, (grid["F"].last, excess))
        if memory.key_value is not None:
            acquired, last = with_key_values(instance, memory.key_value, acquired)
            released.append((self.returning.last, last))
        uses = UsesOfMemory([(grid["F"].first, acquired)], released)
        if self.modes is None:
            return pools_of(instance, memory, uses, self.devices)
        self.modes.use_memory(uses, grid["F"].last, self.returning.first)
        return [*pools_of(instance, memory, uses, self.devices), *self.modes.host_pools()]

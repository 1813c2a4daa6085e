"""Lowering of a pipeline instance to the integer problem, a few numpy calls per op kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from ppsolve.models.pipeline import PipelineInstance
from ppsolve.models.problem import IntArray, Pool, Problem, ProblemBuilder
from ppsolve.models.timescale import TimeScale

ALLREDUCE_KIND = "AR"
OPTIMIZER_KIND = "OPT"


def lower_pipeline(
    instance: PipelineInstance, *, round_up: bool = False, also: Iterable[Fraction] = ()
) -> Problem:
    """Lower `instance` to ops, resources, precedences and pools.

    Ops are numbered kind by kind, stage by stage, micro-batch by micro-batch; transfers follow,
    then all-reduces and optimizer ops.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline.
    round_up : bool
        Round times up where they have no common tick within the limit.
    also : iterable of Fraction
        Further times, in the unit of the instance, that are to be whole ticks too.

    Raises
    ------
    InputError
        The times have no common tick within the limit and `round_up` is false.
    """
    return _Lowering(instance, round_up=round_up, also=also).run()


def _decimals(entry: Any) -> Iterator[Decimal]:
    if isinstance(entry, tuple):
        for item in entry:
            yield from _decimals(item)
    elif entry is not None:
        yield entry


def _at(entry: Any, *indices: int) -> Fraction:
    for index in indices:
        entry = entry[index] if isinstance(entry, tuple) else entry
    return Fraction(entry)


class _Lowering:
    def __init__(
        self, instance: PipelineInstance, *, round_up: bool, also: Iterable[Fraction]
    ) -> None:
        self.instance = instance
        self.pipes = instance.stage_devices_of_pipes()
        self.boundary_pairs = sorted(
            {
                (boundary, source, target)
                for devices in self.pipes
                for boundary, (a, b) in enumerate(pairwise(devices))
                for source, target in ((a, b), (b, a))
                if a != b
            }
        )
        times = [*self._all_times(), *also]
        self.scale = TimeScale.fit(times, instance.time_unit, round_up=round_up)
        self.builder = ProblemBuilder()
        self.devices = instance.device_grid
        self.grid: dict[str, IntArray] = {}
        self.transfers: list[tuple[IntArray, IntArray]] = []
        self.given_names: dict[int, str] = {}

    def _all_times(self) -> Iterator[Fraction]:
        instance = self.instance
        entries = [*instance.times.by_kind().values(), instance.allreduce, instance.optimizer]
        for entry in entries:
            yield from map(Fraction, set(_decimals(entry)))
        for boundary, source, target in self.boundary_pairs:
            yield self._latency(source, target)
            if instance.p2p.mode != "delay":
                yield self._transfer_time(boundary, source, target)

    def _latency(self, source: int, target: int) -> Fraction:
        return _at(self.instance.p2p.latency, source, target)

    def _transfer_time(self, boundary: int, source: int, target: int) -> Fraction:
        p2p = self.instance.p2p
        return _at(p2p.bytes, boundary) / _at(p2p.bandwidth, source, target)

    def run(self) -> Problem:
        instance, builder = self.instance, self.builder
        self.compute = [builder.add_resource(f"device {d}") for d in range(instance.num_devices)]
        self._add_compute_ops()
        self._add_local_precedences()
        if instance.p2p.mode == "delay":
            self._add_delays()
        else:
            self._add_transfers()
        self._add_stage_tail_ops()
        return builder.build(
            name=instance.name,
            scale=self.scale,
            objective=instance.objective,
            span_resources=self.compute,
            pools=self._pools(),
            families=self._families(),
            given_names=self.given_names,
        )

    def _add_compute_ops(self) -> None:
        instance = self.instance
        shape = (instance.num_stages, instance.num_microbatches)
        stages = np.arange(shape[0])[:, None]
        for kind, entry in instance.times.by_kind().items():
            rows = [self._ticks_row(entry, stage, shape[1]) for stage in range(shape[0])]
            self.grid[kind] = self.builder.add_ops(
                kind,
                np.stack(rows),
                np.asarray(self.compute)[self.devices][..., None],
                stage=stages,
                device=self.devices,
                microbatch=np.arange(shape[1]),
            )

    def _ticks_row(self, entry: Any, stage: int, num_microbatches: int) -> IntArray:
        value = entry[stage] if isinstance(entry, tuple) else entry
        if isinstance(value, tuple):
            return np.array([self.scale.ticks(Fraction(v)) for v in value], dtype=np.int64)
        return np.full(num_microbatches, self.scale.ticks(Fraction(value)), dtype=np.int64)

    @property
    def returning(self) -> IntArray:
        """Ops that carry the gradient to the previous stage: I, or B where fused."""
        return self.grid["I"] if self.instance.times.is_split else self.grid["B"]

    @property
    def finishing(self) -> IntArray:
        """Ops after which a stage's weight gradient is complete: W, or B where fused."""
        return self.grid["W"] if self.instance.times.is_split else self.grid["B"]

    def _add_local_precedences(self) -> None:
        self.builder.add_precedences(self.grid["F"], self.returning)
        if self.instance.times.is_split:
            self.builder.add_precedences(self.grid["I"], self.grid["W"])

    def _add_delays(self) -> None:
        table = np.zeros((self.instance.num_devices,) * 2, dtype=np.int64)
        for _, source, target in self.boundary_pairs:
            table[source, target] = self.scale.ticks(self._latency(source, target))
        up, down = self.devices[:-1], self.devices[1:]
        forward, returning = self.grid["F"], self.returning
        self.builder.add_precedences(forward[:-1], forward[1:], table[up, down])
        self.builder.add_precedences(returning[1:], returning[:-1], table[down, up])

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
                    before, after = grid[sender, columns], grid[receiver, columns]
                    if source == target:
                        self.builder.add_precedences(before, after)
                        continue
                    ticks = self.scale.ticks(self._transfer_time(boundary, source, target))
                    transfer = self.builder.add_ops(
                        kind,
                        np.full(len(columns), ticks, dtype=np.int64),
                        np.array(resources[source, target]),
                        stage=sender,
                        device=source,
                        microbatch=columns,
                    )
                    self.transfers.append((columns, transfer))
                    self.builder.add_precedences(before, transfer)
                    lag = self.scale.ticks(self._latency(source, target))
                    self.builder.add_precedences(transfer, after, lag)

    def _transfer_resources(self) -> dict[tuple[int, int], list[int]]:
        pairs = sorted({(source, target) for _, source, target in self.boundary_pairs})
        if self.instance.p2p.mode == "link":
            return {(a, b): [self.builder.add_resource(f"link {a}->{b}")] for a, b in pairs}
        used = sorted({device for pair in pairs for device in pair})
        nics = {device: self.builder.add_resource(f"nic {device}") for device in used}
        return {(a, b): [nics[a], nics[b]] for a, b in pairs}

    def _add_stage_tail_ops(self) -> None:
        instance = self.instance
        comm: dict[int, int] = {}
        if instance.allreduce is not None:
            comm = {d: self.builder.add_resource(f"comm {d}") for d in range(instance.num_devices)}
        for stage in range(instance.num_stages):
            holders = sorted({devices[stage] for devices in self.pipes})
            ready = self.finishing[stage]
            if instance.allreduce is not None:
                reduce = self._single_op(
                    ALLREDUCE_KIND, instance.allreduce, stage, [comm[d] for d in holders], holders
                )
                self.builder.add_precedences(ready, reduce)
                ready = np.array([reduce])
            if instance.optimizer is not None:
                for device in holders:
                    step = self._single_op(
                        OPTIMIZER_KIND, instance.optimizer, stage, [self.compute[device]], [device]
                    )
                    if len(holders) > 1:
                        self.given_names[step] = f"{OPTIMIZER_KIND}{stage}@{device}"
                    own = self.devices[stage] == device
                    before = ready if instance.allreduce is not None else ready[own]
                    self.builder.add_precedences(before, step)

    def _single_op(
        self, kind: str, entry: Any, stage: int, resources: list[int], devices: list[int]
    ) -> int:
        ticks = np.array([self.scale.ticks(_at(entry, stage))], dtype=np.int64)
        ops = self.builder.add_ops(kind, ticks, np.array(resources), stage=stage, device=devices[0])
        return int(ops[0])

    def _families(self) -> list[IntArray]:
        """Group the micro-batches of each pipe that have identical durations."""
        per_microbatch = any(
            isinstance(item, tuple)
            for entry in self.instance.times.by_kind().values()
            if isinstance(entry, tuple)
            for item in entry
        )
        groups: dict[tuple[Any, ...], list[int]] = {}
        for microbatch, pipe in enumerate(self.instance.pipe_of_microbatch):
            key: tuple[Any, ...] = (int(pipe),)
            if per_microbatch:
                key += tuple(
                    _at(entry, stage, microbatch)
                    for entry in self.instance.times.by_kind().values()
                    for stage in range(self.instance.num_stages)
                )
            groups.setdefault(key, []).append(microbatch)
        return [self._vectors(np.array(members)) for members in groups.values() if len(members) > 1]

    def _vectors(self, members: IntArray) -> IntArray:
        columns = [grid[:, members].T for grid in self.grid.values()]
        for microbatches, transfer in self.transfers:
            shared = np.isin(microbatches, members)
            if shared.any():
                columns.append(transfer[shared][:, None])
        return np.concatenate(columns, axis=1)

    def _pools(self) -> list[Pool]:
        memory = self.instance.memory
        if memory is None:
            return []
        share = Fraction(memory.released_by_backward_weight)
        activation = [_at(memory.activation, s) for s in range(self.instance.num_stages)]
        releases = (
            [("I", 1 - share), ("W", share)]
            if self.instance.times.is_split
            else [("B", Fraction(1))]
        )
        static = [Fraction(0)] * self.instance.num_devices
        for devices in self.pipes:
            for stage, device in enumerate(devices):
                static[device] += _at(memory.static, stage)
        return [
            self._pool(device, activation, releases, static[device])
            for device in range(self.instance.num_devices)
        ]

    def _pool(
        self,
        device: int,
        activation: list[Fraction],
        releases: list[tuple[str, Fraction]],
        static: Fraction,
    ) -> Pool:
        assert self.instance.memory is not None
        amounts: list[Fraction] = []
        here = self.devices == device

        def events(kind: str, share: Fraction) -> tuple[IntArray, IntArray]:
            ops, indices = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            for stage in np.flatnonzero(here.any(axis=1)):
                amount = activation[stage] * share
                if amount == 0:
                    continue
                if amount not in amounts:
                    amounts.append(amount)
                mine = self.grid[kind][stage, here[stage]]
                ops.append(mine)
                indices.append(np.full(len(mine), amounts.index(amount), dtype=np.int64))
            return np.concatenate(ops), np.concatenate(indices)

        acquire_op, acquire_amount = events("F", Fraction(1))
        parts = [events(kind, share) for kind, share in releases]
        return Pool(
            name=f"device {device}",
            capacity=_at(self.instance.memory.capacity, device),
            initial=static,
            amounts=tuple(amounts),
            acquire_op=acquire_op,
            acquire_amount=acquire_amount,
            release_op=np.concatenate([ops for ops, _ in parts]),
            release_amount=np.concatenate([indices for _, indices in parts]),
        )

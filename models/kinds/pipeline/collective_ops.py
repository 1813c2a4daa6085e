"""Ops with collectives inside: pieces on the compute stream, collectives on a comm stream.

An op of k pieces becomes k ops, named ``F0.1/0``, ``F0.1/1``, ... (``F0.1`` where k is 1), and up
to k collectives, each after the piece of its number: all-reduces ``ARF0.1/0``, ..., or all-to-alls
``A2AF0.1/0``, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

import numpy as np

from ppsolve.models.core.builder import OpLabels, ProblemBuilder
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.collectives import (
    EXPERT_PARALLEL,
    TENSOR_PARALLEL,
    Collectives,
)
from ppsolve.models.kinds.pipeline.entries import decimals, row_of
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.labels import ALLREDUCE_KINDS, ALLTOALL_KINDS

OP_KIND_OF = {
    collective: kind
    for kinds in (ALLREDUCE_KINDS, ALLTOALL_KINDS)
    for kind, collective in kinds.items()
}
"""Kind of the ops that have collectives of each kind inside."""


@dataclass(frozen=True, eq=False)
class OpGrid:
    """The ops of one kind: S stages, m micro-batches."""

    first: (
        IntArray  # int64[S, m]: first and last piece of each op on the compute stream
    )
    last: IntArray
    # int64[S, m]: op that ends when the result can be used: the last piece, or the collective
    # behind it.
    done: IntArray
    rows: IntArray  # int64[r, m]: all pieces and collectives: column i is micro-batch i

    @classmethod
    def whole(cls, ops: IntArray) -> Self:
        """Return the grid of ops in one piece, int64[S, m]."""
        return cls(ops, ops, ops, ops)


def collective_times(instance: PipelineInstance) -> Iterator[Fraction]:
    """Yield all times of collectives and of the pieces between them, in the unit of `instance`."""
    collectives = instance.collectives or Collectives()
    durations = instance.times.by_kind()
    for stage in range(instance.num_stages):
        for kind, inside in collectives.by_kind().items():
            yield from {
                Fraction(time) for time in inside.times(stage) if time is not None
            }
            for duration in sorted(set(row_of(durations[kind], stage))):
                yield from {
                    Fraction(duration) * share for share in inside.shares(stage)
                }
    for entry in (collectives.reduce_scatter, collectives.all_gather):
        yield from map(Fraction, decimals(entry))


def ticks_of(
    row: tuple[Decimal, ...], scale: TimeScale, factor: Fraction = Fraction(1)
) -> IntArray:
    """Return the numbers of a row, times a factor, in ticks: for all micro-batches, or for each."""
    ticks = {number: scale.ticks(Fraction(number) * factor) for number in set(row)}
    return np.array([ticks[number] for number in row], dtype=np.int64)


@dataclass
class CollectiveOps:
    """Adds pieces, collectives and comm streams to the problem of a pipeline.

    `devices` has the device of each stage and micro-batch, int64[S, m].
    """

    instance: PipelineInstance
    builder: ProblemBuilder
    scale: TimeScale
    devices: IntArray

    def __post_init__(self) -> None:
        """Begin without streams."""
        self.given = self.instance.collectives or Collectives()
        self.inside = self.given.by_kind()
        self._comm: dict[str, list[int]] = {}

    def add_pieces(
        self, kind: str, entry: Any, compute: list[int], recomputing: IntArray
    ) -> list[IntArray]:
        """Add the pieces of all ops of a kind, of which the entry has the durations.

        They run on the compute stream of each device. The first piece of each op is longer by ticks
        for recomputing, int64[S, m]. Return the k pieces of each stage, int64[k, m].
        """
        pieces = []
        for stage, devices in enumerate(self.devices):
            shares, row = self.inside[kind].shares(stage), row_of(entry, stage)
            lengths = {share: ticks_of(row, self.scale, share) for share in set(shares)}
            ticks = np.stack([lengths[share] for share in shares])
            duration = np.tile(ticks, (1, len(devices) // ticks.shape[1]))
            duration[0] += recomputing[stage]
            pieces.append(
                self._add(kind, duration, compute, stage, [*range(len(shares))])
            )
        return pieces

    def _add(
        self,
        kind: str,
        duration: IntArray,
        streams: list[int],
        stage: int,
        numbers: list[int],
    ) -> IntArray:
        # `numbers` are those of the pieces.
        devices = self.devices[stage]
        is_whole = self.inside[kind[-1]].num_pieces(stage) == 1
        pieces = FREE if is_whole else np.array(numbers)[:, None]
        return self.builder.add_ops(
            kind,
            duration,
            np.asarray(streams)[devices][:, None],
            OpLabels(stage, devices, np.arange(len(devices)), pieces),
        )

    def with_collectives(self, kind: str, pieces: list[IntArray]) -> OpGrid:
        """Add the collectives after the pieces of all ops of a kind, int64[k, m] of each stage."""
        # Megatron-LM's tensor parallelism (Shoeybi et al. 2019): an all-reduce of activations in
        # forwards and of input gradients in backwards. GShard's expert parallelism (Lepikhin et
        # al. 2020): all-to-alls before and after the experts.
        inside = self.inside[kind]
        is_alltoall = inside.alltoall is not None
        kinds = ALLTOALL_KINDS if is_alltoall else ALLREDUCE_KINDS
        streams = self.streams(EXPERT_PARALLEL if is_alltoall else TENSOR_PARALLEL)
        collectives, done = [], []
        for stage, rows in enumerate(pieces):
            times = {
                j: time
                for j, time in enumerate(inside.times(stage))
                if time is not None
            }
            ticks = np.array(
                [self.scale.ticks(Fraction(time)) for time in times.values()]
            )
            duration = np.broadcast_to(ticks[:, None], (len(times), rows.shape[1]))
            added = self._add(kinds[kind], duration, streams, stage, [*times])
            tails = rows.copy()
            tails[[*times]] = added
            self.builder.add_precedences(rows[[*times]], added)
            self.builder.add_precedences(tails[:-1], rows[1:])
            collectives.append(added)
            done.append(tails[-1])
        return OpGrid(
            first=np.stack([rows[0] for rows in pieces]),
            last=np.stack([rows[-1] for rows in pieces]),
            done=np.stack(done),
            rows=np.concatenate([*pieces, *collectives]),
        )

    def streams(self, purpose: str) -> list[int]:
        """Return the comm stream of each device, which is added on first use."""
        every = range(self.instance.num_devices)
        name, width = self.given.comm_stream(purpose), 1
        if purpose == EXPERT_PARALLEL and self.given.devices_per_node:
            name, width = "node comm", self.given.devices_per_node
        if name not in self._comm:
            nodes = [every[first : first + width] for first in every[::width]]
            spans = [
                (node[0], node[-1]) if len(node) > 1 else (node[0],) for node in nodes
            ]
            keys = [DeviceName(name, span, "-") for span in spans]
            numbers = [self.builder.add_resource(key) for key in keys]
            self._comm[name] = [numbers[device // width] for device in every]
        return self._comm[name]

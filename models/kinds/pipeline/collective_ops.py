"""Ops with collectives inside: pieces on the compute stream, all-reduces on the comm stream.

An op of k segments becomes k ops, named ``F0.1/0``, ``F0.1/1``, ... (``F0.1`` where k is 1), and
k all-reduces on the comm stream, one after each piece, named ``ARF0.1/0``, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from ppsolve.models.core.problem import IntArray, OpLabels, ProblemBuilder
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.entries import entry_at, row_of
from ppsolve.models.kinds.pipeline.instance import PipelineInstance

ALLREDUCE_KINDS = {"F": "ARF", "B": "ARB", "I": "ARI"}
"""Kind of the all-reduces inside the ops of each kind."""

TENSOR_PARALLEL, DATA_PARALLEL = "tp", "dp"


@dataclass(frozen=True, eq=False)
class OpGrid:
    """The ops of one kind: S stages, m micro-batches."""

    first: IntArray  # int64[S, m]: first and last piece of each op on the compute stream
    last: IntArray
    # int64[S, m]: op that ends when the result can be used: the last all-reduce, or the last
    # piece.
    done: IntArray
    rows: IntArray  # int64[r, m]: all pieces and all-reduces: column i is micro-batch i

    @classmethod
    def whole(cls, ops: IntArray) -> Self:
        """Return the grid of ops in one piece, int64[S, m]."""
        return cls(ops, ops, ops, ops)


def collective_times(instance: PipelineInstance) -> Iterator[Fraction]:
    """Yield all times of collectives and of the pieces between them, in the unit of `instance`."""
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


class CollectiveOps:
    """Adds pieces, all-reduces and comm streams to the problem of a pipeline.

    Parameters
    ----------
    instance : PipelineInstance
    builder : ProblemBuilder
        The problem.
    scale : TimeScale
        Its tick.
    devices : int64[S, m]
        Device of each stage and micro-batch.
    """

    def __init__(
        self,
        instance: PipelineInstance,
        builder: ProblemBuilder,
        scale: TimeScale,
        devices: IntArray,
    ) -> None:
        self.instance, self.builder, self.scale, self.devices = instance, builder, scale, devices
        collectives = instance.collectives
        self.inside = {} if collectives is None else collectives.by_kind()
        self._comm: dict[str, list[int]] = {}

    def add_pieces(self, kind: str, entry: Any, compute: list[int]) -> list[IntArray]:
        """Add the pieces of all ops of a kind.

        Parameters
        ----------
        kind : str
        entry : Any
            Durations of the whole ops.
        compute : list of int
            Compute stream of each device.

        Returns
        -------
        list of int64[k, m]
            The k pieces of each stage.
        """
        found = []
        for stage, devices in enumerate(self.devices):
            row = row_of(entry, stage)
            segments = int(entry_at(self.inside[kind].segments, stage))
            ticks = {value: self.scale.ticks(Fraction(value) / segments) for value in set(row)}
            lengths = np.array([ticks[value] for value in row], dtype=np.int64)
            duration = np.broadcast_to(lengths, (segments, len(devices)))
            found.append(self._add(kind, duration, compute, stage))
        return found

    def _add(self, kind: str, duration: IntArray, streams: list[int], stage: int) -> IntArray:
        devices = self.devices[stage]
        ops = self.builder.add_ops(
            kind,
            duration,
            np.asarray(streams)[devices][:, None],
            OpLabels(stage, devices, np.arange(duration.shape[1])),
        )
        if len(ops) > 1:
            for (segment, i), op in np.ndenumerate(ops):
                self.builder.explicit_names[int(op)] = f"{kind}{stage}.{i}/{segment}"
        return ops

    def with_allreduces(self, kind: str, pieces: list[IntArray]) -> OpGrid:
        """Add the all-reduces after the pieces of all ops of a kind.

        Parameters
        ----------
        kind : str
        pieces : list of int64[k, m]
            As from `add_pieces`.

        Returns
        -------
        OpGrid
        """
        # Megatron-LM's tensor parallelism (Shoeybi et al. 2019): an all-reduce of activations in
        # forwards and of input gradients in backwards.
        reduces = []
        for stage, parts in enumerate(pieces):
            ticks = self.scale.ticks(entry_at(self.inside[kind].allreduce, stage))
            duration = np.full(parts.shape, ticks, dtype=np.int64)
            comm = self.streams(TENSOR_PARALLEL)
            added = self._add(ALLREDUCE_KINDS[kind], duration, comm, stage)
            self.builder.add_precedences(parts, added)
            self.builder.add_precedences(added[:-1], parts[1:])
            reduces.append(added)
        return OpGrid(
            first=np.stack([parts[0] for parts in pieces]),
            last=np.stack([parts[-1] for parts in pieces]),
            done=np.stack([parts[-1] for parts in reduces]),
            rows=np.concatenate([*pieces, *reduces]),
        )

    def streams(self, purpose: str) -> list[int]:
        """Return the comm stream of each device, which is added on first use."""
        collectives = self.instance.collectives
        shared = collectives is None or collectives.comm_streams == "shared"
        name = "comm" if shared else f"{purpose} comm"
        if name not in self._comm:
            devices = range(self.instance.num_devices)
            self._comm[name] = [self.builder.add_resource(f"{name} {d}") for d in devices]
        return self._comm[name]

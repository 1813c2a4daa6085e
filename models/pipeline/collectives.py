"""Ops that all-reduces cut into pieces, and the comm streams of collectives.

An op of k segments becomes k ops, named ``F0.1/0``, ``F0.1/1``, ... (``F0.1`` where k is 1), and
k all-reduces on the comm stream, one after each piece, named ``ARF0.1/0``, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from ppsolve.models.core.problem import IntArray, OpLabels, ProblemBuilder
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.pipeline.entries import entry_at, row_of
from ppsolve.models.pipeline.instance import Collectives, PipelineInstance

ALLREDUCE_KINDS = {"F": "ARF", "B": "ARB", "I": "ARI"}
"""Kind of the all-reduces inside the ops of each kind."""

REDUCE_SCATTER_KIND = "RS"
ALL_GATHER_KIND = "AG"

TENSOR_PARALLEL, DATA_PARALLEL = "tp", "dp"


@dataclass(frozen=True, eq=False)
class OpGrid:
    """The ops of one kind: S stages, m micro-batches.

    Parameters
    ----------
    first, last : int64[S, m]
        First and last piece of each op on the compute stream.
    done : int64[S, m]
        Op that ends when the result can be used: the last all-reduce, or the last piece.
    rows : int64[r, m]
        All pieces and all-reduces: column i is micro-batch i.
    """

    first: IntArray
    last: IntArray
    done: IntArray
    rows: IntArray

    @classmethod
    def whole(cls, ops: IntArray) -> Self:
        """Return the grid of ops in one piece each, int64[S, m]."""
        return cls(ops, ops, ops, ops)


def collective_times(instance: PipelineInstance) -> Iterator[Fraction]:
    """Yield every time that the collectives of a pipeline add to its own, in its time unit."""
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


class CommStreams:
    """Comm streams of every device, added to a problem on first use.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline.
    builder : ProblemBuilder
        Builder that the streams are added to.
    """

    def __init__(self, instance: PipelineInstance, builder: ProblemBuilder) -> None:
        self.collectives = instance.collectives or Collectives()
        self._devices = range(instance.num_devices)
        self._builder = builder
        self._added: dict[str, list[int]] = {}

    def of(self, purpose: str) -> list[int]:
        """Return the stream of each device for `TENSOR_PARALLEL` or `DATA_PARALLEL` work."""
        shared = self.collectives.comm_streams == "shared"
        name = "comm" if shared else f"{purpose} comm"
        if name not in self._added:
            self._added[name] = [self._builder.add_resource(f"{name} {d}") for d in self._devices]
        return self._added[name]


class SegmentedOps:
    """Adds ops in pieces, and an all-reduce after each piece.

    This is Megatron-LM's tensor parallelism: an all-reduce of activations in forwards and of input
    gradients in backwards (Shoeybi et al. 2019).

    Parameters
    ----------
    builder : ProblemBuilder
        Builder that the ops are added to.
    streams : CommStreams
        Comm streams that all-reduces occupy; holds the collectives of the pipeline.
    scale : TimeScale
        Length of a tick.
    names : dict of int to str
        Receives the names of pieces and their all-reduces.
    """

    def __init__(
        self,
        builder: ProblemBuilder,
        streams: CommStreams,
        scale: TimeScale,
        names: dict[int, str],
    ) -> None:
        self.inside = streams.collectives.by_kind()
        self._builder = builder
        self._streams = streams
        self._scale = scale
        self._names = names
        self._pieces: dict[str, list[IntArray]] = {kind: [] for kind in self.inside}

    def add_pieces(
        self,
        kind: str,
        row: IntArray,
        segments: int,
        resources: IntArray,
        *,
        stage: int,
        device: IntArray,
    ) -> None:
        """Add the pieces of one stage's ops; call it stage by stage, in order.

        Parameters
        ----------
        kind : str
            Kind of the ops.
        row : int64[m]
            Duration of a piece of each micro-batch, in ticks.
        segments : int
            Number of pieces of each op.
        resources : int64[m, 1]
            Compute stream of each micro-batch.
        stage : int
            The stage.
        device : int64[m]
            Device of each micro-batch.
        """
        duration = np.broadcast_to(row, (segments, len(row)))
        self._pieces[kind].append(self._add(kind, duration, resources, stage, device))

    def _add(
        self, kind: str, duration: IntArray, resources: IntArray, stage: int, device: IntArray
    ) -> IntArray:
        labels = OpLabels(stage, device, np.arange(duration.shape[1]))
        ops = self._builder.add_ops(kind, duration, resources, labels)
        if len(ops) > 1:
            for (segment, i), op in np.ndenumerate(ops):
                self._names[int(op)] = f"{kind}{stage}.{i}/{segment}"
        return ops

    def with_allreduces(self, kind: str, devices: IntArray) -> OpGrid:
        """Add the all-reduces of the ops of one kind, all pieces of which are added already.

        Parameters
        ----------
        kind : str
            Kind of the ops.
        devices : int64[S, m]
            Device of each stage and micro-batch.

        Returns
        -------
        OpGrid
            Pieces and all-reduces; `done` is the last all-reduce of each op.
        """
        pieces = self._pieces[kind]
        comm = np.asarray(self._streams.of(TENSOR_PARALLEL))
        reduces = []
        for stage, parts in enumerate(pieces):
            ticks = self._scale.ticks(entry_at(self.inside[kind].allreduce, stage))
            resources = comm[devices[stage]][:, None]
            duration = np.full(parts.shape, ticks, dtype=np.int64)
            added = self._add(ALLREDUCE_KINDS[kind], duration, resources, stage, devices[stage])
            self._builder.add_precedences(parts, added)
            self._builder.add_precedences(added[:-1], parts[1:])
            reduces.append(added)
        return OpGrid(
            first=np.stack([parts[0] for parts in pieces]),
            last=np.stack([parts[-1] for parts in pieces]),
            done=np.stack([parts[-1] for parts in reduces]),
            rows=np.concatenate([*pieces, *reduces]),
        )

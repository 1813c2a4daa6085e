"""Collectives of a pipeline instance, on comm streams beside the compute streams."""

from __future__ import annotations

from typing import Literal

from ppsolve.models.documents.base import StrictModel
from ppsolve.models.kinds.pipeline.entries import PerStage, SegmentsPerStage


class TensorParallel(StrictModel):
    """All-reduces of tensor parallelism inside the ops of one kind.

    An op is `segments` pieces of equal length (its duration / `segments`), each followed by an
    all-reduce of length `allreduce` on the comm stream of the device. Both are a number or a list
    with one number per stage. The next piece waits for the all-reduce, and so do the users of the
    result of the op: the next stage (a transfer leaves after the last all-reduce) and, after a
    forward, the backward of the stage. Between two pieces the device may run other ops.
    """

    segments: SegmentsPerStage = 1
    allreduce: PerStage


class Collectives(StrictModel):
    """Collectives that run on a comm stream beside the compute stream of each device.

    Times are a number or a list with one number per stage.

    Parameters
    ----------
    forward, backward, backward_input : TensorParallel, optional
        All-reduces of activations inside forwards, and of input gradients inside backwards:
        `backward` where backwards are fused, `backward_input` where they are split. A
        weight-gradient backward waits for the last piece of its input-gradient backward, not for
        the all-reduce behind it.
    reduce_scatter : number or list, optional
        Reduce-scatter of a stage's gradients, after its last W or B and before its optimizer. It
        stands in for `allreduce` of the pipeline.
    all_gather : number or list, optional
        All-gather of a stage's parameters, before its first forward; it may start at time 0.
    comm_streams : str
        ``shared``: one comm stream per device. ``per_kind``: one for tensor parallelism, one for
        data parallelism (reduce-scatter, all-gather, all-reduce of gradients).
    """

    forward: TensorParallel | None = None
    backward: TensorParallel | None = None
    backward_input: TensorParallel | None = None
    reduce_scatter: PerStage | None = None
    all_gather: PerStage | None = None
    comm_streams: Literal["shared", "per_kind"] = "shared"

    def by_kind(self) -> dict[str, TensorParallel]:
        """Return the tensor parallelism of each op kind (F, B, I) that has all-reduces."""
        kinds = {"F": self.forward, "B": self.backward, "I": self.backward_input}
        return {kind: inside for kind, inside in kinds.items() if inside is not None}

"""Collectives of a pipeline instance, on comm streams beside the compute streams."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import StrictModel, Whole
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.measures import Time
from ppsolve.models.kinds.pipeline.entries import (
    PerPiece,
    PerStage,
    SegmentsPerStage,
    check_length,
    entry_at,
    row_of,
)

TENSOR_PARALLEL, EXPERT_PARALLEL, DATA_PARALLEL = "tp", "ep", "dp"


class ModelParallel(StrictModel):
    """Collectives of tensor or expert parallelism inside the ops of one kind.

    An op is `segments` times the same `pieces` (their relative lengths, by default one piece), each
    followed by a collective on a comm stream: an all-reduce of length `allreduce`, or an all-to-all
    of length `alltoall`, none where it is 0. The next piece waits for it, and so do the users of
    the result of the op: the next stage (a transfer leaves after the last collective) and, after a
    forward, the backward of the stage. Between two pieces the device may run other ops.

    `segments` and `allreduce` are a number or a list with one per stage; `pieces` and `alltoall` a
    number, a list with one number per piece, or a list with either of these per stage. A piece of
    length 0 lets an op begin with a collective.
    """

    segments: SegmentsPerStage = 1
    pieces: Time[PerPiece] = Field(default=1, validate_default=True)
    allreduce: Time[PerStage] | None = None
    alltoall: Time[PerPiece] | None = None

    @model_validator(mode="after")
    def _one_collective(self) -> Self:
        if (self.allreduce is None) == (self.alltoall is None):
            raise ValueError('expected either "allreduce" or "alltoall"')
        return self

    def check(self, field: str, num_stages: int) -> None:
        """Refuse lists that do not fit the stages, or each other.

        An `InputError` names an entry below `field`, the path of this object.
        """
        for name, entry in self:
            if name in {"segments", "allreduce"} or _has_rows(entry):
                check_length(f"{field}.{name}", entry, num_stages, "stage")
        for stage in range(num_stages):
            suffixes = [
                f"[{stage}]" if _has_rows(entry) else ""
                for entry in (self.pieces, self.alltoall)
            ]
            row = _row(self.pieces, stage)
            if not any(row):
                raise InputError(
                    "expected a piece longer than 0",
                    field=f"{field}.pieces{suffixes[0]}",
                    code=ErrorCode.RANGE,
                )
            times = _at(self.alltoall, stage)
            check_length(f"{field}.alltoall{suffixes[1]}", times, len(row), "piece")

    def num_pieces(self, stage: int) -> int:
        """Return the number k of pieces of each op of a stage."""
        return len(_row(self.pieces, stage)) * int(entry_at(self.segments, stage))

    def shares(self, stage: int) -> list[Fraction]:
        """Return the k shares of the pieces in the duration of an op of a stage."""
        row, segments = _row(self.pieces, stage), int(entry_at(self.segments, stage))
        total = sum(map(Fraction, row)) * segments
        return [Fraction(piece) / total for piece in row] * segments

    def times(self, stage: int) -> list[Decimal | None]:
        """Return the k times of the collectives behind the pieces, None where there is none."""
        if self.allreduce is not None:
            return [*row_of(self.allreduce, stage)] * self.num_pieces(stage)
        row = [time or None for time in _row(self.alltoall, stage)]
        return row * (self.num_pieces(stage) // len(row))


def _has_rows(entry: Any) -> bool:
    return isinstance(entry, tuple) and any(isinstance(item, tuple) for item in entry)


def _at(entry: Any, stage: int) -> Any:
    return entry[stage] if _has_rows(entry) else entry


def _row(entry: Any, stage: int) -> tuple[Decimal, ...]:
    pieces = _at(entry, stage)
    return pieces if isinstance(pieces, tuple) else (pieces,)


class Collectives(StrictModel):
    """Collectives that run on a comm stream beside the compute stream of each device.

    Times are a number or a list with one number per stage.

    Parameters
    ----------
    forward, backward, backward_input : ModelParallel, optional
        Collectives inside forwards, and inside backwards: `backward` where backwards are fused,
        `backward_input` where they are split. A weight-gradient backward waits for the last piece
        of its input-gradient backward, not for the collective behind it.
    reduce_scatter : number or list, optional
        Reduce-scatter of a stage's gradients, after its last W or B and before its optimizer. It
        stands in for `allreduce` of the pipeline.
    all_gather : number or list, optional
        All-gather of a stage's parameters, before its first forward; it may start at time 0.
    comm_streams : str
        ``shared``: one comm stream per device. ``per_kind``: one each for tensor parallelism,
        expert parallelism (all-to-alls) and data parallelism (reduce-scatter, all-gather,
        all-reduce of gradients).
    devices_per_node : int, optional
        All-to-alls run on one stream per node, which so many neighbouring devices share.
    """

    forward: ModelParallel | None = None
    backward: ModelParallel | None = None
    backward_input: ModelParallel | None = None
    reduce_scatter: Time[PerStage] | None = None
    all_gather: Time[PerStage] | None = None
    comm_streams: Literal["shared", "per_kind"] = "shared"
    devices_per_node: Annotated[Whole, Field(ge=1, le=4096)] | None = None

    def comm_stream(self, purpose: str) -> str:
        """Return the name, without its device, of the comm stream for a kind of parallelism."""
        return "comm" if self.comm_streams == "shared" else f"{purpose} comm"

    @model_validator(mode="after")
    def _nodes_have_alltoalls(self) -> Self:
        has_any = any(inside.alltoall is not None for inside in self.by_kind().values())
        if self.devices_per_node is not None and not has_any:
            raise InputError(
                "expected all-to-alls inside ops: nothing else runs on the streams of nodes",
                field="collectives.devices_per_node",
                code=ErrorCode.CONFLICT,
            )
        return self

    def by_kind(self) -> dict[str, ModelParallel]:
        """Return the pieces and collectives inside the ops of each kind (F, B, I) that has any."""
        kinds = {"F": self.forward, "B": self.backward, "I": self.backward_input}
        return {kind: inside for kind, inside in kinds.items() if inside is not None}

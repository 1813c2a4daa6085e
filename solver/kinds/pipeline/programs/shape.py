"""The shape of a pipeline that programs are of."""

from __future__ import annotations

from dataclasses import dataclass

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance


@dataclass(frozen=True)
class PipelineShape:
    """The pipeline that a program must be of."""

    num_microbatches: int
    stage_to_rank: tuple[int, ...]
    is_split: bool = True  # whether backwards may be split in I and W
    fuses: bool = False  # whether pairs of a forward and a backward may run as one op

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return max(self.stage_to_rank) + 1

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.stage_to_rank)

    @property
    def chunks(self) -> int:
        """Stages per rank, where all ranks have as many."""
        return self.num_stages // self.num_ranks


def shape_of(instance: PipelineInstance) -> PipelineShape:
    """Return the shape that programs of a pipeline must have.

    An `InputError` says that a stage of the pipeline lives on several ranks, that it has fillers or
    several steps, or that micro-batches are sliced.
    """
    for field, is_there in (
        ("replicas", instance.replicas is not None),
        ("placement", instance.placement == "bidirectional"),
        ("slices", instance.slices is not None),
    ):
        if is_there:
            raise InputError(
                "expected one rank per stage and whole micro-batches, which such a pipeline does "
                "not have",
                source=instance.name,
                field=field,
                code=ErrorCode.UNSUPPORTED,
            )
    if not instance.is_one_plain_step:
        raise InputError(
            "expected one step without fillers, of which programs say nothing",
            source=instance.name,
            field="fillers" if instance.fillers else "steps",
            code=ErrorCode.CONFLICT,
        )
    return PipelineShape(
        instance.num_microbatches,
        instance.stage_to_device,
        instance.times.is_split,
        instance.overlap is not None,
    )

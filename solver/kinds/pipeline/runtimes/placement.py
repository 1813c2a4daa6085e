"""Placements to which runtimes are fixed, and the first stage that is elsewhere."""

from __future__ import annotations

from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape


def folded(num_ranks: int) -> tuple[int, ...]:
    """Return the ranks of a V: stages s and 2p - 1 - s are on rank s."""
    return (*range(num_ranks), *reversed(range(num_ranks)))


def is_folded(shape: PipelineShape) -> bool:
    """Whether stages are placed in a V over several ranks."""
    return shape.num_ranks > 1 and shape.stage_to_rank == folded(shape.num_ranks)


def not_looped(shape: PipelineShape, runtime: str) -> str | None:
    """Return why stages do not go round, so that s is on rank s % p; None where they do.

    `runtime`: name of the runtime that asks for it.
    Returns: names the placement, or the first stage that is elsewhere.
    """
    ranks, stages = shape.num_ranks, shape.num_stages
    rule = f"{runtime} puts stage s on rank s % {ranks}"
    if is_folded(shape):
        return f"placement: {rule}, this is a V placement (vshape)"
    wrong = elsewhere(shape, tuple(stage % ranks for stage in range(stages)), rule)
    if wrong is None and stages % ranks:
        return f"placement: {runtime} needs a multiple of {ranks} stages, got {stages}"
    return wrong


def elsewhere(shape: PipelineShape, wanted: tuple[int, ...], rule: str) -> str | None:
    """Return the first stage that is elsewhere, None where all are in their places.

    `wanted`: ranks of as many stages as the runtime has.
    `rule`: what the runtime does, in words.
    Returns: the rule, and what differs.
    """
    found = shape.stage_to_rank
    for stage, (rank, right) in enumerate(zip(found, wanted, strict=False)):
        if rank != right:
            return (
                f"placement: {rule}, stage {stage} is on rank {rank} instead of {right}"
            )
    if len(found) != len(wanted):
        return f"placement: {rule}, which makes {len(wanted)} stages, got {len(found)}"
    return None

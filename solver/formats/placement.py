"""Placements and orders that runtimes are fixed to, and the first op of a program that differs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from ppsolve.solver.formats.program import RuntimeProgram, cannot_say
from ppsolve.solver.kinds.pipeline.actions import Order


def folded(num_ranks: int) -> tuple[int, ...]:
    """Return the ranks of a V: stages s and 2p - 1 - s are on rank s."""
    return (*range(num_ranks), *reversed(range(num_ranks)))


def is_folded(program: RuntimeProgram) -> bool:
    """Whether stages are placed in a V over several ranks."""
    ranks = len(program.rows)
    return ranks > 1 and program.stage_to_rank == folded(ranks)


def chunks_if_looped(program: RuntimeProgram, runtime: str) -> int:
    """Return the stages per rank of a program whose stages go round: s is on rank s % p.

    Raises `InputError` where stages are placed otherwise; names the placement, or the first stage
    that is elsewhere.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    runtime : str
        Name of the runtime that asks for it, for the error.

    Returns
    -------
    int
        Stages per rank, the same for all.
    """
    ranks, stages = len(program.rows), program.num_stages
    rule = f"{runtime} puts stage s on rank s % {ranks}"
    if is_folded(program):
        raise cannot_say(f"placement: {rule}, this is a V placement (vshape)")
    refuse_elsewhere(program, tuple(stage % ranks for stage in range(stages)), rule)
    if stages % ranks:
        raise cannot_say(f"placement: {runtime} needs a multiple of {ranks} stages, got {stages}")
    return stages // ranks


def refuse_elsewhere(program: RuntimeProgram, wanted: tuple[int, ...], rule: str) -> None:
    """Refuse a program whose stages are elsewhere.

    An `InputError` names the first stage that is elsewhere.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    wanted : tuple of int
        Ranks of as many stages as the runtime has.
    rule : str
        What the runtime does, in words.
    """
    found = program.stage_to_rank
    for stage, (rank, right) in enumerate(zip(found, wanted, strict=False)):
        if rank != right:
            text = f"placement: {rule}, stage {stage} is on rank {rank} instead of {right}"
            raise cannot_say(text)
    if len(found) != len(wanted):
        raise cannot_say(f"placement: {rule}, which makes {len(wanted)} stages, got {len(found)}")


def refuse_other_orders(program: RuntimeProgram, orders: Sequence[Order], rule: str) -> None:
    """Refuse a program that is not in a fixed order.

    An `InputError` names the first op that differs.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    orders : sequence of Order
        The order of each rank that the runtime runs.
    rule : str
        Name of this order, in words.
    """
    for rank, (row, order) in enumerate(zip(program.rows, orders, strict=True)):
        for place, (step, wanted) in enumerate(zip_longest(row, order)):
            if step != wanted:
                text = f"order: {rule}; rank {rank} runs {step} at place {place}, not {wanted}"
                raise cannot_say(text)

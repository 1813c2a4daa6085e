"""Flags of Megatron-LM: its order is fixed, the split of layers and the size of groups are free.

Read in Megatron-LM main (2026-08-22): 1F1B with p - r - 1 forwards first, or interleaved with
2 (p - r - 1) + (v - 1) N, for rank r of p, v chunks per rank and groups of N micro-batches.
"""

from __future__ import annotations

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.megatron.layout import parse_layout
from ppsolve.solver.export.orders import refuse_other_orders
from ppsolve.solver.export.placement import chunks_if_looped
from ppsolve.solver.export.program import RuntimeProgram
from ppsolve.solver.export.recompute import FIELD, decoders_of
from ppsolve.solver.export.settings import Settings
from ppsolve.solver.export.split import letters_of
from ppsolve.solver.pipeline.grammar import FORWARD
from ppsolve.solver.pipeline.interleaved import interleaved_1f1b
from ppsolve.solver.pipeline.one_stage import one_forward_one_backward

NAME = "Megatron-LM"


def megatron_flags(program: RuntimeProgram, settings: Settings) -> str:
    """Write a program as flags, one a line.

    Parameters
    ----------
    program : RuntimeProgram
        The program, in the order that Megatron-LM runs.
    settings : Settings
        Says which layers the model has.

    Returns
    -------
    str
        The flags.

    Raises
    ------
    InputError
        The placement, the order or the split is one that no flags say.
    """
    ranks = len(program.rows)
    chunks = chunks_if_looped(program, NAME)
    flags = [f"--pipeline-model-parallel-size {ranks}"]
    if chunks == 1:
        orders = one_forward_one_backward(ranks, program.num_microbatches)
        refuse_other_orders(program, orders, f"{NAME} runs 1F1B with one stage per rank")
    else:
        flags.append(f"--microbatch-group-size-per-virtual-pipeline-stage {_group(program)}")
    letters = letters_of(program, settings.model)
    if letters is not None:
        layout = parse_layout("|".join(letters), ranks)
        layers = sum(layout.layers_per_stage)
        flags += [f"--num-layers {layers}", f'--pipeline-model-parallel-layout "{layout.text()}"']
    elif chunks > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {chunks}")
    flags += _recomputation(program, settings)
    return "\n".join([*flags, *_batch(program)]) + "\n"


def _group(program: RuntimeProgram) -> int:
    """Return the micro-batches per group of an interleaved order.

    Raises
    ------
    InputError
        The order is another one.
    """
    ranks, count = len(program.rows), program.num_microbatches
    if ranks == 1:
        raise InputError(
            f"placement: {NAME} needs several ranks for several stages per rank", field="schedule"
        )
    leading = [a for a in program.actions(0) if a.kind == FORWARD]
    size = next((n for n, action in enumerate(leading) if action.stage), len(leading))
    if not ranks <= size <= count or 0 < count % size < ranks:
        raise InputError(
            f"order: {NAME} runs groups of {ranks} to {count} micro-batches, the last one not "
            f"below {ranks}; rank 0 begins with {size} forwards of its first stage ({leading[0]})",
            field="schedule",
        )
    orders = interleaved_1f1b(ranks, program.num_stages // ranks, count, size)
    rule = f"{NAME} runs interleaved 1F1B in groups of {size}"
    refuse_other_orders(program, orders, rule)
    return size


def _recomputation(program: RuntimeProgram, settings: Settings) -> list[str]:
    """Return the flags of recomputed layers: one number for all stages.

    Of each stage the first n layers are recomputed, or all where there are fewer (method
    ``block`` of ``TransformerBlock``, of which every virtual stage is one).

    Raises
    ------
    InputError
        Stages recompute different numbers of layers.
    """
    if settings.recomputed is None:
        return []
    most = max(settings.recomputed)
    decoders = decoders_of(program, settings)
    for stage, (count, there) in enumerate(zip(settings.recomputed, decoders, strict=True)):
        if count != min(most, there):
            raise InputError(
                f"{NAME} recomputes as many layers of every stage: {min(most, there)} of stage "
                f"{stage}, not {count}",
                field=FIELD,
            )
    if not most:
        return []
    names = {"granularity": "full", "method": "block", "num-layers": most}
    return [f"--recompute-{name} {value}" for name, value in names.items()]


def _batch(program: RuntimeProgram) -> list[str]:
    """Return the flags of the batch, of a plan."""
    size, batch = (program.chosen.get(name) for name in ("microbatch_size", "batch_size"))
    if size is None or batch is None:
        return []
    return [f"--micro-batch-size {size}", f"--global-batch-size {batch}"]

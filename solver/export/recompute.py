"""Layers whose forward is run again before their backward, counted per stage."""

from __future__ import annotations

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.megatron.layout import DECODER
from ppsolve.solver.export.program import RuntimeProgram
from ppsolve.solver.export.settings import Settings
from ppsolve.solver.export.split import letters_of

FIELD = "--recompute"


def decoders_of(program: RuntimeProgram, settings: Settings) -> tuple[int, ...]:
    """Return the decoder layers of each stage, which counts of recomputed layers are of.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    settings : Settings
        Says which layers the model has.

    Returns
    -------
    tuple of int
        One number per stage.

    Raises
    ------
    InputError
        The split is not known, or a stage has fewer decoder layers than are recomputed.
    """
    letters = letters_of(program, settings.model)
    if letters is None:
        raise InputError(
            "needs the layers of each stage: export a plan, or give --layers", field=FIELD
        )
    decoders = tuple(stage.count(DECODER) for stage in letters)
    counts = settings.recomputed or ()
    if len(counts) != len(decoders):
        raise InputError(f"expected {len(decoders)} stages, got {len(counts)} numbers", field=FIELD)
    for stage, (count, there) in enumerate(zip(counts, decoders, strict=True)):
        if count > there:
            raise InputError(
                f"expected at most the {there} decoder layers of stage {stage}, got {count}",
                field=FIELD,
            )
    return decoders

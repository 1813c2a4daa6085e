"""The split of layers that goes with a schedule: that of a plan, or one that is given."""

from __future__ import annotations

from itertools import accumulate, pairwise

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.convert.megatron.layout import DECODER, EMBEDDING, LOSS, parse_layout
from ppsolve.solver.export.program import RuntimeProgram


def parse_counts(text: str, option: str = "--layers") -> tuple[int, ...]:
    """Read the layers of each stage, ``4,3,3,2``.

    Parameters
    ----------
    text : str
        The numbers.
    option : str
        Where they were given, for the error.

    Returns
    -------
    tuple of int
        One number per stage.

    Raises
    ------
    InputError
        It is no list of numbers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 7 for part in parts):
        raise InputError(
            f'expected a number of layers for each stage, such as 4,3,3,2, got "{text[:40]}"',
            field=option,
        )
    return tuple(map(int, parts))


def counts_of(program: RuntimeProgram) -> tuple[int, ...] | None:
    """Return the layers of each stage, None where they are not known.

    Raises
    ------
    InputError
        There are more or fewer stages.
    """
    counts = program.layers
    if counts is not None and len(counts) != program.num_stages:
        raise InputError(
            f"expected the layers of {program.num_stages} stages, got {len(counts)} numbers",
            field="--layers",
        )
    return counts


def required_counts(program: RuntimeProgram, runtime: str) -> tuple[int, ...]:
    """Return the layers of each stage.

    Parameters
    ----------
    program : RuntimeProgram
        The program.
    runtime : str
        Name of the runtime, for the error.

    Returns
    -------
    tuple of int
        One number per stage.

    Raises
    ------
    InputError
        They are not known, or there are more or fewer stages.
    """
    counts = counts_of(program)
    if counts is None:
        raise InputError(
            f"{runtime} needs the layers of each stage: export a plan, or give them",
            field="--layers",
        )
    return counts


def letters_of(program: RuntimeProgram, model: str | None) -> tuple[str, ...] | None:
    """Return the layers of each stage as letters of Megatron-LM's layouts.

    Parameters
    ----------
    program : RuntimeProgram
        The program, with the number of layers of each stage where it is known.
    model : str, optional
        All layers in order, such as ``Et*10L``. By default all that are counted are decoder
        layers, the first stage has the embedding and the last one the loss beside them.

    Returns
    -------
    tuple of str, or None
        Letters of each stage; None where the split is not known.

    Raises
    ------
    InputError
        The model has another number of layers, or is none.
    """
    counts = counts_of(program)
    if counts is None:
        return None
    if model is None:
        return _with_ends([DECODER * count for count in counts])
    layers = layers_of(model)
    if len(layers) != sum(counts):
        raise InputError(
            f"expected the {sum(counts)} layers of the split, got {len(layers)}", field="--model"
        )
    bounds = [0, *accumulate(counts)]
    return tuple(layers[first:last] for first, last in pairwise(bounds))


def layers_of(model: str) -> str:
    """Return the letters of all layers of a model, such as ``Et*10L``, one for each.

    Raises
    ------
    InputError
        It is no such text.
    """
    try:
        return parse_layout(model, 1).layers
    except InputError as error:
        raise InputError(error.message, field="--model") from None


def _with_ends(stages: list[str]) -> tuple[str, ...]:
    stages[0] = EMBEDDING + stages[0]
    stages[-1] += LOSS
    return tuple(stages)

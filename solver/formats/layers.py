"""Layout strings (``--pipeline-model-parallel-layout``): ``Et*3|(tt|)*29,m|L``.

``E`` is the embedding, ``t`` a decoder layer, ``m`` a layer of multi-token prediction, ``L`` the
loss; bars separate stages. Commas count for nothing. Repeats are text: first ``(...)*n``, then
``x*n`` of any one character. What is accepted is what the layout class of Megatron-LM accepts
(main, 2026-08-22, run alone).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise

from ppsolve.models.documents.errors import InputError
from ppsolve.solver.formats.program import RuntimeProgram, Settings

EMBEDDING, DECODER, MTP, LOSS = "E", "t", "m", "L"
LAYERS = (EMBEDDING, DECODER, MTP, LOSS)

LONGEST = 100_000
"""Most characters of an unrolled layout: far more layers than any model has."""

_GROUP = re.compile(r"\(([^)]+)\)\*([0-9]+)")
_SINGLE = re.compile(r"(.)\*([0-9]+)", re.DOTALL)
_DIGITS = 9


@dataclass(frozen=True)
class MegatronLayout:
    """Layers of each stage; stage s is chunk s // p of rank s % p.

    Parameters
    ----------
    stages : tuple of str
        Letters of the layers of each stage; empty stages have none.
    num_ranks : int
        Number p of pipeline ranks.
    """

    stages: tuple[str, ...]
    num_ranks: int

    @property
    def chunks(self) -> int:
        """Stages per rank (virtual pipeline size)."""
        return len(self.stages) // self.num_ranks

    @property
    def layers(self) -> str:
        """Letters of all layers, in the order of the model."""
        return "".join(self.stages)

    @property
    def layers_per_stage(self) -> tuple[int, ...]:
        """Decoder layers of each stage."""
        return tuple(stage.count(DECODER) for stage in self.stages)

    @cached_property
    def layer_ids(self) -> list[list[int]]:
        """Decoder layers of each stage, counted from 0."""
        ids, first = [], 0
        for count in self.layers_per_stage:
            ids.append(list(range(first, first + count)))
            first += count
        return ids

    @property
    def mtp_standalone(self) -> bool:
        """Whether multi-token prediction lies before the last rank."""
        last = self.stages[-self.num_ranks :]
        return any(MTP in stage for stage in last[:-1])

    def by_rank(self, values: list[list[int]] | tuple[str, ...]) -> list[list[object]]:
        """Return values of stages as ``[rank][chunk]``."""
        return [list(values[rank :: self.num_ranks]) for rank in range(self.num_ranks)]

    def text(self) -> str:
        """Return a string that stands for this layout; runs of a layer are written ``t*n``."""
        return "|".join(map(_runs, self.stages))


def _runs(stage: str) -> str:
    runs = ((letter, len(list(group))) for letter, group in groupby(stage))
    return "".join(letter if count == 1 else f"{letter}*{count}" for letter, count in runs)


def parse_layout(
    text: str, num_ranks: int, *, num_layers: int | None = None, mtp_layers: int | None = None
) -> MegatronLayout:
    """Read a layout string.

    Parameters
    ----------
    text : str
        The string.
    num_ranks : int
        Pipeline ranks.
    num_layers : int, optional
        Decoder layers that it must have; any number by default.
    mtp_layers : int, optional
        Layers of multi-token prediction that it must have; any number by default.

    Returns
    -------
    MegatronLayout
        The layers of each stage.

    Raises
    ------
    InputError
        Megatron-LM refuses the string; says why.
    """
    layout = MegatronLayout(tuple(_unrolled(text).split("|")), num_ranks)
    for number, stage in enumerate(layout.stages):
        wrong = next((letter for letter in stage if letter not in LAYERS), None)
        if wrong is not None:
            raise InputError(
                f'expected layers E, t, m or L in stage {number}, got "{wrong}"', field="layout"
            )
    if num_ranks < 1 or len(layout.stages) % num_ranks:
        raise InputError(
            f"expected a multiple of {num_ranks} stages (pipeline ranks), got {len(layout.stages)}",
            field="layout",
        )
    _refuse_ends(layout.layers)
    _refuse_counts(layout.layers, num_layers, mtp_layers)
    _refuse_mtp(layout)
    return layout


def _unrolled(text: str) -> str:
    text = text.replace(",", "")
    for pattern in (_GROUP, _SINGLE):
        length = len(text)
        for found in pattern.finditer(text):
            if len(found[2].lstrip("0")) > _DIGITS:
                raise InputError(f"expected a smaller repeat than {found[2][:40]}", field="layout")
            length += len(found[1]) * int(found[2])
        if length > LONGEST:
            raise InputError(f"expected at most {LONGEST} layers and stages", field="layout")
        text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    return text


def _refuse_ends(layers: str) -> None:
    ends = ((EMBEDDING, "first", layers[:1]), (LOSS, "last", layers[-1:]))
    for letter, place, found in ends:
        if found != letter:
            raise InputError(
                f'expected {letter} as the {place} layer, got "{found}"', field="layout"
            )
        if layers.count(letter) != 1:
            raise InputError(
                f"expected {letter} once, it is there {layers.count(letter)} times", field="layout"
            )


def _refuse_counts(layers: str, num_layers: int | None, mtp_layers: int | None) -> None:
    for letter, wanted in ((DECODER, num_layers), (MTP, mtp_layers)):
        if wanted is not None and layers.count(letter) != wanted:
            raise InputError(
                f"expected {wanted} layers {letter}, got {layers.count(letter)}", field="layout"
            )


def _refuse_mtp(layout: MegatronLayout) -> None:
    """Refuse multi-token prediction before a decoder layer, or elsewhere than in one last chunk."""
    if MTP not in layout.layers:
        return
    if DECODER in layout.layers[layout.layers.index(MTP) :]:
        raise InputError("expected all t before the first m", field="layout")
    early = layout.stages[: -layout.num_ranks]
    if any(MTP in stage for stage in early):
        raise InputError("expected m in the last chunk of its rank", field="layout")
    if sum(MTP in stage for stage in layout.stages) > 1:
        raise InputError("expected all m in one stage", field="layout")


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

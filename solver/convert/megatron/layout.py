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
from itertools import groupby

from ppsolve.models.documents.errors import InputError

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

"""Layers of each stage: Megatron-LM's layout strings, splits of a plan, recomputed layers.

A layout string (``--pipeline-model-parallel-layout``) is ``Et*3|(tt|)*29,m|L``: ``E`` is the
embedding, ``t`` a decoder layer, ``m`` a layer of multi-token prediction, ``L`` the loss; bars
separate stages, commas count for nothing. Repeats are text: first ``(...)*n``, then ``x*n`` of any
one character. Configurations have lists of names instead, ``[["embedding", "decoder"], ["loss"]]``,
which are read as JSON. Accepted is what the layout class of Megatron-LM accepts (main, 2026-08-22).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.documents.files import parse_json
from ppsolve.solver.formats.program import RuntimeProgram, Settings

EMBEDDING, DECODER, MTP, LOSS = "E", "t", "m", "L"
LAYERS = (EMBEDDING, DECODER, MTP, LOSS)
NAMES = dict(zip(("embedding", "decoder", "mtp", "loss"), LAYERS, strict=True))
RECOMPUTE = "--recompute"

_GROUP = re.compile(r"\(([^)]+)\)\*([0-9]+)")
_SINGLE = re.compile(r"(.)\*([0-9]+)", re.DOTALL)


@dataclass(frozen=True)
class MegatronLayout:
    """Layers of each stage; stage s is chunk s // p of rank s % p."""

    stages: tuple[
        str, ...
    ]  # letters of the layers of each stage; empty stages have none
    num_ranks: int  # number p of pipeline ranks

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

    @property
    def layer_ids(self) -> list[list[int]]:
        """Decoder layers of each stage, counted from 0."""
        bounds = accumulate(self.layers_per_stage, initial=0)
        return [list(range(first, last)) for first, last in pairwise(bounds)]

    @property
    def mtp_standalone(self) -> bool:
        """Whether multi-token prediction lies before the last rank."""
        last = self.stages[-self.num_ranks :]
        return any(MTP in stage for stage in last[:-1])

    def by_rank(self, values: Sequence[Any]) -> list[list[Any]]:
        """Return values of stages as ``[rank][chunk]``."""
        return [list(values[rank :: self.num_ranks]) for rank in range(self.num_ranks)]

    def text(self) -> str:
        """Return a string that stands for this layout; runs of a layer are written ``t*n``."""
        return "|".join(map(_runs, self.stages))


def _runs(stage: str) -> str:
    runs = ((letter, len(list(group))) for letter, group in groupby(stage))
    return "".join(
        letter if count == 1 else f"{letter}*{count}" for letter, count in runs
    )


def parse_layout(
    text: str,
    num_ranks: int,
    *,
    num_layers: int | None = None,
    mtp_layers: int | None = None,
) -> MegatronLayout:
    """Read the layers of each stage from a layout string, or from lists in JSON.

    They must include `num_layers` decoder layers and `mtp_layers` of multi-token prediction, by
    default any number. Raises `InputError` where Megatron-LM refuses the string; says why.
    """
    is_list = text.lstrip().startswith("[")
    stages = _named(text) if is_list else tuple(_unrolled(text).split("|"))
    layout = MegatronLayout(stages, num_ranks)
    for number, stage in enumerate(layout.stages):
        wrong = next((letter for letter in stage if letter not in LAYERS), None)
        if wrong is not None:
            raise _wrong(
                f'expected layers E, t, m or L in stage {number}, got "{wrong}"'
            )
    if num_ranks < 1 or len(layout.stages) % num_ranks:
        count = len(layout.stages)
        raise _wrong(
            f"expected a multiple of {num_ranks} stages (pipeline ranks), got {count}"
        )
    layers = layout.layers
    for letter, position, got in (
        (EMBEDDING, "first", layers[:1]),
        (LOSS, "last", layers[-1:]),
    ):
        if got != letter:
            raise _wrong(f'expected {letter} as the {position} layer, got "{got}"')
        if layers.count(letter) != 1:
            raise _wrong(
                f"expected {letter} once, it is there {layers.count(letter)} times"
            )
    for letter, expected in ((DECODER, num_layers), (MTP, mtp_layers)):
        if expected is not None and layers.count(letter) != expected:
            raise _wrong(
                f"expected {expected} layers {letter}, got {layers.count(letter)}"
            )
    _refuse_mtp(layout)
    return layout


def _wrong(message: str) -> InputError:
    return InputError(message, field="layout")


def _named(text: str) -> tuple[str, ...]:
    """Return the letters of each stage from lists of names, one list for each stage."""
    with errors_about("layout"):
        rows = parse_json(text, "layout")
    known, stages = tuple(NAMES), []
    for number, row in enumerate(rows):
        if not isinstance(row, list):
            raise _wrong(
                f"expected a list of names in stage {number}, got {describe(row)}"
            )
        names = [
            name.strip().lower() if isinstance(name, str) else name for name in row
        ]
        wrong = next((name for name in names if name not in known), None)
        if wrong is not None:
            listed = ", ".join(known)
            raise _wrong(
                f"expected one of {listed} in stage {number}, got {describe(wrong)}"
            )
        stages.append("".join(NAMES[name] for name in names))
    return tuple(stages)


def _unrolled(text: str) -> str:
    text = text.replace(",", "")
    longest = 100_000  # characters: far more layers than any model has
    for pattern in (_GROUP, _SINGLE):
        length = len(text)
        for repeat in pattern.finditer(text):
            if len(repeat[2].lstrip("0")) > 9:
                raise _wrong(f"expected a smaller repeat than {repeat[2][:40]}")
            length += len(repeat[1]) * int(repeat[2])
        if length > longest:
            raise _wrong(f"expected at most {longest} layers and stages")
        text = pattern.sub(lambda repeat: repeat[1] * int(repeat[2]), text)
    return text


def _refuse_mtp(layout: MegatronLayout) -> None:
    """Refuse multi-token prediction before a decoder layer, or elsewhere than in one last chunk."""
    if MTP not in layout.layers:
        return
    if DECODER in layout.layers[layout.layers.index(MTP) :]:
        raise _wrong("expected all t before the first m")
    if any(MTP in stage for stage in layout.stages[: -layout.num_ranks]):
        raise _wrong("expected m in the last chunk of its rank")
    if sum(MTP in stage for stage in layout.stages) > 1:
        raise _wrong("expected all m in one stage")


def parse_counts(text: str, option: str = "--layers") -> tuple[int, ...]:
    """Read the number of layers of each stage, ``4,3,3,2``; an `InputError` names the option."""
    counts = [count.strip() for count in text.split(",")]
    if not all(
        count.isascii() and count.isdigit() and len(count) < 7 for count in counts
    ):
        raise InputError(
            "expected a number of layers for each stage, such as 4,3,3,2, "
            f'got "{text[:40]}"',
            field=option,
            code=ErrorCode.TYPE,
        )
    return tuple(map(int, counts))


def counts_of(program: RuntimeProgram) -> tuple[int, ...] | None:
    """Return the layers of each stage, None where they are not known.

    Raises `InputError` where there are more or fewer stages.
    """
    counts = program.layers
    if counts is not None and len(counts) != program.num_stages:
        text = f"expected the layers of {program.num_stages} stages, got {len(counts)} numbers"
        raise InputError(text, field="--layers", code=ErrorCode.LENGTH)
    return counts


def entries_of(program: RuntimeProgram, model: str | None) -> tuple[int, ...] | None:
    """Return the number of entries that each stage has in the list of a model's layers.

    The split of a pipeline with `layers` counts the equal ones: the first stage has its first layer
    as well, the last stage its last one. Other splits count whatever the list holds. None where the
    split is not known; `model` is as for `letters_of`, which refuses other numbers of layers.
    """
    letters = None if model is None else letters_of(program, model)
    if letters is not None:
        return tuple(map(len, letters))
    counts = counts_of(program)
    layers = None if program.instance is None else program.instance.layers
    if counts is None or layers is None:
        return counts
    entries = [*counts]
    entries[0] += layers.first is not None
    entries[-1] += layers.last is not None
    return tuple(entries)


def letters_of(program: RuntimeProgram, model: str | None) -> tuple[str, ...] | None:
    """Return the layers of each stage as letters of Megatron-LM's layouts.

    None where the split is not known. Raises `InputError` where the model has another number of
    layers, or is none.

    `model`: all layers in order, such as ``Et*10L``; those of its plan by default. Else all that
        are counted are decoder layers; the first stage has the embedding and the last one the loss.
    """
    counts = counts_of(program)
    if counts is None:
        return None
    plan = program.plan
    if model is None and plan is not None and counts == plan.layers_per_stage:
        model = plan.model
    complete = tuple(
        n + (s == 0) + (s == len(counts) - 1) for s, n in enumerate(counts)
    )
    layers = (
        EMBEDDING + DECODER * sum(counts) + LOSS if model is None else layers_of(model)
    )
    is_body = program.instance is not None and program.instance.layers is not None
    counts = complete if model is None or is_body else counts
    if len(layers) != sum(counts):
        text = f"expected the {sum(counts)} layers of the split, got {len(layers)}; embedding and "
        text += "loss count"
        if not is_body:
            text += f": with {sum(counts)} decoder layers give {','.join(map(str, complete))}"
        raise InputError(text, field="--model", code=ErrorCode.LENGTH)
    return tuple(
        layers[first:last] for first, last in pairwise(accumulate(counts, initial=0))
    )


def layers_of(model: str) -> str:
    """Return the letters of all layers of a model, such as ``Et*10L``, one for each.

    Raises `InputError` where it is no such text.
    """
    with errors_about("--model"):
        return parse_layout(model, 1).layers


def decoders_of(program: RuntimeProgram, settings: Settings) -> tuple[int, ...]:
    """Return the number of decoder layers of each stage, some of which are recomputed.

    Raises `InputError` where the split is not known, or a stage has fewer decoder layers than are
    recomputed.
    """
    letters = letters_of(program, settings.model)
    if letters is None:
        text = "needs the layers of each stage: export a plan, or give --layers"
        raise InputError(text, field=RECOMPUTE, code=ErrorCode.MISSING)
    decoders = tuple(stage.count(DECODER) for stage in letters)
    counts = settings.recomputed or ()
    if len(counts) != len(decoders):
        text = f"expected {len(decoders)} stages, got {len(counts)} numbers"
        raise InputError(text, field=RECOMPUTE, code=ErrorCode.LENGTH)
    for stage, (count, there) in enumerate(zip(counts, decoders, strict=True)):
        if count > there:
            text = f"expected at most the {there} decoder layers of stage {stage}, got {count}"
            raise InputError(text, field=RECOMPUTE, code=ErrorCode.RANGE)
    return decoders

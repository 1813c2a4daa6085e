"""Reading of inputs that several commands share: pipelines, data orders, lists of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.files import source_name
from ppsolve.models.instances import Instance
from ppsolve.solver.api.kinds import (
    instance_in,
    is_result,
    kind_of,
    parse_instance,
    read_with_files,
)
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.options import value
from ppsolve.solver.formats.order_file import DATA_ORDER, DataOrder, read_data_order
from ppsolve.solver.views.wording import rounding_note

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

MOST_NUMBERS = 100_000
"""Longer lists of numbers are refused: they would fill the memory."""

FedOrder = Annotated[
    Path | None,
    value(
        "FILE",
        "Micro-batch at each index of a .csv, as written by export (JSON).",
        DATA_ORDER,
    ),
]


def load_pipeline(
    path: Path, companion: str | Path = ""
) -> tuple[PipelineInstance, Any]:
    """Read a pipeline from an instance file, or from a result that carries it.

    The result, which may claim modes or layers, is returned too; None where the file is an
    instance. `companion` is another file that the command reads: an `InputError` says that both are
    standard input, or what is wrong with the first.
    """
    if str(path) == str(companion) == "-":
        raise InputError(
            "only one of the two files can be standard input", code=ErrorCode.CONFLICT
        )
    data = read_with_files(path)
    claims = data if is_result(data) else None
    instance = (instance_in if claims else parse_instance)(data, source_name(path))
    if instance.kind != "pipeline":
        text = f'expected "pipeline", got "{instance.kind}"'
        raise InputError(
            text, source=source_name(path), field="kind", code=ErrorCode.UNSUPPORTED
        )
    return cast("PipelineInstance", instance), claims


def open_choice(pipeline: PipelineInstance) -> str:
    """Return the choice that a pipeline leaves open: ``modes``, ``layers`` or an empty text."""
    from ppsolve.models.kinds.pipeline.modes import has_open_modes

    return "layers" if pipeline.layers else "modes" if has_open_modes(pipeline) else ""


def data_order(
    path: Path | None, pipeline: PipelineInstance, claims: Any
) -> DataOrder | None:
    """Read the data order of a runtime's file; note how its indices and activations are taken.

    It gives the micro-batch at each index, and is None without a file. `claims` is the result of
    the pipeline, as from `load_pipeline`.
    """
    choice = open_choice(pipeline)
    if choice and (claims or {}).get(choice) is None:
        split = ", layers as split evenly" if choice == "layers" else ""
        say(
            f"note: a .csv names no {choice}: every activation is taken as kept{split}; a result "
            f"in the place of the instance names its {choice} (`ppsolve check RESULT FILE.csv`)"
        )
    if path is not None:
        return read_data_order(path, pipeline)
    if pipeline.replicas is None and pipeline.has_unequal_microbatches:
        say(
            "note: micro-batches differ, and index i of the file is taken for micro-batch i; "
            f"{DATA_ORDER} FILE says which it is"
        )
    return None


def warn_of_units(instance: Instance, source: str) -> None:
    """Warn on stderr of figures whose unit looks wrong, naming their file."""
    say(*(f"warning: {source}: {line}" for line in kind_of(instance).doubts(instance)))


def note_rounding(
    error: float | None, unit: str, instance: Instance | None = None
) -> None:
    """Say on stderr that times are rounded to ticks, if any are.

    `error` is the most by which rounding makes the optimum longer.
    """
    note = rounding_note(error, unit, instance)
    if note is not None:
        say(f"note: {note}")


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Raise InputError for the first option that was given: None, False and [] were not."""
    for option, setting in options.items():
        if setting is not None and setting is not False and setting != []:
            raise InputError(why, field=option)


def parse_counts(text: str, option: str) -> list[int]:
    """Return the whole numbers that an option lists, as in ``1,2,4-8`` or ``1..8``.

    An `InputError` names the option: the text is not numbers and ascending ranges with commas
    between, or there are more than `MOST_NUMBERS`.
    """
    numbers: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(
            r"([0-9]{1,15})(?:(?:-|\.\.)([0-9]{1,15}))?", piece.strip()
        )
        if match is None or int(match[2] or match[1]) < int(match[1]):
            message = (
                f"expected numbers (1,2,4) or ranges (1-8), got {piece.strip()[:40]!r}"
            )
            raise InputError(message, field=option, code=ErrorCode.SYNTAX)
        first, last = int(match[1]), int(match[2] or match[1])
        if len(numbers) + last - first >= MOST_NUMBERS:
            raise InputError(
                f"expected at most {MOST_NUMBERS:,} numbers",
                field=option,
                code=ErrorCode.RANGE,
            )
        numbers += range(first, last + 1)
    return numbers


def broadcast(lists: Mapping[str, list[int]]) -> Iterator[tuple[int, ...]]:
    """Yield rows of lists of one length; lists of one number go with all rows.

    An `InputError` names the options whose lists of more than one number differ in length.
    """
    lengths = {
        option: len(numbers) for option, numbers in lists.items() if len(numbers) > 1
    }
    if len(set(lengths.values())) > 1:
        counts = ", ".join(
            f"{option} has {length}" for option, length in lengths.items()
        )
        raise InputError(
            f"expected lists of one length or single numbers: {counts}",
            code=ErrorCode.TYPE,
        )
    rows = max(lengths.values(), default=1)
    columns = (
        numbers * rows if len(numbers) == 1 else numbers for numbers in lists.values()
    )
    return zip(*columns, strict=True)

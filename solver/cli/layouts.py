"""``ppsolve convert megatron-layout``: a layout string to its split, or to an instance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import read_json, read_text, source_name, write_text
from ppsolve.models.documents.text import instance_text
from ppsolve.solver.cli.output import check_writable
from ppsolve.solver.formats.layers import MegatronLayout, parse_layout
from ppsolve.solver.formats.megatron import LayerTimes, instance_of

LayoutText = Annotated[
    str, typer.Argument(metavar="LAYOUT", help="Layout string, or a file that holds one.")
]
Ranks = Annotated[
    int, typer.Option("--ranks", metavar="P", min=1, help="Pipeline ranks (pipeline size).")
]
Layers = Annotated[
    int | None, typer.Option("--layers", metavar="N", help="Decoder layers that there must be.")
]
MtpLayers = Annotated[
    int | None,
    typer.Option("--mtp-layers", metavar="N", help="Layers m that there must be."),
]
TimesFile = Annotated[
    Path | None,
    typer.Option("--times", metavar="FILE", help="Times of layers (JSON): write an instance."),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")
]


def convert_layout_command(
    layout: LayoutText,
    ranks: Ranks,
    layers: Layers = None,
    mtp_layers: MtpLayers = None,
    times: TimesFile = None,
    output: Output = "-",
) -> None:
    """Convert a layout string of Megatron-LM to its split, or with times to an instance.

    The split (JSON) lists the stages and the decoder layers of each, by stage and by rank and
    chunk. --times names a file {"num_microbatches", "decoder": {"forward", "backward"}, ...}, with
    "embedding", "mtp", "loss", "time_unit" and "p2p" where they count; "decoder" may be a list with
    the times of each layer, and "backward" be split as in an instance.
    """
    text, source = _text(layout)
    check_writable(Path(output), *([times] if times else []), *([layout] if source else []))

    try:
        found = parse_layout(text, ranks, num_layers=layers, mtp_layers=mtp_layers)
    except InputError as error:
        raise error.located(source) if source else error from None
    if times is None:
        write_text(output, json.dumps(_split(found), indent=2) + "\n")
        return
    given = LayerTimes.parse(read_json(times), source_name(times))
    try:
        write_text(output, instance_text(instance_of(found, given)))
    except InputError as error:
        raise error.located(source_name(times)) from None


def _text(layout: str) -> tuple[str, str | None]:
    """Return a layout string, and the name of the file that it was read from."""
    try:
        is_file = Path(layout).is_file()
    except OSError:
        is_file = False
    if not is_file:
        return layout, None
    return read_text(layout).removesuffix("\n"), source_name(layout)


def _split(layout: MegatronLayout) -> dict[str, object]:
    return {
        "layout": layout.text(),
        "pipeline_size": layout.num_ranks,
        "chunks": layout.chunks,
        "stages": layout.stages,
        "layers_per_stage": layout.layers_per_stage,
        "rank_chunks": layout.by_rank(layout.stages),
        "layer_ids": layout.by_rank(layout.layer_ids),
        "mtp_standalone": layout.mtp_standalone,
    }

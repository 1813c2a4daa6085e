"""Several files that one command writes, charts among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import destination
from ppsolve.solver.cli import options as opt
from ppsolve.solver.cli.guard import say
from ppsolve.solver.cli.output import check_writable, save
from ppsolve.solver.render.line_chart import LineChart, chart_bytes, chart_format

Chart = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw the chart here too: .png or .svg (needs matplotlib).",
        rich_help_panel=opt.OUTPUT,
    ),
]


def check_outputs(outputs: Mapping[str, Path | None], *inputs: str | Path) -> None:
    """Refuse files that could not be written in the end, before any work is done.

    Parameters
    ----------
    outputs : mapping of str to Path or None
        Where each option writes to; None writes nothing. Only ``--output`` may be ``-``.
    *inputs : str or Path
        Files that were read.

    Raises
    ------
    InputError
        As `check_writable`, naming the option; or two options share a file.
    """
    taken: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if str(path) == "-" and option != "--output":
            raise InputError("expected a file, got -", field=option)
        check_writable(path, *inputs, option=option)
        other = taken.setdefault(destination(path).absolute(), option)
        if other != option:
            raise InputError(f"{other} writes there too", source=str(path), field=option)


def check_chart(path: Path | None) -> None:
    """Refuse a chart that could not be drawn in the end; errors as in `chart_format`."""
    if path is not None:
        chart_format(path)


def write_chart(path: Path | None, charts: Sequence[LineChart]) -> None:
    """Draw charts side by side, if a file is given; say so where there are none.

    Parameters
    ----------
    path : Path or None
        A file that `check_chart` has passed.
    charts : sequence of LineChart
        Any number.
    """
    if path is None:
        return
    if not charts:
        say(f"warning: {path}: not written, there is nothing to draw")
        return
    save(path, chart_bytes(charts, chart_format(path)))

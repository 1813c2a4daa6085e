"""Files of figures that `ppsolve show` draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ppsolve.models.core.result import Result
from ppsolve.models.curve import Curve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_bytes
from ppsolve.solver.cli.charts import check_outputs
from ppsolve.solver.render.drawings import Drawn
from ppsolve.solver.render.line_chart import figure_bytes, require_matplotlib
from ppsolve.solver.render.plot import pictures as plot
from ppsolve.solver.render.plot.schedule import schedule_figure
from ppsolve.solver.render.plot.sheet import PAPER, SHEET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = "Pictures"
LEAST_INCHES, MOST_INCHES = 2.0, 40.0
"""Narrower figures have no room for names; wider ones than a poster's are mistakes."""


class FigureKind(StrEnum):
    """What a figure shows."""

    GANTT = "gantt"
    MEMORY = "memory"
    GAPS = "gaps"
    CURVE = "curve"


def _file(kind: str) -> Any:
    help_text = f"Draw a picture into this {kind.upper()} file instead (needs matplotlib)."
    return typer.Option(f"--{kind}", metavar="FILE", help=help_text, rich_help_panel=PANEL)


Png = Annotated[Path | None, _file("png")]
Svg = Annotated[Path | None, _file("svg")]
Pdf = Annotated[Path | None, _file("pdf")]
Chosen = Annotated[
    FigureKind | None,
    typer.Option(
        "--picture",
        help="What the picture shows; by default the curve of a curve, the schedule of a result.",
        rich_help_panel=PANEL,
        show_default=False,
    ),
]
Title = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help='First line; "" for no lines above.', rich_help_panel=PANEL),
]
Inches = Annotated[
    float | None,
    typer.Option(
        metavar="W",
        help="Width: 7 for a page [gantt, memory], 3.4 for a column [gaps, curve].",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True)
class Wanted:
    """The pictures that are asked for.

    Parameters
    ----------
    files : dict of str to Path or None
        Where each format goes: ``png``, ``svg``, ``pdf``.
    picture : FigureKind, optional
        What they show.
    title : str, optional
        First line.
    inches : float, optional
        Width.
    """

    files: dict[str, Path | None]
    picture: FigureKind | None
    title: str | None
    inches: float | None

    @property
    def is_any(self) -> bool:
        """Whether anything is to be drawn."""
        return any(self.files.values())

    def check(self, *inputs: Path) -> None:
        """Refuse what could not be drawn or written in the end.

        Parameters
        ----------
        *inputs : Path
            Files that were read.

        Raises
        ------
        InputError
            Names the option: matplotlib is missing, a file is not writable or given twice, a
            width is out of reason, or options of pictures stand without a file.
        """
        if not self.is_any:
            given = {"--picture": self.picture, "--title": self.title, "--inches": self.inches}
            for option, value in given.items():
                if value is not None:
                    raise InputError("expected --png, --svg or --pdf FILE beside it", field=option)
            return
        inches = self.inches
        if inches is not None and not LEAST_INCHES <= inches <= MOST_INCHES:
            raise InputError(
                f"expected {LEAST_INCHES:g} to {MOST_INCHES:g}, got {inches:g}", field="--inches"
            )
        options = {f"--{kind}": path for kind, path in self.files.items()}
        require_matplotlib(next(option for option, path in options.items() if path))
        check_outputs(options, *inputs)

    def write(self, draw: Callable[[], Figure]) -> None:
        """Write every file, each whole or not at all.

        Parameters
        ----------
        draw : callable
            Returns the figure.
        """
        # All are drawn before any is written, so that a figure that fails leaves nothing behind.
        made = {path: figure_bytes(draw, kind, PAPER) for kind, path in self.files.items() if path}
        for path, data in made.items():
            write_bytes(path, data)


def drawer(
    wanted: Wanted,
    curve: Curve | None,
    result: Result | None,
    read: Callable[[], Drawn | None],
) -> Callable[[], Figure]:
    """Return the function that draws the picture asked for.

    Parameters
    ----------
    wanted : Wanted
        What is asked for.
    curve : Curve, optional
        The curve that the file holds.
    result : Result, optional
        The result that it holds.
    read : callable
        Returns the schedule, None where there is only an instance.

    Returns
    -------
    callable
        Draws the figure.

    Raises
    ------
    InputError
        The files hold nothing of the kind.
    """
    picture, title = wanted.picture or _usual(curve, result), wanted.title
    if (picture is FigureKind.CURVE) is not (curve is not None):
        held = "a curve" if curve is not None else "no curve"
        raise InputError(f"this file holds {held}", field=f"--picture {picture}")
    if curve is not None:
        return lambda: plot.curve(curve, title=title, inches=wanted.inches or SHEET.column_inches)
    if picture is FigureKind.GAPS:
        if result is None:
            raise InputError("expected a result with heuristics", field="--picture gaps")
        return lambda: plot.gaps(result, title=title, inches=wanted.inches or SHEET.column_inches)
    drawn = read()
    if drawn is None:
        raise InputError("expected a RESULT or --heuristic NAME beside it to draw a schedule")
    has_rows, inches = picture is FigureKind.GANTT, wanted.inches or SHEET.page_inches
    return lambda: schedule_figure(drawn, title, inches, has_rows=has_rows)


def _usual(curve: Curve | None, result: Result | None) -> FigureKind:
    """Return the usual picture of a file."""
    if curve is not None:
        return FigureKind.CURVE
    has_gaps = result is not None and result.schedule is None and result.heuristics
    return FigureKind.GAPS if has_gaps else FigureKind.GANTT

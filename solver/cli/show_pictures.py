"""Pictures that ``ppsolve show`` writes to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import Result
from ppsolve.models.curve import Curve
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.files import write_bytes
from ppsolve.solver.cli.inputs import refuse_given
from ppsolve.solver.cli.options import value
from ppsolve.solver.cli.output import check_outputs
from ppsolve.solver.render.drawings import Drawn
from ppsolve.solver.render.line_chart import figure_bytes, require_matplotlib
from ppsolve.solver.render.plot import pictures as plot
from ppsolve.solver.render.plot.schedule import schedule_figure
from ppsolve.solver.render.plot.sheet import PAPER, SHEET

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FigureKind(StrEnum):
    """What a figure shows."""

    GANTT = "gantt"
    MEMORY = "memory"
    GAPS = "gaps"
    CURVE = "curve"


def picture_file(kind: str) -> Any:
    """Return the option of the file that a picture of a format goes to."""
    help_text = f"Draw a picture into this {kind.upper()} file instead (needs matplotlib)."
    return value("FILE", help_text, f"--{kind}")


@dataclass(frozen=True)
class WantedPictures:
    """The pictures that are asked for."""

    files: dict[str, Path | None]  # by format: png, svg, pdf
    picture: FigureKind | None  # what they show
    title: str | None  # their first line
    inches: float | None  # their width

    @property
    def is_any(self) -> bool:
        """Whether anything is to be drawn."""
        return any(self.files.values())

    def check(self, *inputs: Path) -> None:
        """Raise InputError, naming the option, if they could not be drawn or written in the end."""
        if not self.is_any:
            given = {"--picture": self.picture, "--title": self.title, "--inches": self.inches}
            refuse_given(given, "expected --png, --svg or --pdf FILE beside it")
            return
        if self.inches is not None and not 2 <= self.inches <= 40:
            raise InputError(f"expected 2 to 40, got {self.inches:g}", field="--inches")
        options = {f"--{kind}": path for kind, path in self.files.items()}
        require_matplotlib(next(option for option, path in options.items() if path))
        check_outputs(options, *inputs)

    def write(self, draw: Callable[[], Figure]) -> None:
        """Write every file, each whole or not at all; `draw` returns the figure."""
        # All are drawn before any is written, so that a figure that fails leaves nothing behind.
        made = {path: figure_bytes(draw, kind, PAPER) for kind, path in self.files.items() if path}
        for path, data in made.items():
            write_bytes(path, data)


def drawer(
    wanted: WantedPictures,
    curve: Curve | None,
    result: Result | None,
    read: Callable[[], Drawn | None],
) -> Callable[[], Figure]:
    """Return the function that draws the wanted picture.

    Parameters
    ----------
    wanted : WantedPictures
        The options.
    curve, result : Curve and Result, optional
        What the file holds.
    read : callable
        Returns the schedule; None if there is only an instance.

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
    if curve is not None:
        return FigureKind.CURVE
    has_gaps = result is not None and result.schedule is None and result.heuristics
    return FigureKind.GAPS if has_gaps else FigureKind.GANTT

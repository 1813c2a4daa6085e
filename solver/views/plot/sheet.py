"""Figures in the size of a paper's column or page: letters, titles, legends."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.printable import printable
from ppsolve.solver.views.figures import shorten
from ppsolve.solver.views.line_chart import STYLE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SheetLayout:
    """Sizes in points where nothing else is said."""

    column_inches: float = 3.4  # one column of IEEE's and ACM's two-column papers
    page_inches: float = 7.0  # both columns
    inch: float = 72.0
    name: float = 7.0  # size of letters; captions of papers are set in 8 or 9
    letter: float = 4.0  # width of one of them
    longest_name: int = 20  # letters
    most_bars: int = 30  # of heuristics, the best ones; more would fill a page
    line: float = 11.0  # a line of text above or below all panels
    axis: float = 26.0  # below the lowest panel, for its axis and what that counts
    patch: float = 24.0  # of an entry of a legend, with its gaps


SHEET = SheetLayout()
INK, FAINT, PALE = "#000000", "#666666", "#efefef"

# Thin lines and small letters, for a paper. 200 dots per inch: 1,400 over a page.
PAPER = {
    **STYLE,
    "savefig.dpi": 200,
    "font.size": SHEET.name,
    "axes.titlesize": 8.0,
    "axes.grid": False,
    "axes.linewidth": 0.6,
    "axes.titlepad": 4.0,
    "xtick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.width": 0.6,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
    "legend.handlelength": 1.4,
    "text.parse_math": False,
}


def named(text: str) -> str:
    """Return a name as it may stand in a figure: no control characters, not too long."""
    return shorten(printable(text), SHEET.longest_name)


def png_of(figure: Figure) -> bytes:
    """Return a figure as a notebook shows it."""
    stream = io.BytesIO()
    # 7 inches are 770 dots, as wide as a cell of a usual screen.
    figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()


def sheet_of(
    inches: float,
    heights: Sequence[float],
    legend: Sequence[Artist] = (),
    lines: int = 0,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels one below the other on one axis, and a legend below them.

    Heights of the panels are in points; `lines` of text stand above panels, in all.
    """
    from matplotlib.figure import Figure

    labels = [str(entry.get_label()) for entry in legend]
    widest = max(map(len, labels), default=1) * SHEET.letter + SHEET.patch
    columns = max(int(inches * SHEET.inch / widest), 1)
    below = SHEET.axis + SHEET.line * math.ceil(len(labels) / columns)
    height = sum(heights) + SHEET.line * lines + below
    figure = Figure((inches, height / SHEET.inch), layout="constrained")
    figure._repr_png_ = lambda: png_of(figure)  # type: ignore[attr-defined]  # for notebooks
    shape: dict[str, Any] = {"squeeze": False, "height_ratios": list(heights)}
    panels = figure.subplots(len(heights), sharex=True, **shape)[:, 0]
    for upper in panels[:-1]:
        upper.tick_params(axis="x", bottom=False)
    if labels:
        anchor: dict[str, Any] = {"loc": "outside lower left", "borderpad": 0}
        figure.legend(handles=list(legend), ncols=columns, **anchor)
    return figure, list(panels)


def width_in(axes: Axes) -> float:
    """Lay out the panels of a figure for good, and return the width of one in points."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return float(axes.get_window_extent().width / figure.dpi * SHEET.inch)


def write_title(axes: Axes, title: str, caption: str = "", *, above: int = 0) -> None:
    """Write a title above a panel, and a caption below it; nothing where the title is empty.

    `above` lines stay free between them and the panel.
    """
    if not title:
        return
    limit = int(axes.figure.get_figwidth() * SHEET.inch / SHEET.letter)  # type: ignore[union-attr]
    pad = 4 + SHEET.line * above
    label = shorten(printable(caption), limit)
    axes.set_title(shorten(printable(title), limit), pad=pad + SHEET.line * bool(label))
    coordinates: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
    }
    axes.annotate(label, (0, 1), (0, pad), color=FAINT, in_layout=False, **coordinates)

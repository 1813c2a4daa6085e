"""The sheet of a figure: its size, and panels one below the other at places of our own.

Panels are placed by hand, so that it is known before drawing how wide an op will be and whether
its name fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.figures import shorten
from ppsolve.solver.render.line_chart import STYLE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 72.0
"""Points of an inch."""

COLUMN_INCHES, PAGE_INCHES = 3.4, 7.0
"""Width of one column and of both columns of a page of IEEE's and ACM's two-column papers."""

NAME_SIZE, TITLE_SIZE = 7.0, 8.0
"""Sizes of letters in points; captions of papers are set in 8 or 9."""

LETTER = 0.64
"""Width of a digit of DejaVu Sans in multiples of its size; most other letters are narrower."""

PROSE = 0.85
"""Width of a letter of a sentence in multiples of that of a digit, blanks included."""

LONGEST_NAME = 20

EDGE, AXIS = 4.0, 24.0
"""Points at the edges, and below the lowest panel for its axis and what that counts."""

LINE, ABOVE = 1.4 * TITLE_SIZE, 11.0
"""Points of a line above panels, and between lines and panels for words at bounds."""

INK, FAINT, PALE = "#000000", "#666666", "#efefef"

PAPER = {
    **STYLE,
    "savefig.dpi": 200,
    "font.size": NAME_SIZE,
    "axes.titlesize": TITLE_SIZE,
    "axes.grid": False,
    "axes.linewidth": 0.6,
    "axes.titlepad": 4.0,
    "xtick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.width": 0.6,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.5,
    "text.parse_math": False,
}
"""Thin lines and small letters, for a paper. 200 dots per inch: 1,400 over a page."""


def named(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a name as it may stand in a figure: no control characters, not too long.

    Parameters
    ----------
    text : str
        Any text.
    longest : int
        Most characters.

    Returns
    -------
    str
        The name.
    """
    return shorten(printable(text), longest)


def width_of(text: str, size: float = NAME_SIZE) -> float:
    """Return about how wide a text is, in points.

    Parameters
    ----------
    text : str
        The text.
    size : float
        Size of its letters in points.

    Returns
    -------
    float
        Its width, rather too large than too small.
    """
    return len(text) * size * LETTER


def cut(text: str, room: float, size: float = NAME_SIZE) -> str:
    """Return the beginning of a text that fits.

    Parameters
    ----------
    text : str
        The text.
    room : float
        Width in points.
    size : float
        Size of its letters in points.

    Returns
    -------
    str
        All of it, or its beginning and a tilde.
    """
    return shorten(text, max(int(room / (size * LETTER * PROSE)), 1))


@dataclass(frozen=True)
class Sheet:
    """A figure and the margins of its panels, all in points.

    Parameters
    ----------
    figure : Figure
        The figure.
    left, right : float
        Margins beside all panels.
    """

    figure: Figure
    left: float
    right: float

    @classmethod
    def of(cls, inches: float, height: float, left: float, right: float) -> Sheet:
        """Return an empty sheet.

        Parameters
        ----------
        inches : float
            Its width.
        height : float
            Its height, in points.
        left, right : float
            Margins beside all panels, in points.

        Returns
        -------
        Sheet
            The sheet.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from ppsolve.solver.render.plot.paper import PaperFigure

        figure = PaperFigure(figsize=(inches, height / POINTS))
        FigureCanvasAgg(figure)
        return cls(figure, left, right)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in points."""
        width, height = self.figure.get_size_inches()
        return float(width) * POINTS, float(height) * POINTS

    @property
    def room(self) -> float:
        """Width of every panel in points."""
        return self.size[0] - self.left - self.right

    def panel(self, top: float, height: float) -> Axes:
        """Return a new panel.

        Parameters
        ----------
        top : float
            Its upper edge, in points from that of the sheet.
        height : float
            Its height in points.

        Returns
        -------
        Axes
            The panel.
        """
        width, whole = self.size
        bottom = 1 - (top + height) / whole
        return self.figure.add_axes((self.left / width, bottom, self.room / width, height / whole))

    def title(self, title: str, *captions: str) -> None:
        """Write the lines above all panels, cut to the width of the sheet.

        Parameters
        ----------
        title : str
            First line; where it is empty nothing is written.
        *captions : str
            Second line: the first of them that fits, else the last one.
        """
        width, height = self.size
        wide = (width - 2 * EDGE) / PROSE
        caption = next((c for c in captions if width_of(c) <= wide), captions[-1])
        longest = max(width_of(title, TITLE_SIZE), width_of(caption)) * PROSE
        left = self.left if self.left + longest <= width - EDGE else EDGE
        room = width - EDGE - left
        place = left / width, 1 - EDGE / height
        look: dict[str, Any] = {"ha": "left", "va": "top"}
        if title:
            bold = cut(printable(title), room, TITLE_SIZE)
            self.figure.text(*place, bold, fontsize=TITLE_SIZE, fontweight="bold", **look)
        if title and caption:
            below = place[1] - LINE / height
            self.figure.text(place[0], below, cut(printable(caption), room), color=FAINT, **look)

    def legend(self, entries: Sequence[Artist], top: float) -> None:
        """Write a legend, as many entries in a line as fit.

        Parameters
        ----------
        entries : sequence of Artist
            Patches and lines with labels.
        top : float
            Its upper edge, in points from that of the sheet.
        """
        width, whole = self.size
        for place, line in enumerate(legend_lines(entries, self.room)):
            self.figure.legend(
                handles=line,
                loc="upper left",
                bbox_to_anchor=(self.left / width, 1 - (top + place * LEGEND_LINE) / whole),
                ncols=len(line),
                columnspacing=COLUMN_GAP,
                handlelength=HANDLE,
                handletextpad=HANDLE_GAP,
                borderpad=0,
                borderaxespad=0,
            )


HANDLE, HANDLE_GAP, COLUMN_GAP = 1.4, 0.5, 1.4
"""Widths of a patch, of the gap behind it and behind a label, in multiples of the letters' size."""

LEGEND_LINE = 1.5 * NAME_SIZE
"""Points from one line of a legend to the next."""


def legend_lines(entries: Sequence[Artist], room: float) -> list[list[Artist]]:
    """Return the entries of a legend line by line.

    Parameters
    ----------
    entries : sequence of Artist
        Patches and lines with labels.
    room : float
        Width in points.

    Returns
    -------
    list of list of Artist
        No line is empty; only a single entry may be wider than the room.
    """
    lines: list[list[Artist]] = []
    left = 0.0
    for entry in entries:
        own = width_of(str(entry.get_label())) * PROSE
        own += (HANDLE + HANDLE_GAP + COLUMN_GAP) * NAME_SIZE
        if not lines or own > left:
            lines.append([])
            left = room
        lines[-1].append(entry)
        left -= own
    return lines

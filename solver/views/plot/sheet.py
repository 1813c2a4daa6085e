"""The sheet of a figure: its size, and panels one below the other at places of our own.

Panels are placed by hand, so that it is known before drawing how wide an op will be and whether
its name fits.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.printable import printable
from ppsolve.solver.views.figures import shorten
from ppsolve.solver.views.line_chart import STYLE
from ppsolve.solver.views.pieces import text_width

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
    title: float = 8.0
    prose: float = 0.85  # width of a letter of a sentence in multiples of that of a digit
    longest_name: int = 20  # letters
    edge: float = 4.0
    axis: float = 24.0  # below the lowest panel, for its axis and what that counts
    line: float = 11.2  # a line above panels
    above: float = 11.0  # between lines and panels, for words at bounds
    legend_line: float = 10.5
    # Widths of a patch and of the gaps behind it and its label, in multiples of the letters' size.
    handle: float = 1.4
    handle_gap: float = 0.5
    column_gap: float = 1.4


SHEET = SheetLayout()
INK, FAINT, PALE = "#000000", "#666666", "#efefef"

# Thin lines and small letters, for a paper. 200 dots per inch: 1,400 over a page.
PAPER = {
    **STYLE,
    "savefig.dpi": 200,
    "font.size": SHEET.name,
    "axes.titlesize": SHEET.title,
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


def named(text: str) -> str:
    """Return a name as it may stand in a figure: no control characters, not too long."""
    return shorten(printable(text), SHEET.longest_name)


def width_of(text: str) -> float:
    """Return about how wide a name is, in points."""
    return text_width(text, SHEET.name)


def _cut(text: str, room: float, size: float = SHEET.name) -> str:
    return shorten(text, max(int(room / (text_width("0", size) * SHEET.prose)), 1))


def png_of(figure: Figure) -> bytes:
    """Return a figure as a notebook shows it."""
    stream = io.BytesIO()
    # 7 inches are 770 dots, as wide as a cell of a usual screen.
    figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()


@dataclass(frozen=True)
class Sheet:
    """A figure and the margins beside all its panels, in points."""

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
        height, left, right : float
            Its height and margins beside all panels, in points.

        Returns
        -------
        Sheet
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from ppsolve.solver.views.plot.paper import PaperFigure

        figure = PaperFigure(figsize=(inches, height / SHEET.inch))
        FigureCanvasAgg(figure)
        return cls(figure, left, right)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in points."""
        width, height = self.figure.get_size_inches()
        return float(width) * SHEET.inch, float(height) * SHEET.inch

    @property
    def room(self) -> float:
        """Width of every panel in points."""
        return self.size[0] - self.left - self.right

    def panel(self, top: float, height: float) -> Axes:
        """Return a new panel.

        Parameters
        ----------
        top, height : float
            Its upper edge, from that of the sheet, and its height, in points.

        Returns
        -------
        Axes
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
        if not title:
            return
        width, height = self.size
        wide = (width - 2 * SHEET.edge) / SHEET.prose
        caption = next((c for c in captions if width_of(c) <= wide), captions[-1])
        longest = max(text_width(title, SHEET.title), width_of(caption)) * SHEET.prose
        left = self.left if self.left + longest <= width - SHEET.edge else SHEET.edge
        room = width - SHEET.edge - left
        x, y = left / width, 1 - SHEET.edge / height
        look: dict[str, Any] = {"ha": "left", "va": "top"}
        bold = _cut(printable(title), room, SHEET.title)
        self.figure.text(x, y, bold, fontsize=SHEET.title, fontweight="bold", **look)
        if caption:
            shown = _cut(printable(caption), room)
            self.figure.text(x, y - SHEET.line / height, shown, color=FAINT, **look)

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
                bbox_to_anchor=(self.left / width, 1 - (top + place * SHEET.legend_line) / whole),
                ncols=len(line),
                columnspacing=SHEET.column_gap,
                handlelength=SHEET.handle,
                handletextpad=SHEET.handle_gap,
                borderpad=0,
                borderaxespad=0,
            )


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
    gaps = (SHEET.handle + SHEET.handle_gap + SHEET.column_gap) * SHEET.name
    lines: list[list[Artist]] = []
    left = 0.0
    for entry in entries:
        width = width_of(str(entry.get_label())) * SHEET.prose + gaps
        if not lines or width > left:
            lines.append([])
            left = room
        lines[-1].append(entry)
        left -= width
    return lines

"""The figure itself; importing this loads matplotlib, so others import it when they draw."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

# Dots per inch in a notebook: 7 inches are 770, as wide as a cell of a usual screen.
NOTEBOOK_DOTS = 110


class PaperFigure(Figure):
    """A figure that notebooks show, whether or not pyplot has set up a backend."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=NOTEBOOK_DOTS)
        return stream.getvalue()

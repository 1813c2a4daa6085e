"""The figure itself; importing this loads matplotlib, so others import it when they draw."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class PaperFigure(Figure):
    """A figure that notebooks show, whether or not pyplot has set up a backend."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        # 7 inches are 770 dots, as wide as a cell of a usual screen.
        self.savefig(stream, format="png", dpi=110)
        return stream.getvalue()

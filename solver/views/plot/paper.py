"""The figure itself; importing this loads matplotlib, so others import it when they draw."""

from __future__ import annotations

from matplotlib.figure import Figure

from ppsolve.solver.views.plot.sheet import png_of


class PaperFigure(Figure):
    """A figure that notebooks show, whether or not pyplot has set up a backend."""

    def _repr_png_(self) -> bytes:
        return png_of(self)

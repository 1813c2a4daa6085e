"""Curves under a chart: an amount over time as one row of blocks, on the chart's own axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ppsolve.solver.render.axis import Window

BLOCKS, DIGITS = " ▁▂▃▄▅▆▇█", " 12345678"
_TOUCH = 1e-9
"""Shares of a column below this are rounding."""


@dataclass(frozen=True)
class AmountCurve:
    """An amount over time.

    Parameters
    ----------
    name : str
        What is counted.
    points : sequence of (time, amount)
        The amount from each time on, times ascending; 0 before the first.
    """

    name: str
    points: Sequence[tuple[float, float]]

    @property
    def most(self) -> float:
        """The largest amount."""
        return max((amount for _, amount in self.points), default=0)

    def columns(self, window: Window, width: int) -> list[float]:
        """Return the largest amount in each of `width` columns of a window of time.

        Parameters
        ----------
        window : (float, float)
            First and last time.
        width : int
            Number of columns.

        Returns
        -------
        list of float
            Amounts, one per column.
        """
        first, last = window
        found = [0.0] * width
        scale = width / (last - first) if last > first else 0.0
        for (start, amount), (end, _) in pairwise([*self.points, (last, 0)]):
            left = max(math.floor((start - first) * scale + _TOUCH), 0)
            right = min(math.ceil((end - first) * scale - _TOUCH), width)
            for column in range(left, right):
                found[column] = max(found[column], amount)
        return found

    def drawn(self, window: Window, width: int, *, plain: bool) -> str:
        """Return the curve as blocks (digits if `plain`), full height at its largest amount.

        Parameters
        ----------
        window : (float, float)
            First and last time.
        width : int
            Number of columns.
        plain : bool
            Use no character beyond ASCII.

        Returns
        -------
        str
            `width` characters.
        """
        levels, most = DIGITS if plain else BLOCKS, self.most
        return "".join(
            levels[math.ceil(amount / most * (len(levels) - 1))] if amount > 0 else levels[0]
            for amount in self.columns(window, width)
        )

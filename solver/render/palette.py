"""Colours of pages and pictures: those of Okabe and Ito, which colour-blind people tell apart."""

from __future__ import annotations

from ppsolve.models.core.result import SHOWN_TRANSFER
from ppsolve.models.kfac.labels import KIND_OF, PRECONDITION_KIND
from ppsolve.models.pipeline.lowering import (
    ALL_GATHER_KIND,
    ALLREDUCE_KIND,
    ALLREDUCE_KINDS,
    OPTIMIZER_KIND,
    REDUCE_SCATTER_KIND,
)
from ppsolve.solver.render.colours import SEEN_EQUAL, luminance_of
from ppsolve.solver.render.looks import COLLECTIVE_KIND, GENERIC_KIND, KERNEL_KIND, WAIT_KIND

ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#999999"

SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Colours of lines, the first ones farthest apart."""

Look = tuple[str, bool]
"""Colour, and whether it is hatched, so that a second kind of the same colour differs."""

LOOKS: dict[str, Look] = {
    "F": (SKY, False),
    "B": (VERMILION, False),
    "I": (ORANGE, False),
    "W": (GREEN, False),
    OPTIMIZER_KIND: (YELLOW, False),
    SHOWN_TRANSFER: (GREY, False),
    ALLREDUCE_KIND: (PURPLE, False),
    **dict.fromkeys(ALLREDUCE_KINDS.values(), (PURPLE, False)),
    ALL_GATHER_KIND: (GREEN, True),
    REDUCE_SCATTER_KIND: (ORANGE, True),
    KIND_OF["cov", "A"]: (BLUE, False),
    KIND_OF["cov", "B"]: (PURPLE, False),
    KIND_OF["sync", "A"]: (YELLOW, True),
    KIND_OF["sync", "B"]: (GREEN, True),
    KIND_OF["inv", "A"]: (BLUE, True),
    KIND_OF["inv", "B"]: (PURPLE, True),
    PRECONDITION_KIND: (ORANGE, True),
    KERNEL_KIND: (SKY, False),
    WAIT_KIND: (GREY, True),
    "reduce-scatter": (ORANGE, False),
    "all-gather": (GREEN, False),
    "all-reduce": (PURPLE, False),
    "all-to-all": (VERMILION, False),
    COLLECTIVE_KIND: (YELLOW, False),
    GENERIC_KIND: (SKY, False),
}
"""By kind of op; a letter tells kinds apart without any colour."""

UNKNOWN: Look = (GREY, True)

SECOND_SHADE = 0.72
"""Stages of one device take turns in two shades; `marks.js` has the same one."""


def colour_of(kind: str) -> Look:
    """Return the colour of a kind of op, and whether it is hatched."""
    return LOOKS.get(kind, UNKNOWN)


def channels(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255, of a colour such as ``#e69f00``."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def darker(colour: str) -> str:
    """Return the second shade of a colour, as pages have it: 0.72 of each part."""
    return "#" + "".join(f"{round(part * SECOND_SHADE):02x}" for part in channels(colour))


def lightened(colour: str, share: float) -> str:
    """Return a colour mixed with white.

    Parameters
    ----------
    colour : str
        Such as ``#e69f00``.
    share : float
        How much of the mixture is white, 0 to 1.

    Returns
    -------
    str
        The mixture, written alike.
    """
    mixed = (round(part + (255 - part) * share) for part in channels(colour))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def ink_on(colour: str) -> str:
    """Return black or white, whichever is read better on a colour such as ``#e69f00``."""
    return "#000000" if luminance_of(channels(colour)) > SEEN_EQUAL else "#ffffff"

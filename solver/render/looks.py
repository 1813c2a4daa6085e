"""How ops of each kind look in a chart: their words in the legend, their letter, their colours."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style

from ppsolve.models.core.result import SHOWN_TRANSFER
from ppsolve.models.kfac.labels import KIND_OF, PRECONDITION_KIND
from ppsolve.models.pipeline.lowering import (
    ALL_GATHER_KIND,
    ALLREDUCE_KIND,
    ALLREDUCE_KINDS,
    OPTIMIZER_KIND,
    REDUCE_SCATTER_KIND,
)
from ppsolve.solver.render.colours import text_colour

GENERIC_KIND, WAIT_KIND = "op", "wait"
KERNEL_KIND, COLLECTIVE_KIND = "kernel", "collective"


@dataclass(frozen=True)
class Look:
    """How one kind looks.

    Parameters
    ----------
    words : str
        What the legend says, the letter first; empty if it says nothing.
    colours : tuple of int
        Of the terminal's 256 colours: one per shade; without any the op is dim.
    """

    words: str
    colours: tuple[int, ...]

    def style(self, shade: int) -> Style:
        """Return the style of an op of this kind."""
        if not self.colours:
            return Style(dim=True)
        colour = self.colours[shade % len(self.colours)]
        return Style(color=f"color({text_colour(colour)})", bgcolor=f"color({colour})")


PIPELINE = {
    "F": Look("F forward", (75, 33)),
    "B": Look("B backward", (172, 130)),
    "I": Look("I input gradient", (230, 187)),
    "W": Look("W weight gradient", (35, 29)),
    OPTIMIZER_KIND: Look("O optimizer", (250,)),
}
KFAC = {
    KIND_OF["cov", "A"]: Look("C curvature A", (227, 220)),
    KIND_OF["cov", "B"]: Look("D curvature B", (120, 113)),
    KIND_OF["sync", "A"]: Look("S sync A", (53, 17)),
    KIND_OF["sync", "B"]: Look("T sync B", (88, 52)),
    KIND_OF["inv", "A"]: Look("X inversion A", (21, 20)),
    KIND_OF["inv", "B"]: Look("Y inversion B", (96, 61)),
    PRECONDITION_KIND: Look("P preconditioning", (117, 74)),
}
"""K-FAC work: no letter is that of a pipeline op, whose small letters mean other stages.

Any two colours of two kinds of these and of `PIPELINE`, shades included, are 21 or more apart (CIE
1976 difference) in normal sight and without red or green cones (Brettel, Vienot and Mollon 1999).
They were searched for by annealing over the 256 colours, from those of Okabe and Ito for B, I, W.
"""

COLLECTIVES = {
    ALLREDUCE_KIND: Look("A all-reduce", (176,)),
    **dict.fromkeys(ALLREDUCE_KINDS.values(), Look("A all-reduce", (176, 133))),
    ALL_GATHER_KIND: Look("G all-gather", (114,)),
    REDUCE_SCATTER_KIND: Look("S reduce-scatter", (222,)),
}
"""Collectives of pipelines."""

PROGRAMS = {
    KERNEL_KIND: Look("kernel, by its first letter", (75, 33)),
    WAIT_KIND: Look("w wait holds the compute stream", ()),
    "reduce-scatter": Look("S reduce-scatter", (222, 178)),
    "all-gather": Look("G all-gather", (114, 71)),
    "all-reduce": Look("R all-reduce", (176, 133)),
    "all-to-all": Look("X all-to-all", (216, 209)),
    COLLECTIVE_KIND: Look("C collective", (152, 109)),
}
LOOKS = {
    **PIPELINE,
    **KFAC,
    **COLLECTIVES,
    **PROGRAMS,
    SHOWN_TRANSFER: Look("> < transfers", (152,)),
    GENERIC_KIND: Look("", (75, 216, 114, 176, 222)),
}


def look_of(kind: str) -> Look:
    """Return the look of ops of a kind; unknown kinds are grey, with their first letter."""
    return LOOKS.get(kind, Look("", (252,)))


def letter_of(kind: str) -> str:
    """Return the letter of a kind."""
    return (look_of(kind).words or kind)[0]

"""Colours of op kinds on a page: those of Okabe and Ito, which colour-blind people tell apart."""

from __future__ import annotations

from ppsolve.models.core.result import SHOWN_TRANSFER
from ppsolve.models.kfac.op_kinds import KIND_OF, PRECONDITION_KIND
from ppsolve.models.pipeline.collectives import (
    ALL_GATHER_KIND,
    ALLREDUCE_KINDS,
    REDUCE_SCATTER_KIND,
)
from ppsolve.models.pipeline.lowering import ALLREDUCE_KIND, OPTIMIZER_KIND
from ppsolve.solver.render.looks import COLLECTIVE_KIND, GENERIC_KIND, KERNEL_KIND, WAIT_KIND

ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
BLUE, VERMILION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#999999"

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


def colour_of(kind: str) -> Look:
    """Return the colour of a kind of op, and whether it is hatched."""
    return LOOKS.get(kind, UNKNOWN)

"""The passes' own estimate of an order: a figure to show beside the true time, no objective."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance

SEED_FAILURE = (
    "Found two collectives running at the same time. "
    "`visualize_overlap` needs to be updated to handle this case"
)
"""Inductor's own message for orders that its estimate cannot handle."""


def estimate(instance: OverlapInstance, order: Sequence[int]) -> Fraction:
    """Estimate the run time of an order as Inductor's passes do.

    Along the order every collective adds its time; a compute node adds its own only where no
    collective came after the last wait.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    order : sequence of int
        A valid order: places in the program.

    Returns
    -------
    Fraction
        Estimate in the instance's unit; no objective, and often far from the true time.
    """
    return _walk(instance, order)[0]


def estimate_seed(
    instance: OverlapInstance, order: Sequence[int]
) -> tuple[Fraction | None, str | None]:
    """Estimate the run time as an older version of the passes does.

    It fails on an order with two collectives and no wait between them.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    order : sequence of int
        A valid order: places in the program.

    Returns
    -------
    (Fraction or None, str or None)
        Estimate in the instance's unit, or None and the reason.
    """
    total, is_overlapping = _walk(instance, order)
    return (None, SEED_FAILURE) if is_overlapping else (total, None)


def _walk(instance: OverlapInstance, order: Sequence[int]) -> tuple[Fraction, bool]:
    total = Fraction(0)
    is_open = is_overlapping = False
    for place in order:
        node = instance.nodes[place]
        if node.kind is NodeKind.WAIT:
            is_open = False
            continue
        is_comm = node.kind is NodeKind.COMM
        is_overlapping |= is_comm and is_open
        if is_comm or not is_open:
            total += Fraction(node.duration)
        is_open |= is_comm
    return total, is_overlapping

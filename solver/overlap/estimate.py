"""The passes' own estimate of an order: a figure to show beside the true time, no objective."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ppsolve.models.overlap.instance import NodeKind, OverlapInstance

SEED_FAILURE = (
    "Found two collectives running at the same time. "
    "`visualize_overlap` needs to be updated to handle this case"
)
"""What the estimate says of orders that it cannot handle."""


def estimate(instance: OverlapInstance, order: Sequence[int]) -> Fraction:
    """Return the estimated run time, in the instance's unit.

    Along the order every collective adds its time; a compute node adds its own only where no
    collective came after the last wait.
    """
    return _walk(instance, order)[0]


def estimate_seed(
    instance: OverlapInstance, order: Sequence[int]
) -> tuple[Fraction | None, str | None]:
    """Return the estimated run time of an older version, or None and its reason.

    It fails on an order with two collectives and no wait between them.
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

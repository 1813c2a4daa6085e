"""A bound on device spans that sees all devices at once: none may begin long before it ends."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.reason import Reason
from ppsolve.solver.bounds.spans import Spans
from ppsolve.solver.clock import Clock

MOST_ROUNDS = 16
"""Rounds at most. Of 600 uneven linear and V placements (3 x 3 to 16 x 16, times from 1 to 9) 13
bounds rose, by up to 5.3 %, in 3 to 8 rounds or all of these; the others took 2 or 3."""


def joint_spans(spans: Spans, clock: Clock) -> Reason:
    """Return a lower bound on the device span by the spans of all devices together.

    Let no device begin before b, a time for each; G(b) bounds when each ends. Begins that all move
    by c move all ends by c. Take a schedule of span T with begins b*, and c, the least of b* - b:
    the device where it is least begins at b + c and ends no sooner than G(b) + c, so that T is at
    least the least of G(b) - b. In the same way k T is at least the least of x - b, where x comes
    from b by k rounds of G. Each round takes the ends of the one before for begins: where devices
    wait for each other in a circle, all grow by the mean of the longest circle after some rounds.

    Parameters
    ----------
    spans : Spans
        Heads and tails of D devices.
    clock : Clock
        A round that it cuts is not counted.

    Returns
    -------
    Reason
        Lower bound on the device span in ticks; it is about no single resource.
    """
    devices = [d for d, r in enumerate(spans.resources) if len(spans.busy[r])]
    begins: list[IntArray] = [np.zeros(len(spans.resources), dtype=np.int64)]
    best = 0
    while devices and len(begins) <= MOST_ROUNDS:
        latest = _ends(spans, devices, begins[-1], clock)
        if latest is None:
            break
        for rounds, earlier in enumerate(reversed(begins), 1):
            best = max(best, -(int((earlier - latest)[devices].max()) // rounds))
        if int((latest - begins[-1]).max()) <= best:
            break
        begins.append(latest)
    return Reason(best)


def _ends(spans: Spans, devices: list[int], begins: IntArray, clock: Clock) -> IntArray | None:
    """Return bounds on the ends of devices, None if there is no time to find all of them."""
    heads, latest = spans.heads_from(begins), begins.copy()
    for device in devices:
        if clock.is_over:
            return None
        latest[device] = spans.end_after(device, heads).value
    return latest

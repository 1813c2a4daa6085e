"""The preemptive one-machine relaxation: the least end of a single resource by itself."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from ppsolve.models.core.problem import IntArray


def preemptive_bound(heads: IntArray, durations: IntArray, tails: IntArray) -> int:
    """Return the least end of one resource when ops may be interrupted.

    Jackson's preemptive rule: always run the available op with the longest tail. Exact for the
    relaxation in O(n log n) (Carlier and Pinson 1989).

    Parameters
    ----------
    heads : int64[n]
        Earliest start of each op, in ticks.
    durations : int64[n]
        Durations in ticks.
    tails : int64[n]
        Least time from the end of each op to the end of the schedule, in ticks.

    Returns
    -------
    int
        Lower bound on the end of the schedule in ticks, 0 for no ops.
    """
    order = np.argsort(heads, kind="stable")
    head = heads[order].tolist()
    left = durations[order].tolist()
    tail = tails[order].tolist()
    waiting: list[tuple[int, int]] = []
    now = best = 0
    position, count = 0, len(head)
    while position < count or waiting:
        if not waiting and head[position] > now:
            now = head[position]
        while position < count and head[position] <= now:
            heappush(waiting, (-tail[position], position))
            position += 1
        longest, op = waiting[0]
        until = head[position] if position < count else None
        if until is None or now + left[op] <= until:
            now += left[op]
            heappop(waiting)
            best = max(best, now - longest)
        else:
            left[op] -= until - now
            now = until
    return best

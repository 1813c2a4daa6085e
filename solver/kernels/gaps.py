"""Free intervals of resources: slots of two flat tables, per resource in time order.

The last gap of a resource never ends, so every op finds one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import part
from ppsolve.solver.kernels.records import ResourceUse

NEVER = 2**62
"""End of the last gap."""


class Gaps(NamedTuple):
    """Free intervals of R resources.

    Attributes
    ----------
    begin, end : int64[...]
        The intervals in ticks; those of resource r in slots low[r]..high[r].
    low, high : int64[R]
        First and last slot of each resource.
    """

    begin: Any
    end: Any
    low: Any
    high: Any


@part
def gap_from(gaps: Gaps, resource: int, time: int, length: int) -> int:
    """Find the earliest gap that is long enough.

    Parameters
    ----------
    gaps : Gaps
        All gaps.
    resource : int
        Resource number.
    time, length : int
        Earliest moment and free ticks required.

    Returns
    -------
    int
        Slot of the gap; the op can start at the later of its begin and `time`.
    """
    begin, end = gaps.begin, gaps.end
    left: int = gaps.low[resource]
    right: int = gaps.high[resource]
    if begin[right] <= time:
        return right
    place = left
    while left < right:
        middle = (left + right) >> 1
        if begin[middle] > time:
            right = middle
        else:
            left = middle + 1
            place = middle
    while end[place] - (begin[place] if begin[place] > time else time) < length:
        place += 1
    return place


@part
def cut_gap(gaps: Gaps, resource: int, place: int, time: int, until: int) -> None:
    """Occupy an interval that lies inside one gap.

    Parameters
    ----------
    gaps : Gaps
        All gaps.
    resource, place : int
        Resource number and slot of the gap.
    time, until : int
        The interval, in ticks.
    """
    begin, end, high = gaps.begin, gaps.end, gaps.high[resource]
    if time == begin[place]:
        begin[place] = until
        if until < end[place]:
            return
        for slot in range(place, high):
            begin[slot], end[slot] = begin[slot + 1], end[slot + 1]
        gaps.high[resource] = high - 1
        return
    rest, end[place] = end[place], time
    if until == rest:
        return
    for slot in range(high, place, -1):
        begin[slot + 1], end[slot + 1] = begin[slot], end[slot]
    begin[place + 1], end[place + 1] = until, rest
    gaps.high[resource] = high + 1


@part
def block(gaps: Gaps, resource: int, time: int, until: int) -> None:
    """Occupy an interval, any part of which may be occupied already.

    Parameters
    ----------
    gaps : Gaps
        All gaps.
    resource : int
        Resource number.
    time, until : int
        The interval, in ticks.
    """
    place = gap_from(gaps, resource, time, 0)
    while place <= gaps.high[resource] and gaps.begin[place] < until:
        begin, end, high = gaps.begin[place], gaps.end[place], gaps.high[resource]
        begin = begin if begin > time else time
        end = end if end < until else until
        if begin < end:
            cut_gap(gaps, resource, place, begin, end)
        if gaps.high[resource] >= high:
            place += 1


@part
def free_from(gaps: Gaps, use: ResourceUse, op: int, time: int, length: int) -> int:
    """Find the earliest moment at which all resources of an op are free for its duration.

    Parameters
    ----------
    gaps, use : Gaps, ResourceUse
        All gaps, and what ops occupy.
    op, time, length : int
        The op, its earliest start and its duration, in ticks.

    Returns
    -------
    int
        Moment in ticks, >= `time`.
    """
    first, last = use.pointer[op], use.pointer[op + 1]
    agreed, position = 0, first
    while agreed < last - first:
        moment = gaps.begin[gap_from(gaps, use.resource[position], time, length)]
        agreed += 1
        if moment > time:
            time, agreed = moment, 1
        position = position + 1 if position + 1 < last else first
    return time


@part
def occupy(gaps: Gaps, use: ResourceUse, op: int, time: int, until: int) -> None:
    """Occupy all resources of an op in an interval that is free on them.

    Parameters
    ----------
    gaps, use : Gaps, ResourceUse
        All gaps, and what ops occupy.
    op, time, until : int
        The op and the interval, in ticks.
    """
    for position in range(use.pointer[op], use.pointer[op + 1]):
        resource = use.resource[position]
        place = gap_from(gaps, resource, time, until - time)
        cut_gap(gaps, resource, place, time, until)

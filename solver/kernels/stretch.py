"""Kernel: whether longest paths and loads alone refute a question about a stretch of a schedule."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part

NEVER = -(2**60)
"""Longest path between ops that none connects."""

FAR = 2**60
"""More than any head or tail."""


class Surroundings(NamedTuple):
    """A schedule of n ops; what its stretches wait for, and what waits for them.

    Attributes
    ----------
    duration, release, start : int64[n]
        Duration, earliest and known start of each op, in ticks.
    tail : int64[n]
        Ticks from each op's start to the end of all, the order of all ops kept.
    own_tail : int64[n]
        The same by itself; `NEVER` where the end does not wait for the op.
    source_pointer, source, source_delay : int64[n + 1], int64[k], int64[k]
        Precedences by the op that waits: ticks from start to start.
    target_pointer, target, target_delay : int64[n + 1], int64[k], int64[k]
        Precedences by the op that comes first.
    seat_pointer, seat, seat_before, seat_after : int64[n + 1], int64[s], int64[s], int64[s]
        Resources of each op, and the ops before and behind it there, -1 where there is none.
    """

    duration: Any
    release: Any
    start: Any
    tail: Any
    own_tail: Any
    source_pointer: Any
    source: Any
    source_delay: Any
    target_pointer: Any
    target: Any
    target_delay: Any
    seat_pointer: Any
    seat: Any
    seat_before: Any
    seat_after: Any


class Line(NamedTuple):
    """The sequence of ops that stretches are cut from, and the place of each op in it."""

    op: Any
    place: Any


class Aim(NamedTuple):
    """What a stretch has to gain.

    Attributes
    ----------
    known : int
        Longest path of the schedule, in ticks.
    least : int
        Ticks that a stretch must be able to gain by itself; if it cannot, those of its resources
        that cannot come to the goal are held, and the paths from others are to be shortened.
    goal : int
        Ticks below which paths from other resources need not fall.
    step : int
        Ticks by which they are to be shortened.
    """

    known: int
    least: int
    goal: int
    step: int


class StretchState(NamedTuple):
    """What is noted about the ops of a stretch, and about each resource.

    Attributes
    ----------
    head, exit, tail : int64[n]
        Earliest start in any order of the stretch; ticks from the end of an op to that of all
        through what follows the stretch; ticks from its start to the end of all.
    floor, ceiling : int64[R]
        When a resource is left before the stretch; ticks that it needs from there on behind it.
    least_head, load, least_tail : int64[R]
        Of the ops of the stretch on it; tails are from their ends.
    """

    head: Any
    exit: Any
    tail: Any
    floor: Any
    ceiling: Any
    least_head: Any
    load: Any
    least_tail: Any


def empty_space(ops: int, resources: int) -> StretchState:
    """Return room for the notes of one schedule.

    Parameters
    ----------
    ops : int
        Number of ops n.
    resources : int
        Number of resources R.

    Returns
    -------
    StretchState
        All zero.
    """
    return StretchState(
        *np.zeros((3, ops), dtype=np.int64), *np.zeros((5, resources), dtype=np.int64)
    )


@part
def _set_borders(
    whole: Surroundings, line: Line, first: int, last: int, space: StretchState
) -> None:
    """Note when resources are left before the stretch, and what they need behind it."""
    for r in range(len(space.floor)):
        space.floor[r] = NEVER
        space.ceiling[r] = NEVER
    for place in range(first, last):
        op = line.op[place]
        for row in range(whole.seat_pointer[op], whole.seat_pointer[op + 1]):
            r, before, after = whole.seat[row], whole.seat_before[row], whole.seat_after[row]
            if before >= 0 and line.place[before] < first:
                space.floor[r] = whole.start[before] + whole.duration[before]
            if after >= 0 and line.place[after] >= last:
                space.ceiling[r] = whole.tail[after]


@part
def _set_heads(whole: Surroundings, line: Line, first: int, last: int, space: StretchState) -> None:
    """Note the earliest start of each op, whatever the order within the stretch."""
    for place in range(first, last):
        op = line.op[place]
        moment = whole.release[op]
        for row in range(whole.seat_pointer[op], whole.seat_pointer[op + 1]):
            moment = max(moment, space.floor[whole.seat[row]])
        for row in range(whole.source_pointer[op], whole.source_pointer[op + 1]):
            before, delay = whole.source[row], whole.source_delay[row]
            start = whole.start[before] if line.place[before] < first else space.head[before]
            moment = max(moment, start + delay)
        space.head[op] = moment


@part
def _set_exits(whole: Surroundings, line: Line, first: int, last: int, space: StretchState) -> None:
    """Note the longest path from the end of each op that leaves the stretch at once."""
    for place in range(first, last):
        op = line.op[place]
        rest = whole.own_tail[op] - whole.duration[op]
        for row in range(whole.seat_pointer[op], whole.seat_pointer[op + 1]):
            rest = max(rest, space.ceiling[whole.seat[row]])
        for row in range(whole.target_pointer[op], whole.target_pointer[op + 1]):
            after = whole.target[row]
            if line.place[after] >= last:
                way = whole.target_delay[row] - whole.duration[op]
                rest = max(rest, way + whole.tail[after])
        space.exit[op] = rest


@part
def _is_full(op: int, goal: int, whole: Surroundings, space: StretchState) -> bool:
    """Whether the work of a resource of the op leaves it no path as short as the goal."""
    for row in range(whole.seat_pointer[op], whole.seat_pointer[op + 1]):
        r = whole.seat[row]
        if space.least_head[r] + space.load[r] + space.least_tail[r] > goal:
            return True
    return False


@part
def _set_tails(
    whole: Surroundings, line: Line, first: int, last: int, is_held: bool, space: StretchState
) -> None:
    """Note the longest path from the start of each op, exits of held resources left out."""
    for place in range(last - 1, first - 1, -1):
        op = line.op[place]
        longest = NEVER if is_held else whole.duration[op]
        if space.exit[op] > NEVER // 2:
            longest = max(longest, whole.duration[op] + space.exit[op])
        for row in range(whole.target_pointer[op], whole.target_pointer[op + 1]):
            after = whole.target[row]
            if line.place[after] < last:
                longest = max(longest, whole.target_delay[row] + space.tail[after])
        space.tail[op] = longest


@part
def _longest(whole: Surroundings, line: Line, first: int, last: int, space: StretchState) -> int:
    """Return the longest path, or least head + load + least tail of any resource."""
    bound = NEVER
    for r in range(len(space.load)):
        space.least_head[r] = FAR
        space.load[r] = 0
        space.least_tail[r] = FAR
    for place in range(first, last):
        op = line.op[place]
        bound = max(bound, space.head[op] + space.tail[op])
        for row in range(whole.seat_pointer[op], whole.seat_pointer[op + 1]):
            r = whole.seat[row]
            space.least_head[r] = min(space.least_head[r], space.head[op])
            space.load[r] += whole.duration[op]
            space.least_tail[r] = min(space.least_tail[r], space.tail[op] - whole.duration[op])
    for r in range(len(space.load)):
        if space.load[r] > 0:
            bound = max(bound, space.least_head[r] + space.load[r] + space.least_tail[r])
    return bound


@Kernel
def refutes(
    whole: Surroundings, line: Line, first: int, last: int, aim: Aim, space: StretchState
) -> bool:
    """Return true if longest paths and loads alone prove that a stretch cannot reach its aim.

    Bounds of the problem of the stretch (`ppsolve.solver.cpsat.neighbourhood.part`) say as much or
    more; this takes some microseconds, and refutes most.

    Parameters
    ----------
    whole : Surroundings
        The schedule.
    line : Line
        Its ops in the order of which stretches are cut; each stands behind those it waits for.
    first, last : int
        Places of the first op and behind the last one.
    aim : Aim
        What the stretch has to gain.
    space : StretchState
        Room.

    Returns
    -------
    bool
        True where the answer is no.
    """
    _set_borders(whole, line, first, last, space)
    _set_heads(whole, line, first, last, space)
    _set_exits(whole, line, first, last, space)
    _set_tails(whole, line, first, last, False, space)
    bound = _longest(whole, line, first, last, space)
    if bound <= aim.known - aim.least:
        return False
    value, count = NEVER, 0
    for place in range(first, last):
        op = line.op[place]
        if _is_full(op, aim.goal, whole, space):
            count += 1
            space.exit[op] = NEVER
        else:
            value = max(value, whole.start[op] + whole.duration[op] + space.exit[op])
    if count == 0 or value <= aim.goal:
        return bound >= aim.known
    _set_tails(whole, line, first, last, True, space)
    held = _longest(whole, line, first, last, space)
    return max(aim.goal, held) > value - aim.step

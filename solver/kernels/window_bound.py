"""Whether longest paths and loads alone prove that a stretch of a schedule cannot gain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part

NEVER = -(2**60)
"""Longest path between ops that none connects."""


class Surroundings(NamedTuple):
    """A schedule of n ops; what its stretches wait for, and what waits for them."""

    duration: Any  # int64[n]: ticks
    release: Any  # int64[n]: earliest start of each op
    start: Any  # int64[n]: known start
    tail: Any  # int64[n]: ticks from each start to the end of all, the order of all ops kept
    own_tail: Any  # int64[n]: the same by itself; `NEVER` where the end does not wait for the op
    source_pointer: Any  # int64[n + 1]: rows of the next two, by the op that waits
    source: Any  # int64[k]: op that comes first
    source_delay: Any  # int64[k]: ticks from start to start
    target_pointer: Any  # int64[n + 1]: rows of the next two, by the op that comes first
    target: Any  # int64[k]: op that waits
    target_delay: Any  # int64[k]: ticks from start to start
    seat_pointer: Any  # int64[n + 1]: rows of the next three, by op
    seat: Any  # int64[s]: resource
    seat_before: Any  # int64[s]: op before it there, or -1
    seat_after: Any  # int64[s]: op behind it there, or -1


class OpSequence(NamedTuple):
    """The sequence of ops that stretches are cut from, and the place of each op in it."""

    op: Any  # int64[n]
    place: Any  # int64[n]


class Aim(NamedTuple):
    """What a stretch has to gain, in ticks."""

    known: int  # longest path of the schedule
    least: int  # what a stretch must be able to gain by itself; if not, resources are held
    goal: int  # below this, paths from resources that are not held need not fall
    step: int  # by which those paths are to be shortened


class WindowState(NamedTuple):
    """What is noted about the ops of a stretch, and about each resource."""

    head: Any  # int64[n]: earliest start in any order of the stretch
    exit: Any  # int64[n]: ticks from the end of an op to that of all through what follows
    tail: Any  # int64[n]: ticks from its start to the end of all
    floor: Any  # int64[R]: when a resource is left before the stretch
    ceiling: Any  # int64[R]: ticks that it needs from there on behind it
    least_head: Any  # int64[R]: of the ops of the stretch on it
    load: Any  # int64[R]
    least_tail: Any  # int64[R]: from their ends


def empty_space(ops: int, resources: int) -> WindowState:
    """Return room for the notes of one schedule.

    Parameters
    ----------
    ops : int
        Number of ops n.
    resources : int
        Number of resources R.

    Returns
    -------
    WindowState
        All zero.
    """
    return WindowState(
        *np.zeros((3, ops), dtype=np.int64), *np.zeros((5, resources), dtype=np.int64)
    )


@part
def _set_borders(
    whole: Surroundings, line: OpSequence, first: int, last: int, space: WindowState
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
def _set_heads(
    whole: Surroundings, line: OpSequence, first: int, last: int, space: WindowState
) -> None:
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
def _set_exits(
    whole: Surroundings, line: OpSequence, first: int, last: int, space: WindowState
) -> None:
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
def _is_full(op: int, goal: int, whole: Surroundings, space: WindowState) -> bool:
    """Whether the work of a resource of the op leaves it no path as short as the goal."""
    for row in range(whole.seat_pointer[op], whole.seat_pointer[op + 1]):
        r = whole.seat[row]
        if space.least_head[r] + space.load[r] + space.least_tail[r] > goal:
            return True
    return False


@part
def _set_tails(
    whole: Surroundings, line: OpSequence, first: int, last: int, is_held: bool, space: WindowState
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
def _longest(
    whole: Surroundings, line: OpSequence, first: int, last: int, space: WindowState
) -> int:
    """Return the longest path, or least head + load + least tail of any resource."""
    bound = NEVER
    for r in range(len(space.load)):
        space.least_head[r] = -NEVER
        space.load[r] = 0
        space.least_tail[r] = -NEVER
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
    whole: Surroundings, line: OpSequence, first: int, last: int, aim: Aim, space: WindowState
) -> bool:
    """Return true if longest paths and loads alone prove that a stretch cannot reach its aim.

    Bounds of the problem of the stretch (`ppsolve.solver.exact.subproblem`) say as much or
    more; this takes some microseconds, and refutes most.

    Parameters
    ----------
    whole : Surroundings
        The schedule.
    line : OpSequence
        Its ops in the order of which stretches are cut; each stands behind those it waits for.
    first, last : int
        Places of the first op and behind the last one.
    aim : Aim
        What the stretch has to gain.
    space : WindowState
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

"""Simulated annealing of a line: which micro-batch is in which slot, and in what order.

Random numbers are those of Park, Miller and Stockmeyer (1993): every product stays below 2**47, so
that Python and compiled code draw the same ones.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.topological_order import (
    Chain,
    Lengths,
    LineOrder,
    LineTimes,
    time_places,
)


@part
def next_random(rng: Any) -> int:
    """Return the next random number below 2**31 - 1; `rng` has the last one, 1 at least."""
    rng[0] = rng[0] * 48271 % 2147483647
    return rng[0]


@part
def draw(rng: Any, below: int) -> int:
    """Return a random number from 0 to `below` - 1."""
    return next_random(rng) % below


def exponential_quantiles(unit: int) -> IntArray:
    """Return 1,024 quantiles of the exponential distribution with mean `unit`, largest first."""
    shares = ((number + 0.5) / 1024 for number in range(1024))
    return np.array(
        [round(-unit * math.log(share)) for share in shares], dtype=np.int64
    )


class AnnealingBuffers(NamedTuple):
    """Room for annealing a line of n = m * V nodes. Everything is written."""

    now: LineTimes  # times of the line as it is
    trial: LineTimes  # times of the line with a change
    place: Any  # int64[n + 1]: place of each node in the line
    before: (
        Any  # int64[n + 1]: node before each one on its resource, n where there is none
    )
    behind: Any  # int64[n + 1]: node behind it
    mark: Any  # int64[n + 1]: zeros
    spare: Any  # int64[n]
    path: Any  # int64[n]: nodes of a longest path that wait for the one before on a resource
    last: Any  # int64[R]
    best_line: Any  # int64[n]
    best_row: Any  # int64[m]


class AnnealingParams(NamedTuple):
    """How a line is annealed."""

    steps: int  # number of changes that are tried
    heat: int  # ticks by which a line may get longer at first, in the mean; falls to 0
    shifts: int  # changes in 1,000 that move a node; the others move micro-batches
    target: int  # makespan in ticks that nothing has to be sought below
    odds: Any  # int64[...]: multiples of the mean by which a line may get longer, times 1,024


class LineChange(NamedTuple):
    """A change of a line: two micro-batches swap, one moves to another slot, or a node shifts."""

    begin: int  # first place that is timed anew; -1: there is no change
    is_shift: int
    is_swap: int
    origin: int  # slot, or the node that shifts
    target: int  # slot
    left: int  # neighbours of the node before it shifted
    right: int
    low: int  # place and width of what a shift rearranged
    width: int


@part
def _link(chain: Chain, line: Any, room: AnnealingBuffers) -> None:
    """Find places and neighbours of all nodes."""
    size, last, before, behind = len(line), room.last, room.before, room.behind
    room.mark[size] = 0
    for resource in range(len(last)):
        last[resource] = size
    for index in range(size):
        node = line[index]
        room.place[node] = index
        room.mark[node] = 0
        before[node] = behind[node] = size
        resource = chain.resource[chain.position[node]]
        if resource >= 0:
            before[node] = last[resource]
            behind[last[resource]] = node
            last[resource] = node


@part
def _trace(lengths: Lengths, row: Any, line: Any, room: AnnealingBuffers) -> int:
    """Follow a longest path back into `room.path`; return the number of nodes in it."""
    chain, size, end, before, path = (
        lengths.chain,
        len(line),
        room.now.end,
        room.before,
        room.path,
    )
    index, count = size, 0
    while index > 0 and room.now.reach[index - 1] == room.now.reach[size]:
        index -= 1
    node = line[max(index - 1, 0)]
    while True:
        position = chain.position[node]
        start = end[node] - lengths.duration[row[chain.slot[node]] + position]
        if start <= 0:
            return count
        following = before[node]
        if following < size and end[following] == start:
            path[count] = node
            count += 1
        else:
            for number in range(chain.pointer[position], chain.pointer[position + 1]):
                source = node - position + chain.source[number]
                if end[source] + chain.lag[number] == start:
                    following = source
        node = following


@part
def _relink(room: AnnealingBuffers, node: int, previous: int, following: int) -> None:
    """Take a node out of the order of its resource and put it between two others."""
    before, behind = room.before, room.behind
    behind[before[node]], before[behind[node]] = behind[node], before[node]
    before[node], behind[node] = previous, following
    behind[previous] = before[following] = node


@part
def _mark_followers(
    chain: Chain, room: AnnealingBuffers, line: Any, low: int, high: int, stamp: int
) -> bool:
    """Mark what waits for the node at place `low` up to place `high`; whether that one does not."""
    position_of, pointer, source = chain.position, chain.pointer, chain.source
    before, mark, node = room.before, room.mark, line[high]
    mark[line[low]] = stamp
    for index in range(low + 1, high + 1):
        inner = line[index]
        position = position_of[inner]
        waits = inner != node and mark[before[inner]] == stamp
        for number in range(pointer[position], pointer[position + 1]):
            waits = waits or mark[inner - position + source[number]] == stamp
        if waits:
            mark[inner] = stamp
    return bool(mark[node] != stamp)


@part
def _mark_sources(
    chain: Chain, room: AnnealingBuffers, line: Any, low: int, high: int, stamp: int
) -> bool:
    """Mark what the node at place `high` waits for down to `low`; whether not for that one."""
    position_of, pointer, source = chain.position, chain.pointer, chain.source
    before, mark, node = room.before, room.mark, line[low]
    mark[line[high]] = stamp
    for index in range(high, low, -1):
        inner = line[index]
        if mark[inner] == stamp:
            position = position_of[inner]
            for number in range(pointer[position], pointer[position + 1]):
                mark[inner - position + source[number]] = stamp
            if before[inner] != node:
                mark[before[inner]] = stamp
    return bool(mark[node] != stamp)


@part
def _exchange(line: Any, room: AnnealingBuffers, low: int, width: int) -> None:
    """Exchange a part of the line with what is spare."""
    for number in range(width):
        node = room.spare[number]
        room.spare[number] = line[low + number]
        line[low + number] = node
        room.place[node] = low + number


@part
def _shift(
    chain: Chain,
    room: AnnealingBuffers,
    line: Any,
    rng: Any,
    path_length: int,
    stamp: int,
) -> LineChange:
    """Move a node of the longest path past others of its resource, where none waits in between.

    In the line, all that waits for the one that is overtaken goes behind both, so that no deadlock
    can arise.
    """
    size, before, behind, mark = len(line), room.before, room.behind, room.mark
    late = room.path[draw(rng, path_length)]
    early, drawn = before[late], draw(rng, 16)
    pulls = drawn < 8
    for _ in range(drawn % 8 - 4):  # past one other in 5 cases of 8, else past 2 to 4
        if pulls and before[early] < size:
            early = before[early]
        elif not pulls and behind[late] < size:
            late = behind[late]
    low, high = room.place[early], room.place[late]
    moved, previous, following = early, late, behind[late]
    if pulls:
        moved, previous, following = late, before[early], early
        is_free = _mark_followers(chain, room, line, low, high, stamp)
    else:
        is_free = _mark_sources(chain, room, line, low, high, stamp)
    if not is_free:
        return LineChange(-1, 0, 0, 0, 0, 0, 0, 0, 0)
    number = 0
    for turn in range(2):
        for index in range(low, high + 1):
            node = line[index]
            if node != moved and (mark[node] == stamp) == ((turn == 1) == pulls):
                room.spare[number] = node
                number += 1
        if turn == 0:
            room.spare[number] = moved
            number += 1
    change = LineChange(low, 1, 0, moved, 0, before[moved], behind[moved], low, number)
    _relink(room, moved, previous, following)
    _exchange(line, room, low, number)
    return change


@part
def _rearrange(row: Any, is_swap: int, origin: int, target: int) -> None:
    """Let two micro-batches change places, or move one to another slot."""
    moved = row[origin]
    if is_swap:
        row[origin] = row[target]
    elif origin < target:
        for slot in range(origin, target):
            row[slot] = row[slot + 1]
    else:
        for slot in range(origin, target, -1):
            row[slot] = row[slot - 1]
    row[target] = moved


@part
def _reassign(chain: Chain, room: AnnealingBuffers, row: Any, rng: Any) -> LineChange:
    """Swap two micro-batches or move one; the line changes from the first place of a slot on."""
    length, first, is_swap = len(chain.resource), len(chain.slot), draw(rng, 2) == 0
    origin, target = draw(rng, len(row)), draw(rng, len(row))
    if origin == target:
        return LineChange(-1, 0, 0, 0, 0, 0, 0, 0, 0)
    _rearrange(row, is_swap, origin, target)
    for slot in range(min(origin, target), max(origin, target) + 1):
        for number in range(len(chain.first)):
            first = min(first, room.place[slot * length + chain.first[number]])
    return LineChange(first, 0, is_swap, origin, target, 0, 0, 0, 0)


@part
def _undo(line: Any, row: Any, room: AnnealingBuffers, change: LineChange) -> None:
    if change.is_shift:
        _exchange(line, room, change.low, change.width)
        _relink(room, change.origin, change.left, change.right)
    else:
        _rearrange(row, change.is_swap, change.target, change.origin)


@part
def _copy(
    line: Any, source: LineTimes, target: LineTimes, begin: int, until: int
) -> None:
    for index in range(begin, until):
        node = line[index]
        target.end[node] = source.end[node]
        target.idle[node] = source.idle[node]
        target.used[node] = source.used[node]
        target.reach[index + 1] = source.reach[index + 1]


@part
def _keep(line: Any, row: Any, kept_line: Any, kept_row: Any) -> None:
    for index in range(len(line)):
        kept_line[index] = line[index]
    for slot in range(len(row)):
        kept_row[slot] = row[slot]


@Kernel
def anneal(
    lengths: Lengths,
    room: AnnealingBuffers,
    plan: AnnealingParams,
    rng: Any,
    line: Any,
    row: Any,
) -> int:
    """Change a line step by step; take what is no more than a falling heat longer.

    The line, int64[m * V], has the nodes in order, without overrun of any pool; `row`, int64[m],
    the row of the micro-batch of each slot, times V. Both become those of the best line, whose
    makespan in ticks is returned, `NEVER` if the first line overruns a pool. `rng`, int64[1], is
    the state of the random numbers, 1 to 2^31 - 2.
    """
    size, now, trial, steps, chain = (
        len(line),
        room.now,
        room.trial,
        plan.steps,
        lengths.chain,
    )
    order = LineOrder(line, room.before, row)
    best, current, path_length = NEVER, NEVER - 1, -1
    change = LineChange(0, 0, 0, 0, 0, 0, 0, 0, 0)
    _link(chain, line, room)
    for step in range(steps + 1):
        limit = current
        if step > 0:
            heat = plan.heat * (steps - step) // steps * (steps - step) // steps
            limit += heat * plan.odds[draw(rng, len(plan.odds))] // 1024
            if draw(rng, 1000) >= plan.shifts:
                change = _reassign(chain, room, row, rng)
            else:
                if path_length < 0:
                    path_length = _trace(lengths, row, line, room)
                if path_length == 0:
                    continue
                change = _shift(chain, room, line, rng, path_length, step)
            if change.begin < 0:
                continue
        stop = time_places(lengths, order, trial, change.begin, size, limit)
        if stop == size:
            current, path_length = trial.reach[size], -1
            _copy(line, trial, now, change.begin, size)
            if current < best:
                best = current
                _keep(line, row, room.best_line, room.best_row)
            if best <= plan.target:
                break
        elif step == 0:
            return NEVER
        else:
            _copy(line, now, trial, change.begin, stop + 1)
            _undo(line, row, room, change)
    _keep(room.best_line, room.best_row, line, row)
    return best

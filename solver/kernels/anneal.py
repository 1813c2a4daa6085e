"""Kernel: simulated annealing of a line: which micro-batch is in which slot, and in what order."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.line import NEVER, Chain, Lengths, LineTimes, walk

ODDS, SCALE = 1024, 1024
"""Number of entries of the table of odds, and what stands for 1 in it."""

SWAP, MOVE, SHIFT = 0, 1, 2
"""Changes: two micro-batches change places, one moves to another slot, a node moves in the line."""


class AnnealingBuffers(NamedTuple):
    """Room for annealing a line of n = m * V nodes. Everything is written.

    Attributes
    ----------
    now, trial : LineTimes
        Times of the line as it is, and with a change.
    place : int64[n + 1]
        Place of each node in the line.
    before, behind : int64[n + 1]
        Nodes before and behind each one on its resource, n where there is none.
    mark : int64[n + 1]
        Zeros.
    spare, path : int64[n]
        Anything.
    step : int64[7]
        The change that is tried: its kind; where it came from and goes to, or the node and its
        neighbours; place and width of what it rearranged. Then the length of `path`, -1: unknown.
    last : int64[R]
        Anything.
    best_line, best_row : int64[n], int64[m]
        Anything.
    """

    now: LineTimes
    trial: LineTimes
    place: Any
    before: Any
    behind: Any
    mark: Any
    spare: Any
    path: Any
    step: Any
    last: Any
    best_line: Any
    best_row: Any


class AnnealingParams(NamedTuple):
    """How a line is annealed.

    Attributes
    ----------
    steps : int
        Number of changes that are tried.
    heat : int
        Ticks by which a line may get longer in the beginning, in the mean; falls to 0.
    shifts : int
        Changes in 1,000 that move a node; the others move micro-batches.
    target : int
        Makespan in ticks that nothing has to be sought below.
    odds : int64[ODDS]
        Multiples of the mean by which a line may get longer, times `SCALE`.
    """

    steps: int
    heat: int
    shifts: int
    target: int
    odds: Any


@part
def _draw(rng: Any) -> int:
    """Return the next random number below 2^31 (Lehmer's generator, period 2^31 - 2)."""
    rng[0] = rng[0] * 48271 % 2147483647
    drawn: int = rng[0]
    return drawn


@part
def _link(chain: Chain, line: Any, room: AnnealingBuffers) -> None:
    """Find places and neighbours of all nodes."""
    size, last, before, behind = len(line), room.last, room.before, room.behind
    room.mark[size], room.step[6] = 0, -1
    for resource in range(len(last)):
        last[resource] = size
    for place in range(size):
        node = line[place]
        room.place[node] = place
        room.mark[node] = 0
        before[node] = behind[node] = size
        resource = chain.resource[chain.position[node]]
        if resource >= 0:
            before[node] = last[resource]
            behind[last[resource]] = node
            last[resource] = node


@part
def _trace(chain: Chain, lengths: Lengths, row: Any, line: Any, room: AnnealingBuffers) -> int:
    """Follow a longest path back; note nodes that wait for the one before them on a resource."""
    size, end, before, path = len(line), room.now.end, room.before, room.path
    place, count = size, 0
    while place > 0 and room.now.reach[place - 1] == room.now.reach[size]:
        place -= 1
    node = line[max(place - 1, 0)]
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
def _relink(before: Any, behind: Any, node: int, left: int, right: int) -> None:
    """Take a node out of the order of its resource and put it between two others."""
    behind[before[node]], before[behind[node]] = behind[node], before[node]
    before[node], behind[node] = left, right
    behind[left] = before[right] = node


@part
def _mark_followers(
    position_of: Any,
    pointer: Any,
    source: Any,
    line: Any,
    before: Any,
    mark: Any,
    low: int,
    high: int,
    stamp: int,
) -> bool:
    """Mark what waits for the node at place `low` up to place `high`; whether that one does not."""
    node = line[high]
    mark[line[low]] = stamp
    for place in range(low + 1, high + 1):
        other = line[place]
        position = position_of[other]
        waits = other != node and mark[before[other]] == stamp
        for number in range(pointer[position], pointer[position + 1]):
            waits = waits or mark[other - position + source[number]] == stamp
        if waits:
            mark[other] = stamp
    return bool(mark[node] != stamp)


@part
def _mark_sources(
    position_of: Any,
    pointer: Any,
    source: Any,
    line: Any,
    before: Any,
    mark: Any,
    low: int,
    high: int,
    stamp: int,
) -> bool:
    """Mark what the node at place `high` waits for down to `low`; whether not for that one."""
    node = line[low]
    mark[line[high]] = stamp
    for place in range(high, low, -1):
        other = line[place]
        if mark[other] == stamp:
            position = position_of[other]
            for number in range(pointer[position], pointer[position + 1]):
                mark[other - position + source[number]] = stamp
            if before[other] != node:
                mark[before[other]] = stamp
    return bool(mark[node] != stamp)


@part
def _exchange(line: Any, spare: Any, place: Any, low: int, width: int) -> None:
    """Exchange a part of the line with what is spare."""
    for number in range(width):
        node = spare[number]
        spare[number] = line[low + number]
        line[low + number] = node
        place[node] = low + number


@part
def _shift(
    position_of: Any,
    pointer: Any,
    source: Any,
    line: Any,
    place_of: Any,
    before: Any,
    behind: Any,
    mark: Any,
    spare: Any,
    path: Any,
    tried: Any,
    rng: Any,
    stamp: int,
) -> int:
    """Move a node of the longest path past others of its resource; return the first place.

    Returns -1 where others wait in between. In the line, all that waits for the one that is
    overtaken goes behind both, so that no deadlock can arise.
    """
    size = len(line)
    late = path[_draw(rng) % tried[6]]
    early, drawn = before[late], _draw(rng) % 16
    pulls = drawn < 8
    for _ in range(drawn % 8 - 4):  # past one other in 5 cases of 8, else past 2 to 4
        if pulls and before[early] < size:
            early = before[early]
        elif not pulls and behind[late] < size:
            late = behind[late]
    low, high = place_of[early], place_of[late]
    moved, left, right = early, late, behind[late]
    if pulls:
        moved, left, right = late, before[early], early
        is_free = _mark_followers(
            position_of, pointer, source, line, before, mark, low, high, stamp
        )
    else:
        is_free = _mark_sources(position_of, pointer, source, line, before, mark, low, high, stamp)
    if not is_free:
        return -1
    number = 0
    for turn in range(2):
        for place in range(low, high + 1):
            node = line[place]
            if node != moved and (mark[node] == stamp) == ((turn == 1) == pulls):
                spare[number] = node
                number += 1
        if turn == 0:
            spare[number] = moved
            number += 1
    tried[0], tried[1], tried[2], tried[3] = SHIFT, moved, before[moved], behind[moved]
    tried[4], tried[5] = low, number
    _relink(before, behind, moved, left, right)
    _exchange(line, spare, place_of, low, number)
    return low


@part
def _rearrange(row: Any, kind: int, origin: int, target: int) -> None:
    """Let two micro-batches change places, or move one to another slot."""
    moved = row[origin]
    if kind == SWAP:
        row[origin] = row[target]
    elif origin < target:
        for slot in range(origin, target):
            row[slot] = row[slot + 1]
    else:
        for slot in range(origin, target, -1):
            row[slot] = row[slot - 1]
    row[target] = moved


@part
def _first_place(chain: Chain, room: AnnealingBuffers, origin: int, target: int) -> int:
    """Return the first place of any slot between two."""
    length, first = len(chain.resource), len(chain.slot)
    for slot in range(min(origin, target), max(origin, target) + 1):
        for number in range(len(chain.first)):
            first = min(first, room.place[slot * length + chain.first[number]])
    return first


@part
def _copy(line: Any, source: LineTimes, target: LineTimes, begin: int, until: int) -> None:
    for place in range(begin, until):
        node = line[place]
        target.end[node] = source.end[node]
        target.idle[node] = source.idle[node]
        target.used[node] = source.used[node]
        target.reach[place + 1] = source.reach[place + 1]


@part
def _keep(line: Any, row: Any, kept_line: Any, kept_row: Any) -> None:
    for place in range(len(line)):
        kept_line[place] = line[place]
    for slot in range(len(row)):
        kept_row[slot] = row[slot]


@Kernel
def anneal(
    chain: Chain,
    lengths: Lengths,
    room: AnnealingBuffers,
    plan: AnnealingParams,
    rng: Any,
    line: Any,
    row: Any,
) -> int:
    """Change a line step by step; take what is no more than a falling heat longer.

    Parameters
    ----------
    chain, lengths : Chain, Lengths
        The flow.
    room : AnnealingBuffers
        Written.
    plan : AnnealingParams
        Steps and heat.
    rng : int64[1]
        State of the random numbers, 1 to 2^31 - 2; written.
    line : int64[m * V]
        Nodes in order, without overrun of any pool; becomes the best line.
    row : int64[m]
        Row of the micro-batch of each slot, times V; becomes that of the best line.

    Returns
    -------
    int
        Makespan of the best line in ticks; `NEVER` if the line given overruns a pool.
    """
    size, now, trial, steps, tried = len(line), room.now, room.trial, plan.steps, room.step
    best, current, begin = NEVER, NEVER - 1, 0
    _link(chain, line, room)
    for step in range(steps + 1):
        limit = current
        if step > 0:
            heat = plan.heat * (steps - step) // steps * (steps - step) // steps
            limit += heat * plan.odds[_draw(rng) % ODDS] // SCALE
            if _draw(rng) % 1000 < plan.shifts:
                if tried[6] < 0:
                    tried[6] = _trace(chain, lengths, row, line, room)
                begin = -1
                if tried[6] > 0:
                    begin = _shift(
                        chain.position,
                        chain.pointer,
                        chain.source,
                        line,
                        room.place,
                        room.before,
                        room.behind,
                        room.mark,
                        room.spare,
                        room.path,
                        tried,
                        rng,
                        step,
                    )
                if begin < 0:
                    continue
            else:
                tried[0] = _draw(rng) % 2
                tried[1], tried[2] = _draw(rng) % len(row), _draw(rng) % len(row)
                if tried[1] == tried[2]:
                    continue
                _rearrange(row, tried[0], tried[1], tried[2])
                begin = _first_place(chain, room, tried[1], tried[2])
        stop = walk(
            chain,
            lengths,
            row,
            line,
            room.before,
            begin,
            size,
            limit,
            trial.end,
            trial.idle,
            trial.used,
            trial.reach,
        )
        if stop == size:
            current, tried[6] = trial.reach[size], -1
            _copy(line, trial, now, begin, size)
            if current < best:
                best = current
                _keep(line, row, room.best_line, room.best_row)
            if best <= plan.target:
                break
        elif step == 0:
            return NEVER
        else:
            _copy(line, now, trial, begin, stop + 1)
            if tried[0] == SHIFT:
                _exchange(line, room.spare, room.place, tried[4], tried[5])
                _relink(room.before, room.behind, tried[1], tried[2], tried[3])
            else:
                _rearrange(row, tried[0], tried[2], tried[1])
    _keep(room.best_line, room.best_row, line, row)
    return best

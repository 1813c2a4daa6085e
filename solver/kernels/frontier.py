"""Schedules of one device with its memory, grown op by op: states of counts, labels of moments.

A state says how many rows have passed each column of a chain; what the device's pool holds follows
from that. A label of a state says when the device is free and when the ops that wait can start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER

LABEL_MOMENTS = 2
"""Moments of a label before those of rows: the end of the last op, and that with loose work."""

STATE_FIGURES = 6
"""Figures of a state behind its counts: amount in use, work left, loose work left, its newest
label, the key of its hash, the place of the next state of that key."""


class DeviceChain(NamedTuple):
    """The ops of one device: m alike rows of a chain of L ops, and loose work behind them.

    Loose work may be interrupted and put off until memory or the end asks for it.
    """

    duration: Any  # int64[L]: in ticks, all above 0
    delay: Any  # int64[L]: from the start of each op to that of the next one, 0 for the last
    acquire: Any  # int64[L]: amount that an op takes when it starts
    change: Any  # int64[L]: what it takes, less what it and its loose work give back
    loose: Any  # int64[L]: work behind each op
    to_end: Any  # int64[L]: from the start of each op to the end of all
    to_release: (
        Any  # int64[L]: from there to the end of the first op that gives back, or NEVER
    )
    heads: Any  # int64[m * L]: earliest starts, row by row
    held: Any  # int64[b]: amounts, going up from 0
    waiting: Any  # int64[b]: most loose work that holds no more than that amount
    room: int  # of the pool
    members: int  # m
    rows: int  # most rows that are on their way
    tail: int  # from the end of the last op to the end of all
    loose_tail: int  # from the end of the last work, loose or not


class FrontierLevels(NamedTuple):
    """Levels that a search goes through; level l has the states of l ops."""

    first: int
    last: int
    states: int  # room for states of a level
    labels: int  # room for labels of a level
    merged: int  # labels of a state from which on two become one
    width: int  # most labels of a level that stay, those of least bound
    in_turn: int  # 1 where only states stay whose rows can end in turn, else 0
    upper: int  # only labels of a lower bound are kept, in ticks
    steps: int  # labels made in all after which no further level is begun


class FrontierTally(NamedTuple):
    """Places of the counts that a search keeps: of a level, then of all."""

    states: int = 0  # of the level that is grown
    next_states: int = 1
    next_labels: int = 2  # rows that labels of the next level have taken
    freed: int = 3  # first of these rows that is free again, or -1
    steps: int = 4  # labels made
    merges: int = 5  # pairs of labels that became one
    least_left: int = 6  # least bound of the labels that were left out
    size: int = 7


TALLY = FrontierTally()
_STATES, _NEXT_STATES, _NEXT_LABELS, _FREED, _STEPS, _MERGES, _LEFT, _ = TALLY


@part
def _waiting_in(chain: DeviceChain, room: int) -> int:
    """Return the most loose work that may wait while it holds no more than a room."""
    low, high = 0, len(chain.held) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if chain.held[middle] <= room:
            low = middle
        else:
            high = middle - 1
    return chain.waiting[low]


@part
def _may_start(chain: DeviceChain, states: Any, state: int, j: int) -> bool:
    """Whether a row waits for column j, and its op fits into the pool."""
    behind = chain.members if j == 0 else states[state + j - 1]
    if states[state + j] >= behind:
        return False
    used = states[state + len(chain.duration)]
    return chain.acquire[j] == 0 or used + chain.acquire[j] <= chain.room


@part
def _set_state(
    chain: DeviceChain, states: Any, parent: int, j: int, child: int
) -> None:
    """Write the counts and figures of the state in which one more row has passed column j."""
    columns = len(chain.duration)
    for k in range(columns + 3):
        states[child + k] = states[parent + k]
    states[child + j] += 1
    states[child + columns] += chain.change[j]
    states[child + columns + 1] -= chain.duration[j]
    states[child + columns + 2] -= chain.loose[j]


@part
def _append(
    chain: DeviceChain,
    states: Any,
    labels: Any,
    parent: int,
    source: int,
    j: int,
    to: int,
) -> None:
    """Write the moments of a label to which the op of column j is appended."""
    columns = len(chain.duration)
    for k in range(chain.rows + 3):
        labels[to + k] = labels[source + k]
    row = states[parent + j]
    slot = to + 2 + row % chain.rows
    arrival = chain.heads[row * columns] if j == 0 else labels[slot]
    start = max(labels[source], arrival)
    if chain.acquire[j] > 0:
        spare = chain.room - states[parent + columns] - chain.acquire[j]
        start = max(start, labels[source + 1] - _waiting_in(chain, spare))
    labels[to] = start + chain.duration[j]
    labels[to + 1] = max(start, labels[source + 1]) + chain.duration[j] + chain.loose[j]
    labels[slot] = 0
    if j + 1 < columns:
        labels[slot] = max(start + chain.delay[j], chain.heads[row * columns + j + 1])


@part
def _settle(chain: DeviceChain, states: Any, state: int, labels: Any, to: int) -> int:
    """Raise the moments of a label to when something can happen; return a bound on its schedules.

    It is NEVER where no row can begin any more though some has to.
    """
    columns, free, late = len(chain.duration), labels[to], labels[to + 1]
    first, opening, bound = NEVER, NEVER, labels[to + 2 + chain.rows]
    for j in range(columns - 1, 0, -1):
        earliest = free
        for row in range(states[state + j], states[state + j - 1]):
            slot = to + 2 + row % chain.rows
            earliest = max(earliest, labels[slot])
            labels[slot] = earliest
            first = min(first, earliest)
            bound = max(bound, earliest + chain.to_end[j])
            if chain.to_release[j] < NEVER:
                opening = min(opening, earliest + chain.to_release[j])
            earliest += chain.duration[j]
    row = states[state]
    if row < chain.members:
        begin = max(free, chain.heads[row * columns])
        spare = chain.room - states[state + columns] - chain.acquire[0]
        if spare < 0:
            begin = max(begin, opening)
        else:
            begin = max(begin, min(opening, late - _waiting_in(chain, spare)))
        if begin == NEVER:
            return NEVER
        behind = (chain.members - 1 - row) * chain.duration[0]
        bound = max(bound, begin + behind + chain.to_end[0])
        first = min(first, begin)
    if first < NEVER:
        free = max(free, first)
    late = max(late, free)
    labels[to], labels[to + 1] = free, late
    work = states[state + columns + 1]
    return max(
        bound,
        free + work + chain.tail,
        late + work + states[state + columns + 2] + chain.loose_tail,
    )


@part
def _is_no_later(labels: Any, a: int, b: int, moments: int) -> bool:
    for k in range(moments):  # noqa: SIM110
        if labels[a + k] > labels[b + k]:
            return False
    return True


@part
def _strike_later(
    labels: Any, states: Any, link: int, to: int, width: int, tally: Any
) -> int:
    """Free the labels of a state that are later than a new label; return how many stay.

    `link` is the place of the number of the state's newest label. It is -1 where some label is no
    later than the new one.
    """
    number, moments, count, previous = states[link], width - 2, 0, -1
    while number >= 0:
        b = number * width
        after = labels[b + width - 1]
        if _is_no_later(labels, b, to, moments):
            return -1
        if _is_no_later(labels, to, b, moments):
            if previous < 0:
                states[link] = after
            else:
                labels[previous + width - 1] = after
            labels[b + width - 1] = tally[_FREED]
            tally[_FREED] = number
        else:
            count += 1
            previous = b
        number = after
    return count


@part
def _lower_to_nearest(labels: Any, states: Any, link: int, to: int, width: int) -> None:
    """Lower a new label to the least of both moments of it and the label that is nearest."""
    number, nearest, smallest = states[link], to, NEVER
    while number >= 0:
        b, difference = number * width, 0
        for k in range(width - 2):
            difference += max(
                labels[b + k] - labels[to + k], labels[to + k] - labels[b + k]
            )
        if difference < smallest:
            smallest, nearest = difference, b
        number = labels[b + width - 1]
    for k in range(width - 1):
        labels[to + k] = min(labels[to + k], labels[nearest + k])


@part
def _keep(
    levels: FrontierLevels,
    labels: Any,
    states: Any,
    link: int,
    number: int,
    width: int,
    tally: Any,
) -> bool:
    """Add a new label to those of its state unless one of them is no later."""
    count = _strike_later(labels, states, link, number * width, width, tally)
    if count < 0:
        return False
    if count >= levels.merged:
        _lower_to_nearest(labels, states, link, number * width, width)
        _strike_later(labels, states, link, number * width, width, tally)
        tally[_MERGES] += 1
    labels[number * width + width - 1] = states[link]
    states[link] = number
    return True


@part
def _is_same(states: Any, a: int, b: int, columns: int) -> bool:
    for k in range(columns):  # noqa: SIM110
        if states[a + k] != states[b + k]:
            return False
    return True


@part
def _numbered(states: Any, table: Any, fresh: int, columns: int, tally: Any) -> int:
    """Return the place of the state of the next level that is equal to a fresh one.

    It is the fresh one itself where there is none.
    """
    key = 0
    for k in range(columns):
        key = (key * 1_000_003 + states[fresh + k]) % len(table)
    rival = table[key]
    while rival >= 0:
        if _is_same(states, rival, fresh, columns):
            return rival
        rival = states[rival + columns + 5]
    states[fresh + columns + 3] = -1
    states[fresh + columns + 4] = key
    states[fresh + columns + 5] = table[key]
    table[key] = fresh
    tally[_NEXT_STATES] += 1
    return fresh


@part
def _can_end(chain: DeviceChain, states: Any, state: int) -> bool:
    """Whether the rows on their way can end in turn, each alone."""
    columns = len(chain.duration)
    used = states[state + columns]
    for row in range(states[state + columns - 1], states[state]):
        for j in range(columns):
            if states[state + j] <= row:
                if chain.acquire[j] > 0 and used + chain.acquire[j] > chain.room:
                    return False
                used += chain.change[j]
    return True


@part
def _grow(
    chain: DeviceChain,
    levels: FrontierLevels,
    parent: int,
    parity: int,
    states: Any,
    labels: Any,
    table: Any,
    tally: Any,
) -> bool:
    """Append each op to each label of a state; return whether there was room for all."""
    columns, width = len(chain.duration), chain.rows + 4
    size = columns + STATE_FIGURES
    for j in range(columns - 1, -1, -1):
        if not _may_start(chain, states, parent, j):
            continue
        if tally[_NEXT_STATES] == levels.states:
            return False
        fresh = (2 * tally[_NEXT_STATES] + parity) * size
        _set_state(chain, states, parent, j, fresh)
        if levels.in_turn and not _can_end(chain, states, fresh):
            continue
        child = _numbered(states, table, fresh, columns, tally)
        source = states[parent + columns + 3]
        while source >= 0:
            number = tally[_FREED]
            if number < 0:
                if tally[_NEXT_LABELS] == levels.labels:
                    return False
                number = 2 * tally[_NEXT_LABELS] + parity
            to = number * width
            is_freed = tally[_FREED] >= 0
            after = labels[to + width - 1]
            _append(chain, states, labels, parent, source * width, j, to)
            bound = _settle(chain, states, child, labels, to)
            labels[to + width - 2] = bound
            tally[_STEPS] += 1
            if bound < levels.upper:
                if is_freed:
                    tally[_FREED] = after
                else:
                    tally[_NEXT_LABELS] += 1
                if not _keep(
                    levels, labels, states, child + columns + 3, number, width, tally
                ):
                    labels[to + width - 1] = tally[_FREED]
                    tally[_FREED] = number
            source = labels[source * width + width - 1]
    return True


@part
def _count(
    states: Any, labels: Any, link: int, size: int, width: int, number: int, limit: int
) -> int:
    """Return the number of labels, of so many states, whose bound is at most a limit.

    `link` is the place of the number of the first state's newest label.
    """
    count = 0
    for state in range(number):
        label = states[link + 2 * state * size]
        while label >= 0:
            if labels[label * width + width - 2] <= limit:
                count += 1
            label = labels[label * width + width - 1]
    return count


@part
def _narrow(
    levels: FrontierLevels,
    states: Any,
    labels: Any,
    link: int,
    size: int,
    width: int,
    tally: Any,
) -> None:
    """Leave out the labels of largest bound for which a level has no room."""
    number = tally[_NEXT_STATES]
    count, low, high = 0, NEVER, 0
    for state in range(number):
        label = states[link + 2 * state * size]
        while label >= 0:
            count += 1
            low = min(low, labels[label * width + width - 2])
            high = max(high, labels[label * width + width - 2])
            label = labels[label * width + width - 1]
    if count <= levels.width:
        return
    limit = low
    while low < high:
        if _count(states, labels, link, size, width, number, limit) >= levels.width:
            high = limit
        else:
            low = limit + 1
        limit = (low + high) // 2
    spare = levels.width - _count(states, labels, link, size, width, number, low - 1)
    for state in range(number):
        before, label = -1, states[link + 2 * state * size]
        while label >= 0:
            to = label * width
            bound, after = labels[to + width - 2], labels[to + width - 1]
            if bound < low or (bound == low and spare > 0):
                if bound == low:
                    spare -= 1
                before = to
            else:
                tally[_LEFT] = min(tally[_LEFT], bound)
                if before < 0:
                    states[link + 2 * state * size] = after
                else:
                    labels[before + width - 1] = after
            label = after


@Kernel
def grow_frontier(
    chain: DeviceChain,
    levels: FrontierLevels,
    states: Any,
    labels: Any,
    table: Any,
    tally: Any,
) -> int:
    """Replace the states of the first level by those of a later one; return its number.

    `states`, int64[2 * states * (L + 6)], has those of even and of odd levels in turn; `labels`,
    int64[2 * labels * (rows + 4)], likewise. `table`, int64[...], is full of -1. It ends at the
    last level, once enough labels are made, or before one that has no room.
    """
    columns = len(chain.duration)
    size = columns + STATE_FIGURES
    for level in range(levels.first, levels.last):
        if tally[_STEPS] >= levels.steps:
            return level
        here, parity = level % 2, (level + 1) % 2
        tally[_NEXT_STATES] = tally[_NEXT_LABELS] = 0
        tally[_FREED] = -1
        has_room = True
        for number in range(tally[_STATES]):
            parent = (2 * number + here) * size
            if states[parent + columns + 3] < 0:
                continue
            has_room = _grow(
                chain, levels, parent, parity, states, labels, table, tally
            )
            if not has_room:
                break
        for number in range(tally[_NEXT_STATES]):
            table[states[(2 * number + parity) * size + columns + 4]] = -1
        if not has_room:
            return level
        link = parity * size + columns + 3
        _narrow(levels, states, labels, link, size, chain.rows + 4, tally)
        tally[_STATES] = tally[_NEXT_STATES]
    return levels.last

"""Levels of states that frontiers grow through, and the labels of each state.

A state is a row of integers: its counts, which tell states apart, then figures, then its newest
label, the key of its hash, and the place of the next state of that key. A label is a row, too: its
moments, a bound, whatever else a search keeps, and the number of the next label of its state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import part
from ppsolve.solver.kernels.records import NEVER

LINKS = 3
"""Figures of a state behind its own: its newest label, its key and the next state of that key."""


class FrontierLevels(NamedTuple):
    """Levels that a search goes through; level l has the states of l ops."""

    first: int
    last: int
    ring: int  # levels in memory at once, at least two
    counts: int  # of a state
    newest: int  # where a state has the number of its newest label
    moments: int  # of a label
    label_size: int
    states: int  # room for states of a level
    labels: int  # room for labels of a level
    merged: int  # labels of a state from which on two become one
    width: int  # most labels of a level that stay
    in_turn: int  # 1 where only states stay whose rows can end in turn, else 0
    upper: int  # only labels of a lower bound are kept, in ticks
    steps: int  # in all after which no further level is begun


class FrontierTally(NamedTuple):
    """Places of the counts that a search keeps."""

    states: int = 0  # of the level in each slot of the ring, which has three at most
    labels: int = 3  # rows that labels of the next level have taken
    freed: int = 4  # first of these rows that is free again, or -1
    steps: int = 5  # labels made
    compared: int = 6  # pairs of labels compared
    merges: int = 7  # pairs of labels that became one
    least_left: int = 8  # least bound of the labels that were left out
    entries: int = 9  # labels that have stayed, where a search enters them
    size: int = 10


TALLY = FrontierTally()
_, _LABELS, _FREED, _, _COMPARED, _MERGES, _LEFT, _, _ = TALLY


@part
def _is_same(states: Any, a: int, b: int, counts: int) -> bool:
    """Whether two states have the same counts."""
    for k in range(counts):  # noqa: SIM110
        if states[a + k] != states[b + k]:
            return False
    return True


@part
def numbered(states: Any, table: Any, fresh: int, counts: int, newest: int) -> int:
    """Return the place of the state of the next level that is equal to a fresh one.

    It is the fresh one itself where there is none.
    """
    key = 0
    for k in range(counts):
        key = (key * 1_000_003 + states[fresh + k]) % len(table)
    rival = table[key]
    while rival >= 0:
        if _is_same(states, rival, fresh, counts):
            return rival
        rival = states[rival + newest + 2]
    states[fresh + newest] = -1
    states[fresh + newest + 1] = key
    states[fresh + newest + 2] = table[key]
    table[key] = fresh
    return fresh


@part
def begin_level(tally: Any, slot: int) -> None:
    """Let a slot of the ring be that of the next level, without states or labels."""
    tally[slot] = tally[_LABELS] = 0
    tally[_FREED] = -1


@part
def forget_keys(
    levels: FrontierLevels, states: Any, table: Any, slot: int, tally: Any
) -> None:
    """Clear the table of the states of a level."""
    for number in range(tally[slot]):
        state = (levels.ring * number + slot) * (levels.newest + LINKS)
        table[states[state + levels.newest + 1]] = -1


@part
def free_label(levels: FrontierLevels, slot: int, tally: Any) -> int:
    """Return the number of a row for another label of the next level, -1 where none is free."""
    if tally[_FREED] >= 0:
        return tally[_FREED]
    if tally[_LABELS] == levels.labels:
        return -1
    return levels.ring * tally[_LABELS] + slot


@part
def _is_no_later(labels: Any, a: int, b: int, moments: int) -> bool:
    """Whether no moment of a label is later than that of another one."""
    for k in range(moments):  # noqa: SIM110
        if labels[a + k] > labels[b + k]:
            return False
    return True


@part
def _strike_later(
    levels: FrontierLevels, states: Any, labels: Any, link: int, to: int, tally: Any
) -> int:
    """Free the labels of a state that are later than a new label; return how many stay.

    `link` is the place of the number of the state's newest label. It is -1 where some label is no
    later than the new one.
    """
    width, moments = levels.label_size, levels.moments
    number, count, previous = states[link], 0, -1
    while number >= 0:
        rival = number * width
        after = labels[rival + width - 1]
        tally[_COMPARED] += 1
        if _is_no_later(labels, rival, to, moments):
            return -1
        if _is_no_later(labels, to, rival, moments):
            if previous < 0:
                states[link] = after
            else:
                labels[previous + width - 1] = after
            labels[rival + width - 1] = tally[_FREED]
            tally[_FREED] = number
        else:
            count += 1
            previous = rival
        number = after
    return count


@part
def _lower_to_nearest(
    levels: FrontierLevels, states: Any, labels: Any, link: int, to: int
) -> None:
    """Lower a new label to the least of both moments of it and the label that is nearest."""
    width, moments = levels.label_size, levels.moments
    number, nearest, smallest = states[link], to, NEVER
    while number >= 0:
        rival, difference = number * width, 0
        for k in range(moments):
            a, b = labels[rival + k], labels[to + k]
            difference += max(a - b, b - a)
        if difference < smallest:
            smallest, nearest = difference, rival
        number = labels[rival + width - 1]
    for k in range(moments + 1):
        labels[to + k] = min(labels[to + k], labels[nearest + k])


@part
def enter(
    levels: FrontierLevels, states: Any, labels: Any, link: int, number: int, tally: Any
) -> None:
    """Add a label in a free row to those of its state unless one of them is no later.

    Those that are later are left out; where there are too many, the new one and the nearest become
    one. `link` is the place of the number of the state's newest label.
    """
    to = number * levels.label_size
    following = to + levels.label_size - 1
    if tally[_FREED] == number:
        tally[_FREED] = labels[following]
    else:
        tally[_LABELS] += 1
    count = _strike_later(levels, states, labels, link, to, tally)
    if count >= levels.merged:
        _lower_to_nearest(levels, states, labels, link, to)
        _strike_later(levels, states, labels, link, to, tally)
        tally[_MERGES] += 1
    if count < 0:
        labels[following] = tally[_FREED]
        tally[_FREED] = number
    else:
        labels[following] = states[link]
        states[link] = number


@part
def _count(
    levels: FrontierLevels,
    states: Any,
    labels: Any,
    slot: int,
    key: int,
    limit: int,
    tally: Any,
) -> int:
    """Return the number of labels of a level whose key is at most a limit."""
    count, width = 0, levels.label_size
    for state in range(tally[slot]):
        place = (levels.ring * state + slot) * (levels.newest + LINKS)
        label = states[place + levels.newest]
        while label >= 0:
            if labels[label * width + key] <= limit:
                count += 1
            label = labels[label * width + width - 1]
    return count


@part
def narrow(
    levels: FrontierLevels, states: Any, labels: Any, slot: int, key: int, tally: Any
) -> None:
    """Leave out the labels of largest key for which a level has no room.

    `key` is where a label has it.
    """
    count, low, high, width = 0, NEVER, 0, levels.label_size
    for state in range(tally[slot]):
        place = (levels.ring * state + slot) * (levels.newest + LINKS)
        label = states[place + levels.newest]
        while label >= 0:
            count += 1
            low = min(low, labels[label * width + key])
            high = max(high, labels[label * width + key])
            label = labels[label * width + width - 1]
    if count <= levels.width:
        return
    limit = low
    while low < high:
        if _count(levels, states, labels, slot, key, limit, tally) >= levels.width:
            high = limit
        else:
            low = limit + 1
        limit = (low + high) // 2
    spare = levels.width - _count(levels, states, labels, slot, key, low - 1, tally)
    for state in range(tally[slot]):
        place = (levels.ring * state + slot) * (levels.newest + LINKS)
        before, label = -1, states[place + levels.newest]
        while label >= 0:
            to = label * width
            rank, after = labels[to + key], labels[to + width - 1]
            if rank < low or (rank == low and spare > 0):
                if rank == low:
                    spare -= 1
                before = to
            else:
                tally[_LEFT] = min(tally[_LEFT], labels[to + levels.moments])
                if before < 0:
                    states[place + levels.newest] = after
                else:
                    labels[before + width - 1] = after
            label = after

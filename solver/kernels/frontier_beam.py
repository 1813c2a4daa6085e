"""Schedules of alike rows on all resources, grown op by op: a beam over frontiers.

A state says how many rows have passed each column; what each pool holds follows from that. A label
of a state says when each resource is free and when each row on its way can go on, and how it came
about. Ops are appended in the order of their starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.frontier import LookAhead
from ppsolve.solver.kernels.frontier_levels import (
    LINKS,
    TALLY,
    FrontierLevels,
    begin_level,
    enter,
    forget_keys,
    free_label,
    narrow,
    numbered,
)
from ppsolve.solver.kernels.records import NEVER

BEAM_LABEL_FIGURES = 4
"""Figures of a label behind its moments: bound, rank, how it came about, and the next label of its
state."""


LABEL_STEPS = 8
"""Comparisons of two labels that take as long as making one."""


class RowColumns(NamedTuple):
    """The ops of m alike rows by column: a chain of L on R resources, then loose ones.

    A loose op follows one op of the chain, on the same resource, and nothing follows it.
    """

    duration: Any  # int64[C]: in ticks, all above 0
    resource: Any  # int64[C]
    before: Any  # int64[C]: column before each in its row, -1 for the first
    acquire: Any  # int64[C]: amount that an op takes when it starts
    change: Any  # int64[C]: what it takes, less what it gives back at its end
    kept: Any  # int64[L]: the change of each op and of its loose ones
    loose: Any  # int64[L]: loose work behind each op of the chain
    delay: Any  # int64[L]: from the start of each op to that of the next one, 0 for the last
    to_end: Any  # int64[L]: from the start of each op to the end of its row
    to_release: (
        Any  # int64[L]: to the end of an op that makes room for a first one, or NEVER
    )
    ways: Any  # int64[L * R]: to the next op on each resource, or NEVER
    tails: Any  # int64[R]: from the end of the last op there to the end of its row
    room: Any  # int64[R]: of the pool of each resource
    seat: Any  # int64[R]: device of the `LookAhead`, or -1
    members: int  # m
    rows: int  # most rows that are on their way
    ends_in_turn: int  # 1 where rows that cannot end in turn have no schedule, else 0


_LARGE = 2**61

_STUCK = -2
"""Newest label of a state that has no schedule."""

_STEPS, _COMPARED, _LEFT, _ENTRIES = (
    TALLY.steps,
    TALLY.compared,
    TALLY.least_left,
    TALLY.entries,
)


@part
def beam_newest_at(columns: int, resources: int) -> int:
    """Return where a state has the number of its newest label, behind counts and figures.

    Figures of each resource are the amount in use, the work of the chain that is left, loose work
    that is left, loose work that waits, and the state of `LookAhead`.
    """
    return columns + 5 * resources


@part
def _may_start(columns: RowColumns, states: Any, state: int, j: int) -> bool:
    """Whether a row waits for column j, and its op fits into the pool of its resource."""
    behind = columns.members
    if j > 0:
        behind = states[state + columns.before[j]]
    if states[state + j] >= behind:
        return False
    used = states[state + len(columns.duration) + columns.resource[j]]
    return (
        columns.acquire[j] == 0
        or used + columns.acquire[j] <= columns.room[columns.resource[j]]
    )


@part
def _set_state(
    columns: RowColumns,
    ahead: LookAhead,
    states: Any,
    parent: int,
    j: int,
    child: int,
) -> bool:
    """Write the counts and figures of the state in which one more row has passed column j.

    It returns whether the resource alone can end from there.
    """
    resources = len(columns.room)
    for k in range(beam_newest_at(len(columns.duration), resources)):
        states[child + k] = states[parent + k]
    states[child + j] += 1
    use = child + len(columns.duration) + columns.resource[j]
    states[use] += columns.change[j]
    if j < len(columns.delay):
        states[use + resources] -= columns.duration[j]
        states[use + 3 * resources] += columns.loose[j]
        seat = columns.seat[columns.resource[j]]
        if seat >= 0:
            number = states[use + 4 * resources]
            at = ahead.successor_at[seat] + ahead.moves[seat] * number
            states[use + 4 * resources] = ahead.successor[at + ahead.place[j]]
            return states[use + 4 * resources] >= 0
    else:
        states[use + 2 * resources] -= columns.duration[j]
        states[use + 3 * resources] -= columns.duration[j]
    return True


@part
def _append(
    columns: RowColumns,
    states: Any,
    labels: Any,
    child: int,
    source: int,
    j: int,
    to: int,
) -> None:
    """Write the moments of a label to which an op of column j is appended.

    Nothing on another resource starts before it any more.
    """
    resources, length = len(columns.room), len(columns.delay)
    here = columns.resource[j]
    start = labels[source + here]
    row = states[child + j] - 1
    slot = resources + row % columns.rows
    if j > 0 and j < length:
        start = max(start, labels[source + slot])
    for k in range(resources + columns.rows + 1):
        labels[to + k] = labels[source + k]
    work = child + len(columns.duration) + resources
    for k in range(resources):
        if states[work + k] + states[work + resources + k] > 0:
            labels[to + k] = max(labels[to + k], start)
    labels[to + here] = start + columns.duration[j]
    if j < length:
        labels[to + slot] = start + columns.delay[j] if j + 1 < length else 0


@part
def _least_work(
    columns: RowColumns, states: Any, state: int, resource: int, shortage: int
) -> int:
    """Return the least work of loose ops that wait which makes up for a shortage, or NEVER.

    Loose ops come in the order of what they give back in a tick, and may be done in part.
    """
    work = 0
    for j in range(len(columns.delay), len(columns.duration)):
        if columns.resource[j] == resource and columns.change[j] < 0:
            waiting = states[state + columns.before[j]] - states[state + j]
            if waiting * columns.change[j] + shortage <= 0:
                # Both amounts in coarser units, so that products stay within 64 bits.
                unit = shortage // (_LARGE // columns.duration[j]) + 1
                given = -columns.change[j] // unit + (unit > 1)
                return work + shortage // unit * columns.duration[j] // given
            work += waiting * columns.duration[j]
            shortage += waiting * columns.change[j]
    return NEVER


@part
def _settle(
    columns: RowColumns, states: Any, state: int, labels: Any, to: int, firsts: Any
) -> int:
    """Raise the moments of a label to when something can happen; return a bound on its schedules.

    It is NEVER where no row can begin any more though some has to.
    """
    resources = len(columns.room)
    use = state + len(columns.duration)
    bound, opening = labels[to + resources + columns.rows], NEVER
    for k in range(resources):
        firsts[k] = NEVER
    for j in range(len(columns.delay) - 1, 0, -1):
        row, behind = states[state + j], states[state + j - 1]
        if row >= behind:
            continue
        earliest = max(
            labels[to + columns.resource[j]],
            labels[to + resources + row % columns.rows],
        )
        for k in range(resources):
            way = columns.ways[j * resources + k]
            if way < NEVER:
                firsts[k] = min(firsts[k], earliest + way)
        if columns.to_release[j] < NEVER:
            opening = min(opening, earliest + columns.to_release[j])
        for waiting in range(row, behind):
            slot = to + resources + waiting % columns.rows
            earliest = max(earliest, labels[slot])
            labels[slot] = earliest
            bound = max(bound, earliest + columns.to_end[j])
            earliest += columns.duration[j]
    row, here = states[state], columns.resource[0]
    if row < columns.members:
        begin = labels[to + here]
        shortage = states[use + here] + columns.acquire[0] - columns.room[here]
        if shortage > 0:
            wait = _least_work(columns, states, state, here, shortage)
            begin = max(begin, min(opening, begin + wait))
        if begin >= NEVER:
            return NEVER
        behind = (columns.members - 1 - row) * columns.duration[0]
        bound = max(bound, begin + behind + columns.to_end[0])
        for k in range(resources):
            way = columns.ways[k]
            if way < NEVER:
                firsts[k] = min(firsts[k], begin + way)
    for k in range(resources):
        work, loose = states[use + resources + k], states[use + 2 * resources + k]
        free = labels[to + k]
        if work > 0:
            if states[use + 3 * resources + k] == 0 and firsts[k] < NEVER:
                free = max(free, firsts[k])
                labels[to + k] = free
            bound = max(bound, free + work + columns.tails[k])
        bound = max(bound, free + work + loose)
    return bound


@part
def _value_ahead(
    columns: RowColumns,
    ahead: LookAhead,
    states: Any,
    state: int,
    labels: Any,
    to: int,
    resource: int,
    at: int,
) -> int:
    """Return the largest sum of a moment of a resource and an entry of a row of its state."""
    resources, seat = len(columns.room), columns.seat[resource]
    slots = ahead.slots[seat]
    waiting = states[state + len(columns.duration) + 3 * resources + resource]
    value = max(
        labels[to + resource] + ahead.entries[at],
        labels[to + resource] + waiting + ahead.entries[at + 1],
    )
    for j in range(len(columns.delay) - 1, ahead.opening[seat], -1):
        way = columns.ways[j * resources + resource]
        if way < NEVER:
            for row in range(states[state + j], states[state + j - 1]):
                arrival = labels[to + resources + row % columns.rows] + way
                value = max(value, arrival + ahead.entries[at + 2 + row % slots])
    return value


@part
def _end_ahead(
    columns: RowColumns,
    ahead: LookAhead,
    states: Any,
    state: int,
    labels: Any,
    to: int,
    resource: int,
) -> int:
    """Return the least end of what a resource alone still takes, 0 where that is not known."""
    use = state + len(columns.duration) + resource
    seat = columns.seat[resource]
    if seat < 0 or states[use + len(columns.room)] == 0:
        return 0
    number = states[use + 4 * len(columns.room)]
    pointer, least = ahead.pointer_at[seat] + number, NEVER
    for row in range(ahead.pointer[pointer], ahead.pointer[pointer + 1]):
        at = ahead.entries_at[seat] + row * (ahead.slots[seat] + 2)
        least = min(
            least,
            _value_ahead(columns, ahead, states, state, labels, to, resource, at),
        )
    return least


@part
def _rank(
    columns: RowColumns,
    ahead: LookAhead,
    states: Any,
    state: int,
    labels: Any,
    to: int,
    bound_at: int,
) -> int:
    """Return a sum of the moments at which resources would be done if they had no more breaks.

    The mean counts three times as much as the latest. The bound of the label is raised on the way.
    """
    resources = len(columns.room)
    work = state + len(columns.duration) + resources
    latest, total = 0, 0
    for k in range(resources):
        load = labels[to + k] + states[work + k] + states[work + resources + k]
        total += load
        if states[work + k] > 0:
            load += columns.tails[k]
            alone = _end_ahead(columns, ahead, states, state, labels, to, k)
            labels[bound_at] = max(labels[bound_at], alone)
            total += max(0, alone - load)
            load = max(load, alone)
        latest = max(latest, load)
    return resources * latest + 3 * total


@part
def _can_end(columns: RowColumns, states: Any, state: int, used: Any) -> bool:
    """Whether the rows on their way can end in turn, each alone; `used` is written.

    Loose ops run as soon as they can.
    """
    count, length = len(columns.duration), len(columns.delay)
    for k in range(len(columns.room)):
        used[k] = states[state + count + k]
    for j in range(length, count):
        waiting = states[state + columns.before[j]] - states[state + j]
        used[columns.resource[j]] += waiting * columns.change[j]
    for row in range(states[state + length - 1], states[state]):
        for j in range(length):
            if states[state + j] <= row:
                here = columns.resource[j]
                if (
                    columns.acquire[j] > 0
                    and used[here] + columns.acquire[j] > columns.room[here]
                ):
                    return False
                used[here] += columns.kept[j]
    return True


@part
def _grow(
    columns: RowColumns,
    ahead: LookAhead,
    levels: FrontierLevels,
    parent: int,
    slot: int,
    states: Any,
    labels: Any,
    table: Any,
    firsts: Any,
    tally: Any,
) -> bool:
    """Append each op to each label of a state; return whether there was room for all."""
    count, newest, width = levels.counts, levels.newest, levels.label_size
    for j in range(count - 1, -1, -1):
        if not _may_start(columns, states, parent, j):
            continue
        if tally[slot] == levels.states:
            return False
        fresh = (levels.ring * tally[slot] + slot) * (newest + LINKS)
        if not _set_state(columns, ahead, states, parent, j, fresh):
            continue
        child = numbered(states, table, fresh, count, newest)
        if child == fresh:
            tally[slot] += 1
            if columns.ends_in_turn and not _can_end(columns, states, child, firsts):
                states[child + newest] = _STUCK
        source = states[parent + newest]
        if states[child + newest] == _STUCK:
            continue
        while source >= 0:
            number = free_label(levels, slot, tally)
            if number < 0:
                return False
            to = number * width
            bound_at = to + levels.moments
            _append(columns, states, labels, child, source * width, j, to)
            labels[bound_at] = _settle(columns, states, child, labels, to, firsts)
            labels[bound_at + 1] = _rank(
                columns, ahead, states, child, labels, to, bound_at
            )
            origin = labels[source * width + levels.moments + 2]
            labels[bound_at + 2] = origin * count + j
            tally[_STEPS] += 1
            if labels[bound_at] < levels.upper:
                enter(levels, states, labels, child + newest, number, tally)
            source = labels[source * width + width - 1]
    return True


@part
def _note_origins(
    levels: FrontierLevels,
    states: Any,
    labels: Any,
    slot: int,
    entries: Any,
    tally: Any,
) -> None:
    """Enter how each label of a level came about."""
    for number in range(tally[slot]):
        state = (levels.ring * number + slot) * (levels.newest + LINKS)
        label = states[state + levels.newest]
        while label >= 0:
            origin = label * levels.label_size + levels.moments + 2
            entries[tally[_ENTRIES]] = labels[origin]
            labels[origin] = tally[_ENTRIES]
            tally[_ENTRIES] += 1
            label = labels[label * levels.label_size + levels.label_size - 1]


@part
def beam_steps(tally: Any) -> int:
    """Return the labels made, times `LABEL_STEPS`, and the pairs of labels compared."""
    return tally[_STEPS] * LABEL_STEPS + tally[_COMPARED]


@Kernel
def grow_beam(
    columns: RowColumns,
    ahead: LookAhead,
    levels: FrontierLevels,
    states: Any,
    labels: Any,
    table: Any,
    firsts: Any,
    entries: Any,
    tally: Any,
) -> int:
    """Replace the states of the first level by those of a later one; return its number.

    `states`, int64[2 * states * state_size], has those of even and of odd levels in turn; `labels`,
    int64[2 * labels * label_size], likewise. `table`, int64[...], is full of -1, `firsts`,
    int64[R], is written. An entry says of a label that stayed which one it comes from, times C,
    plus the column of its last op. It ends at the last level, after enough steps, or before one
    that has no room.
    """
    for level in range(levels.first, levels.last):
        if beam_steps(tally) >= levels.steps:
            return level
        here, slot = level % 2, (level + 1) % 2
        begin_level(tally, slot)
        has_room = True
        for number in range(tally[here]):
            parent = (2 * number + here) * (levels.newest + LINKS)
            if has_room and states[parent + levels.newest] >= 0:
                has_room = _grow(
                    columns,
                    ahead,
                    levels,
                    parent,
                    slot,
                    states,
                    labels,
                    table,
                    firsts,
                    tally,
                )
        forget_keys(levels, states, table, slot, tally)
        if not has_room:
            return level
        narrow(levels, states, labels, slot, levels.moments + 1, tally)
        _note_origins(levels, states, labels, slot, entries, tally)
    return levels.last

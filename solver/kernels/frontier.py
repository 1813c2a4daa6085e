"""Schedules of few devices with their memory, grown op by op: states of counts, labels of moments.

A state says how many rows have passed each column of a chain; what the devices' pools hold follows
from that. A label of a state says when each device is free and when the ops that wait can start.
Ops are appended by their starts, so that no op starts before the one that was appended last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER


class DeviceChain(NamedTuple):
    """The ops of K devices: m alike rows of a chain of L ops, and loose work behind them.

    Loose work may be interrupted and put off until memory or the end asks for it.
    """

    device: Any  # int64[L]: 0 to K - 1
    duration: Any  # int64[L]: in ticks, all above 0
    delay: Any  # int64[L]: from the start of each op to that of the next one, 0 for the last
    acquire: Any  # int64[L]: amount that an op takes when it starts
    change: Any  # int64[L]: what it takes, less what it and its loose work give back
    loose: Any  # int64[L]: work behind each op
    to_end: Any  # int64[L]: from the start of each op to the end of all
    # int64[L]: from there to the end of the first op on the first op's device that gives back,
    # NEVER if none does
    to_release: Any
    # int64[L * K]: from there to the start of the first op on each device, itself or behind, NEVER
    # if there is none
    to_device: Any
    heads: Any  # int64[m * L]: earliest starts, row by row
    table: Any  # int64[K + 1]: rows of held and waiting, by device
    held: Any  # int64[b]: amounts, going up from 0
    waiting: Any  # int64[b]: most loose work that holds no more than that amount
    room: Any  # int64[K]: of the pool
    tail: Any  # int64[K]: from the end of the last op to the end of all
    loose_tail: Any  # int64[K]: from the end of the last work, loose or not
    members: int  # m
    rows: int  # most rows that are on their way


class LookAhead(NamedTuple):
    """What each device alone still takes from each of its states, as rows of a maximum.

    The least end from a state is the least value of a row: the largest sum of a moment of the
    label and an entry, in the order of a label with one slot for each of the rows on their way.
    State 0 is the first one of each device. Without any state nothing is looked up.
    """

    column: Any  # int64[L]: the place of each op in the chain of its device
    columns: Any  # int64[K]: ops of the chain of each device
    opening: Any  # int64[K]: the first op of each device
    slots: Any  # int64[K]: most rows that are on their way on a device
    successor: Any  # int64[...]: state behind each state and op of a device, -1 if that is no way
    successor_at: Any  # int64[K + 1]: where those of each device begin
    pointer: (
        Any  # int64[...]: first row of each state of a device, and behind its last one
    )
    pointer_at: Any  # int64[K + 1]: where those of each device begin
    entries: Any  # int64[...]: slots + 2 of each row
    entries_at: Any  # int64[K + 1]: where those of each device begin


@part
def state_size(columns: int, devices: int) -> int:
    """Figures of a state: counts, four of each device, and three that find states and labels.

    Those of devices are amounts in use, work left, loose work left and states of `LookAhead`; the
    last ones are its newest label, the key of its hash and the place of the next state of that key.
    """
    return columns + 4 * devices + 3


@part
def label_size(rows: int, devices: int) -> int:
    """Figures of a label: moments, bound, and the number of the next label of its state.

    The moments are, of each device, the end of the last op and that with loose work; then the
    arrivals of rows.
    """
    return 2 * devices + rows + 2


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
def waiting_in(chain: DeviceChain, device: int, room: int) -> int:
    """Return the most loose work that may wait while it holds no more than a room."""
    low, high = chain.table[device], chain.table[device + 1] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if chain.held[middle] <= room:
            low = middle
        else:
            high = middle - 1
    return chain.waiting[low]


@part
def may_start(chain: DeviceChain, states: Any, state: int, j: int) -> bool:
    """Whether a row waits for column j, and its op fits into the pool."""
    behind = chain.members if j == 0 else states[state + j - 1]
    if states[state + j] >= behind:
        return False
    device = chain.device[j]
    used = states[state + len(chain.duration) + device]
    return chain.acquire[j] == 0 or used + chain.acquire[j] <= chain.room[device]


@part
def set_state(chain: DeviceChain, states: Any, parent: int, j: int, child: int) -> None:
    """Write the counts and figures of the state in which one more row has passed column j."""
    columns, devices = len(chain.duration), len(chain.room)
    for k in range(columns + 4 * devices):
        states[child + k] = states[parent + k]
    states[child + j] += 1
    figure = child + columns + chain.device[j]
    states[figure] += chain.change[j]
    states[figure + devices] -= chain.duration[j]
    states[figure + 2 * devices] -= chain.loose[j]


@part
def _look_up(
    chain: DeviceChain, ahead: LookAhead, states: Any, child: int, j: int
) -> bool:
    """Write the state of the device alone to which an op is appended; whether it can end."""
    device = chain.device[j]
    figure = child + len(chain.duration) + 3 * len(chain.room) + device
    at = ahead.successor_at[device] + ahead.columns[device] * states[figure]
    states[figure] = ahead.successor[at + ahead.column[j]]
    return states[figure] >= 0


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
    columns, devices = len(chain.duration), len(chain.room)
    moments = 2 * devices
    for k in range(chain.rows + moments + 1):
        labels[to + k] = labels[source + k]
    row, device = states[parent + j], chain.device[j]
    free, slot = to + 2 * device, to + moments + row % chain.rows
    arrival = chain.heads[row * columns] if j == 0 else labels[slot]
    start = max(labels[free], arrival)
    if chain.acquire[j] > 0:
        spare = (
            chain.room[device] - states[parent + columns + device] - chain.acquire[j]
        )
        start = max(start, labels[free + 1] - waiting_in(chain, device, spare))
    # What is left on other devices starts no sooner; a device without work has ended before.
    for other in range(devices):
        if states[parent + columns + devices + other] > 0:
            labels[to + 2 * other] = max(labels[to + 2 * other], start)
            labels[to + 2 * other + 1] = max(labels[to + 2 * other + 1], start)
    labels[free] = start + chain.duration[j]
    labels[free + 1] += chain.duration[j] + chain.loose[j]
    labels[slot] = 0
    if j + 1 < columns:
        labels[slot] = max(start + chain.delay[j], chain.heads[row * columns + j + 1])


@part
def _settle_rows(
    chain: DeviceChain, states: Any, state: int, labels: Any, to: int, first: Any
) -> int:
    """Raise arrivals to when ops can start; write the first start left on each device.

    It returns a bound on the label's schedules, NEVER where no row can begin though some has to.
    """
    columns, devices = len(chain.duration), len(chain.room)
    slots = to + 2 * devices
    opening, bound = NEVER, labels[slots + chain.rows]
    for device in range(devices):
        first[device] = NEVER
    for j in range(columns - 1, 0, -1):
        row, last = states[state + j], states[state + j - 1]
        if row == last:
            continue
        earliest = max(
            labels[to + 2 * chain.device[j]], labels[slots + row % chain.rows]
        )
        for device in range(devices):
            ahead = earliest + chain.to_device[j * devices + device]
            first[device] = min(first[device], ahead)
        opening = min(opening, earliest + chain.to_release[j])
        labels[slots + row % chain.rows] = earliest
        for later in range(row + 1, last):
            slot = slots + later % chain.rows
            earliest = max(earliest + chain.duration[j], labels[slot])
            labels[slot] = earliest
        bound = max(bound, earliest + chain.to_end[j])
    row, device = states[state], chain.device[0]
    if row == chain.members:
        return bound
    begin = max(labels[to + 2 * device], chain.heads[row * columns])
    spare = chain.room[device] - states[state + columns + device] - chain.acquire[0]
    if spare < 0:
        begin = max(begin, opening)
    else:
        late = labels[to + 2 * device + 1]
        begin = max(begin, min(opening, late - waiting_in(chain, device, spare)))
    if begin >= NEVER:
        return NEVER
    for other in range(devices):
        first[other] = min(first[other], begin + chain.to_device[other])
    behind = (chain.members - 1 - row) * chain.duration[0]
    return max(bound, begin + behind + chain.to_end[0])


@part
def _settle(
    chain: DeviceChain, states: Any, state: int, labels: Any, to: int, first: Any
) -> int:
    """Raise the moments of a label to when something can happen; return a bound on its schedules.

    It is NEVER where no row can begin any more though some has to.
    """
    columns, devices = len(chain.duration), len(chain.room)
    bound = _settle_rows(chain, states, state, labels, to, first)
    for device in range(devices):
        free, late = labels[to + 2 * device], labels[to + 2 * device + 1]
        figure = state + columns + devices + device
        work = states[figure]
        if first[device] < NEVER:
            free = max(free, first[device])
        elif device != chain.device[columns - 1]:
            free = 0  # nothing is left on it, and rows on their way tell the rest
        late = max(late, free)
        labels[to + 2 * device], labels[to + 2 * device + 1] = free, late
        loose = late + work + states[figure + devices] + chain.loose_tail[device]
        bound = max(bound, free + work + chain.tail[device] if free > 0 else 0, loose)
    return bound


@part
def _bound_ahead(
    chain: DeviceChain,
    ahead: LookAhead,
    states: Any,
    state: int,
    labels: Any,
    to: int,
    bound: int,
) -> int:
    """Raise a bound on a label's schedules by what each device alone still takes."""
    columns, devices = len(chain.duration), len(chain.room)
    for device in range(devices):
        if states[state + columns + devices + device] == 0:
            continue
        number = states[state + columns + 3 * devices + device]
        pointer, least = ahead.pointer_at[device] + number, NEVER
        for row in range(ahead.pointer[pointer], ahead.pointer[pointer + 1]):
            at = ahead.entries_at[device] + row * (ahead.slots[device] + 2)
            value = _value_ahead(chain, ahead, states, state, labels, to, device, at)
            least = min(least, value)
            if least <= bound:
                break
        bound = max(bound, least)
    return bound


@part
def _value_ahead(
    chain: DeviceChain,
    ahead: LookAhead,
    states: Any,
    state: int,
    labels: Any,
    to: int,
    device: int,
    at: int,
) -> int:
    """Return the largest sum of a moment of a device and an entry of a row of its state."""
    devices, slots = len(chain.room), ahead.slots[device]
    value = max(
        labels[to + 2 * device] + ahead.entries[at],
        labels[to + 2 * device + 1] + ahead.entries[at + 1],
    )
    for j in range(len(chain.duration) - 1, ahead.opening[device], -1):
        way = chain.to_device[j * devices + device]
        if way < NEVER:
            for row in range(states[state + j], states[state + j - 1]):
                arrival = labels[to + 2 * devices + row % chain.rows] + way
                value = max(value, arrival + ahead.entries[at + 2 + row % slots])
    return value


@part
def is_no_later(labels: Any, a: int, b: int, moments: int) -> bool:
    """Whether no moment of a label is later than that of another one."""
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
        if is_no_later(labels, b, to, moments):
            return -1
        if is_no_later(labels, to, b, moments):
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
def is_same(states: Any, a: int, b: int, columns: int) -> bool:
    """Whether two states have the same counts."""
    for k in range(columns):  # noqa: SIM110
        if states[a + k] != states[b + k]:
            return False
    return True


@part
def numbered(
    chain: DeviceChain, states: Any, table: Any, fresh: int, tally: Any
) -> int:
    """Return the place of the state of the next level that is equal to a fresh one.

    It is the fresh one itself where there is none.
    """
    columns, key = len(chain.duration), 0
    link = columns + 4 * len(chain.room)
    for k in range(columns):
        key = (key * 1_000_003 + states[fresh + k]) % len(table)
    rival = table[key]
    while rival >= 0:
        if is_same(states, rival, fresh, columns):
            return rival
        rival = states[rival + link + 2]
    states[fresh + link] = -1
    states[fresh + link + 1] = key
    states[fresh + link + 2] = table[key]
    table[key] = fresh
    tally[_NEXT_STATES] += 1
    return fresh


@part
def _can_end(chain: DeviceChain, states: Any, state: int) -> bool:
    """Whether the rows on their way on a single device can end in turn, each alone."""
    columns = len(chain.duration)
    used = states[state + columns]
    for row in range(states[state + columns - 1], states[state]):
        for j in range(columns):
            if states[state + j] <= row:
                if chain.acquire[j] > 0 and used + chain.acquire[j] > chain.room[0]:
                    return False
                used += chain.change[j]
    return True


@part
def _grow(
    chain: DeviceChain,
    ahead: LookAhead,
    levels: FrontierLevels,
    parent: int,
    parity: int,
    states: Any,
    labels: Any,
    table: Any,
    first: Any,
    tally: Any,
) -> bool:
    """Append each op to each label of a state; return whether there was room for all."""
    columns, devices = len(chain.duration), len(chain.room)
    size, width = state_size(columns, devices), label_size(chain.rows, devices)
    link, looks_ahead = columns + 4 * devices, len(ahead.pointer) > 0
    for j in range(columns - 1, -1, -1):
        if not may_start(chain, states, parent, j):
            continue
        if tally[_NEXT_STATES] == levels.states:
            return False
        fresh = (2 * tally[_NEXT_STATES] + parity) * size
        set_state(chain, states, parent, j, fresh)
        if levels.in_turn and not _can_end(chain, states, fresh):
            continue
        if looks_ahead and not _look_up(chain, ahead, states, fresh, j):
            continue
        child = numbered(chain, states, table, fresh, tally)
        source = states[parent + link]
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
            bound = _settle(chain, states, child, labels, to, first)
            if looks_ahead and bound < levels.upper:
                bound = _bound_ahead(chain, ahead, states, child, labels, to, bound)
            labels[to + width - 2] = bound
            tally[_STEPS] += 1
            if bound < levels.upper:
                if is_freed:
                    tally[_FREED] = after
                else:
                    tally[_NEXT_LABELS] += 1
                if not _keep(
                    levels, labels, states, child + link, number, width, tally
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
    ahead: LookAhead,
    levels: FrontierLevels,
    states: Any,
    labels: Any,
    table: Any,
    first: Any,
    tally: Any,
) -> int:
    """Replace the states of the first level by those of a later one; return its number.

    `states`, int64[2 * states * state_size], has those of even and of odd levels in turn; `labels`,
    int64[2 * labels * label_size], likewise. `table`, int64[...], is full of -1. `first`, int64[K],
    holds what a level does not keep. It ends at the last level, once enough labels are made, or
    before one that has no room.
    """
    columns, devices = len(chain.duration), len(chain.room)
    size, width = state_size(columns, devices), label_size(chain.rows, devices)
    newest = columns + 4 * devices
    for level in range(levels.first, levels.last):
        if tally[_STEPS] >= levels.steps:
            return level
        here, parity = level % 2, (level + 1) % 2
        tally[_NEXT_STATES] = tally[_NEXT_LABELS] = 0
        tally[_FREED] = -1
        has_room = True
        for number in range(tally[_STATES]):
            parent = (2 * number + here) * size
            if states[parent + newest] < 0:
                continue
            has_room = _grow(
                chain,
                ahead,
                levels,
                parent,
                parity,
                states,
                labels,
                table,
                first,
                tally,
            )
            if not has_room:
                break
        for number in range(tally[_NEXT_STATES]):
            table[states[(2 * number + parity) * size + newest + 1]] = -1
        if not has_room:
            return level
        _narrow(levels, states, labels, parity * size + newest, size, width, tally)
        tally[_STATES] = tally[_NEXT_STATES]
    return levels.last

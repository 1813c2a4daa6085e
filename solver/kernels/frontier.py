"""Schedules of few devices with their memory, grown op by op: states of counts, labels of moments.

A state says how many rows have passed each column of a chain; what the devices' pools hold follows
from that. A label of a state says when each device is free and when the ops that wait can start.
Ops are appended by their starts, so that no op starts before the one that was appended last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
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

_STEPS = TALLY.steps


class DeviceMoves(NamedTuple):
    """What is appended at a time: each op of a chain, then two that run as one.

    The second op is of an earlier row, on the same device. Both start and end together.
    """

    op: Any  # int64[M]
    partner: Any  # int64[M]: the other op, or -1
    ticks: Any  # int64[M]: no less than the time of either op
    acquire: Any  # int64[M]: amount taken at the start
    loose: Any  # int64[M]: loose work that is left behind


class DeviceChain(NamedTuple):
    """The ops of K devices: m alike rows of a chain of L ops, and loose work behind them.

    Loose work may be interrupted and put off until memory or the end asks for it.
    """

    device: Any  # int64[L]: 0 to K - 1
    duration: Any  # int64[L]: in ticks, all above 0
    delay: Any  # int64[L]: from the start of each op to that of the next one, 0 for the last
    acquire: Any  # int64[L]: amount that an op takes when it starts
    change: Any  # int64[L]: what it takes, less what it and its loose work give back
    # int64[L]: what each op adds at least to the work of its device, without loose work and with it
    work: Any
    load: Any
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
    moves: DeviceMoves
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

    place: Any  # int64[M]: of each move among those of its device
    moves: Any  # int64[K]: moves of each device
    opening: Any  # int64[K]: the first op of each device
    slots: Any  # int64[K]: most rows that are on their way on a device
    successor: Any  # int64[...]: state behind each state and move of a device, -1 if that is no way
    successor_at: Any  # int64[K + 1]: where those of each device begin
    pointer: (
        Any  # int64[...]: first row of each state of a device, and behind its last one
    )
    pointer_at: Any  # int64[K + 1]: where those of each device begin
    entries: Any  # int64[...]: slots + 2 of each row
    entries_at: Any  # int64[K + 1]: where those of each device begin


@part
def newest_at(columns: int, devices: int) -> int:
    """Return where a state has the number of its newest label, behind counts and figures.

    Figures are, of each device, the amount in use, work left without and with loose work, and the
    state of `LookAhead`.
    """
    return columns + 4 * devices


@part
def moments_of(rows: int, devices: int) -> int:
    """Return the number of moments of a label; its bound and the next label follow.

    They are, of each device, the end of the last op and that with loose work; then the arrivals of
    rows.
    """
    return 2 * devices + rows


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
def _waits(chain: DeviceChain, states: Any, state: int, j: int) -> bool:
    """Whether a row waits for column j."""
    behind = chain.members if j == 0 else states[state + j - 1]
    return states[state + j] < behind


@part
def may_start(chain: DeviceChain, states: Any, state: int, move: int) -> bool:
    """Whether rows wait for all ops of a move, and these fit into the pool."""
    j, partner = chain.moves.op[move], chain.moves.partner[move]
    if not _waits(chain, states, state, j):
        return False
    if partner >= 0 and not _waits(chain, states, state, partner):
        return False
    device, amount = chain.device[j], chain.moves.acquire[move]
    used = states[state + len(chain.duration) + device]
    return amount == 0 or used + amount <= chain.room[device]


@part
def _pass(chain: DeviceChain, states: Any, state: int, j: int) -> None:
    """Let one more row of a state have passed column j."""
    devices = len(chain.room)
    figure = state + len(chain.duration) + chain.device[j]
    states[state + j] += 1
    states[figure] += chain.change[j]
    states[figure + devices] -= chain.work[j]
    states[figure + 2 * devices] -= chain.load[j]


@part
def set_state(
    chain: DeviceChain, states: Any, parent: int, move: int, child: int
) -> None:
    """Write the counts and figures of the state behind a move."""
    for k in range(newest_at(len(chain.duration), len(chain.room))):
        states[child + k] = states[parent + k]
    _pass(chain, states, child, chain.moves.op[move])
    if chain.moves.partner[move] >= 0:
        _pass(chain, states, child, chain.moves.partner[move])


@part
def _look_up(
    chain: DeviceChain, ahead: LookAhead, states: Any, child: int, move: int
) -> bool:
    """Write the state of the device alone that makes a move; whether it can end."""
    device = chain.device[chain.moves.op[move]]
    figure = child + len(chain.duration) + 3 * len(chain.room) + device
    at = ahead.successor_at[device] + ahead.moves[device] * states[figure]
    states[figure] = ahead.successor[at + ahead.place[move]]
    return states[figure] >= 0


@part
def _arrive(
    chain: DeviceChain,
    states: Any,
    parent: int,
    labels: Any,
    to: int,
    j: int,
    end: int,
) -> None:
    """Write when the row that passes column j, whose op ends at a moment, can go on."""
    columns, row = len(chain.duration), states[parent + j]
    slot = to + 2 * len(chain.room) + row % chain.rows
    labels[slot] = 0
    if j + 1 < columns:
        arrival = end + chain.delay[j] - chain.duration[j]
        labels[slot] = max(arrival, chain.heads[row * columns + j + 1])


@part
def _append(
    chain: DeviceChain,
    states: Any,
    labels: Any,
    parent: int,
    source: int,
    move: int,
    to: int,
) -> None:
    """Write the moments of a label behind a move."""
    columns, devices = len(chain.duration), len(chain.room)
    moments, slots = moments_of(chain.rows, devices), to + 2 * devices
    j, partner = chain.moves.op[move], chain.moves.partner[move]
    for k in range(moments + 1):
        labels[to + k] = labels[source + k]
    row, device = states[parent + j], chain.device[j]
    free = to + 2 * device
    arrival = labels[slots + row % chain.rows]
    if j == 0:
        arrival = chain.heads[row * columns]
    start = max(labels[free], arrival)
    if partner >= 0:
        start = max(start, labels[slots + states[parent + partner] % chain.rows])
    amount = chain.moves.acquire[move]
    if amount > 0:
        spare = chain.room[device] - states[parent + columns + device] - amount
        start = max(start, labels[free + 1] - waiting_in(chain, device, spare))
    # What is left on other devices starts no sooner; a device without work has ended before.
    for other in range(devices):
        if states[parent + columns + devices + other] > 0:
            labels[to + 2 * other] = max(labels[to + 2 * other], start)
            labels[to + 2 * other + 1] = max(labels[to + 2 * other + 1], start)
    end = start + chain.moves.ticks[move]
    labels[free] = end
    labels[free + 1] += chain.moves.ticks[move] + chain.moves.loose[move]
    if partner >= 0:
        _arrive(chain, states, parent, labels, to, partner, end)
    _arrive(chain, states, parent, labels, to, j, end)


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
        loaded = late + states[figure + devices] + chain.loose_tail[device]
        bound = max(bound, free + work + chain.tail[device] if free > 0 else 0, loaded)
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
    ops: int,
    slot: int,
    states: Any,
    labels: Any,
    table: Any,
    first: Any,
    tally: Any,
) -> bool:
    """Append each move of so many ops to each label of a state; whether there was room for all."""
    size, width = levels.newest + LINKS, levels.label_size
    looks_ahead = len(ahead.pointer) > 0
    for move in range(len(chain.moves.op) - 1, -1, -1):
        if (chain.moves.partner[move] >= 0) != (ops == 2):
            continue
        if not may_start(chain, states, parent, move):
            continue
        if tally[slot] == levels.states:
            return False
        fresh = (levels.ring * tally[slot] + slot) * size
        set_state(chain, states, parent, move, fresh)
        if levels.in_turn and not _can_end(chain, states, fresh):
            continue
        if looks_ahead and not _look_up(chain, ahead, states, fresh, move):
            continue
        child = numbered(states, table, fresh, levels.counts, levels.newest)
        if child == fresh:
            tally[slot] += 1
        source = states[parent + levels.newest]
        while source >= 0:
            number = free_label(levels, slot, tally)
            if number < 0:
                return False
            to = number * width
            _append(chain, states, labels, parent, source * width, move, to)
            bound = _settle(chain, states, child, labels, to, first)
            if looks_ahead and bound < levels.upper:
                bound = _bound_ahead(chain, ahead, states, child, labels, to, bound)
            labels[to + levels.moments] = bound
            tally[_STEPS] += 1
            if bound < levels.upper:
                enter(levels, states, labels, child + levels.newest, number, tally)
            source = labels[source * width + width - 1]
    return True


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

    `states`, int64[ring * states * state_size], has those of the last levels in turn; `labels`,
    int64[ring * labels * label_size], likewise. `table`, int64[...], is full of -1. `first`,
    int64[K], holds what a level does not keep. A move of two ops passes over a level, so the ring
    has three where there is any. It ends at the last level, once enough labels are made, or before
    one that has no room.
    """
    for level in range(levels.first, levels.last):
        if tally[_STEPS] >= levels.steps:
            return level
        slot = (level + 1) % levels.ring
        begin_level(tally, slot)
        has_room = True
        for ops in range(1, levels.ring):
            here = (level + 1 - ops + levels.ring) % levels.ring
            for number in range(tally[here]):
                parent = (levels.ring * number + here) * (levels.newest + LINKS)
                if has_room and states[parent + levels.newest] >= 0:
                    has_room = _grow(
                        chain,
                        ahead,
                        levels,
                        parent,
                        ops,
                        slot,
                        states,
                        labels,
                        table,
                        first,
                        tally,
                    )
        forget_keys(levels, states, table, slot, tally)
        if not has_room:
            return level
        narrow(levels, states, labels, slot, levels.moments, tally)
    return levels.last

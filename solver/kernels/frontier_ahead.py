"""What a device alone still takes from each of its states, exactly, as rows of a maximum.

Appending an op takes sums and maxima of moments only, so the end from a state is the least of
several maxima of moments, each with an entry added. Rows are found from the last state backwards.
"""

from __future__ import annotations

from typing import Any

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.frontier import (
    DeviceChain,
    may_start,
    newest_at,
    set_state,
    waiting_in,
)
from ppsolve.solver.kernels.frontier_levels import LINKS, numbered
from ppsolve.solver.kernels.records import NEVER


@Kernel
def list_states(
    chain: DeviceChain, room: int, states: Any, table: Any, successor: Any
) -> int:
    """Write all states of a device behind the first one, and what follows each of them.

    `states`, int64[(room + 1) * (newest + 3)], begins with the first state; `table`, int64[...], is
    full of -1; `successor`, int64[room * M], becomes the numbers of states, -1 for none. It returns
    how many there are, or room + 1 if that is too many.
    """
    columns, moves = len(chain.duration), len(chain.moves.op)
    newest = newest_at(columns, 1)
    size, number, count = newest + LINKS, 0, 1
    while number < count:
        for move in range(moves):
            successor[number * moves + move] = -1
            if may_start(chain, states, number * size, move):
                fresh = count * size
                set_state(chain, states, number * size, move, fresh)
                child = numbered(states, table, fresh, columns, newest)
                if child == fresh:
                    count += 1
                if count > room:
                    return count
                successor[number * moves + move] = child // size
        number += 1
    return count


@part
def _is_no_more(entries: Any, a: int, b: int, width: int) -> bool:
    for k in range(width):  # noqa: SIM110
        if entries[a + k] > entries[b + k]:
            return False
    return True


@part
def _strike(entries: Any, begin: int, count: int, fresh: int, width: int) -> int:
    """Leave out the rows of a state that are no less than a fresh one; return how many stay.

    It is -1 where some row is no more than the fresh one.
    """
    kept = 0
    for k in range(count):
        if _is_no_more(entries, begin + k * width, fresh, width):
            return -1
    for k in range(count):
        row, to = begin + k * width, begin + kept * width
        if not _is_no_more(entries, fresh, row, width):
            for entry in range(width):
                entries[to + entry] = entries[row + entry]
            kept += 1
    return kept


@part
def _keep_row(
    entries: Any, begin: int, count: int, fresh: int, width: int, most: int
) -> int:
    """Add a fresh row to those of a state; return how many there are.

    Where there are too many, it becomes one with the nearest: the least of both in each entry.
    """
    kept = _strike(entries, begin, count, fresh, width)
    if kept < 0:
        return count
    if kept == most:
        nearest, smallest = begin, NEVER
        for k in range(kept):
            row, difference = begin + k * width, 0
            for entry in range(width):
                a, b = entries[row + entry], entries[fresh + entry]
                difference += min(max(a - b, b - a), NEVER // width)
            if difference < smallest:
                smallest, nearest = difference, row
        for entry in range(width):
            entries[fresh + entry] = min(
                entries[fresh + entry], entries[nearest + entry]
            )
        kept = _strike(entries, begin, kept, fresh, width)
    for entry in range(width):
        entries[begin + kept * width + entry] = entries[fresh + entry]
    return kept + 1


@part
def _write_row(
    chain: DeviceChain, states: Any, state: int, move: int, entries: Any, after: int
) -> None:
    """Write the row behind all others: what a move takes, and then what a row of its state says."""
    columns, width = len(chain.duration), chain.rows + 2
    fresh, ticks = len(entries) - width, chain.moves.ticks[move]
    j, partner = chain.moves.op[move], chain.moves.partner[move]
    for entry in range(width):
        entries[fresh + entry] = entries[after + entry]
    late = entries[after + 1] + ticks + chain.moves.loose[move]
    start = max(entries[after] + ticks, late)
    for op in (j, partner):
        if op >= 0 and op + 1 < columns:
            slot = 2 + states[state + op] % chain.rows
            arrival = ticks + chain.delay[op] - chain.duration[op]
            start = max(start, entries[after + slot] + arrival)
    entries[fresh], entries[fresh + 1] = start, late
    if chain.moves.acquire[move] > 0:
        spare = chain.room[0] - states[state + columns] - chain.moves.acquire[move]
        entries[fresh + 1] = max(late, start - waiting_in(chain, 0, spare))
    slot = 2 + states[state + j] % chain.rows
    entries[fresh + slot] = start if j > 0 else -NEVER
    if partner >= 0:
        entries[fresh + 2 + states[state + partner] % chain.rows] = start


@Kernel
def list_entries(
    chain: DeviceChain,
    order: Any,
    most: int,
    states: Any,
    successor: Any,
    count: Any,
    entries: Any,
) -> None:
    """Write the rows of states, at most so many of each.

    `order`, int64[states], has the states, those before which all are that may follow them;
    `count`, int64[states], is 0 for all; `entries`, int64[(states * most + 1) * (rows + 2)]. States
    without rows, from which no order of what is left keeps memory, follow no other one any more.
    """
    columns, width = len(chain.duration), chain.rows + 2
    moves, size = len(chain.moves.op), newest_at(columns, 1) + LINKS
    for state in order:
        begin, place = state * most * width, state * size
        if states[place + columns - 1] == chain.members:
            for entry in range(width):
                entries[begin + entry] = -NEVER
            entries[begin], entries[begin + 1] = chain.tail[0], chain.loose_tail[0]
            count[state] = 1
        for move in range(moves):
            child = successor[state * moves + move]
            if child < 0:
                continue
            if count[child] == 0:
                successor[state * moves + move] = -1
            for k in range(count[child]):
                after = (child * most + k) * width
                _write_row(chain, states, place, move, entries, after)
                count[state] = _keep_row(
                    entries, begin, count[state], len(entries) - width, width, most
                )

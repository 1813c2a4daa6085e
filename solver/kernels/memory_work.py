"""The work that must run before the acquires of a lane, so that memory has room for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER


class LaneMemory(NamedTuple):
    """What L lanes of m rows take, and what must be released before each acquire of the innermost.

    The first releases of all lanes are one series, the second ones another, maybe an empty one.
    Amounts are a multiple of the smallest amount that a lane takes, and some units over.
    """

    extra: (
        Any  # int64[L]: rows beyond j - 1 whose acquire comes before acquire j, 0 or 1
    )
    length: Any  # int64[L]: duration of acquires in ticks
    release_length: (
        Any  # int64[2 or 3]: shortest duration of each series in ticks, then 0
    )
    smallest: int  # units of the smallest amount
    free: int  # amount that is free before any op
    free_over: int
    released: Any  # int64[2 * (L * m + 1)]: amount that k releases of each series free
    released_over: Any
    pointer: Any  # int64[m + 1]: choices by acquire
    choices: Any  # int64[2 * c]: by choice, the releases of both series that make room
    step: int = 1  # every so-many-th acquire is raised, counted from the last one
    thinning: int = 1  # every so-many-th time is counted from


class WorkBuffers(NamedTuple):
    """The heads of all columns as one series of different times. Everything is written."""

    place: Any  # int64[columns]: number of heads passed in each column
    moment: Any  # int64[columns * m]: the times, going up
    row: Any  # int64[columns * m]: first row whose acquire counts from each time
    later: Any  # int64[columns * m]: the same from this time or a later one
    fits: Any  # int64[columns * m]: acquires that can have started before each time
    places: Any  # int64[columns * m * (L + 2)]: earlier heads in each lane and in both series
    cut: Any  # int64[columns * m]: times from which the work before one acquire is counted
    work: Any  # int64[columns * m]: work of acquires that starts no earlier
    first: Any  # int64[columns * m]: releases of the first series that can have started before
    second: Any  # int64[columns * m]: the same of the second one


def working_room(columns: int, members: int, lanes: int) -> WorkBuffers:
    """Return room for `raise_acquires` to work in: columns of heads with a row for each member."""
    size = columns * members
    sizes = (columns, *(4 * (size,)), size * (lanes + 2), *(4 * (size,)))
    return WorkBuffers(*(np.zeros(length, dtype=np.int64) for length in sizes))


@part
def _next_head(heads: Any, progress: Any, members: int) -> int:
    """Return the least head ahead in any column, or `NEVER`."""
    earliest = NEVER
    for column in range(len(progress)):
        if progress[column] < members:
            earliest = min(earliest, heads[column * members + progress[column]])
    return earliest


@part
def _first_row(heads: Any, progress: Any, members: int, lanes: int, head: int) -> int:
    """Return the first place of a head in a lane's acquires, or in the order of a series."""
    row = members * len(progress)
    for block in range(0, len(progress), lanes):
        passed, here = 0, False
        for column in range(block, block + lanes):
            passed += progress[column]
            if (
                progress[column] < members
                and heads[column * members + progress[column]] == head
            ):
                here = True
                if block == 0:
                    row = min(row, progress[column])
        if here and block > 0:
            row = min(row, passed)
    return row


@part
def _passed_in(progress: Any, first: int, last: int) -> int:
    """Return the heads passed in the columns ``first`` to ``last - 1``; there may be fewer."""
    total = 0
    for column in range(first, min(last, len(progress))):
        total += progress[column]
    return total


@part
def _merge(heads: Any, members: int, lanes: int, buffers: WorkBuffers) -> int:
    """Sort the heads of all columns into one series of different times; return their number."""
    progress, rows, progress_at = buffers.place, buffers.row, buffers.places
    count, width = 0, lanes + 2
    for column in range(len(progress)):
        progress[column] = 0
    head = _next_head(heads, progress, members)
    while head < NEVER:
        buffers.moment[count] = head
        rows[count] = _first_row(heads, progress, members, lanes, head)
        for lane in range(lanes):
            progress_at[count * width + lane] = progress[lane]
        progress_at[count * width + lanes] = _passed_in(progress, lanes, 2 * lanes)
        progress_at[count * width + lanes + 1] = _passed_in(
            progress, 2 * lanes, 3 * lanes
        )
        count += 1
        for column in range(len(progress)):
            while (
                progress[column] < members
                and heads[column * members + progress[column]] == head
            ):
                progress[column] += 1
        head = _next_head(heads, progress, members)
    first = members * len(progress)
    for time in range(count - 1, -1, -1):
        first = min(first, rows[time])
        buffers.later[time] = first
    return count


@part
def _count_fits(room: LaneMemory, buffers: WorkBuffers, lanes: int, total: int) -> None:
    """Write the number of acquires that can have started before each of `total` times."""
    released, released_over, progress_at = (
        room.released,
        room.released_over,
        buffers.places,
    )
    half = len(released) // 2
    for time in range(total):
        first = progress_at[time * (lanes + 2) + lanes]
        second = half + progress_at[time * (lanes + 2) + lanes + 1]
        over = room.free_over + released_over[first] + released_over[second]
        fitting = room.free + released[first] + released[second]
        buffers.fits[time] = fitting + over // room.smallest


@part
def _least_time(
    room: LaneMemory, buffers: WorkBuffers, count: int, j: int, now: int
) -> int:
    """Return the least time, over all choices of releases, at which the work can have ended.

    It is the work before acquire j; `count` times count. Once the answer is no later than `now`,
    any time up to it may be returned.
    """
    cuts, work, first, second = buffers.cut, buffers.work, buffers.first, buffers.second
    choices, best = room.choices, NEVER
    first_length, second_length = room.release_length[0], room.release_length[1]
    for choice in range(room.pointer[j], room.pointer[j + 1]):
        last, firsts, seconds = -NEVER, choices[2 * choice], choices[2 * choice + 1]
        for cut in range(count):
            ahead = work[cut]
            if firsts > first[cut]:
                ahead += (firsts - first[cut]) * first_length
            if seconds > second[cut]:
                ahead += (seconds - second[cut]) * second_length
            if ahead > 0 and cuts[cut] + ahead > last:
                last = cuts[cut] + ahead
                if last >= best:
                    break
        best = min(best, last)
        if best <= now:
            break
    return int(best)


@part
def _set_cuts(
    room: LaneMemory, buffers: WorkBuffers, total: int, j: int, total_extra: int
) -> int:
    """Note the work of acquires before acquire j from each time on; return the number of times."""
    extra, length, progress_at = room.extra, room.length, buffers.places
    lanes, shortest, count, number = len(extra), NEVER, 0, 0
    for lane in range(lanes):
        shortest = min(shortest, length[lane])
    for time in range(total):
        if buffers.later[time] > j:
            break
        if buffers.row[time] > j:
            continue
        if number % room.thinning == 0:
            late, row = 0, time * (lanes + 2)
            for lane in range(lanes):
                due = j + extra[lane] - progress_at[row + lane]
                if due > 0:
                    late += due * length[lane]
            buffers.cut[count] = buffers.moment[time]
            buffers.work[count] = max(
                late, (lanes * j + total_extra - buffers.fits[time]) * shortest
            )
            buffers.first[count] = progress_at[row + lanes]
            buffers.second[count] = progress_at[row + lanes + 1]
            count += 1
        number += 1
    return count


@Kernel
def raise_acquires(
    room: LaneMemory, heads: Any, raised: Any, buffers: WorkBuffers
) -> None:
    """Raise the heads of acquires to the least time at which enough can have been released.

    `heads`, int64[columns * m], are those of each lane's acquires, then of each lane's first, then
    second releases; they never fall within a column. `raised`, int64[m], are those of the innermost
    lane's acquires, changed in place.
    """
    pointer, lanes, total_extra = room.pointer, len(room.extra), 0
    total = _merge(heads, len(raised), lanes, buffers)
    _count_fits(room, buffers, lanes, total)
    for extra in room.extra:
        total_extra += extra
    for j in range(len(raised) - 1, -1, -room.step):
        if pointer[j] < pointer[j + 1]:
            count = _set_cuts(room, buffers, total, j, total_extra)
            raised[j] = max(raised[j], _least_time(room, buffers, count, j, raised[j]))

"""The work that must run before the acquires of a lane, so that memory has room for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsolve.solver.kernels.compilation import Kernel, part

FAR = 2**62
"""Above every time."""


class LaneMemory(NamedTuple):
    """What L lanes of m rows take, and what must be released before each acquire of the innermost.

    The first releases of all lanes are one series, the second ones another, maybe an empty one.
    Amounts are a multiple of the smallest amount that a lane takes, and some units over.

    Attributes
    ----------
    extra, length : int64[L]
        Rows beyond j - 1 whose acquire comes before acquire j (0 or 1); duration in ticks.
    release_length : int64[2 or 3]
        Shortest duration of each series, in ticks, then 0.
    smallest : int
        Units of the smallest amount.
    free, free_over : int
        Amount that is free before any op.
    released, released_over : int64[2 * (L * m + 1)]
        Amount that k releases of each series free.
    pointer : int64[m + 1]
        Choices by acquire.
    choices : int64[2 * c]
        Numbers of releases of both series that make room for the acquire, choice by choice.
    """

    extra: Any
    length: Any
    release_length: Any
    smallest: int
    free: int
    free_over: int
    released: Any
    released_over: Any
    pointer: Any
    choices: Any


class Merged(NamedTuple):
    """The heads of all columns as one series of different times.

    Attributes
    ----------
    place : int64[columns]
        Number of heads passed in each column.
    cut : int64[columns * m]
        The times, going up.
    row, later : int64[columns * m]
        First row whose acquire counts from each time; from this time or a later one.
    fits : int64[columns * m]
        Acquires that can have started before each time.
    places : int64[columns * m * (L + 2)]
        Earlier heads in each lane's acquires and in both series, time by time.
    """

    place: Any
    cut: Any
    row: Any
    later: Any
    fits: Any
    places: Any


class WorkTimes(NamedTuple):
    """The times from which the work before one acquire is counted.

    Attributes
    ----------
    cut, work : int64[columns * m]
        The times, and the work of acquires that starts no earlier.
    first, second : int64[columns * m]
        Releases of both series that can have started before.
    """

    cut: Any
    work: Any
    first: Any
    second: Any


def working_room(columns: int, members: int, lanes: int) -> tuple[Merged, WorkTimes]:
    """Return room for `raise_acquires` to work in.

    Parameters
    ----------
    columns, members, lanes : int
        Columns of heads, their rows, and lanes.

    Returns
    -------
    Merged, WorkTimes
        Zeros.
    """
    size = columns * members
    table = np.zeros((8, size), dtype=np.int64)
    places = np.zeros(size * (lanes + 2), dtype=np.int64)
    place = np.zeros(columns, dtype=np.int64)
    merged = Merged(place, table[0], table[1], table[2], table[3], places)
    return merged, WorkTimes(table[4], table[5], table[6], table[7])


@part
def next_cut(heads: Any, place: Any, members: int) -> int:
    """Return the least head ahead in any column, or `FAR`.

    Parameters
    ----------
    heads : int64[columns * m]
        Heads by column.
    place : int64[columns]
        Number of heads passed in each column.
    members : int
        Rows m.

    Returns
    -------
    int
        Ticks.
    """
    least = FAR
    for column in range(len(place)):
        if place[column] < members:
            least = min(least, heads[column * members + place[column]])
    return least


@part
def first_row(heads: Any, place: Any, members: int, lanes: int, cut: int) -> int:
    """Return the first place of a head in a lane's acquires, or in the order of a series.

    Parameters
    ----------
    heads : int64[columns * m]
        Heads by column.
    place : int64[columns]
        Number of heads passed in each column: all that are less.
    members, lanes : int
        Rows m and lanes L: columns of acquires, and of each series of releases.
    cut : int
        The head, in ticks.

    Returns
    -------
    int
        Number of heads before it, in the column or series where it comes first.
    """
    row = members * len(place)
    for block in range(0, len(place), lanes):
        passed, here = 0, False
        for column in range(block, block + lanes):
            passed += place[column]
            if place[column] < members and heads[column * members + place[column]] == cut:
                here = True
                if block == 0:
                    row = min(row, place[column])
        if here and block > 0:
            row = min(row, passed)
    return row


@part
def passed_in(place: Any, first: int, last: int) -> int:
    """Return the number of heads passed in some columns.

    Parameters
    ----------
    place : int64[columns]
        Number of heads passed in each column.
    first, last : int
        The columns ``first`` to ``last - 1``; there may be fewer.

    Returns
    -------
    int
        Their sum.
    """
    total = 0
    for column in range(first, min(last, len(place))):
        total += place[column]
    return total


@part
def merge(heads: Any, members: int, lanes: int, merged: Merged) -> int:
    """Sort the heads of all columns into one series of different times.

    Parameters
    ----------
    heads : int64[columns * m]
        Heads that never fall within a column.
    members, lanes : int
        Rows m and lanes L: columns of acquires, and of each series of releases.
    merged : Merged
        Written.

    Returns
    -------
    int
        Number of times.
    """
    place, cuts, rows, places = merged.place, merged.cut, merged.row, merged.places
    count, width = 0, lanes + 2
    for column in range(len(place)):
        place[column] = 0
    cut = next_cut(heads, place, members)
    while cut < FAR:
        cuts[count], rows[count] = cut, first_row(heads, place, members, lanes, cut)
        for lane in range(lanes):
            places[count * width + lane] = place[lane]
        places[count * width + lanes] = passed_in(place, lanes, 2 * lanes)
        places[count * width + lanes + 1] = passed_in(place, 2 * lanes, 3 * lanes)
        count += 1
        for column in range(len(place)):
            while place[column] < members and heads[column * members + place[column]] == cut:
                place[column] += 1
        cut = next_cut(heads, place, members)
    least = members * len(place)
    for time in range(count - 1, -1, -1):
        least = min(least, rows[time])
        merged.later[time] = least
    return count


@part
def count_fits(room: LaneMemory, merged: Merged, lanes: int, total: int) -> None:
    """Write the number of acquires that can have started before each of `total` times."""
    released, released_over, fits = room.released, room.released_over, merged.fits
    half = len(released) // 2
    for cut in range(total):
        first = merged.places[cut * (lanes + 2) + lanes]
        second = half + merged.places[cut * (lanes + 2) + lanes + 1]
        over = room.free_over + released_over[first] + released_over[second]
        whole = room.free + released[first] + released[second]
        fits[cut] = whole + over // room.smallest


@part
def least_time(
    times: WorkTimes,
    count: int,
    lengths: Any,
    choices: Any,
    begin: int,
    end: int,
    now: int,
) -> int:
    """Return the least time, over all choices of releases, at which the work can have ended.

    Parameters
    ----------
    times : WorkTimes
        The times.
    count : int
        Number of them.
    lengths : int64[2]
        Durations of the releases.
    choices : int64[2 * c]
        Numbers of releases of both series.
    begin, end : int
        Choices ``begin`` to ``end - 1`` count.
    now : int
        Once the answer is no later than this, any time up to it may be returned.

    Returns
    -------
    int
        Ticks.
    """
    cuts, work, first, second = times.cut, times.work, times.first, times.second
    least, length, other = FAR, lengths[0], lengths[1]
    for choice in range(begin, end):
        last, ones, others = -FAR, choices[2 * choice], choices[2 * choice + 1]
        for cut in range(count):
            ahead = work[cut]
            if ones > first[cut]:
                ahead += (ones - first[cut]) * length
            if others > second[cut]:
                ahead += (others - second[cut]) * other
            if ahead > 0 and cuts[cut] + ahead > last:
                last = cuts[cut] + ahead
                if last >= least:
                    break
        least = min(least, last)
        if least <= now:
            break
    return int(least)


@Kernel
def raise_acquires(
    room: LaneMemory,
    heads: Any,
    raised: Any,
    merged: Merged,
    times: WorkTimes,
    step: int,
    thinning: int,
) -> None:
    """Raise the heads of acquires to the least time at which enough can have been released.

    Parameters
    ----------
    room : LaneMemory
        The lanes.
    heads : int64[columns * m]
        Heads of each lane's acquires, then of each lane's first, then second releases; they
        never fall within a column.
    raised : int64[m]
        Heads of the innermost lane's acquires, changed in place.
    merged, times
        Room to work in.
    step : int
        Every `step`-th acquire is raised, counted from the last one.
    thinning : int
        Every `thinning`-th time is counted from.
    """
    extra, length, pointer, choices = room.extra, room.length, room.pointer, room.choices
    release_length = room.release_length
    lanes, width = len(extra), len(extra) + 2
    rows, later, places, fits = merged.row, merged.later, merged.places, merged.fits
    cuts, work, ones, others = times.cut, times.work, times.first, times.second
    total = merge(heads, len(raised), lanes, merged)
    count_fits(room, merged, lanes, total)
    shortest, more = FAR, 0
    for lane in range(lanes):
        shortest, more = min(shortest, length[lane]), more + extra[lane]
    for j in range(len(raised) - 1, -1, -step):
        if pointer[j] == pointer[j + 1]:
            continue
        count = number = 0
        for cut in range(total):
            if later[cut] > j:
                break
            if rows[cut] > j:
                continue
            if number % thinning == 0:
                late = 0
                for lane in range(lanes):
                    left = j + extra[lane] - places[cut * width + lane]
                    if left > 0:
                        late += left * length[lane]
                cuts[count] = merged.cut[cut]
                work[count] = max(late, (lanes * j + more - fits[cut]) * shortest)
                ones[count] = places[cut * width + lanes]
                others[count] = places[cut * width + lanes + 1]
                count += 1
            number += 1
        least = least_time(
            times, count, release_length, choices, pointer[j], pointer[j + 1], raised[j]
        )
        raised[j] = max(raised[j], least)

"""The work that must run before the acquires of a lane, so that memory has room for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, cells, part

FAR = 2**62
"""Above every time."""


class Room(NamedTuple):
    """What L lanes of m rows take, and what must be released before each acquire of the innermost.

    The first releases of all lanes are one series, the second ones another, maybe an empty one.
    Amounts are a multiple of the smallest amount that a lane takes, and some units over.

    Attributes
    ----------
    extra, length : int64[L]
        Rows beyond j - 1 whose acquire comes before acquire j (0 or 1); duration in ticks.
    release_length : int64[2]
        Shortest duration of each series, in ticks.
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
def merge(heads: Any, members: int, lanes: int, cuts: Any, rows: Any, places: Any) -> int:
    """Sort the heads of all columns into one series of different times.

    Parameters
    ----------
    heads : int64[columns * m]
        Heads that never fall within a column.
    members, lanes : int
        Rows m and lanes L: columns of acquires, and of each series of releases.
    cuts : int64[columns * m]
        Becomes the times.
    rows : int64[columns * m]
        Becomes the first row whose acquire counts from this time.
    places : int64[columns * m * (L + 2)]
        Becomes, per time, the earlier heads in each lane's acquires and in both series.

    Returns
    -------
    int
        Number of times.
    """
    place = cells(len(heads) // members)
    count, width = 0, lanes + 2
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
    return count


@part
def fitting(
    released: Any, released_over: Any, first: int, second: int, over: int, smallest: int
) -> int:
    """Return the number of acquires that fit into the amount that releases free.

    Parameters
    ----------
    released, released_over : int64[2 * k]
        See `Room`.
    first, second : int
        Number of releases of each series.
    over : int
        Units that are free beside.
    smallest : int
        Units of an acquire.

    Returns
    -------
    int
        Number of acquires.
    """
    second += len(released) // 2
    over += released_over[first] + released_over[second]
    return int(released[first] + released[second] + over // smallest)


@part
def least_time(
    cuts: Any, work: Any, started: Any, lengths: Any, choices: Any, count: int, now: int
) -> int:
    """Return the least time, over all choices of releases, at which the work can have ended.

    Parameters
    ----------
    cuts, work : int64[...]
        `count` times, and the work of acquires that starts no earlier.
    started : int64[2 * ...]
        Releases of both series that can have started before each time.
    lengths : int64[2]
        Durations of the releases.
    choices : int64[2 * c]
        Numbers of releases of both series.
    count, now : int
        Number of times; once the answer is no later than `now`, any time up to it may be returned.

    Returns
    -------
    int
        Ticks.
    """
    least, length, other = FAR, lengths[0], lengths[1]
    for choice in range(0, len(choices), 2):
        end, first, second = -FAR, choices[choice], choices[choice + 1]
        for cut in range(count):
            ahead = work[cut] + max(first - started[2 * cut], 0) * length
            ahead += max(second - started[2 * cut + 1], 0) * other
            if ahead > 0 and cuts[cut] + ahead > end:
                end = cuts[cut] + ahead
                if end >= least:
                    break
        least = min(least, end)
        if least <= now:
            break
    return int(least)


@Kernel
def raise_acquires(room: Room, heads: Any, raised: Any, step: int, thinning: int) -> None:
    """Raise the heads of acquires to the least time at which enough can have been released.

    Parameters
    ----------
    room : Room
        The lanes.
    heads : int64[columns * m]
        Heads of each lane's acquires, then of each lane's first, then second releases; they
        never fall within a column.
    raised : int64[m]
        Heads of the innermost lane's acquires, changed in place.
    step : int
        Every `step`-th acquire is raised, counted from the last one.
    thinning : int
        Every `thinning`-th time is counted from.
    """
    extra, length, pointer, choices = room.extra, room.length, room.pointer, room.choices
    released, released_over, release_length = room.released, room.released_over, room.release_length
    lanes, members, size = len(extra), len(raised), len(heads)
    width = lanes + 2
    all_cuts, rows, places = cells(size), cells(size), cells(size * width)
    total = merge(heads, members, lanes, all_cuts, rows, places)
    fits = cells(total)
    for cut in range(total):
        fits[cut] = room.free + fitting(
            released,
            released_over,
            places[cut * width + lanes],
            places[cut * width + lanes + 1],
            room.free_over,
            room.smallest,
        )
    shortest, more = FAR, 0
    for lane in range(lanes):
        shortest, more = min(shortest, length[lane]), more + extra[lane]
    cuts, work, started = cells(size), cells(size), cells(2 * size)
    for j in range(members - 1, -1, -step):
        if pointer[j] == pointer[j + 1]:
            continue
        count = number = 0
        for cut in range(total):
            if rows[cut] > j:
                continue
            if number % thinning == 0:
                late = 0
                for lane in range(lanes):
                    late += max(j + extra[lane] - places[cut * width + lane], 0) * length[lane]
                cuts[count] = all_cuts[cut]
                work[count] = max(late, (lanes * j + more - fits[cut]) * shortest)
                started[2 * count] = places[cut * width + lanes]
                started[2 * count + 1] = places[cut * width + lanes + 1]
                count += 1
            number += 1
        row = choices[2 * pointer[j] : 2 * pointer[j + 1]]
        least = least_time(cuts, work, started, release_length, row, count, raised[j])
        raised[j] = max(raised[j], least)

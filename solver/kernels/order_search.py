"""Orders of ops on their resources, improved move by move on the longest path."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.shop import (
    BEGIN,
    END,
    HEADS,
    TAILS,
    Bench,
    OrderState,
    find_heads,
    find_tails,
    outdate,
    outdate_all,
    simulate,
)

RANDOM, BEST, CURRENT, MOVES = 0, 1, 2, 3
"""Places in the numbers of a search: last random number, makespan of the best and of the current
orders in ticks, moves looked at."""

CHANCES, CHANCE_UNIT = 1024, 65_536
"""Entries of `OrderState.chance`, and their mean."""

FURTHEST = 4
"""Most vectors that one passes when it moves in their order."""

_MODULUS, _FACTOR = 2**31 - 1, 48271
"""Lehmer's generator as in C++'s ``minstd_rand``; its products stay within 64 bits."""

_SAME, _LATER, _EARLIER = 0, 1, 2
"""Moves of a stretch of ops: swap its ends, its first op behind it, its last op before it."""


class OrderSearchParams(NamedTuple):
    """What steps a search tries and takes.

    Attributes
    ----------
    heat : int
        Temperature: mean of the ticks by which a step that is taken may make the estimate longer.
    reach : int
        Most ops that are passed in one move.
    trades : int
        Of 16 steps, how many let vectors trade places.
    target : int
        Makespan in ticks at which the search ends.
    """

    heat: int
    reach: int
    trades: int
    target: int


@part
def _draw(numbers: Any, count: int) -> int:
    """Return a random number from 0 to count - 1."""
    numbers[RANDOM] = numbers[RANDOM] * _FACTOR % _MODULUS
    return (numbers[RANDOM] >> 4) % count


@part
def _trace(state: OrderState, bench: Bench, numbers: Any) -> int:
    """Follow a longest path, at random where there are several; return its number of ops."""
    head, tail, duration = bench.head, bench.tail, state.duration
    op, found, longest = -1, 0, 0
    for other in range(len(head)):
        if head[other] == 0 and tail[other] >= longest:
            found = 1 if tail[other] > longest else found + 1
            longest = tail[other]
            if _draw(numbers, found) == 0:
                op = other
    numbers[CURRENT] = longest
    length, block = 0, 0
    while op >= 0:
        bench.path[length], bench.first[length] = op, block
        length += 1
        end, following, found, on_resource = head[op] + duration[op], -1, 0, False
        other = bench.after[op]
        if other >= 0 and head[other] == end and end + tail[other] == longest:
            following, found, on_resource = other, 1, True
        for row in range(state.out[op], state.out[op + 1]):
            other = state.target[row]
            if head[other] == end + state.delay[row] and head[other] + tail[other] == longest:
                found += 1
                if other != following and _draw(numbers, found) == 0:
                    following, on_resource = other, other == bench.after[op]
        if not on_resource:
            for place in range(block, length):
                bench.final[place] = length - 1
            block = length
        op = following
    return length


@part
def _is_free(state: OrderState, bench: Bench, op: int, other: int, kind: int) -> bool:
    """Return true if no precedence stands against a move of the stretch from `op` to `other`.

    A path from a to b of more than b's length ends no earlier than a does, so heads tell that
    there is none (Balas and Vazacopoulos 1998).
    """
    head, duration = bench.head, state.duration
    if kind != _EARLIER:
        for row in range(state.out[op], state.out[op + 1]):
            follower = state.target[row]
            if follower == other or head[follower] + duration[follower] <= head[other]:
                return False
    if kind != _LATER:
        end = head[op] + duration[op]
        for row in range(state.into[other], state.into[other + 1]):
            leader = state.source[row]
            if leader == op or head[leader] >= end:
                return False
    return True


@part
def _lay_out(bench: Bench, op: int, other: int, kind: int) -> int:
    """Write the stretch from `op` to `other` in the order of a move; return its number of ops."""
    line, count, at = bench.line, 0, bench.after[op]
    if kind != _LATER:
        line[count] = other
        count += 1
    if kind == _EARLIER:
        line[count] = op
        count += 1
    while at != other:
        line[count] = at
        count += 1
        at = bench.after[at]
    if kind == _LATER:
        line[count] = other
        count += 1
    if kind != _EARLIER:
        line[count] = op
        count += 1
    return count


@part
def _estimate(state: OrderState, bench: Bench, op: int, other: int, count: int) -> int:
    """Return the longest path through a moved stretch, or -1 where its pool would overflow.

    Heads and tails outside the stretch are taken as they are (Taillard 1994).
    """
    line, early, duration = bench.line, bench.early, state.duration
    free, end, outer = bench.free[op], 0, bench.before[op]
    if outer >= 0:
        end = bench.head[outer] + duration[outer]
    for place in range(count):
        each = line[place]
        free -= state.need[each]
        if free < 0:
            return -1
        free += state.freed[each]
        early[place] = max(end, bench.ready[each])
        end = early[place] + duration[each]
    rest, longest, outer = 0, 0, bench.after[other]
    if outer >= 0:
        rest = bench.tail[outer]
    for place in range(count - 1, -1, -1):
        each = line[place]
        rest = max(rest, bench.rest[each]) + duration[each]
        longest = max(longest, early[place] + rest)
    return longest


@part
def _relink(state: OrderState, bench: Bench, op: int, other: int, count: int) -> None:
    """Put the ops of a stretch into the order of the move."""
    line, previous, following = bench.line, bench.before[op], bench.after[other]
    free = bench.free[op]
    for place in range(count):
        each = line[place]
        bench.before[each] = previous
        if previous >= 0:
            bench.after[previous] = each
        bench.free[each] = free
        free += state.freed[each] - state.need[each]
        previous = each
    bench.after[previous] = following
    if following >= 0:
        bench.before[following] = previous


@part
def _put_later(state: OrderState, bench: Bench, order: Any, op: int, begin: int, end: int) -> None:
    """Put an op and what follows from it behind the rest of a window of the topological order."""
    place, stale, line, source = bench.place, bench.stale, bench.early, state.source
    kept, moved = begin, 0
    stale[op] = 1
    for at in range(begin, end + 1):
        each = order[at]
        if stale[each] == 0 and bench.before[each] >= 0:
            stale[each] = stale[bench.before[each]]
        for row in range(state.into[each], state.into[each + 1]):
            stale[each] |= stale[source[row]]
        if stale[each]:
            line[moved] = each
            moved += 1
        else:
            order[kept], place[each] = each, kept
            kept += 1
    for at in range(moved):
        each = line[at]
        order[kept], place[each], stale[each] = each, kept, 0
        kept += 1


@part
def _put_earlier(
    state: OrderState, bench: Bench, order: Any, op: int, begin: int, end: int
) -> None:
    """Put an op and what it follows from before the rest of a window of the topological order."""
    place, stale, line, target = bench.place, bench.stale, bench.early, state.target
    kept, moved = end, 0
    stale[op] = 1
    for at in range(end, begin - 1, -1):
        each = order[at]
        if stale[each] == 0 and bench.after[each] >= 0:
            stale[each] = stale[bench.after[each]]
        for row in range(state.out[each], state.out[each + 1]):
            stale[each] |= stale[target[row]]
        if stale[each]:
            line[moved] = each
            moved += 1
        else:
            order[kept], place[each] = each, kept
            kept -= 1
    for at in range(moved):
        each = line[at]
        order[kept], place[each], stale[each] = each, kept, 0
        kept -= 1


@part
def _move(
    state: OrderState, bench: Bench, order: Any, kind: int, count: int, op: int, other: int
) -> None:
    """Make a move and note what has to be timed again."""
    begin, end, previous, after = (
        bench.place[op],
        bench.place[other],
        bench.before[op],
        bench.after[other],
    )
    _relink(state, bench, op, other, count)
    if kind != _EARLIER:
        _put_later(state, bench, order, op, begin, end)
    if kind == _EARLIER or (count > 2 and kind == _SAME):
        _put_earlier(state, bench, order, other, begin, bench.place[other])
    bench.todo[BEGIN], bench.todo[END] = begin, end
    for place in range(count):
        outdate(bench, bench.line[place])
    if previous >= 0:
        bench.dated[previous] = 1
        bench.todo[TAILS] += 1
    if after >= 0:
        bench.stale[after] = 1
        bench.todo[HEADS] += 1


@part
def _trade(state: OrderState, bench: Bench, order: Any, one: int, two: int) -> None:
    """Let two vectors take each other's places in the order."""
    twin, place, width = state.twin, bench.place, state.width
    for column in range(width):
        first, second = twin[one * width + column], twin[two * width + column]
        at, to = place[first], place[second]
        order[at], order[to], place[first], place[second] = second, first, to, at


@part
def _partners(state: OrderState, bench: Bench, numbers: Any, op: int) -> int:
    """List the vectors with which that of an op is to trade, one after another; return how many.

    That is any one, or the next few in the order of the op's resource, which all move up one place.
    """
    line, vectors = bench.line, len(state.twin) // state.width
    if state.resource[op] < 0 or _draw(numbers, 2) == 0:
        line[0] = (state.row[op] + 1 + _draw(numbers, vectors - 1)) % vectors
        return 1
    column, asked, count, other = state.column[op], 1 + _draw(numbers, FURTHEST), 0, bench.after[op]
    while other >= 0 and count < asked:
        if state.column[other] == column:
            line[count] = state.row[other]
            count += 1
        other = bench.after[other]
    return count


@part
def _is_taken(numbers: Any, chance: Any, heat: int, length: int) -> bool:
    """Return true if orders of this length are taken; -1 stands for orders that are not valid."""
    worse = length - numbers[CURRENT]
    if length < 0 or worse <= 0:
        return length >= 0
    return worse * CHANCE_UNIT <= heat * chance[_draw(numbers, CHANCES)]


@part
def _try_trade(
    state: OrderState, bench: Bench, heat: int, op: int, order: Any, numbers: Any
) -> bool:
    """Let the vector of an op trade with others; return true if the orders have changed."""
    one, count = state.row[op], _partners(state, bench, numbers, op)
    for turn in range(2 if count > 0 else 0):
        for place in range(count):
            at = count - 1 - place if turn else place
            _trade(state, bench, order, one, bench.line[at])
        if turn == 0:
            length = simulate(state, bench, order)
            if _is_taken(numbers, state.chance, heat, length):
                outdate_all(state, bench, order)
                return True
    return False


@part
def _try_stretch(
    state: OrderState, bench: Bench, pace: OrderSearchParams, at: int, order: Any, numbers: Any
) -> bool:
    """Move a stretch of the block at a place of the path; return true if orders have changed."""
    first, final = bench.first[at], bench.final[at]
    if first == final:
        return False
    passed = 1
    if _draw(numbers, 2) == 0:
        passed += _draw(numbers, min(pace.reach, final - first))
    begin = first if _draw(numbers, 2) == 0 else final - passed
    op, other, kind = bench.path[begin], bench.path[begin + passed], _draw(numbers, 3)
    if not _is_free(state, bench, op, other, kind):
        return False
    count = _lay_out(bench, op, other, kind)
    length = _estimate(state, bench, op, other, count)
    if not _is_taken(numbers, state.chance, pace.heat, length):
        return False
    _move(state, bench, order, kind, count, op, other)
    return True


@part
def _keep(order: Any, best: Any, numbers: Any) -> None:
    """Keep the orders if they are the best."""
    if numbers[CURRENT] < numbers[BEST]:
        numbers[BEST] = numbers[CURRENT]
        for place in range(len(order)):
            best[place] = order[place]


@Kernel
def search_orders(
    state: OrderState,
    bench: Bench,
    pace: OrderSearchParams,
    steps: int,
    order: Any,
    best: Any,
    numbers: Any,
) -> None:
    """Change orders on the longest path by simulated annealing at one temperature.

    A step takes a stretch of ops at the beginning or end of a block (ops of one resource that
    follow each other on a longest path), and puts its first op behind it, its last op before it,
    or swaps the two (Nowicki and Smutnicki 1996; Balas and Vazacopoulos 1998). Or it lets a whole
    vector (micro-batch) trade places with another. Levels of pools follow from the orders, so a
    step that would overfill one is left out.

    Parameters
    ----------
    state, bench : OrderState, Bench
        What is ordered, n ops; room.
    pace : OrderSearchParams
        What steps are tried and taken.
    steps : int
        Number of steps.
    order : int64[n]
        Topological order of all ops, resources included; becomes the last one.
    best : int64[n]
        Becomes the order of the best schedule where a better one was found.
    numbers : int64[4]
        See `RANDOM`; written.
    """
    outdate_all(state, bench, order)
    is_changed, length = True, 0
    for _ in range(steps):
        if is_changed:
            find_heads(state, bench, order)
            find_tails(state, bench, order)
            length = _trace(state, bench, numbers)
            _keep(order, best, numbers)
        if numbers[BEST] <= pace.target:
            break
        numbers[MOVES] += 1
        at = _draw(numbers, length)
        op = bench.path[at]
        if state.row[op] >= 0 and _draw(numbers, 16) < pace.trades:
            is_changed = _try_trade(state, bench, pace.heat, op, order, numbers)
        else:
            is_changed = _try_stretch(state, bench, pace, at, order, numbers)

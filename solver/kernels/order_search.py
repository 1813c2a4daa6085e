"""Orders of ops on their resources, improved move by move on the longest path."""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.annealing import next_random
from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.order_state import (
    Changed,
    OrderBuffers,
    OrderState,
    find_heads,
    find_tails,
    outdate_all,
    simulate,
)


class OrderSearchParams(NamedTuple):
    """What steps a search tries and takes."""

    steps: int
    heat: int  # mean of the ticks by which a step that is taken may make the estimate longer
    reach: int  # most ops that are passed in one move
    passed: int  # most vectors that one passes when it moves in their order
    trades: int  # of 16 steps, how many let vectors trade places
    known: int  # makespan of the best orders in ticks
    target: int  # makespan in ticks at which the search ends


class OrderWalk(NamedTuple):
    """A search under way."""

    state: OrderState
    buffers: OrderBuffers
    pace: OrderSearchParams
    order: Any
    rng: Any


class StretchMove(NamedTuple):
    """Ops of a block from `first` to `last`, and where they go: both swap, or one passes all."""

    first: int
    last: int
    is_later: bool  # the first op goes behind the others
    is_earlier: bool  # the last op goes before the others


@part
def _draw(rng: Any, count: int) -> int:
    """Return a random number from 0 to count - 1."""
    return (next_random(rng) >> 4) % count


@part
def _trace(state: OrderState, buffers: OrderBuffers, rng: Any) -> tuple[int, int]:
    """Follow a longest path, at random where there are several; return its ops and its ticks."""
    head, tail, duration = buffers.head, buffers.tail, state.duration
    op, ties, longest = -1, 0, 0
    for candidate in range(len(head)):
        if head[candidate] == 0 and tail[candidate] >= longest:
            ties = 1 if tail[candidate] > longest else ties + 1
            longest = tail[candidate]
            if _draw(rng, ties) == 0:
                op = candidate
    length, block = 0, 0
    while op >= 0:
        buffers.path[length], buffers.first[length] = op, block
        length += 1
        end, following, ties, on_resource = head[op] + duration[op], -1, 0, False
        candidate = buffers.after[op]
        if (
            candidate >= 0
            and head[candidate] == end
            and end + tail[candidate] == longest
        ):
            following, ties, on_resource = candidate, 1, True
        for row in range(state.out[op], state.out[op + 1]):
            candidate = state.target[row]
            if (
                head[candidate] == end + state.delay[row]
                and head[candidate] + tail[candidate] == longest
            ):
                ties += 1
                if candidate != following and _draw(rng, ties) == 0:
                    following, on_resource = candidate, candidate == buffers.after[op]
        if not on_resource:
            for index in range(block, length):
                buffers.final[index] = length - 1
            block = length
        op = following
    return length, longest


@part
def _is_free(state: OrderState, buffers: OrderBuffers, stretch: StretchMove) -> bool:
    """Whether no precedence stands against a move of a stretch.

    A path from a to b of more than b's length ends no earlier than a does, so heads tell that
    there is none (Balas and Vazacopoulos 1998).
    """
    head, duration, op, last = (
        buffers.head,
        state.duration,
        stretch.first,
        stretch.last,
    )
    if stretch.is_later:
        for row in range(state.out[op], state.out[op + 1]):
            follower = state.target[row]
            if follower == last or head[follower] + duration[follower] <= head[last]:
                return False
    if stretch.is_earlier:
        end = head[op] + duration[op]
        for row in range(state.into[last], state.into[last + 1]):
            leader = state.source[row]
            if leader == op or head[leader] >= end:
                return False
    return True


@part
def _lay_out(buffers: OrderBuffers, stretch: StretchMove) -> int:
    """Write a stretch in the order of its move into `buffers.line`; return its number of ops."""
    op, last, line, count = stretch.first, stretch.last, buffers.line, 0
    inner = buffers.after[op]
    if stretch.is_earlier:
        line[count] = last
        count += 1
    if not stretch.is_later:
        line[count] = op
        count += 1
    while inner != last:
        line[count] = inner
        count += 1
        inner = buffers.after[inner]
    if not stretch.is_earlier:
        line[count] = last
        count += 1
    if stretch.is_later:
        line[count] = op
        count += 1
    return count


@part
def _estimate(
    state: OrderState, buffers: OrderBuffers, stretch: StretchMove, count: int
) -> int:
    """Return the longest path through a moved stretch, or -1 where its pool would overflow.

    Heads and tails outside the stretch are taken as they are (Taillard 1994).
    """
    line, early, duration = buffers.line, buffers.early, state.duration
    free, end = buffers.free[stretch.first], 0
    outer = buffers.before[stretch.first]
    if outer >= 0:
        end = buffers.head[outer] + duration[outer]
    for index in range(count):
        op = line[index]
        free -= state.need[op]
        if free < 0:
            return -1
        free += state.freed[op]
        early[index] = max(end, buffers.ready[op])
        end = early[index] + duration[op]
    tail, longest, outer = 0, 0, buffers.after[stretch.last]
    if outer >= 0:
        tail = buffers.tail[outer]
    for index in range(count - 1, -1, -1):
        op = line[index]
        tail = max(tail, buffers.rest[op]) + duration[op]
        longest = max(longest, early[index] + tail)
    return longest


@part
def _relink(
    state: OrderState, buffers: OrderBuffers, op: int, last: int, count: int
) -> None:
    """Put the ops of a stretch into the order of the move."""
    line, previous, following = buffers.line, buffers.before[op], buffers.after[last]
    free = buffers.free[op]
    for index in range(count):
        moved = line[index]
        buffers.before[moved] = previous
        if previous >= 0:
            buffers.after[previous] = moved
        buffers.free[moved] = free
        free += state.freed[moved] - state.need[moved]
        previous = moved
    buffers.after[previous] = following
    if following >= 0:
        buffers.before[following] = previous


class DependentOps(NamedTuple):
    """What each op depends on, forwards or backwards in time."""

    pointer: Any  # int64[n + 1]: rows of source
    source: Any  # int64[k]
    neighbour: Any  # int64[n]: the one on its resource, or -1


@part
def _regroup(
    links: DependentOps,
    buffers: OrderBuffers,
    order: Any,
    op: int,
    begin: int,
    end: int,
) -> None:
    """Put an op and what depends on it last in a window of the order, from `begin` to `end`."""
    place_of, stale, line, neighbour = (
        buffers.place,
        buffers.stale,
        buffers.early,
        links.neighbour,
    )
    kept, moved, step = begin, 0, 1 if begin < end else -1
    stale[op] = 1
    for index in range(begin, end + step, step):
        member = order[index]
        if stale[member] == 0 and neighbour[member] >= 0:
            stale[member] = stale[neighbour[member]]
        for row in range(links.pointer[member], links.pointer[member + 1]):
            stale[member] |= stale[links.source[row]]
        if stale[member]:
            line[moved] = member
            moved += 1
        else:
            order[kept], place_of[member] = member, kept
            kept += step
    for index in range(moved):
        member = line[index]
        order[kept], place_of[member], stale[member] = member, kept, 0
        kept += step


@part
def _move(
    state: OrderState,
    buffers: OrderBuffers,
    order: Any,
    stretch: StretchMove,
    count: int,
) -> Changed:
    """Make a move; return what has to be timed again."""
    op, last, place_of = stretch.first, stretch.last, buffers.place
    begin, end, previous, after = (
        place_of[op],
        place_of[last],
        buffers.before[op],
        buffers.after[last],
    )
    _relink(state, buffers, op, last, count)
    if stretch.is_later:
        leaders = DependentOps(state.into, state.source, buffers.before)
        _regroup(leaders, buffers, order, op, begin, end)
    if stretch.is_earlier and (count > 2 or not stretch.is_later):
        followers = DependentOps(state.out, state.target, buffers.after)
        _regroup(followers, buffers, order, last, place_of[last], begin)
    for number in range(count):
        moved = buffers.line[number]
        buffers.stale[moved], buffers.dated[moved] = 1, 1
    if previous >= 0:
        buffers.dated[previous] = 1
    if after >= 0:
        buffers.stale[after] = 1
    return Changed(begin, end, count + (after >= 0), count + (previous >= 0))


@part
def _trade(
    state: OrderState,
    buffers: OrderBuffers,
    order: Any,
    first_row: int,
    second_row: int,
) -> None:
    """Let two vectors take each other's places in the order."""
    twin, place_of, width = state.twin, buffers.place, state.width
    for column in range(width):
        first, second = (
            twin[first_row * width + column],
            twin[second_row * width + column],
        )
        source, target = place_of[first], place_of[second]
        order[source], order[target], place_of[first], place_of[second] = (
            second,
            first,
            target,
            source,
        )


@part
def _partners(search: OrderWalk, op: int) -> int:
    """List the vectors with which that of an op is to trade, one after another; return how many.

    That is any one, or the next few in the order of the op's resource, which all move up one place.
    """
    state, buffers, rng = search.state, search.buffers, search.rng
    line, vectors = buffers.line, len(state.twin) // state.width
    if state.resource[op] < 0 or _draw(rng, 2) == 0:
        line[0] = (state.row[op] + 1 + _draw(rng, vectors - 1)) % vectors
        return 1
    column, asked = state.column[op], 1 + _draw(rng, search.pace.passed)
    count, follower = 0, buffers.after[op]
    while follower >= 0 and count < asked:
        if state.column[follower] == column:
            line[count] = state.row[follower]
            count += 1
        follower = buffers.after[follower]
    return count


@part
def _is_taken(search: OrderWalk, current: int, length: int) -> bool:
    """Whether orders of this length are taken; -1 stands for orders that are not valid."""
    worse, chance = length - current, search.state.chance
    if length < 0 or worse <= 0:
        return length >= 0
    return worse * 65_536 <= search.pace.heat * chance[_draw(search.rng, len(chance))]


@part
def _try_trade(search: OrderWalk, op: int, current: int) -> Changed:
    """Let the vector of an op trade with others, in either direction."""
    state, buffers, order = search.state, search.buffers, search.order
    row, count = state.row[op], _partners(search, op)
    for turn in range(2 if count > 0 else 0):
        for number in range(count):
            index = count - 1 - number if turn else number
            _trade(state, buffers, order, row, buffers.line[index])
        if turn == 0:
            length = simulate(state, buffers, order)
            if _is_taken(search, current, length):
                return outdate_all(state, buffers, order)
    return Changed(0, 0, 0, 0)


@part
def _try_stretch(search: OrderWalk, index: int, current: int) -> Changed:
    """Move a stretch of the block at a place of the path."""
    state, buffers, rng = search.state, search.buffers, search.rng
    first, final = buffers.first[index], buffers.final[index]
    if first == final:
        return Changed(0, 0, 0, 0)
    passed = 1
    if _draw(rng, 2) == 0:
        passed += _draw(rng, min(search.pace.reach, final - first))
    begin = first if _draw(rng, 2) == 0 else final - passed
    kind = _draw(rng, 3)
    stretch = StretchMove(
        buffers.path[begin], buffers.path[begin + passed], kind != 2, kind != 1
    )
    if not _is_free(state, buffers, stretch):
        return Changed(0, 0, 0, 0)
    count = _lay_out(buffers, stretch)
    length = _estimate(state, buffers, stretch, count)
    if not _is_taken(search, current, length):
        return Changed(0, 0, 0, 0)
    return _move(state, buffers, search.order, stretch, count)


@Kernel
def search_orders(
    state: OrderState,
    buffers: OrderBuffers,
    pace: OrderSearchParams,
    order: Any,
    best: Any,
    rng: Any,
) -> int:
    """Change orders on the longest path by simulated annealing at one temperature.

    A step takes a stretch of ops at the beginning or end of a block (ops of one resource that
    follow each other on a longest path), and puts its first op behind it, its last op before it, or
    swaps the two (Nowicki and Smutnicki 1996; Balas and Vazacopoulos 1998). Or it lets a whole
    vector (micro-batch) trade places with another. Levels of pools follow from the orders, so a
    step that would overfill one is left out.

    `order` has all ops in topological order, resources included; it becomes the last one, and
    `best` the order of the best schedule where a better one was found. The makespan of the best
    orders, old or new, is returned.
    """
    search = OrderWalk(state, buffers, pace, order, rng)
    changed = outdate_all(state, buffers, order)
    shortest, length, current = pace.known, 0, 0
    for _ in range(pace.steps):
        if changed.heads > 0:
            find_heads(state, buffers, order, changed)
            find_tails(state, buffers, order, changed)
            length, current = _trace(state, buffers, rng)
            if current < shortest:
                shortest = current
                for slot in range(len(order)):
                    best[slot] = order[slot]
        if shortest <= pace.target:
            break
        index = _draw(rng, length)
        op = buffers.path[index]
        if state.row[op] >= 0 and _draw(rng, 16) < pace.trades:
            changed = _try_trade(search, op, current)
        else:
            changed = _try_stretch(search, index, current)
    return shortest

"""Kernel: search through the states of a flow, one op at a time, with dominance.

A row is one state: six figures, see `REACH` and following; then how far each micro-batch is (its
phase), when its next op finds what it waits for, when each resource is free, what each pool holds.
What is enumerated, and why an optimum is among it, says `ppsolve.solver.flow.states`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part

NEVER = 2**62
"""Bound of a state that another one dominates."""

REACH, CLOCK, BOUND, PARENT, OP, HASH, FIGURES = range(7)
"""Figures of a row: least makespan of what is placed with its tails; start of the op placed last;
lower bound; number of the row of the level before; the op placed last; a sum over phases."""

LEFT_OUT, PLACED = range(2)
"""Figures of a search: least bound of the states left out, ops placed."""

BUCKETS = 1024
"""Classes of bounds by which rows are chosen that stay."""


class FlowShape(NamedTuple):
    """What all flows of one shape share: V positions, R resources, P pools, phases.

    A phase is a set of positions that are done. Tables by phase and position have rows of V.
    `options` lists the positions that can be next, `todo` those not done, in topological order;
    `slot` is the position that waits for another resource (-1: none), `gain` the lag after which an
    op lets the slot of the following phase start (-1: it does not), `keeps` whether that slot is
    the same as before. `holds` tells by phase and pool whether some of the pool was taken.
    """

    resource: Any
    pool: Any
    before_pointer: Any
    before: Any
    before_lag: Any
    option_pointer: Any
    options: Any
    todo_pointer: Any
    todo: Any
    following: Any
    done: Any
    slot: Any
    gain: Any
    keeps: Any
    holds: Any


class Batch(NamedTuple):
    """The micro-batches of one step; op ``j * V + v`` is position v of micro-batch j.

    `delay` is the time for which all that follows an op waits beside its lags; `tail` is the time
    from the end of an op to the end of all that must follow it; `ranked` lists the ops of each
    resource by falling tail; `twin` is the last earlier micro-batch that is alike, -1: none;
    `least` the least amount that an op takes from a pool; `mark` has a number for each micro-batch
    and phase.
    """

    duration: Any
    delay: Any
    tail: Any
    acquire: Any
    release: Any
    room: Any
    least: Any
    twin: Any
    ranked_pointer: Any
    ranked: Any
    mark: Any


@part
def _set_heads(
    j: int,
    at: int,
    count: int,
    size: int,
    rows: Any,
    shape: Any,
    batch: Any,
    opening: Any,
    head: Any,
) -> None:
    """Note when the ops of a micro-batch that are not done can start at the earliest."""
    resource, pool, slot, done = shape.resource, shape.pool, shape.slot, shape.done
    pointer, before, lag = shape.before_pointer, shape.before, shape.before_lag
    duration, acquire, todo = batch.duration, batch.acquire, shape.todo
    delay = batch.delay
    phase, clock = rows[at + FIGURES + j], rows[at + CLOCK]
    arrival = at + FIGURES + count
    free = arrival + count
    for place in range(shape.todo_pointer[phase], shape.todo_pointer[phase + 1]):
        v = todo[place]
        moment = max(clock, rows[free + resource[v]])
        if v == slot[phase]:
            moment = max(moment, rows[arrival + j])
        for k in range(pointer[v], pointer[v + 1]):
            u = before[k]
            if not done[phase * size + u]:
                start = head[j * size + u]
                moment = max(moment, start + duration[j * size + u] + lag[k] + delay[j * size + u])
        if pool[v] >= 0 and acquire[j * size + v] > 0:
            moment = max(moment, opening[pool[v]])
        head[j * size + v] = moment


@part
def _set_opening(
    at: int, count: int, size: int, rows: Any, shape: Any, batch: Any, opening: Any, head: Any
) -> bool:
    """Note from when on each full pool has room for another op; return whether one is full."""
    pools, pool, todo, holds = len(opening), shape.pool, shape.todo, shape.holds
    used = at + FIGURES + 2 * count + len(batch.ranked_pointer) - 1
    is_full = False
    for p in range(pools):
        if rows[used + p] + batch.least[p] > batch.room[p]:
            opening[p] = NEVER
            is_full = True
    if not is_full:
        return False
    for j in range(count):
        phase = rows[at + FIGURES + j]
        for place in range(shape.todo_pointer[phase], shape.todo_pointer[phase + 1]):
            v = todo[place]
            p, op = pool[v], j * size + v
            if p >= 0 and holds[phase * pools + p] and batch.release[op] > batch.acquire[op]:
                opening[p] = min(opening[p], head[op] + batch.duration[op])
    return True


@part
def _bound(
    at: int,
    count: int,
    size: int,
    upper: int,
    rows: Any,
    shape: Any,
    batch: Any,
    opening: Any,
    head: Any,
) -> int:
    """Return a lower bound on the makespan of what a state may become.

    The ops of a resource that are left and have tails of at least q start when the first of them
    can, run one after the other, and the last of them is followed by q.
    """
    done, tail, duration = shape.done, batch.tail, batch.duration
    for p in range(len(opening)):
        opening[p] = 0
    for j in range(count):
        phase = rows[at + FIGURES + j]
        if phase > 0:
            _set_heads(j, at, count, size, rows, shape, batch, opening, head)
    is_full = _set_opening(at, count, size, rows, shape, batch, opening, head)
    for j in range(count):
        if is_full or rows[at + FIGURES + j] == 0:
            _set_heads(j, at, count, size, rows, shape, batch, opening, head)
    bound = rows[at + REACH]
    for r in range(len(batch.ranked_pointer) - 1):
        first, load = NEVER, 0
        for place in range(batch.ranked_pointer[r], batch.ranked_pointer[r + 1]):
            op = batch.ranked[place]
            if not done[rows[at + FIGURES + op // size] * size + op % size]:
                first = min(first, head[op])
                load += duration[op]
                bound = max(bound, first + load + tail[op])
        if bound >= upper:
            return bound
    return bound


@part
def _set_child(
    j: int,
    v: int,
    start: int,
    of: int,
    to: int,
    count: int,
    size: int,
    rows: Any,
    made: Any,
    shape: Any,
    batch: Any,
) -> None:
    """Write the state that follows a state when an op starts."""
    op, resources = j * size + v, len(batch.ranked_pointer) - 1
    width = FIGURES + 2 * count + resources + len(batch.room)
    for k in range(width):
        made[to + k] = rows[of + k]
    phase = rows[of + FIGURES + j]
    new, end = shape.following[phase * size + v], start + batch.duration[op]
    arrival = to + FIGURES + count
    free = arrival + count
    made[to + REACH] = max(rows[of + REACH], end + batch.tail[op])
    made[to + CLOCK] = start
    made[to + OP] = op
    phases = len(shape.slot)
    made[to + HASH] += batch.mark[j * phases + new] - batch.mark[j * phases + phase]
    made[to + FIGURES + j] = new
    made[free + shape.resource[v]] = end
    if not shape.keeps[phase * size + v]:
        made[arrival + j] = 0
    if shape.gain[phase * size + v] >= 0:
        ready = end + shape.gain[phase * size + v] + batch.delay[op]
        made[arrival + j] = max(made[arrival + j], ready)
    for i in range(count):
        w = shape.slot[made[to + FIGURES + i]]
        if w >= 0:
            made[arrival + i] = max(made[arrival + i], made[free + shape.resource[w]])
    if shape.pool[v] >= 0:
        made[free + resources + shape.pool[v]] += batch.acquire[op] - batch.release[op]


@part
def _is_same_set(a: int, b: int, count: int, made: Any) -> bool:
    for k in range(FIGURES, FIGURES + count):  # noqa: SIM110
        if made[a + k] != made[b + k]:
            return False
    return True


@part
def _is_no_later(a: int, b: int, times: int, count: int, made: Any) -> bool:
    """Whether state a has all that state b has, no later."""
    if made[a + REACH] > made[b + REACH]:
        return False
    early, late = made[a + CLOCK], made[b + CLOCK]
    for k in range(FIGURES + count, FIGURES + count + times):
        if max(early, made[a + k]) > max(late, made[b + k]):
            return False
    return True


@part
def _is_new(
    at: int, row: int, width: int, count: int, times: int, made: Any, table: Any, link: Any
) -> bool:
    """Whether no state of the same ops is as early; strikes out those that are later."""
    key = made[at + HASH] % len(table)
    other = table[key]
    while other >= 0:
        b = other * width
        if made[b + BOUND] < NEVER and _is_same_set(at, b, count, made):
            if _is_no_later(b, at, times, count, made):
                return False
            if _is_no_later(at, b, times, count, made):
                made[b + BOUND] = NEVER
        other = link[other]
    link[row] = table[key]
    table[key] = row
    return True


@part
def _select(
    number: int,
    room: int,
    width: int,
    upper: int,
    made: Any,
    table: Any,
    link: Any,
    tally: Any,
    figures: Any,
) -> int:
    """Keep so many rows of least bound, in order, and return how many there are."""
    low, alive = NEVER, 0
    for i in range(number):
        if made[i * width + BOUND] < NEVER:
            low = min(low, made[i * width + BOUND])
            alive += 1
    limit, spare = BUCKETS, 0
    step = 1 + (upper - low) // BUCKETS if alive else 1
    if alive > room:
        for b in range(BUCKETS):
            tally[b] = 0
        for i in range(number):
            if made[i * width + BOUND] < NEVER:
                tally[(made[i * width + BOUND] - low) // step] += 1
        limit, spare = 0, room
        while tally[limit] <= spare:
            spare -= tally[limit]
            limit += 1
    for k in range(len(table)):
        table[k] = -1
    kept = 0
    for i in range(number):
        at = i * width
        bound = made[at + BOUND]
        if bound == NEVER:
            continue
        which = (bound - low) // step
        if which > limit or (which == limit and limit < BUCKETS and spare == 0):
            figures[LEFT_OUT] = min(figures[LEFT_OUT], bound)
            continue
        if which == limit:
            spare -= 1
        to = kept * width
        if to != at:
            for k in range(width):
                made[to + k] = made[at + k]
        key = made[to + HASH] % len(table)
        link[kept] = table[key]
        table[key] = kept
        kept += 1
    return kept


@part
def _start(
    j: int, v: int, at: int, count: int, size: int, rows: Any, shape: Any, batch: Any
) -> int:
    """Return when an op can start in a state, -1 if it cannot, or not after the op placed last."""
    p, op, twin = shape.pool[v], j * size + v, batch.twin[j]
    if twin >= 0 and not shape.done[rows[at + FIGURES + twin] * size + v]:
        return -1
    free = at + FIGURES + 2 * count
    used = free + len(batch.ranked_pointer) - 1
    if p >= 0 and rows[used + p] + batch.acquire[op] > batch.room[p]:
        return -1
    start = rows[free + shape.resource[v]]
    if v == shape.slot[rows[at + FIGURES + j]]:
        start = max(start, rows[at + FIGURES + count + j])
    return start if start >= rows[at + CLOCK] else -1


@part
def _finish(
    number: int,
    level: int,
    width: int,
    across: int,
    counts: Any,
    rows: Any,
    made: Any,
    parent: Any,
    placed: Any,
    table: Any,
) -> None:
    """Make the states that were made those of the level, and note where they came from."""
    for k in range(len(table)):
        table[k] = -1
    counts[level] = number
    for i in range(number):
        parent[level * width + i] = made[i * across + PARENT]
        placed[level * width + i] = made[i * across + OP]
    for k in range(number * across):
        rows[k] = made[k]


@part
def _grow(
    shape: Any,
    batch: Any,
    level: int,
    width: int,
    upper: int,
    counts: Any,
    rows: Any,
    made: Any,
    parent: Any,
    placed: Any,
    table: Any,
    link: Any,
    tally: Any,
    opening: Any,
    head: Any,
    figures: Any,
) -> None:
    """Replace the states of a level (of so many ops placed) by those of the next level."""
    count, size = len(batch.twin), len(shape.resource)
    times = count + len(batch.ranked_pointer) - 1
    across = FIGURES + count + times + len(batch.room)
    number = 0
    for i in range(counts[level]):
        at = i * across
        for j in range(count):
            phase = rows[at + FIGURES + j]
            for place in range(shape.option_pointer[phase], shape.option_pointer[phase + 1]):
                v = shape.options[place]
                op = j * size + v
                start = _start(j, v, at, count, size, rows, shape, batch)
                if start < 0 or start + batch.duration[op] + batch.tail[op] >= upper:
                    continue
                if number == len(link):
                    number = _select(
                        number, width, across, upper, made, table, link, tally, figures
                    )
                to = number * across
                _set_child(j, v, start, at, to, count, size, rows, made, shape, batch)
                figures[PLACED] += 1
                bound = _bound(to, count, size, upper, made, shape, batch, opening, head)
                made[to + PARENT], made[to + BOUND] = i, max(bound, rows[at + BOUND])
                if bound < upper and _is_new(to, number, across, count, times, made, table, link):
                    number += 1
    number = _select(number, width, across, upper, made, table, link, tally, figures)
    _finish(number, level + 1, width, across, counts, rows, made, parent, placed, table)


def _search(
    shape: Any,
    batch: Any,
    first: int,
    last: int,
    width: int,
    upper: int,
    counts: Any,
    rows: Any,
    made: Any,
    parent: Any,
    placed: Any,
    table: Any,
    link: Any,
    tally: Any,
    opening: Any,
    head: Any,
    figures: Any,
) -> None:
    """Replace the states of level `first` (of so many ops placed) by those of level `last`.

    At most `width` states of a level stay. `counts` has the number of states of each level,
    `parent` and `placed` by level and state where it came from. `rows` holds states, `made` room
    for more; `table` is full of -1. Levels after one without states have none.
    """
    for level in range(first, last):
        if counts[level] == 0:
            return
        _grow(
            shape,
            batch,
            level,
            width,
            upper,
            counts,
            rows,
            made,
            parent,
            placed,
            table,
            link,
            tally,
            opening,
            head,
            figures,
        )


search = Kernel(_search)

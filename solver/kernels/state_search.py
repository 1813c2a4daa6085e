"""Search through the states of a flow, one op at a time, with dominance.

`ppsolve.solver.bounds.flow.states` says what is enumerated, and why an optimum is among it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.records import NEVER


class FlowShape(NamedTuple):
    """What all flows of one shape share: V positions, R resources, P pools, phases.

    A phase is a set of positions that are done. Tables by phase and position have rows of V, those
    by phase and pool rows of P.
    """

    resource: Any  # by position
    pool: Any  # by position, or -1
    before_pointer: Any  # rows of the next two, by position
    before: Any  # positions before one, and their lags
    before_lag: Any
    option_pointer: Any  # rows of options, by phase
    options: Any  # positions that can be next
    todo_pointer: Any  # rows of todo, by phase
    todo: Any  # positions not done, in topological order
    following: Any  # by phase and position: the phase once it is done too
    done: Any  # by phase and position: 1 where it is done
    slot: Any  # by phase: the position that waits for another resource, or -1
    gain: Any  # by phase and position: lag after which it lets the next phase's slot start, or -1
    keeps: Any  # by phase and position: 1 where that slot is the same as before
    holds: Any  # by phase and pool: 1 where some of the pool was taken


class Batch(NamedTuple):
    """The micro-batches of one step; op ``j * V + v`` is position v of micro-batch j."""

    duration: Any
    delay: Any  # time for which all that follows an op waits in addition to its lags
    tail: Any  # time from the end of an op to the end of all that must follow it
    acquire: Any
    release: Any
    room: Any  # by pool
    least: Any  # by pool: least amount that an op takes
    twin: Any  # by micro-batch: the last earlier one that is alike, or -1
    ranked_pointer: Any  # rows of ranked, by resource
    ranked: Any  # ops of the resource by falling tail
    mark: Any  # a number for each micro-batch and phase


class StateColumns(NamedTuple):
    """Columns of a row, one state of m micro-batches: six figures, then four blocks."""

    reach: int  # least makespan of what is placed with its tails
    clock: int  # start of the op placed last
    bound: int  # lower bound; NEVER where another state dominates it
    parent: int  # number of the state of the level before
    op: int  # the op placed last
    hash: int  # a sum over phases
    phase: int  # m columns: how far each micro-batch is
    arrival: int  # m columns: when its next op finds what it waits for
    free: int  # R columns: when each resource is free
    used: int  # P columns: what each pool holds
    width: int


class StateSearch(NamedTuple):
    """What is scheduled, and room for k states."""

    shape: FlowShape
    batch: Batch
    columns: StateColumns
    made: Any  # int64[k * width]: states that are made; written, as all that follow
    table: Any  # int64[...]: full of -1
    link: Any  # int64[k]
    tally: Any  # int64[...]: classes of bounds by which states are chosen that stay
    opening: Any  # int64[P]
    head: Any  # int64[n]


class LevelRange(NamedTuple):
    """LevelRange that a search goes through; level l has the states of l ops placed."""

    first: int
    last: int
    width: int  # most states of a level that stay
    upper: int  # only states of a lower bound are made, in ticks


def state_columns(microbatches: int, resources: int, pools: int) -> StateColumns:
    """Return the columns of the states of a flow: the blocks behind the figures."""
    free = 6 + 2 * microbatches
    used = free + resources
    return StateColumns(0, 1, 2, 3, 4, 5, 6, 6 + microbatches, free, used, used + pools)


@part
def _set_heads(search: StateSearch, base: int, j: int) -> None:
    """Note when the ops of a micro-batch that are not done can start at the earliest."""
    shape, batch, columns, rows = (
        search.shape,
        search.batch,
        search.columns,
        search.made,
    )
    resource, pool, done, todo, head = (
        shape.resource,
        shape.pool,
        shape.done,
        shape.todo,
        search.head,
    )
    pointer, before, lag = shape.before_pointer, shape.before, shape.before_lag
    duration, acquire, delay, size = (
        batch.duration,
        batch.acquire,
        batch.delay,
        len(resource),
    )
    phase, clock, free = (
        rows[base + columns.phase + j],
        rows[base + columns.clock],
        base + columns.free,
    )
    for index in range(shape.todo_pointer[phase], shape.todo_pointer[phase + 1]):
        v = todo[index]
        moment = max(clock, rows[free + resource[v]])
        if v == shape.slot[phase]:
            moment = max(moment, rows[base + columns.arrival + j])
        for k in range(pointer[v], pointer[v + 1]):
            u = before[k]
            if not done[phase * size + u]:
                start = head[j * size + u]
                moment = max(
                    moment,
                    start + duration[j * size + u] + lag[k] + delay[j * size + u],
                )
        if pool[v] >= 0 and acquire[j * size + v] > 0:
            moment = max(moment, search.opening[pool[v]])
        head[j * size + v] = moment


@part
def _set_opening(search: StateSearch, base: int) -> bool:
    """Note from when on each full pool has room for another op; return whether one is full."""
    shape, batch, columns, rows = (
        search.shape,
        search.batch,
        search.columns,
        search.made,
    )
    opening, pool, todo, size = (
        search.opening,
        shape.pool,
        shape.todo,
        len(shape.resource),
    )
    is_full = False
    for p in range(len(opening)):
        if rows[base + columns.used + p] + batch.least[p] > batch.room[p]:
            opening[p] = NEVER
            is_full = True
    if not is_full:
        return False
    for j in range(len(batch.twin)):
        phase = rows[base + columns.phase + j]
        for index in range(shape.todo_pointer[phase], shape.todo_pointer[phase + 1]):
            v = todo[index]
            p, op = pool[v], j * size + v
            held = p >= 0 and shape.holds[phase * len(opening) + p]
            if held and batch.release[op] > batch.acquire[op]:
                opening[p] = min(opening[p], search.head[op] + batch.duration[op])
    return True


@part
def _bound(search: StateSearch, base: int, upper: int) -> int:
    """Return a lower bound on the makespan of what a state may become.

    The ops of a resource that are left and have tails of at least q start when the first of them
    can, run one after the other, and the last of them is followed by q.
    """
    batch, columns, rows, head = search.batch, search.columns, search.made, search.head
    done, tail, duration, size = (
        search.shape.done,
        batch.tail,
        batch.duration,
        len(search.shape.pool),
    )
    phases = base + columns.phase
    for p in range(len(search.opening)):
        search.opening[p] = 0
    for j in range(len(batch.twin)):
        if rows[phases + j] > 0:
            _set_heads(search, base, j)
    is_full = _set_opening(search, base)
    for j in range(len(batch.twin)):
        if is_full or rows[phases + j] == 0:
            _set_heads(search, base, j)
    bound = rows[base + columns.reach]
    for r in range(len(batch.ranked_pointer) - 1):
        first, load = NEVER, 0
        for index in range(batch.ranked_pointer[r], batch.ranked_pointer[r + 1]):
            op = batch.ranked[index]
            if not done[rows[phases + op // size] * size + op % size]:
                first = min(first, head[op])
                load += duration[op]
                bound = max(bound, first + load + tail[op])
        if bound >= upper:
            return bound
    return bound


@part
def _start(search: StateSearch, rows: Any, base: int, j: int, v: int) -> int:
    """Return when an op can start in a state, -1 if it cannot, or not after the op placed last."""
    shape, batch, columns, size = (
        search.shape,
        search.batch,
        search.columns,
        len(search.shape.pool),
    )
    p, op, twin = shape.pool[v], j * size + v, batch.twin[j]
    if twin >= 0 and not shape.done[rows[base + columns.phase + twin] * size + v]:
        return -1
    if p >= 0 and rows[base + columns.used + p] + batch.acquire[op] > batch.room[p]:
        return -1
    start = rows[base + columns.free + shape.resource[v]]
    if v == shape.slot[rows[base + columns.phase + j]]:
        start = max(start, rows[base + columns.arrival + j])
    return start if start >= rows[base + columns.clock] else -1


@part
def _set_child(
    search: StateSearch, rows: Any, parent: int, child: int, op: int, start: int
) -> None:
    """Write the state that follows a state when an op starts."""
    shape, batch, columns, children = (
        search.shape,
        search.batch,
        search.columns,
        search.made,
    )
    size = len(shape.resource)
    j, v = op // size, op % size
    for k in range(columns.width):
        children[child + k] = rows[parent + k]
    phase = rows[parent + columns.phase + j]
    row, end = phase * size + v, start + batch.duration[op]
    new, arrival, free = (
        shape.following[row],
        child + columns.arrival,
        child + columns.free,
    )
    children[child + columns.reach] = max(
        rows[parent + columns.reach], end + batch.tail[op]
    )
    children[child + columns.clock] = start
    children[child + columns.op] = op
    marks = j * len(shape.slot)
    children[child + columns.hash] += (
        batch.mark[marks + new] - batch.mark[marks + phase]
    )
    children[child + columns.phase + j] = new
    children[free + shape.resource[v]] = end
    if not shape.keeps[row]:
        children[arrival + j] = 0
    if shape.gain[row] >= 0:
        children[arrival + j] = max(
            children[arrival + j], end + shape.gain[row] + batch.delay[op]
        )
    for i in range(len(batch.twin)):
        w = shape.slot[children[child + columns.phase + i]]
        if w >= 0:
            children[arrival + i] = max(
                children[arrival + i], children[free + shape.resource[w]]
            )
    if shape.pool[v] >= 0:
        children[child + columns.used + shape.pool[v]] += (
            batch.acquire[op] - batch.release[op]
        )


@part
def _is_same_set(children: Any, columns: StateColumns, a: int, b: int) -> bool:
    for k in range(columns.phase, columns.arrival):  # noqa: SIM110
        if children[a + k] != children[b + k]:
            return False
    return True


@part
def _is_no_later(children: Any, columns: StateColumns, a: int, b: int) -> bool:
    """Whether state a has all that state b has, no later."""
    if children[a + columns.reach] > children[b + columns.reach]:
        return False
    early, late = children[a + columns.clock], children[b + columns.clock]
    for k in range(columns.arrival, columns.used):
        if max(early, children[a + k]) > max(late, children[b + k]):
            return False
    return True


@part
def _is_new(search: StateSearch, row: int) -> bool:
    """Whether no state of the same ops is as early; strikes out those that are later."""
    columns, children, table, link = (
        search.columns,
        search.made,
        search.table,
        search.link,
    )
    base = row * columns.width
    key = children[base + columns.hash] % len(table)
    rival = table[key]
    while rival >= 0:
        b = rival * columns.width
        if children[b + columns.bound] < NEVER and _is_same_set(
            children, columns, base, b
        ):
            if _is_no_later(children, columns, b, base):
                return False
            if _is_no_later(children, columns, base, b):
                children[b + columns.bound] = NEVER
        rival = link[rival]
    link[row] = table[key]
    table[key] = row
    return True


@part
def _select(
    search: StateSearch, number: int, levels: LevelRange, least_left: Any
) -> int:
    """Keep the states of least bound that a level has room for, in order; return how many."""
    columns, children, table, tally = (
        search.columns,
        search.made,
        search.table,
        search.tally,
    )
    low, alive, width, buckets = NEVER, 0, columns.width, len(tally)
    for i in range(number):
        if children[i * width + columns.bound] < NEVER:
            low = min(low, children[i * width + columns.bound])
            alive += 1
    limit, spare = buckets, 0
    step = 1 + (levels.upper - low) // buckets if alive else 1
    if alive > levels.width:
        for b in range(buckets):
            tally[b] = 0
        for i in range(number):
            if children[i * width + columns.bound] < NEVER:
                tally[(children[i * width + columns.bound] - low) // step] += 1
        limit, spare = 0, levels.width
        while tally[limit] <= spare:
            spare -= tally[limit]
            limit += 1
    for k in range(len(table)):
        table[k] = -1
    kept = 0
    for i in range(number):
        base = i * width
        bound = children[base + columns.bound]
        if bound == NEVER:
            continue
        which = (bound - low) // step
        if which > limit or (which == limit and limit < buckets and spare == 0):
            least_left[0] = min(least_left[0], bound)
            continue
        if which == limit:
            spare -= 1
        to = kept * width
        if to != base:
            for k in range(width):
                children[to + k] = children[base + k]
        key = children[to + columns.hash] % len(table)
        search.link[kept] = table[key]
        table[key] = kept
        kept += 1
    return kept


@part
def _grow(
    search: StateSearch, levels: LevelRange, count: int, rows: Any, least_left: Any
) -> tuple[int, int]:
    """Make the states that follow `count` states; return how many stay, and the ops placed."""
    shape, batch, columns, children = (
        search.shape,
        search.batch,
        search.columns,
        search.made,
    )
    number, placed, size, width = 0, 0, len(shape.resource), columns.width
    for i in range(count):
        base = i * width
        for j in range(len(batch.twin)):
            phase = rows[base + columns.phase + j]
            for index in range(
                shape.option_pointer[phase], shape.option_pointer[phase + 1]
            ):
                v = shape.options[index]
                op = j * size + v
                start = _start(search, rows, base, j, v)
                if (
                    start < 0
                    or start + batch.duration[op] + batch.tail[op] >= levels.upper
                ):
                    continue
                if number == len(search.link):
                    number = _select(search, number, levels, least_left)
                to = number * width
                _set_child(search, rows, base, to, op, start)
                placed += 1
                bound = _bound(search, to, levels.upper)
                children[to + columns.parent] = i
                children[to + columns.bound] = max(bound, rows[base + columns.bound])
                if bound < levels.upper and _is_new(search, number):
                    number += 1
    return _select(search, number, levels, least_left), placed


@Kernel
def search_states(
    search: StateSearch,
    levels: LevelRange,
    counts: Any,
    rows: Any,
    origin: Any,
    least_left: Any,
) -> int:
    """Replace the states of the first level by those of the last one; return the ops placed.

    `counts`, int64[n + 1], has the number of states of each level; levels after one without states
    have none. `rows` has the states of the first level, see `StateColumns`, and becomes those of
    the last one. `origin` becomes, by level and state, the number of the state that it follows
    times n, plus the op that was placed. `least_left`, the least bound of the states left out, is
    lowered.
    """
    columns, children, table, total = search.columns, search.made, search.table, 0
    for level in range(levels.first, levels.last):
        if counts[level] == 0:
            return total
        number, placed = _grow(search, levels, counts[level], rows, least_left)
        total += placed
        for k in range(len(table)):
            table[k] = -1
        counts[level + 1] = number
        for i in range(number):
            base = i * columns.width
            code = (
                children[base + columns.parent] * len(search.head)
                + children[base + columns.op]
            )
            origin[(level + 1) * levels.width + i] = code
        for k in range(number * columns.width):
            rows[k] = children[k]
    return total

"""Serial schedule generation: the op of the lowest rank that is ready goes into its first gap.

Free intervals of resources and changes in the use of pools are slots of flat tables, per resource
and per pool in time order. The last gap of a resource never ends, so every op finds one. At one
moment releases come first, so no level inside a moment is above those around it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ppsolve.solver.kernels.compilation import Kernel, part
from ppsolve.solver.kernels.heaps import Heaps, pop, push
from ppsolve.solver.kernels.memory_state import MemoryState, give_back, shortage, take
from ppsolve.solver.kernels.records import MemoryUse, PrecedenceGraph, ResourceUse


class Gaps(NamedTuple):
    """Free intervals of R resources; those of resource r are in slots low[r]..high[r]."""

    begin: Any  # int64[...]: ticks
    end: Any
    low: Any  # int64[R]
    high: Any


class Usage(NamedTuple):
    """Use of P pools by the ops placed so far; pool p has slots low[p]..high[p] - 1."""

    moment: Any  # int64[...]: ticks
    change: Any  # int64[...]: in the pool's unit
    low: Any  # int64[P]
    high: Any
    final: Any  # int64[P]: use after all changes


class AllowedStarts(NamedTuple):
    """Closed intervals of starts by group of ops; those of group g are rows pointer[g] and on."""

    group: Any  # int64[n]: group of each op, -1 where it may start at any time
    pointer: Any  # int64[groups + 1]
    begin: Any  # int64[...]: ticks, ascending in a group
    end: Any


@part
def allowed_from(allowed: AllowedStarts, op: int, time: int) -> int:
    """Return the earliest moment from `time` on at which an op may start; `time` after all."""
    group = allowed.group[op]
    if group < 0:
        return time
    low, last = allowed.pointer[group], allowed.pointer[group + 1]
    high = last
    while low < high:
        middle = (low + high) >> 1
        if allowed.end[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low == last or allowed.begin[low] < time:
        return time
    return allowed.begin[low]


@part
def gap_from(gaps: Gaps, resource: int, time: int, length: int) -> int:
    """Return the slot of the earliest gap with `length` free ticks from `time` on.

    The op can start at the later of its begin and `time`.
    """
    begin, end = gaps.begin, gaps.end
    low: int = gaps.low[resource]
    high: int = gaps.high[resource]
    if begin[high] <= time:
        return high
    gap = low
    while low < high:
        middle = (low + high) >> 1
        if begin[middle] > time:
            high = middle
        else:
            low = middle + 1
            gap = middle
    while end[gap] - (begin[gap] if begin[gap] > time else time) < length:
        gap += 1
    return gap


@part
def _cut_gap(gaps: Gaps, resource: int, gap: int, time: int, until: int) -> None:
    """Occupy an interval that lies inside one gap."""
    begin, end, high = gaps.begin, gaps.end, gaps.high[resource]
    if time == begin[gap]:
        begin[gap] = until
        if until < end[gap]:
            return
        for slot in range(gap, high):
            begin[slot], end[slot] = begin[slot + 1], end[slot + 1]
        gaps.high[resource] = high - 1
        return
    old_end, end[gap] = end[gap], time
    if until == old_end:
        return
    for slot in range(high, gap, -1):
        begin[slot + 1], end[slot + 1] = begin[slot], end[slot]
    begin[gap + 1], end[gap + 1] = until, old_end
    gaps.high[resource] = high + 1


@part
def block(gaps: Gaps, resource: int, time: int, until: int) -> None:
    """Occupy an interval, any part of which may be occupied already."""
    gap = gap_from(gaps, resource, time, 0)
    while gap <= gaps.high[resource] and gaps.begin[gap] < until:
        begin, end, high = gaps.begin[gap], gaps.end[gap], gaps.high[resource]
        begin = begin if begin > time else time
        end = end if end < until else until
        if begin < end:
            _cut_gap(gaps, resource, gap, begin, end)
        if gaps.high[resource] >= high:
            gap += 1


@part
def free_from(gaps: Gaps, use: ResourceUse, op: int, time: int, length: int) -> int:
    """Return the earliest moment from `time` on at which all resources of an op are free."""
    first, last = use.pointer[op], use.pointer[op + 1]
    agreed, position = 0, first
    while agreed < last - first:
        moment = gaps.begin[gap_from(gaps, use.resource[position], time, length)]
        agreed += 1
        if moment > time:
            time, agreed = moment, 1
        position = position + 1 if position + 1 < last else first
    return time


@part
def occupy(gaps: Gaps, use: ResourceUse, op: int, time: int, until: int) -> None:
    """Occupy all resources of an op in an interval that is free on them."""
    for position in range(use.pointer[op], use.pointer[op + 1]):
        resource = use.resource[position]
        _cut_gap(
            gaps, resource, gap_from(gaps, resource, time, until - time), time, until
        )


@part
def room_from(usage: Usage, pool: int, time: int, limit: int) -> int:
    """Return the earliest moment from `time` on after which a pool's use never exceeds a limit.

    The use after all changes is within the limit.
    """
    moment, change, level = usage.moment, usage.change, usage.final[pool]
    for slot in range(usage.high[pool] - 1, usage.low[pool] - 1, -1):
        level -= change[slot]
        if moment[slot] <= time:
            break
        if level > limit:
            time = moment[slot]
            break
    return time


@part
def add_change(usage: Usage, pool: int, time: int, amount: int) -> None:
    """Change the use of a pool from a moment on; a negative amount is a release."""
    moment, change, low, slot = (
        usage.moment,
        usage.change,
        usage.low[pool],
        usage.high[pool],
    )
    usage.high[pool] = slot + 1
    usage.final[pool] += amount
    while slot > low and (
        moment[slot - 1] > time
        or (moment[slot - 1] == time and change[slot - 1] > amount)
    ):
        moment[slot], change[slot] = moment[slot - 1], change[slot - 1]
        slot -= 1
    moment[slot], change[slot] = time, amount


@part
def roomy_from(
    usage: Usage, memory: MemoryUse, amounts: Any, op: int, time: int
) -> int:
    """Return the earliest moment from `time` on after which the acquires of an op fit.

    `amounts` has the amounts that must fit, by row of the acquires.
    """
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        pool = memory.acquire_pool[row]
        time = room_from(usage, pool, time, memory.size[pool] - amounts[row])
    return time


@part
def change_use(usage: Usage, memory: MemoryUse, op: int, time: int, end: int) -> None:
    """Acquire the amounts of an op at its start and release them at its end."""
    for row in range(memory.acquire_pointer[op], memory.acquire_pointer[op + 1]):
        add_change(usage, memory.acquire_pool[row], time, memory.acquire_amount[row])
    for row in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        add_change(usage, memory.release_pool[row], end, -memory.release_amount[row])


class SerialState(NamedTuple):
    """Ops that are ready, those that wait for a pool, and what is occupied. All is written."""

    gaps: Gaps
    usage: Usage
    pools: MemoryState
    heap: Heaps  # one heap of ready ops by rank
    ready: Any  # int64[n]: earliest starts by precedences
    missing: Any  # int64[n]: number of predecessors that are not placed
    first: Any  # int64[P]: first op that waits for each pool, or -1
    behind: Any  # int64[n]: next op that waits for the same pool, or -1


class SerialProblem(NamedTuple):
    """The problem and the rule of serial schedule generation, n ops."""

    graph: PrecedenceGraph
    use: ResourceUse
    memory: MemoryUse
    rank: Any  # int64[n]: priorities, lowest first
    pinned: Any  # int64[n]: fixed starts, or -1
    allowed: AllowedStarts


@Kernel
def serial_sgs(problem: SerialProblem, state: SerialState, start: Any) -> None:
    """Place all ops by rank; see `ppsolve.solver.heuristics.list_scheduling.generate_serial`.

    Starts are all -1 before, and become -2 - p for ops that wait for pool p at the end.
    """
    graph, use, memory, pinned = (
        problem.graph,
        problem.use,
        problem.memory,
        problem.pinned,
    )
    for op in range(len(start)):
        if not state.missing[op]:
            push(state.heap, 0, problem.rank[op], op)
        if pinned[op] >= 0:
            for seat in range(use.pointer[op], use.pointer[op + 1]):
                block(
                    state.gaps,
                    use.resource[seat],
                    pinned[op],
                    pinned[op] + graph.duration[op],
                )
    while state.heap.size[0]:
        op = pop(state.heap, 0)
        pool = shortage(state.pools, memory, op, 1)
        if pool >= 0:
            start[op] = -2 - pool
            state.behind[op], state.first[pool] = state.first[pool], op
            continue
        time, length = state.ready[op], graph.duration[op]
        time = roomy_from(state.usage, memory, memory.net_amount, op, time)
        if pinned[op] != time:
            before = -1
            while before < time:
                before = time
                time = allowed_from(problem.allowed, op, time)
                time = free_from(state.gaps, use, op, time, length)
            occupy(state.gaps, use, op, time, time + length)
        start[op] = time
        change_use(state.usage, memory, op, time, time + length)
        take(state.pools, memory, op)
        give_back(state.pools, memory, op)
        _announce(state, problem, op, time + length)


@part
def _announce(state: SerialState, problem: SerialProblem, op: int, end: int) -> None:
    """Make the ops ready that waited for what `op` releases, or for `op` as the last one."""
    memory, graph, rank = problem.memory, problem.graph, problem.rank
    for row in range(memory.release_pointer[op], memory.release_pointer[op + 1]):
        pool = memory.release_pool[row]
        waiter = state.first[pool]
        state.first[pool] = -1
        while waiter >= 0:
            push(state.heap, 0, rank[waiter], waiter)
            waiter = state.behind[waiter]
    for row in range(graph.pointer[op], graph.pointer[op + 1]):
        waiter, moment = graph.successor[row], end + graph.lag[row]
        if moment > state.ready[waiter]:
            state.ready[waiter] = moment
        state.missing[waiter] -= 1
        if not state.missing[waiter]:
            push(state.heap, 0, rank[waiter], waiter)

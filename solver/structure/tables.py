"""Problems as the records that kernels read."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.solver.kernels.memory_state import MemoryState
from ppsolve.solver.kernels.records import (
    NEVER,
    MemoryUse,
    PrecedenceGraph,
    ResourceUse,
    Sources,
)
from ppsolve.solver.kernels.serial_sgs import AllowedStarts, Gaps, Usage

T = TypeVar("T")


def once(make: Callable[[Problem], T]) -> Callable[[Problem], T]:
    """Keep what a function makes of a problem as long as the problem lives."""
    kept: WeakKeyDictionary[Problem, T] = WeakKeyDictionary()

    @wraps(make)
    def made(problem: Problem) -> T:
        if problem not in kept:
            kept[problem] = make(problem)
        return kept[problem]

    return made


def graph_of(problem: Problem, *edges: Edges) -> PrecedenceGraph:
    """Return the precedences of a problem and further ones, by the op that comes first.

    Rows keep the order of the edges.
    """
    before, after, lag = joined(problem, *edges)
    pointer, order = rows_by(before, problem.num_ops)
    return PrecedenceGraph(
        problem.duration,
        np.maximum(problem.release, problem.pinned),
        np.bincount(after, minlength=problem.num_ops).astype(np.int64),
        pointer,
        after[order],
        lag[order],
    )


def renumbered(graph: PrecedenceGraph, order: IntArray) -> PrecedenceGraph:
    """Return precedences with ops numbered by an order; walks in it read memory in sequence.

    Op k is op ``order[k]`` of `graph`.
    """
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    sizes = np.diff(graph.pointer)[order]
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.arange(len(graph.lag)) + np.repeat(
        graph.pointer[order] - pointer[:-1], sizes
    )
    return PrecedenceGraph(
        graph.duration[order],
        graph.earliest[order],
        graph.num_predecessors[order],
        pointer,
        rank[graph.successor[rows]],
        graph.lag[rows],
    )


def sources_of(problem: Problem, *edges: Edges, backwards: bool = False) -> Sources:
    """Return the precedences of a problem and further ones, by the op that waits.

    Where time runs backwards, the op that comes first waits for the one after it. Rows keep the
    order of the edges.
    """
    before, after, lag = joined(problem, *edges)
    if backwards:
        before, after = after, before
    pointer, order = rows_by(after, problem.num_ops)
    return Sources(pointer, before[order], lag[order])


def joined(problem: Problem, *edges: Edges) -> Edges:
    """Return the precedences of a problem, and further ones behind them, as one table."""
    tables = [(problem.before, problem.after, problem.lag), *edges]
    before, after, lag = (
        np.concatenate(columns) for columns in zip(*tables, strict=True)
    )
    return before, after, lag


@once
def resource_use_of(problem: Problem) -> ResourceUse:
    """Return the resources that ops of positive length occupy."""
    owner = np.repeat(np.arange(problem.num_ops), np.diff(problem.resource_ptr))
    busy = problem.holds_place[owner]
    pointer, _ = rows_by(owner[busy], problem.num_ops)
    return ResourceUse(pointer, problem.resource_idx[busy], problem.num_resources)


@once
def memory_of(problem: Problem) -> MemoryUse:
    """Return all pools in whole units of each pool's own.

    Units are exact unless they are too many for 64 bits; then amounts are rounded, by less in all
    than the excess that is allowed.
    """
    units = [_units(pool) for pool in problem.pools]
    acquired = _amounts(problem, units, "acquire")
    released = _amounts(problem, units, "release")
    owners = problem.microbatch // problem.slices
    num_owners = int(owners.max(initial=FREE)) + 1
    claim = np.zeros((len(problem.pools), num_owners), dtype=np.int64)
    owner = owners[acquired[0]]
    has_owner = owner != FREE
    np.add.at(claim, (acquired[2][has_owner], owner[has_owner]), acquired[3][has_owner])
    promises = [
        problem.slices > 1 or len(np.unique(problem.stage[pool.acquire_op])) > 1
        for pool in problem.pools
    ]
    return MemoryUse(
        np.array([size for _, size in units], dtype=np.int64),
        *acquired[1:],
        _net(problem, acquired, released),
        *released[1:],
        owners,
        num_owners,
        claim.ravel(),
        np.array(promises, dtype=np.int64),
    )


def reversed_memory(memory: MemoryUse) -> MemoryUse:
    """Return the pools as they are when time runs backwards: acquires and releases exchanged."""
    size = memory.size.copy()
    np.subtract.at(size, memory.acquire_pool, memory.acquire_amount)
    np.add.at(size, memory.release_pool, memory.release_amount)
    return memory._replace(
        size=size,
        acquire_pointer=memory.release_pointer,
        acquire_pool=memory.release_pool,
        acquire_amount=memory.release_amount,
        net_amount=memory.release_amount,
        release_pointer=memory.acquire_pointer,
        release_pool=memory.acquire_pool,
        release_amount=memory.acquire_amount,
    )


def gaps_of(problem: Problem) -> Gaps:
    """Return the free time of all resources before any op; each op can cut one gap in two.

    Pinned ops can do so twice: their pin is kept free from the beginning, and a pin that cannot be
    kept is overrun.
    """
    low, slots = _gap_slots(problem)
    end = np.zeros(slots, dtype=np.int64)
    end[low] = NEVER
    return Gaps(np.zeros(slots, dtype=np.int64), end, low, low.copy())


def allowed_of(problem: Problem) -> AllowedStarts:
    """Return the windows of a problem; ops that share an array are one group."""
    number: dict[int, int] = {}
    group = np.full(problem.num_ops, FREE, dtype=np.int64)
    rows = [np.zeros((0, 2), dtype=np.int64)]
    for op, windows in problem.windows.items():
        group[op] = number.setdefault(id(windows), len(number))
        if group[op] == len(rows) - 1:
            rows.append(windows)
    pointer = np.cumsum([0, *map(len, rows[1:])], dtype=np.int64)
    return AllowedStarts(group, pointer, *np.ascontiguousarray(np.concatenate(rows).T))


def usage_of(problem: Problem) -> Usage:
    """Return the use of all pools before any op, with a slot for each acquire and release."""
    low, slots = _change_slots(problem)
    moment, change = np.zeros((2, slots), dtype=np.int64)
    return Usage(moment, change, low, low.copy(), np.zeros(len(low), dtype=np.int64))


def memory_state_of(memory: MemoryUse) -> MemoryState:
    """Return the state of all pools before any op: nothing taken, nobody in flight."""
    pools, owners = len(memory.size), memory.num_owners
    held, missing, in_flight, flight = np.zeros((4, pools * owners), dtype=np.int64)
    reserved, num_flight = np.zeros((2, pools), dtype=np.int64)
    begun = np.zeros(owners + 1, dtype=np.int64)
    return MemoryState(
        memory.size.copy(),
        reserved,
        held,
        missing,
        in_flight,
        flight,
        num_flight,
        begun,
    )


@once
def _gap_slots(problem: Problem) -> tuple[IntArray, int]:
    use = resource_use_of(problem)
    owner = np.repeat(np.arange(problem.num_ops), np.diff(use.pointer))
    again = use.resource[problem.pinned[owner] != FREE]
    cuts = np.concatenate([np.arange(problem.num_resources), use.resource, again])
    return _regions(cuts, problem.num_resources)


@once
def _change_slots(problem: Problem) -> tuple[IntArray, int]:
    memory = memory_of(problem)
    pools = np.concatenate([memory.acquire_pool, memory.release_pool])
    return _regions(pools, len(problem.pools))


def _regions(owner: IntArray, count: int) -> tuple[IntArray, int]:
    """Return the first slot of each owner 0..count-1, one slot per row, and the slots of all."""
    end = np.cumsum(np.bincount(owner, minlength=count))
    first = np.concatenate([[0], end]).astype(np.int64)
    return first[:-1], int(first[-1])


def no_memory(problem: Problem) -> MemoryUse:
    """Return tables without any pool."""
    none = np.zeros(0, dtype=np.int64)
    pointer = np.zeros(problem.num_ops + 1, dtype=np.int64)
    return MemoryUse(
        none,
        pointer,
        none,
        none,
        none,
        pointer,
        none,
        none,
        problem.microbatch,
        0,
        none,
        none,
    )


def rows_by(key: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return the rows of a table whose entries name theirs, as a pointer and an order.

    Entries ``order[pointer[j]:pointer[j + 1]]`` are those of row j, in their order.
    """
    order = np.argsort(key, kind="stable")
    pointer = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(key, minlength=count), out=pointer[1:])
    return pointer, order


def _units(pool: Pool) -> tuple[list[int], int]:
    """Return the pool's table of amounts, and its free amount, in whole units."""
    unit = Fraction(math.lcm(*(amount.denominator for amount in pool.amounts)))
    free = pool.limit - pool.initial
    total = sum(pool.amounts, abs(free)) * (len(pool.acquire_op) + 1)
    if total * unit < 2**61:  # sums of two stay within 64 bits
        return [int(amount * unit) for amount in pool.amounts], math.floor(free * unit)
    # Half a unit of error for each of 200,000 ops is 1e-10 of the capacity, a tenth of the excess.
    unit = 2**50 / max([abs(free), *pool.amounts])
    margin = (pool.limit - pool.capacity) / 2
    return [round(amount * unit) for amount in pool.amounts], math.floor(
        (free - margin) * unit
    )


def _amounts(
    problem: Problem, units: list[tuple[list[int], int]], event: str
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return op, pointer by op, pool and amount of acquires, or releases, one per op and pool."""
    none = np.zeros(0, dtype=np.int64)
    ops, pools, amounts = [none], [none], [none]
    for number, (pool, (table, _)) in enumerate(zip(problem.pools, units, strict=True)):
        op: IntArray = getattr(pool, f"{event}_op")
        index: IntArray = getattr(pool, f"{event}_amount")
        ops.append(op)
        pools.append(np.full(len(op), number, dtype=np.int64))
        amounts.append(np.array(table, dtype=np.int64)[index])
    count = len(units) + 1
    keys, row = np.unique(
        np.concatenate(ops) * count + np.concatenate(pools), return_inverse=True
    )
    total = np.zeros(len(keys), dtype=np.int64)
    np.add.at(total, row, np.concatenate(amounts))
    users, used = np.divmod(keys, count)
    return users, rows_by(users, problem.num_ops)[0], used, total


def _net(
    problem: Problem,
    acquired: tuple[IntArray, IntArray, IntArray, IntArray],
    released: tuple[IntArray, IntArray, IntArray, IntArray],
) -> IntArray:
    """Return the amounts that must be free: ops of duration 0 release at once."""
    op, _, pool, amount = acquired
    net = amount.copy()
    for row in np.flatnonzero(problem.duration[op] == 0).tolist():
        pointer = released[1]
        back = slice(pointer[op[row]], pointer[op[row] + 1])
        same = released[2][back] == pool[row]
        net[row] = max(0, int(net[row]) - int(released[3][back][same].sum()))
    return net

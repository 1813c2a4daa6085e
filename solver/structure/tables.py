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
from ppsolve.solver.kernels.records import Graph, Memory, Seats

_MAX_UNITS = 2**61
"""Largest amount in whole units; sums of two stay within 64 bits."""

_ROUNDED_UNITS = 2**50
"""Units of a capacity where exact ones would be too many. Half a unit of error for each of 200,000
ops is 1e-10 of the capacity, a tenth of the excess of 1e-9 that is allowed."""

T = TypeVar("T")


def _once(make: Callable[[Problem], T]) -> Callable[[Problem], T]:
    """Keep what a function makes of a problem as long as the problem lives."""
    known: WeakKeyDictionary[Problem, T] = WeakKeyDictionary()

    @wraps(make)
    def made(problem: Problem) -> T:
        if problem not in known:
            known[problem] = make(problem)
        return known[problem]

    return made


def graph_of(problem: Problem, *edges: Edges) -> Graph:
    """Return the precedences of a problem, by the op that comes first.

    Parameters
    ----------
    problem : Problem
        n ops.
    *edges : Edges
        Precedences beside those of the problem.

    Returns
    -------
    Graph
        Rows in the order of the edges.
    """
    before = np.concatenate([problem.before, *(edge[0] for edge in edges)])
    after = np.concatenate([problem.after, *(edge[1] for edge in edges)])
    lag = np.concatenate([problem.lag, *(edge[2] for edge in edges)])
    pointer, order = _rows(before, problem.num_ops)
    return Graph(
        problem.duration,
        np.maximum(problem.release, problem.pinned),
        np.bincount(after, minlength=problem.num_ops).astype(np.int64),
        pointer,
        after[order],
        lag[order],
    )


@_once
def seats_of(problem: Problem) -> Seats:
    """Return the resources that ops of positive length occupy."""
    owner = np.repeat(np.arange(problem.num_ops), np.diff(problem.resource_ptr))
    busy = problem.duration[owner] > 0
    pointer, _ = _rows(owner[busy], problem.num_ops)
    return Seats(pointer, problem.resource_idx[busy], problem.num_resources)


@_once
def memory_of(problem: Problem) -> Memory:
    """Return all pools in whole units of each pool's own.

    Units are exact unless they are too many for 64 bits; then amounts are rounded, by less in all
    than the excess that is allowed.
    """
    units = [_units(pool) for pool in problem.pools]
    acquired = _amounts(problem, units, "acquire")
    released = _amounts(problem, units, "release")
    num_owners = int(problem.microbatch.max(initial=FREE)) + 1
    claim = np.zeros((len(problem.pools), num_owners), dtype=np.int64)
    owner = problem.microbatch[acquired[0]]
    known = owner != FREE
    np.add.at(claim, (acquired[2][known], owner[known]), acquired[3][known])
    promises = [len(np.unique(problem.stage[pool.acquire_op])) > 1 for pool in problem.pools]
    return Memory(
        np.array([size for _, size in units], dtype=np.int64),
        *acquired[1:],
        _net(problem, acquired, released),
        *released[1:],
        problem.microbatch,
        num_owners,
        claim.ravel(),
        np.array(promises, dtype=np.int64),
    )


def no_memory(problem: Problem) -> Memory:
    """Return tables without any pool."""
    none = np.zeros(0, dtype=np.int64)
    pointer = np.zeros(problem.num_ops + 1, dtype=np.int64)
    return Memory(
        none, pointer, none, none, none, pointer, none, none, problem.microbatch, 0, none, none
    )


def _rows(key: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return the pointer of rows 0..count-1, and the order that sorts by row."""
    order = np.argsort(key, kind="stable")
    pointer = np.searchsorted(key[order], np.arange(count + 1)).astype(np.int64)
    return pointer, order


def _units(pool: Pool) -> tuple[list[int], int]:
    """Return the pool's table of amounts, and its free amount, in whole units."""
    unit = Fraction(math.lcm(*(amount.denominator for amount in pool.amounts)))
    free = pool.limit - pool.initial
    total = sum(pool.amounts, abs(free)) * (len(pool.acquire_op) + 1)
    if total * unit < _MAX_UNITS:
        return [int(amount * unit) for amount in pool.amounts], math.floor(free * unit)
    unit = _ROUNDED_UNITS / max(abs(free), *pool.amounts)
    margin = (pool.limit - pool.capacity) / 2
    return [round(amount * unit) for amount in pool.amounts], math.floor((free - margin) * unit)


def _amounts(
    problem: Problem, units: list[tuple[list[int], int]], what: str
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return op, pointer by op, pool and amount of all acquires, or releases, by op."""
    none = np.zeros(0, dtype=np.int64)
    ops, pools, amounts = [none], [none], [none]
    for number, (pool, (table, _)) in enumerate(zip(problem.pools, units, strict=True)):
        op: IntArray = getattr(pool, f"{what}_op")
        index: IntArray = getattr(pool, f"{what}_amount")
        ops.append(op)
        pools.append(np.full(len(op), number, dtype=np.int64))
        amounts.append(np.array(table, dtype=np.int64)[index])
    every = np.concatenate(ops)
    pointer, order = _rows(every, problem.num_ops)
    return every[order], pointer, np.concatenate(pools)[order], np.concatenate(amounts)[order]


def _net(
    problem: Problem,
    acquired: tuple[IntArray, IntArray, IntArray, IntArray],
    released: tuple[IntArray, IntArray, IntArray, IntArray],
) -> IntArray:
    """Return the amounts that must be free: ops of duration 0 release at once."""
    op, _, pool, amount = acquired
    net = amount.copy()
    for place in np.flatnonzero(problem.duration[op] == 0).tolist():
        pointer = released[1]
        back = slice(pointer[op[place]], pointer[op[place] + 1])
        same = released[2][back] == pool[place]
        net[place] = max(0, int(net[place]) - int(released[3][back][same].sum()))
    return net

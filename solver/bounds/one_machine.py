"""Bounds by the ops of one resource: preemptive, and with few acquires before the first returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.solver.kernels.one_machine import (
    Jobs,
    empty_tree,
    least_end,
    least_end_of_returns,
)
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.implied import PoolOrder


class Reason(NamedTuple):
    """A lower bound in ticks, and the resource whose ops prove it; `FREE` where several do."""

    value: int
    resource: int = FREE


def largest(reasons: Iterable[Reason]) -> Reason:
    """Return the largest bound, the first one of equals; 0 if there is none."""
    return max(reasons, key=lambda reason: reason.value, default=Reason(0))


def preemptive_bound(heads: IntArray, durations: IntArray, tails: IntArray) -> int:
    """Return the least end of one resource when ops may be interrupted, 0 for no ops.

    Jackson's preemptive rule: always run the available op with the longest tail. Exact for the
    relaxation (Carlier and Pinson 1989); found in O(n log n) as the largest bound of a set of ops.
    A tail runs from the end of its op to the end of the schedule.
    """
    order = np.argsort(-tails, kind="stable")
    leaf = np.argsort(np.argsort(heads[order], kind="stable"), kind="stable")
    jobs = Jobs(heads[order], durations[order], tails[order])
    return int(least_end(jobs, leaf, empty_tree(len(leaf))))


def return_bound(
    problem: Problem,
    order: PoolOrder,
    ops: IntArray,
    heads: IntArray,
    tails: IntArray,
    moments: int = 1,
) -> int:
    """Return a lower bound on the end of one resource whose ops acquire from one pool.

    By a moment c, no more acquires can have started than fit beside the releases possible by then,
    and no other op with a head >= c has started. The rest of the work follows c, and then the least
    tail; the bound is the largest over all sets of ops with a tail of at least t. The first moment
    is that of the first return: the earliest possible start of an op that does not acquire. Any
    selection of moments gives a valid bound.

    All ops take time; tails run from their ends to the end of the schedule. The bound is 0 where
    all or no ops acquire.
    """
    ops = ops[np.argsort(-tails[ops], kind="stable")]
    takes = np.zeros(problem.num_ops, dtype=np.bool_)
    takes[order.pool.acquire_op] = True
    acquires = takes[ops]
    if not acquires.any() or acquires.all():
        return 0
    jobs = Jobs(heads[ops], problem.duration[ops], tails[ops])
    cuts = np.unique(jobs.head[~acquires])
    cuts = cuts[:: max(1, len(cuts) // moments)][:moments].copy()
    fits = _fitting(problem, order, heads, cuts)
    longest = int(jobs.length[acquires].max())
    return int(
        least_end_of_returns(jobs, acquires.astype(np.int64), cuts, fits, longest)
    )


def acquiring(problem: Problem, order: PoolOrder) -> list[int]:
    """Return the resources, going up, on which an op of positive length acquires from a pool."""
    ops = np.unique(order.pool.acquire_op)
    ops = ops[problem.duration[ops] > 0]
    owner = np.repeat(np.arange(problem.num_ops), np.diff(problem.resource_ptr))
    return np.unique(problem.resource_idx[np.isin(owner, ops)]).tolist()


def _fitting(
    problem: Problem, order: PoolOrder, heads: IntArray, cuts: IntArray
) -> IntArray:
    """Return, for each moment, the largest number of acquires that can have started by then."""
    pool = order.pool
    completion = heads[pool.release_op] + problem.duration[pool.release_op]
    by_end = np.argsort(completion, kind="stable")
    events = len(pool.acquire_op) + len(pool.release_op)
    units, _ = whole_units((*pool.amounts, pool.limit - pool.initial), events)
    released = np.cumsum(np.append(units[-1:], units[pool.release_amount[by_end]]))
    available = released[np.searchsorted(completion[by_end], cuts, side="right")]
    smallest = units[np.unique(pool.acquire_amount)].min()
    return np.clip(available // smallest, 0, len(pool.acquire_op)).astype(np.int64)

"""The first-return bound: before anything is released, only what fits can run."""

from __future__ import annotations

import numpy as np

from ppsolve.models.problem import IntArray, Problem
from ppsolve.solver.implied import PoolOrder


def first_return_bound(
    problem: Problem, order: PoolOrder, ops: IntArray, heads: IntArray, tails: IntArray
) -> int:
    """Bound the end of one resource whose ops acquire from one pool.

    Until the first op that does not acquire can run, or the first release can be through, only
    acquiring ops run on the resource, and no more of them than the pool holds. Everything else
    follows, and then the least tail; taken over all sets of ops with a tail of at least t.

    Parameters
    ----------
    problem : Problem
        n ops.
    order : PoolOrder
        The pool.
    ops : int64[k]
        Ops of positive length on the resource.
    heads, tails : int64[n]
        Earliest starts, and least times from each end to the end of the schedule.

    Returns
    -------
    int
        Lower bound on the end of the schedule, 0 where the pool says nothing of the resource.
    """
    acquires = np.isin(ops, order.pool.acquire_op)
    release_ops = order.pool.release_op
    if not acquires.any() or acquires.all() or not len(release_ops):
        return 0
    first_other = int(heads[ops[~acquires]].min())
    first_release = int((heads[release_ops] + problem.duration[release_ops]).min())
    free_until = min(first_other, first_release)
    fits = _most_acquires(order)
    by_tail = ops[np.argsort(-tails[ops], kind="stable")]
    best = work = 0
    running: list[int] = []
    is_acquire = dict(zip(ops.tolist(), acquires.tolist(), strict=True))
    for op in by_tail.tolist():
        length = int(problem.duration[op])
        work += length
        if is_acquire[op]:
            running = sorted([*running, length], reverse=True)[:fits]
        left = work - sum(running)
        if left > 0:
            best = max(best, free_until + left + int(tails[op]))
    return best


def _most_acquires(order: PoolOrder) -> int:
    """Return how many acquires fit before any release."""
    pool, left = order.pool, order.pool.limit - order.pool.initial
    count = 0
    for amount in sorted(pool.amounts[index] for index in pool.acquire_amount.tolist()):
        if amount > left:
            break
        left -= amount
        count += 1
    return count

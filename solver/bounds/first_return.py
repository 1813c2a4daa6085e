"""Return bounds: until enough memory is released, only as many forwards as fit can have run."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.solver.structure.implied import PoolOrder

RETURN_MOMENTS = 48
"""Moments at which the returns are counted; any selection of moments gives a valid bound.

On the 51 instances with memory under ``instances`` that have fewer than 4,000 ops, 1 to 192 moments
give the same strongest bound in the same time; so do 1 to 96 on 62 of V and linear placement.
"""


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
    and no other op with a head >= c has started. The rest of the work follows c, and then the
    least tail; the bound is the largest over all sets of ops with a tail of at least t. The first
    moment is the earliest possible start of an op that does not acquire: the first return of a
    backward. It proves zero-bubble schedules optimal at capacities between 1.5p and 1.75p.

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
    moments : int
        Number of moments to try.

    Returns
    -------
    int
        Lower bound on the end of the schedule in ticks, 0 where all or no ops acquire.
    """
    ops = ops[np.argsort(-tails[ops], kind="stable")]
    acquires = np.isin(ops, order.pool.acquire_op)
    if not acquires.any() or acquires.all():
        return 0
    head, tail, length = heads[ops], tails[ops], problem.duration[ops]
    longest = int(length[acquires].max())
    cuts = np.unique(head[~acquires])
    cuts = cuts[:: max(1, len(cuts) // moments)][:moments]
    fits = _fitting(problem, order, heads, cuts)
    best = 0
    for cut, most in zip(cuts.tolist(), fits, strict=True):
        follows = np.where(acquires | (head >= cut), length, 0)
        early = np.cumsum(acquires & (head < cut))
        left = np.cumsum(follows) - np.minimum(early, most) * longest
        ends = np.where(left > 0, cut + left + tail, 0)
        best = max(best, int(ends.max()))
    return best


def _fitting(problem: Problem, order: PoolOrder, heads: IntArray, cuts: IntArray) -> list[int]:
    """Return, for each moment, the largest number of acquires that can have started by then."""
    pool = order.pool
    ends = heads[pool.release_op] + problem.duration[pool.release_op]
    by_end = np.argsort(ends, kind="stable")
    amounts = [pool.amounts[index] for index in pool.release_amount[by_end].tolist()]
    released = np.searchsorted(ends[by_end], cuts, side="right").tolist()
    smallest = min(pool.amounts[index] for index in pool.acquire_amount.tolist())
    fits, available, position = [], pool.limit - pool.initial, 0
    for count in released:
        available += sum(amounts[position:count], Fraction(0))
        position = max(position, count)
        fits.append(max(0, int(available // smallest)))
    return fits

"""Return bounds: until enough memory is released, only as many forwards as fit can have run."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.solver.kernels.one_machine import Jobs, least_end_of_returns
from ppsolve.solver.structure.holds import whole_units
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
    return int(least_end_of_returns(jobs, acquires.astype(np.int64), cuts, fits, longest))


def acquiring(problem: Problem, order: PoolOrder) -> list[int]:
    """Return the resources on which something that has a length acquires from a pool.

    Parameters
    ----------
    problem : Problem
        The problem.
    order : PoolOrder
        The pool.

    Returns
    -------
    list of int
        Resource numbers, going up.
    """
    ops = np.unique(order.pool.acquire_op)
    ops = ops[problem.duration[ops] > 0]
    occupied = np.zeros(problem.num_resources, dtype=np.bool_)
    first, count = problem.resource_ptr[ops], np.diff(problem.resource_ptr)[ops]
    for place in range(int(count.max(initial=0))):
        occupied[problem.resource_idx[first[count > place] + place]] = True
    found: list[int] = np.flatnonzero(occupied).tolist()
    return found


def _fitting(problem: Problem, order: PoolOrder, heads: IntArray, cuts: IntArray) -> IntArray:
    """Return, for each moment, the largest number of acquires that can have started by then."""
    pool = order.pool
    ends = heads[pool.release_op] + problem.duration[pool.release_op]
    by_end = np.argsort(ends, kind="stable")
    events = len(pool.acquire_op) + len(pool.release_op)
    whole, _ = whole_units((*pool.amounts, pool.limit - pool.initial), events)
    released = np.cumsum(np.append(whole[-1:], whole[pool.release_amount[by_end]]))
    available = released[np.searchsorted(ends[by_end], cuts, side="right")]
    smallest = whole[np.unique(pool.acquire_amount)].min()
    fits: IntArray = np.clip(available // smallest, 0, len(pool.acquire_op)).astype(np.int64)
    return fits

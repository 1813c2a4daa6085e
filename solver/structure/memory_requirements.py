"""Memory that a pool must hold at one moment in every schedule."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from operator import mul

import numpy as np

from ppsolve.models.core.problem import BoolArray, IntArray, Pool, Problem
from ppsolve.solver.structure.holds import ALWAYS, Adjacency, Holds, reachable

MAX_STEPS = 30_000_000
"""Acquires x ops up to which every acquire is checked. Above it, on huge problems without alike
micro-batches, the check is skipped and the capacity is left to heuristics and search."""


class MemoryInfeasible(Exception):
    """A pool cannot hold the memory that an op or a chain of ops requires at once."""


def check_requirements(
    problem: Problem, pool: Pool, holds: Holds, acquires: Iterable[int], links: Adjacency
) -> None:
    """Refuse a pool that cannot hold the memory in use at the start of some op in every schedule.

    At the start of an op, everything is in use that its predecessors acquired and its successors
    release. A release counts as later only if it must end later, not at the same moment.

    Parameters
    ----------
    problem : Problem
        The problem.
    pool : Pool
        One of its pools.
    holds : Holds
        The pool's holds.
    acquires : iterable of int
        Acquiring ops to check; one of several alike is enough.
    links : Adjacency
        Direct successors and predecessors of every op.

    Raises
    ------
    MemoryInfeasible
        Names the op, the memory that it requires, and the capacity.
    """
    if pool.initial > pool.limit:
        raise MemoryInfeasible(
            f"memory: {pool.name} holds {_text(pool.initial)} before anything runs, "
            f"capacity {_text(pool.capacity)}"
        )
    if holds.base + holds.total <= pool.limit:
        return
    chosen = list(acquires)
    if len(chosen) * problem.num_ops > MAX_STEPS:
        return
    for op in chosen:
        before, after = reachable(links.predecessors, op), reachable(links.successors, op)
        _check_start(problem, pool, holds, op, before, after)


def _check_start(
    problem: Problem, pool: Pool, holds: Holds, op: int, before: set[int], after: set[int]
) -> None:
    begun = _among(holds.acquire, before)
    lasting = _among(holds.release, after)
    if not problem.duration[op]:
        lasting &= (holds.release == ALWAYS) | (problem.duration[holds.release] > 0)
    held = begun & lasting
    counts = np.bincount(holds.index[held], minlength=len(holds.amounts)).tolist()
    in_use = sum(map(mul, holds.amounts, counts), holds.base)
    if in_use > pool.limit:
        first = np.setdiff1d(holds.acquire[held], (ALWAYS, op))
        holders = problem.op_names(first)
        others = ", ".join(sorted(set(holders))[:8])
        what = f"together with {others} needs" if others else "alone needs"
        raise MemoryInfeasible(
            f"memory: {problem.op_name(op)} {what} {_text(in_use)} of {pool.name}"
            f"{f' ({_text(pool.initial)} of it static)' if pool.initial else ''}, capacity "
            f"{_text(pool.capacity)}"
        )


def _among(ops: IntArray, chosen: set[int]) -> BoolArray:
    """Return true where an op is `ALWAYS` or among those chosen."""
    mask: BoolArray = np.isin(ops, [ALWAYS, *chosen])
    return mask


def _text(amount: Fraction) -> str:
    return f"{float(amount):.12g}"

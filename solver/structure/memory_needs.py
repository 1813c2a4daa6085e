"""What a pool must hold at one moment, whatever the schedule."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ppsolve.models.core.problem import Pool, Problem
from ppsolve.solver.structure.holds import ALWAYS, Holds, Links, reachable

MAX_STEPS = 30_000_000
"""Ops times ops that are looked at; huge problems without alike micro-batches are left out."""


class MemoryInfeasible(Exception):
    """A pool cannot hold what a single op or chain of ops needs at once."""


def check_needs(
    problem: Problem, pool: Pool, holds: Holds, acquires: Iterable[int], links: Links
) -> None:
    """Refuse a pool that cannot hold what is inevitably in use when some op starts.

    At the start of an op, whatever its predecessors acquired and only its successors give back is
    in use. A release counts as later only if it must end later, not at the same moment.

    Parameters
    ----------
    problem : Problem
        The problem.
    pool : Pool
        One of its pools.
    holds : Holds
        The pool's holds.
    acquires : iterable of int
        Acquiring ops to look at; one of several alike is enough.
    links : Links
        Direct successors and predecessors of every op.

    Raises
    ------
    MemoryInfeasible
        Names the op, what it needs, and the capacity.
    """
    if pool.initial > pool.limit:
        raise MemoryInfeasible(
            f"memory: {pool.name} holds {_text(pool.initial)} before anything runs, "
            f"capacity {_text(pool.capacity)}"
        )
    if holds.base + sum(amount for amount in holds.amount if amount > 0) <= pool.limit:
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
    in_use, holders = holds.base, []
    for first, last, amount in zip(
        holds.acquire.tolist(), holds.release.tolist(), holds.amount, strict=True
    ):
        begun = first == ALWAYS or first in before
        lasting = last == ALWAYS or (
            last in after and bool(problem.duration[op] or problem.duration[last])
        )
        if begun and lasting:
            in_use += amount
            if first not in (ALWAYS, op):
                holders.append(problem.op_name(first))
    if in_use > pool.limit:
        others = ", ".join(sorted(set(holders))[:8])
        what = f"together with {others} needs" if others else "alone needs"
        raise MemoryInfeasible(
            f"memory: {problem.op_name(op)} {what} {_text(in_use)} of {pool.name}"
            f"{f' ({_text(pool.initial)} of it static)' if pool.initial else ''}, capacity "
            f"{_text(pool.capacity)}"
        )


def _text(amount: Fraction) -> str:
    return f"{float(amount):.12g}"

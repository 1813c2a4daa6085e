"""Memory that a pool must hold at one moment in every schedule."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ppsolve.models.core.problem import Pool, Problem
from ppsolve.solver.structure.holds import ALWAYS, Holds, Links, reachable

MAX_STEPS = 30_000_000
"""Acquires x ops up to which every acquire is checked. Above it, on huge problems without alike
micro-batches, the check is skipped and the capacity is left to heuristics and search."""


class MemoryInfeasible(Exception):
    """A pool cannot hold the memory that an op or a chain of ops requires at once."""


def check_requirements(
    problem: Problem, pool: Pool, holds: Holds, acquires: Iterable[int], links: Links
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
    links : Links
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

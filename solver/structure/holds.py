"""Memory pools as holds: amounts that are held from the start of one op to the end of another."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import Self

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.solver.structure.units import whole_units

ALWAYS = -1
"""Stands for "from the beginning" or "to the very end" in place of an op."""


class Neighbours:
    """Ops at the other ends of the edges out of each op.

    Parameters
    ----------
    num_ops : int
        Number of ops n.
    source, target : int64[k]
        First and second op of each edge.
    """

    def __init__(self, num_ops: int, source: IntArray, target: IntArray) -> None:
        order = np.argsort(source, kind="stable")
        self._pointer = np.searchsorted(source[order], np.arange(num_ops + 1)).tolist()
        self._targets = target[order].tolist()

    def of(self, op: int) -> list[int]:
        """Return the neighbours of an op."""
        found: list[int] = self._targets[self._pointer[op] : self._pointer[op + 1]]
        return found


@dataclass(frozen=True, eq=False)
class Links:
    """Direct successors and predecessors of every op."""

    successors: Neighbours
    predecessors: Neighbours

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Collect the links of a problem's precedences."""
        before, after = problem.before, problem.after
        return cls(
            Neighbours(problem.num_ops, before, after), Neighbours(problem.num_ops, after, before)
        )


@dataclass(frozen=True, eq=False)
class Holds:
    """A pool rewritten as intervals; use at time t = base + amounts of the holds that contain t.

    Parameters
    ----------
    base : Fraction
        Amount in use at all times. A release that no acquire precedes lowers it and becomes a hold
        from the beginning to its end, so it may be negative.
    acquire, release : int64[h]
        Hold k lasts from the start of op ``acquire[k]`` to the end of op ``release[k]``;
        `ALWAYS` where there is no such op.
    amounts : tuple of Fraction
        Distinct amounts, going up.
    index : int64[h]
        Index of each hold's amount in `amounts`.
    """

    base: Fraction
    acquire: IntArray
    release: IntArray
    amounts: tuple[Fraction, ...]
    index: IntArray

    @cached_property
    def amount(self) -> tuple[Fraction, ...]:
        """Amount of each hold, length h."""
        return tuple(map(self.amounts.__getitem__, self.index.tolist()))

    @property
    def total(self) -> Fraction:
        """Sum of all amounts."""
        counts = np.bincount(self.index, minlength=len(self.amounts)).tolist()
        return sum(map(mul, self.amounts, counts), Fraction(0))


def holds_of(problem: Problem, pool: Pool, links: Links) -> Holds:
    """Rewrite `pool` as holds, each from an acquire to a release that it precedes.

    The pool's use is the same at every instant. A release is paired with acquires of its own stage
    and micro-batch; one without a micro-batch is paired with any acquire that precedes it.

    Parameters
    ----------
    problem : Problem
        The problem.
    pool : Pool
        One of its pools.
    links : Links
        Direct successors and predecessors of every op.

    Returns
    -------
    Holds
        h holds, amounts in the pool's unit.
    """
    whole, unit = whole_units(pool.amounts, len(pool.release_op) + 1)
    units: list[int] = whole.tolist()
    remaining = [units[index] for index in pool.acquire_amount.tolist()]
    acquires, releases = pool.acquire_op.tolist(), pool.release_op.tolist()
    reach: dict[int, set[int]] = {}
    found: list[tuple[int, int, int]] = []
    excess = 0
    candidates = _candidates(problem, pool)
    for op, index, group in zip(releases, pool.release_amount.tolist(), candidates, strict=True):
        wanted = units[index]
        for position in group:
            if wanted == 0:
                break
            acquire = acquires[position]
            if not remaining[position] or not _precedes(links.successors, reach, acquire, op):
                continue
            share = min(wanted, remaining[position])
            found.append((acquire, op, share))
            remaining[position] -= share
            wanted -= share
        if wanted:
            found.append((ALWAYS, op, wanted))
            excess += wanted
    found += [(op, ALWAYS, left) for op, left in zip(acquires, remaining, strict=True) if left]
    return _as_holds(found, pool.initial - Fraction(excess, unit), unit)


def _as_holds(found: list[tuple[int, int, int]], base: Fraction, unit: int) -> Holds:
    """Return holds from (acquire, release, amount in units)."""
    units = sorted({amount for _, _, amount in found})
    number = {amount: index for index, amount in enumerate(units)}
    return Holds(
        base=base,
        acquire=np.array([acquire for acquire, _, _ in found], dtype=np.int64),
        release=np.array([release for _, release, _ in found], dtype=np.int64),
        amounts=tuple(Fraction(amount, unit) for amount in units),
        index=np.array([number[amount] for _, _, amount in found], dtype=np.int64),
    )


def _candidates(problem: Problem, pool: Pool) -> list[Sequence[int]]:
    """Return, for each release, the places of the acquires that it may give back."""
    by_label: dict[tuple[int, int], list[int]] = defaultdict(list)
    stage, microbatch = problem.stage, problem.microbatch
    taken = zip(stage[pool.acquire_op].tolist(), microbatch[pool.acquire_op].tolist(), strict=True)
    for position, label in enumerate(taken):
        by_label[label].append(position)
    given = zip(stage[pool.release_op].tolist(), microbatch[pool.release_op].tolist(), strict=True)
    every = range(len(pool.acquire_op))
    return [every if label[1] == FREE else by_label.get(label, ()) for label in given]


def _precedes(successors: Neighbours, reach: dict[int, set[int]], first: int, last: int) -> bool:
    """Return true if `last` is `first` or follows it; one or two edges need no full search."""
    near = successors.of(first)
    if first == last or last in near or any(last in successors.of(op) for op in near):
        return True
    if first not in reach:
        reach[first] = reachable(successors, first)
    return last in reach[first]


def reachable(neighbours: Neighbours, first: int) -> set[int]:
    """Return an op and all ops that it reaches.

    Parameters
    ----------
    neighbours : Neighbours
        Successors of the ops, or predecessors to go backwards.
    first : int
        The op to begin with.

    Returns
    -------
    set of int
        Op numbers, `first` included.
    """
    seen = {first}
    queue = deque([first])
    while queue:
        for op in neighbours.of(queue.popleft()):
            if op not in seen:
                seen.add(op)
                queue.append(op)
    return seen

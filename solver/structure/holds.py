"""Memory pools as holds: amounts that are held from the start of one op to the end of another."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem

Successors = Mapping[int, list[int]]

ALWAYS = -1
"""Stands for "from the beginning" or "to the very end" in place of an op."""


@dataclass(frozen=True, eq=False)
class Links:
    """Direct successors and predecessors of the ops that have any."""

    successors: Successors
    predecessors: Successors

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Collect the links of a problem's precedences."""
        successors: dict[int, list[int]] = defaultdict(list)
        predecessors: dict[int, list[int]] = defaultdict(list)
        for before, after in zip(problem.before.tolist(), problem.after.tolist(), strict=True):
            successors[before].append(after)
            predecessors[after].append(before)
        return cls(dict(successors), dict(predecessors))


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
    amount : tuple of Fraction
        Amount of each hold, length h.
    """

    base: Fraction
    acquire: IntArray
    release: IntArray
    amount: tuple[Fraction, ...]


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
    successors = links.successors
    remaining = [pool.amounts[index] for index in pool.acquire_amount.tolist()]
    by_label: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, op in enumerate(pool.acquire_op.tolist()):
        by_label[_label(problem, op)].append(position)
    reach: dict[int, set[int]] = {}
    found: list[tuple[int, int, Fraction]] = []
    base = pool.initial
    every_acquire = list(range(len(remaining)))
    for op, index in zip(pool.release_op.tolist(), pool.release_amount.tolist(), strict=True):
        wanted = pool.amounts[index]
        labelled = problem.microbatch[op] != FREE
        for position in by_label[_label(problem, op)] if labelled else every_acquire:
            if wanted == 0:
                break
            if remaining[position] == 0:
                continue
            acquire = int(pool.acquire_op[position])
            if not _precedes(successors, reach, acquire, op):
                continue
            share = min(wanted, remaining[position])
            found.append((acquire, op, share))
            remaining[position] -= share
            wanted -= share
        if wanted:
            found.append((ALWAYS, op, wanted))
            base -= wanted
    found += [
        (int(pool.acquire_op[position]), ALWAYS, left)
        for position, left in enumerate(remaining)
        if left
    ]
    return Holds(
        base=base,
        acquire=np.array([acquire for acquire, _, _ in found], dtype=np.int64),
        release=np.array([release for _, release, _ in found], dtype=np.int64),
        amount=tuple(amount for _, _, amount in found),
    )


def _label(problem: Problem, op: int) -> tuple[int, int]:
    return int(problem.stage[op]), int(problem.microbatch[op])


def _precedes(successors: Successors, reach: dict[int, set[int]], first: int, last: int) -> bool:
    """Return true if `last` is `first` or follows it; one or two edges need no full search."""
    if first == last or last in successors.get(first, ()):
        return True
    if any(last in successors.get(op, ()) for op in successors.get(first, ())):
        return True
    if first not in reach:
        reach[first] = reachable(successors, first)
    return last in reach[first]


def reachable(successors: Successors, first: int) -> set[int]:
    """Return an op and all ops that it reaches.

    Parameters
    ----------
    successors : mapping of int to list of int
        Neighbours of the ops that have any: successors, or predecessors to go backwards.
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
        for op in successors.get(queue.popleft(), ()):
            if op not in seen:
                seen.add(op)
                queue.append(op)
    return seen

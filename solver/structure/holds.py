"""Memory pools as holds: what is held from the start of one op to the end of another."""

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
    """A pool rewritten as intervals; in use at t = base + amounts of the holds that contain t.

    Parameters
    ----------
    base : Fraction
        In use at all times. Releases that no acquire precedes lower it (and hold from the
        beginning to their end instead), so it may be negative.
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

    The use of the pool at every instant is the same, so nothing is lost or added. Acquires are
    paired with releases of the same stage and micro-batch first, then with any release that
    follows them.

    Parameters
    ----------
    problem : Problem
        The problem.
    pool : Pool
        One of its pools.
    links : Links
        Direct successors and predecessors of every op.
    """
    successors = links.successors
    remaining = [pool.amounts[index] for index in pool.acquire_amount.tolist()]
    by_label: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, op in enumerate(pool.acquire_op.tolist()):
        by_label[_label(problem, op)].append(position)
    reach: dict[int, set[int]] = {}
    found: list[tuple[int, int, Fraction]] = []
    base = pool.initial
    everyone = list(range(len(remaining)))
    for op, index in zip(pool.release_op.tolist(), pool.release_amount.tolist(), strict=True):
        wanted = pool.amounts[index]
        labelled = problem.microbatch[op] != FREE
        for position in by_label[_label(problem, op)] if labelled else everyone:
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
    """Whether `last` is `first` or follows it; near ones are found without a full search."""
    if first == last or last in successors.get(first, ()):
        return True
    if any(last in successors.get(op, ()) for op in successors.get(first, ())):
        return True
    if first not in reach:
        reach[first] = reachable(successors, first)
    return last in reach[first]


def reachable(successors: Successors, first: int) -> set[int]:
    """Return `first` and all that follows it."""
    seen = {first}
    queue = deque([first])
    while queue:
        for op in successors.get(queue.popleft(), ()):
            if op not in seen:
                seen.add(op)
                queue.append(op)
    return seen

"""Memory pools as holds: amounts that are held from the start of one op to the end of another.

What a pool must hold at one moment in every schedule is checked here too.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from operator import mul
from typing import Self

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Pool, Problem
from ppsolve.solver.structure.tables import rows_by

ALWAYS = -1
"""Stands for "from the beginning" or "to the very end" in place of an op."""


def whole_units(amounts: Sequence[Fraction], count: int) -> tuple[IntArray, int]:
    """Return amounts as multiples of their largest common unit 1 / k, and k.

    Multiples are Python's own integers where a sum of `count` of them could exceed 64 bits, else
    int64.
    """
    unit = math.lcm(*(amount.denominator for amount in amounts))
    multiples = [amount.numerator * (unit // amount.denominator) for amount in amounts]
    largest = max(map(abs, multiples), default=0) * max(1, count)
    return np.array(multiples, dtype=np.int64 if largest < 2**62 else object), unit


class Neighbours:
    """Ops at the other ends of the edges out of each op.

    `num_ops`: number of ops n.
    `source`, `target`: int64[k], first and second op of each edge.
    """

    def __init__(self, num_ops: int, source: IntArray, target: IntArray) -> None:
        rows, order = rows_by(source, num_ops)
        self._pointer: list[int] = rows.tolist()
        self._targets: list[int] = target[order].tolist()

    def of(self, op: int) -> list[int]:
        """Return the neighbours of an op."""
        return self._targets[self._pointer[op] : self._pointer[op + 1]]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Direct successors and predecessors of every op."""

    successors: Neighbours
    predecessors: Neighbours

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Collect the links of a problem's precedences."""
        before, after = problem.before, problem.after
        return cls(
            Neighbours(problem.num_ops, before, after),
            Neighbours(problem.num_ops, after, before),
        )


@dataclass(frozen=True, eq=False)
class Holds:
    """A pool rewritten as intervals; use at time t = base + amounts of the holds that contain t.

    A release that no acquire precedes lowers the base, which may be negative, and becomes a hold
    from the beginning to its end.
    """

    base: Fraction  # amount in use at all times
    acquire: IntArray  # int64[h]: op at whose start each hold begins, or `ALWAYS`
    release: IntArray  # int64[h]: op at whose end it ends, or `ALWAYS`
    amounts: tuple[Fraction, ...]  # distinct amounts, going up
    index: IntArray  # int64[h]: index of each hold's amount in `amounts`

    @cached_property
    def amount(self) -> tuple[Fraction, ...]:
        """Amount of each hold, length h."""
        return tuple(map(self.amounts.__getitem__, self.index.tolist()))

    @property
    def total(self) -> Fraction:
        """Sum of all amounts."""
        counts = np.bincount(self.index, minlength=len(self.amounts)).tolist()
        return sum(map(mul, self.amounts, counts), Fraction(0))


def holds_of(problem: Problem, pool: Pool, links: Adjacency) -> Holds:
    """Rewrite `pool` as holds, each from an acquire to a release that it precedes.

    The pool's use is the same at every instant. A release is paired with acquires of its own stage
    and micro-batch; one without a micro-batch is paired with any acquire that precedes it.
    """
    multiples, unit = whole_units(pool.amounts, len(pool.release_op) + 1)
    units: list[int] = multiples.tolist()
    remaining = [units[index] for index in pool.acquire_amount.tolist()]
    acquires, releases = pool.acquire_op.tolist(), pool.release_op.tolist()
    reach: dict[int, set[int]] = {}
    holds: list[tuple[int, int, int]] = []
    excess = 0
    groups, wishes = _candidates(problem, pool), pool.release_amount.tolist()
    for op, index, group in zip(releases, wishes, groups, strict=True):
        due = units[index]
        for position in group:
            if due == 0:
                break
            acquire = acquires[position]
            if not remaining[position] or not _precedes(
                links.successors, reach, acquire, op
            ):
                continue
            share = min(due, remaining[position])
            holds.append((acquire, op, share))
            remaining[position] -= share
            due -= share
        if due:
            holds.append((ALWAYS, op, due))
            excess += due
    holds += [
        (op, ALWAYS, unreleased)
        for op, unreleased in zip(acquires, remaining, strict=True)
        if unreleased
    ]
    base = pool.initial - Fraction(excess, unit)
    first, last, amount = zip(*holds, strict=True) if holds else ((), (), ())
    acquire, release = np.array([first, last], dtype=np.int64)
    distinct, index = np.unique(
        np.array(amount, dtype=multiples.dtype), return_inverse=True
    )
    amounts = tuple(Fraction(int(number), unit) for number in distinct.tolist())
    return Holds(base, acquire, release, amounts, index.astype(np.int64))


def _candidates(problem: Problem, pool: Pool) -> list[Sequence[int]]:
    """Return, for each release, the places of the acquires that it may give back."""
    by_label: dict[tuple[int, int], list[int]] = defaultdict(list)
    stage, microbatch = problem.stage, problem.microbatch
    acquires = zip(
        stage[pool.acquire_op].tolist(),
        microbatch[pool.acquire_op].tolist(),
        strict=True,
    )
    for position, label in enumerate(acquires):
        by_label[label].append(position)
    releases = zip(
        stage[pool.release_op].tolist(),
        microbatch[pool.release_op].tolist(),
        strict=True,
    )
    every, count = range(len(pool.acquire_op)), problem.slices
    groups: list[Sequence[int]] = []
    for stage_number, unit in releases:
        # The last backward of a stage gives back what other slices of its micro-batch have taken.
        units = range(unit, unit - unit % count + count) if count > 1 else (unit,)
        positions = chain.from_iterable(
            by_label.get((stage_number, number), ()) for number in units
        )
        groups.append(every if unit == FREE else list(positions))
    return groups


def _precedes(
    successors: Neighbours, reach: dict[int, set[int]], first: int, last: int
) -> bool:
    """Whether `last` is `first` or follows it; one or two edges need no full search."""
    near = successors.of(first)
    if first == last or last in near or any(last in successors.of(op) for op in near):
        return True
    if first not in reach:
        reach[first] = reachable(successors, first)
    return last in reach[first]


def reachable(neighbours: Neighbours, first: int) -> set[int]:
    """Return an op and all ops that it reaches; backwards if neighbours are predecessors."""
    seen = {first}
    queue = deque([first])
    while queue:
        for op in neighbours.of(queue.popleft()):
            if op not in seen:
                seen.add(op)
                queue.append(op)
    return seen


class MemoryInfeasible(Exception):
    """A pool cannot hold the memory that an op or a chain of ops requires at once."""


def check_requirements(
    problem: Problem,
    pool: Pool,
    holds: Holds,
    acquires: Iterable[int],
    links: Adjacency,
) -> None:
    """Refuse a pool that cannot hold the memory in use at the start of some op in every schedule.

    At the start of an op, everything is in use that its predecessors acquired and its successors
    release. A release counts as later only if it must end later, not at the same moment. Only the
    starts of `acquires` are checked; one of several alike is enough. A `MemoryInfeasible` names the
    op, the memory that it requires, and the capacity.
    """
    if pool.initial > pool.limit:
        raise MemoryInfeasible(
            f"memory: {pool.name} holds {_text(pool.initial)} before anything runs, "
            f"capacity {_text(pool.capacity)}"
        )
    if holds.base + holds.total <= pool.limit:
        return
    ops = list(acquires)
    # On huge problems without alike micro-batches the capacity is left to heuristics and search.
    if len(ops) * problem.num_ops > 30_000_000:
        return
    for op in ops:
        before, after = (
            reachable(links.predecessors, op),
            reachable(links.successors, op),
        )
        _check_start(problem, pool, holds, op, before, after)


def _check_start(
    problem: Problem,
    pool: Pool,
    holds: Holds,
    op: int,
    before: set[int],
    after: set[int],
) -> None:
    begun = _among(holds.acquire, before)
    lasting = _among(holds.release, after)
    if not problem.duration[op]:
        lasting &= (holds.release == ALWAYS) | (problem.duration[holds.release] > 0)
    held = begun & lasting
    counts = np.bincount(holds.index[held], minlength=len(holds.amounts)).tolist()
    in_use = sum(map(mul, holds.amounts, counts), holds.base)
    if in_use > pool.limit:
        holders = problem.op_names(np.setdiff1d(holds.acquire[held], (ALWAYS, op)))
        partners = ", ".join(sorted(set(holders))[:8])
        need = f"together with {partners} needs" if partners else "alone needs"
        raise MemoryInfeasible(
            f"memory: {problem.op_name(op)} {need} {_text(in_use)} of {pool.name}"
            f"{f' ({_text(pool.initial)} of it static)' if pool.initial else ''}, capacity "
            f"{_text(pool.capacity)}"
        )


def _among(ops: IntArray, members: set[int]) -> BoolArray:
    """Return true where an op is `ALWAYS` or among some members."""
    return np.isin(ops, [ALWAYS, *members])


def _text(amount: Fraction) -> str:
    return f"{float(amount):.12g}"

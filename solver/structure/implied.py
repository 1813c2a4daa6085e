"""Precedences that may be imposed without losing every optimal schedule.

Index order of alike micro-batches: any schedule can be relabelled so that the k-th execution of
each column of a family is its row k. That keeps every rule: where a_i <= b_i for all i, the k-th
smallest a is no larger than the k-th smallest b (order statistics). Under index order, a memory
cap forces releases before acquires; those precedences are implied as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ppsolve.models.core.dag import CycleError, Edges, chain_edges, edges_of
from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.solver.structure.dag import Dag, reachable_sets
from ppsolve.solver.structure.holds import (
    ALWAYS,
    Adjacency,
    Holds,
    MemoryInfeasible,
    check_requirements,
    holds_of,
    whole_units,
)


def index_order(problem: Problem) -> Edges:
    """Return the precedences that make alike micro-batches run in index order, column by column.

    Ops on a resource end before the next one starts; ops without one only start in order, which a
    lag of minus their duration says.
    """
    before, after, lag = chain_edges(
        column for family in problem.families for column in family.T
    )
    occupies = np.diff(problem.resource_ptr)[before] > 0
    return before, after, np.where(occupies, lag, -problem.duration[before])


@dataclass(frozen=True)
class Column:
    """One column of a family: the same op of every alike micro-batch, in index order."""

    family: int
    index: int


@dataclass(frozen=True)
class Lane:
    """A column that acquires from a pool, and the columns that release the amount again.

    The nest of a lane is the lane with the lanes that enclose it: acquired earlier and released
    later in the same row, as the outer chunks of a V placement enclose the inner ones.
    """

    acquire: Column
    amount: Fraction  # what each of its ops acquires
    releases: tuple[
        tuple[Column, Fraction], ...
    ]  # releasing columns, what each op releases

    @property
    def columns(self) -> list[Column]:
        """All columns of the lane, the acquiring one first."""
        return [self.acquire, *(column for column, _ in self.releases)]

    @property
    def given_back(self) -> Fraction:
        """Amount that each acquiring op gives back itself, at its end: a forward's excess."""
        return sum(
            (amount for column, amount in self.releases if column == self.acquire),
            Fraction(0),
        )

    @property
    def kept(self) -> Lane:
        """The lane of what acquiring ops leave behind them."""
        releases = tuple(
            release for release in self.releases if release[0] != self.acquire
        )
        return Lane(self.acquire, self.amount - self.given_back, releases)


@dataclass(frozen=True)
class PoolOrder:
    """A pool with its holds, its lanes and the precedences that its capacity implies.

    In every index-ordered schedule within the capacity end(before) <= start(after).
    """

    pool: Pool
    holds: Holds
    lanes: tuple[Lane, ...]  # empty unless every hold belongs to a family
    before: IntArray  # int64[k]
    after: IntArray  # int64[k]
    is_exact: bool  # these precedences alone are equivalent to the pool's capacity
    is_whole: bool  # every acquire belongs to a lane and is released in one piece


class ImpliedOrder:
    """Implied precedences of one problem, computed once and shared by bounds and models."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def index_edges(self) -> Edges:
        """Precedences of each row of a family before the next row, column by column."""
        return index_order(self.problem)

    @cached_property
    def pools(self) -> tuple[PoolOrder, ...]:
        """Every pool with the precedences that its capacity implies."""
        links = Adjacency.of(self.problem)
        return tuple(self._pool_order(pool, links) for pool in self.problem.pools)

    @cached_property
    def memory_edges(self) -> Edges:
        """The precedences that all pools imply."""
        return edges_of((order.before, order.after) for order in self.pools)

    @cached_property
    def plain(self) -> Dag:
        """The problem's own precedences."""
        return Dag.of(self.problem)

    @cached_property
    def ordered(self) -> Dag:
        """Precedences and index order."""
        return (
            Dag.of(self.problem, self.index_edges)
            if self.problem.families
            else self.plain
        )

    @cached_property
    def full(self) -> Dag:
        """Precedences, index order and the precedences that memory implies.

        A `MemoryInfeasible` says that no schedule keeps the capacity of a pool.
        """
        if not len(self.memory_edges[0]):
            return self.ordered
        try:
            return Dag.of(self.problem, self.index_edges, self.memory_edges)
        except CycleError as error:
            names = self.problem.op_names(error.nodes)
            raise MemoryInfeasible(
                "memory: within the capacity these ops wait for each other: "
                + " -> ".join([*names[:12], names[0]])
            ) from None

    @cached_property
    def column_of(self) -> dict[int, Column]:
        """Family and column of the first-row ops."""
        return {
            int(op): Column(number, index)
            for number, family in enumerate(self.problem.families)
            for index, op in enumerate(family[0])
        }

    def follows(self, first: Column, second: Column) -> bool:
        """Whether the second column's op follows the first one's in every row of their family.

        It does not where only index order or memory puts them in that order.
        """
        return second in self._follows[first]

    def way(self, first: Column, second: Column) -> int:
        """Return the longest path within a row from the start of one op to that of a later one.

        It is the least over all rows, whose delays are alike.
        """
        rows = self._row_graphs[first.family]
        head = np.full(rows.num_nodes, -(2**60), dtype=np.int64)
        head[first.index] = 0
        return int(rows.heads(head)[second.index])

    @cached_property
    def _row_graphs(self) -> list[Dag]:
        """For each family, the precedences within its first row, on the numbers of its columns."""
        family, row, column = self._position
        before, after = self.plain.before, self.plain.after
        here = (
            (family[before] == family[after]) & (row[before] == 0) & (row[after] == 0)
        )
        graphs = []
        for number, ops in enumerate(self.problem.families):
            inside = here & (family[before] == number)
            first, second = column[before[inside]], column[after[inside]]
            graphs.append(Dag(ops.shape[1], first, second, self.plain.delay[inside]))
        return graphs

    def ops(self, column: Column) -> IntArray:
        """Return the ops of a column in index order."""
        return self.problem.families[column.family][:, column.index]

    @cached_property
    def _position(self) -> tuple[IntArray, IntArray, IntArray]:
        family = np.full(self.problem.num_ops, FREE, dtype=np.int64)
        row, column = family.copy(), family.copy()
        for number, ops in enumerate(self.problem.families):
            family[ops] = number
            row[ops] = np.arange(ops.shape[0])[:, None]
            column[ops] = np.arange(ops.shape[1])
        return family, row, column

    @cached_property
    def _follows(self) -> dict[Column, set[Column]]:
        """For each column, the columns whose ops follow its own in the same row."""
        return {
            Column(family, first): {
                Column(family, second)
                for second in range(rows.num_nodes)
                if mask >> second & 1
            }
            for family, rows in enumerate(self._row_graphs)
            for first, mask in enumerate(reachable_sets(rows))
        }

    def _pool_order(self, pool: Pool, links: Adjacency) -> PoolOrder:
        holds = holds_of(self.problem, pool, links)
        acquires = self._representatives(pool.acquire_op)
        check_requirements(self.problem, pool, holds, acquires, links)
        lanes = self._lanes(holds)
        none = np.zeros((0, 2), dtype=np.int64)
        forced = [none, *(self._forced(pool, holds, lanes, lane) for lane in lanes)]
        edges = np.unique(np.concatenate(forced), axis=0)
        covered = sum(
            len(self.ops(column)) for lane in lanes for column, _ in lane.releases
        ) == len(holds.index)
        is_whole = covered and all(len(lane.releases) == 1 for lane in lanes)
        is_exact = (
            is_whole and len(lanes) == 1 and not self.may_be_instant(lanes[0], lanes)
        )
        before, after = np.ascontiguousarray(edges.T)
        return PoolOrder(pool, holds, tuple(lanes), before, after, is_exact, is_whole)

    def _lanes(self, holds: Holds) -> list[Lane]:
        groups = self._groups(holds)
        by_acquire: dict[Column, list[tuple[Column, Fraction]]] = defaultdict(list)
        for number, first, last, index, count in groups:
            if count == len(self.problem.families[number]):
                releases = by_acquire[Column(number, first)]
                releases.append((Column(number, last), holds.amounts[index]))
        return [
            Lane(
                acquire,
                sum((amount for _, amount in releases), Fraction(0)),
                tuple(releases),
            )
            for acquire, releases in by_acquire.items()
        ]

    def _groups(self, holds: Holds) -> list[list[int]]:
        """Return family, acquiring and releasing column, amount and number of alike holds.

        Groups come in the order of their first holds; the amount is an index into the pool's.
        """
        family, row, column = self._position
        first, last = holds.acquire, holds.release
        alike = (first != ALWAYS) & (last != ALWAYS) & (family[first] != FREE)
        alike &= (family[first] == family[last]) & (row[first] == row[last])
        first, last = first[alike], last[alike]
        keys = np.stack(
            (family[first], column[first], column[last], holds.index[alike]), axis=1
        )
        groups, earliest, count = np.unique(
            keys, axis=0, return_index=True, return_counts=True
        )
        return np.column_stack((groups, count))[np.argsort(earliest)].tolist()

    def _forced(
        self, pool: Pool, holds: Holds, lanes: list[Lane], lane: Lane
    ) -> IntArray:
        """Return (release op, acquire op) pairs that the capacity forces on one lane.

        At the start of acquire j, every lane of the nest has acquired j+1 times, and no column has
        released more than j times. Column t gates itself and the releases that follow it, so it
        must have released at least k times, where
        k * gated + j * elsewhere >= (j + 1) * amount - available.
        """
        nest = self.nest_of(lanes, lane)
        pairs = [np.zeros((0, 2), dtype=np.int64)]
        if self.may_be_instant(lane, nest):
            return pairs[0]
        amount = sum((member.amount for member in nest), Fraction(0))
        releases = [release for member in nest for release in member.releases]
        available = pool.limit - holds.base
        acquires = self.ops(lane.acquire)
        for column, _ in releases:
            behind = {column} | self._follows[column]
            gated = sum(
                (share for target, share in releases if target in behind), Fraction(0)
            )
            elsewhere = sum(
                (share for target, share in releases if target not in behind),
                Fraction(0),
            )
            required = _required_releases(
                len(acquires), amount, elsewhere, gated, available
            )
            gate = self.ops(column)
            waiting = required > 0
            rank = np.minimum(required[waiting], len(gate)) - 1
            pairs.append(np.stack((gate[rank], acquires[waiting]), axis=1))
        return np.concatenate(pairs)

    def _representatives(self, ops: IntArray) -> list[int]:
        """Return the ops that have no family or are in the first row of theirs."""
        _, row, _ = self._position
        return ops[row[ops] <= 0].tolist()

    def may_be_instant(self, lane: Lane, nest: Sequence[Lane]) -> bool:
        """Whether row j of a nest may release something at the very start of acquire j.

        That takes ops of duration zero: the acquire and some release. More can then be released by
        the start of acquire j than the j rows before it acquired, and the implied precedences would
        cut off schedules.
        """
        duration = self.problem.duration
        columns = [column for member in nest for column, _ in member.releases]
        return not duration[self.ops(lane.acquire)[0]] and any(
            not duration[self.ops(column)[0]] for column in columns
        )

    def nest_of(self, lanes: Sequence[Lane], lane: Lane) -> list[Lane]:
        """Return a lane and the lanes that acquire before it and release after it, row by row."""
        return [
            outer for outer in lanes if outer is lane or self._encloses(outer, lane)
        ]

    def _encloses(self, outer: Lane, inner: Lane) -> bool:
        if outer.acquire.family != inner.acquire.family:
            return False
        behind = self._follows[inner.acquire]
        return inner.acquire in self._follows[outer.acquire] and all(
            column in behind for column, _ in outer.releases
        )


def _required_releases(
    members: int,
    amount: Fraction,
    ungated: Fraction,
    gated: Fraction,
    available: Fraction,
) -> IntArray:
    """Return the number of releases of the gate that must precede each acquire j."""
    multiples, _ = whole_units((amount, ungated, gated, available), 2 * (members + 1))
    acquired, elsewhere, gate, limit = multiples
    row = np.arange(members).astype(multiples.dtype)
    missing = (row + 1) * acquired - limit - row * elsewhere
    # As many releases as there are say as much as any larger number, and fit 64 bits.
    return np.clip(-(-missing // gate), 0, members).astype(np.int64)

"""The optimum of one device with its memory, while all others run any number of ops at once.

Alike rows run in index order, so a device's state is how many of them have passed each op of its
chain. What its pool holds follows from that, whatever the time: all ops of the pool run on one
resource, so whatever was begun before has ended when the next op starts. What time there is left
depends on few moments: when the device is free, and when each row on its way can go on. Of two
labels of a state, the one that is later in every moment is dropped.

Work behind which nothing on the device waits, as a weight gradient, is loose: it may be
interrupted, and put off until memory or the end asks for it. Let A be the end of the last op and E
that of the work which is there by then. An op that takes memory starts no sooner than E less the
most loose work that may still wait beside it: since A the device has done no more of that work
than the time that has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Pool, Problem
from ppsolve.solver.bounds.one_machine import Reason, largest
from ppsolve.solver.bounds.params import ENDLESS, BoundsEffort, BoundsParams
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.compilation import expect, is_compiled
from ppsolve.solver.kernels.frontier import (
    STATE_FIGURES,
    TALLY,
    DeviceChain,
    FrontierLevels,
    grow_frontier,
)
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import MemoryInfeasible, whole_units
from ppsolve.solver.structure.implied import Column, ImpliedOrder


class FrontierAnswer(NamedTuple):
    """A lower bound on the end of a chain, in ticks; `NEVER` where no order keeps the pool."""

    bound: int
    is_optimum: bool  # nothing was left out or merged
    steps: int  # labels made


class ChainColumns(NamedTuple):
    """Columns of a family on one device: a chain in order, and loose ones by where they follow."""

    chain: list[Column]
    loose: list[
        tuple[int, Column]
    ]  # the last op of the chain before each, and its column


class ColumnAmounts(NamedTuple):
    """Amounts that the ops of each column of a family take and give back, in whole units."""

    acquire: IntArray  # int64[columns]
    release: IntArray  # int64[columns]
    room: int  # free before any op


def frontier(relaxations: Relaxations) -> Reason:
    """Return the largest optimum of a device alone, 0 where it does not raise the bound so far.

    A `MemoryInfeasible` says that no order of a device's ops keeps the capacity of its pool.
    """
    clock, lower = relaxations.clock, relaxations.lower
    best, effort = Reason(lower), BoundsEffort(clock, relaxations.params)
    for resource, chain in device_chains(relaxations):
        if clock.is_over:
            break
        bound = least_end(chain, best.value, effort).bound
        if bound == NEVER:
            name = relaxations.problem.resource_names[resource]
            raise MemoryInfeasible(
                f"memory: no order of the ops of {name} keeps its capacity"
            )
        best = largest((best, Reason(bound, resource)))
    return best if best.value > lower else Reason(0)


def device_chains(relaxations: Relaxations) -> Iterator[tuple[int, DeviceChain]]:
    """Yield each device whose pool serves the ops of one chain of alike rows, and the chain."""
    implied = relaxations.implied
    for order in implied.pools:
        if not len(order.before):
            continue  # the capacity delays nothing
        local = _local_columns(implied, order.pool)
        if local is None:
            continue
        resource, family, columns = local
        amounts = _amounts(implied.problem, order.pool, family)
        if amounts is None:
            continue
        chain = _chain_of(relaxations, family, columns, amounts)
        if chain is not None:
            yield resource, chain


def _local_columns(
    implied: ImpliedOrder, pool: Pool
) -> tuple[int, int, ChainColumns] | None:
    """Return resource, family and columns of a pool's ops; None where these are no chain."""
    problem = implied.problem
    ops = np.union1d(pool.acquire_op, pool.release_op)
    if not len(ops) or not problem.duration[ops].all():
        return None
    shared = set(problem.resources_of(int(ops[0])).tolist())
    for resource in sorted(shared):
        if not np.isin(ops, problem.ops_by_resource[resource]).all():
            continue
        for number, family in enumerate(problem.families):
            if np.isin(ops, family).all() and len(family) > 1:
                columns = _columns_on(implied, resource, number, pool)
                return None if columns is None else (resource, number, columns)
    return None


def _columns_on(
    implied: ImpliedOrder, resource: int, number: int, pool: Pool
) -> ChainColumns | None:
    """Return the columns of a family on a resource as a chain and what is loose behind it.

    None for three of which one takes all, on which memory work was never less.
    """
    problem = implied.problem
    first = problem.families[number][0]
    here = np.isin(first, problem.ops_by_resource[resource])
    here &= problem.duration[first] > 0
    takes = np.isin(first, pool.acquire_op)
    if np.count_nonzero(here) == 3 and np.count_nonzero(takes) == 1:
        return None
    columns = [Column(number, index) for index in np.flatnonzero(here).tolist()]
    behind = {
        column: sum(implied.follows(column, other) for other in columns)
        for column in columns
    }
    columns.sort(key=lambda column: -behind[column])
    if _is_chain(implied, columns):
        return ChainColumns(columns, [])
    chain = [column for column in columns if behind[column]]
    if not chain or not _is_chain(implied, chain):
        return None
    loose = []
    for column in columns[len(chain) :]:
        before = [j for j, op in enumerate(chain) if implied.follows(op, column)]
        if not before or takes[column.index]:
            return None
        loose.append((before[-1], column))
    return ChainColumns(chain, loose)


def _is_chain(implied: ImpliedOrder, columns: list[Column]) -> bool:
    return all(implied.follows(a, b) for a, b in pairwise(columns))


def _amounts(problem: Problem, pool: Pool, number: int) -> ColumnAmounts | None:
    """Return the amounts of a family's columns, None where 64 bits do not hold their sums."""
    family = problem.families[number]
    events = len(pool.acquire_op) + len(pool.release_op) + 1
    units, _ = whole_units((*pool.amounts, pool.limit - pool.initial), 2 * events)
    if units.dtype != np.int64 or units[-1] < 0:
        return None
    by_op = np.zeros((2, problem.num_ops), dtype=np.int64)
    np.add.at(by_op[0], pool.acquire_op, units[pool.acquire_amount])
    np.add.at(by_op[1], pool.release_op, units[pool.release_amount])
    amounts = by_op[:, family]
    if (amounts != amounts[:, :1]).any():
        return None
    return ColumnAmounts(amounts[0, 0], amounts[1, 0], int(units[-1]))


def _chain_of(
    relaxations: Relaxations,
    number: int,
    columns: ChainColumns,
    amounts: ColumnAmounts,
) -> DeviceChain | None:
    """Return a chain for the kernel, None where it has too many rows on their way."""
    implied, params = relaxations.implied, relaxations.params
    duration = implied.problem.duration
    family = implied.problem.families[number]
    index = np.array([column.index for column in columns.chain])
    last = family[-1]
    acquire, change = amounts.acquire[index], (amounts.acquire - amounts.release)[index]
    gives = amounts.release[index] > 0
    work, pending = np.zeros_like(index), []
    for j, column in columns.loose:
        length = int(duration[last[column.index]])
        amount = int(amounts.release[column.index])
        change[j] -= amount
        gives[j] |= amount > 0
        work[j] += length
        pending.append((amount, length))
    rows = _rows_on_their_way(acquire, change, amounts.room, len(family))
    table = _waiting(pending, amounts.room, len(family), params)
    if rows > params.frontier_rows or table is None:
        return None
    delay = [implied.way(a, b) for a, b in pairwise(columns.chain)]
    heads = np.zeros_like(family[:, index])
    tails = np.zeros_like(last)
    if not relaxations.is_on_spans:
        heads = relaxations.strong_heads[family[:, index]]
        tails = (relaxations.full.tails - duration)[last]
    tail = int(tails[index[-1]])
    length = duration[last[index]]
    return DeviceChain(
        duration=length,
        delay=np.array([*delay, 0], dtype=np.int64),
        acquire=acquire,
        change=change,
        loose=work,
        to_end=_to_end(delay, int(length[-1]) + tail),
        to_release=_to_release(delay, length, gives),
        heads=heads.ravel(),
        held=table[0],
        waiting=table[1],
        room=amounts.room,
        members=len(family),
        rows=rows,
        tail=tail,
        loose_tail=min([tail, *(int(tails[op.index]) for _, op in columns.loose)]),
    )


def _rows_on_their_way(
    acquire: IntArray, change: IntArray, room: int, members: int
) -> int:
    """Return the most rows that can have begun and not ended, `members` where none is too many."""
    held = np.cumsum(change)
    if len(held) == 1:
        return 1
    smallest = int(held[:-1].min())
    if held[-1] < 0 or smallest <= 0:
        return members
    return max(1, min(members, room // smallest))


def _waiting(
    pending: list[tuple[int, int]], room: int, members: int, params: BoundsParams
) -> tuple[IntArray, IntArray] | None:
    """Return the most loose work that waits by the amount that it holds, both going up from 0.

    `pending`: amount and work of each loose op. None where there are too many sums.
    """
    sums = {0: sum(members * work for amount, work in pending if not amount)}
    for amount, work in pending:
        if not amount:
            continue
        counts = range(min(members, room // amount) + 1)
        if len(counts) * len(sums) > params.frontier_sums:
            return None
        larger: dict[int, int] = {}
        for held, waiting in sums.items():
            for count in counts:
                total = held + count * amount
                if total <= room:
                    waits = waiting + count * work
                    larger[total] = max(larger.get(total, 0), waits)
        sums = larger
    amounts = sorted(sums)
    largest_sums = np.maximum.accumulate([sums[amount] for amount in amounts])
    return np.array(amounts, dtype=np.int64), largest_sums.astype(np.int64)


def _to_end(delay: list[int], behind: int) -> IntArray:
    return behind + np.cumsum([0, *delay[::-1]], dtype=np.int64)[::-1]


def _to_release(delay: list[int], duration: IntArray, gives: IntArray) -> IntArray:
    """Return the ticks from the start of each op to the end of the first that gives back."""
    ticks = np.full(len(duration), NEVER, dtype=np.int64)
    following = NEVER
    for j in range(len(duration) - 1, -1, -1):
        if gives[j]:
            following = int(duration[j])
        elif following < NEVER:
            following += delay[j]
        ticks[j] = following
    return ticks


def least_end(
    chain: DeviceChain, floor: int = 0, effort: BoundsEffort = ENDLESS
) -> FrontierAnswer:
    """Return a lower bound on the end of a chain in ticks, 0 where its optimum is within a floor.

    Ever wider searches look for an end within the floor first.
    """
    steps = 0
    for width in effort.params.frontier_widths:
        narrow = _Search(chain, floor + 1, effort, width)
        is_within = narrow.run() <= floor
        steps += narrow.steps
        if is_within:
            return FrontierAnswer(0, is_optimum=False, steps=steps)
    search = _Search(chain, NEVER, effort)
    return FrontierAnswer(search.run(), search.is_exact, steps + search.steps)


class _Search:
    """Levels of states of a chain, grown until the last one or until the effort is used up.

    Without a width its value is a lower bound, else the end of some schedule.
    """

    def __init__(
        self, chain: DeviceChain, upper: int, effort: BoundsEffort, width: int = 0
    ) -> None:
        self.upper = upper
        self._chain, (self._clock, self._params) = chain, effort
        self._width = width
        columns = len(chain.duration)
        self._room = (self._params.frontier_states, self._params.frontier_labels)
        self._state_size, self._label_size = columns + STATE_FIGURES, chain.rows + 4
        states, labels = (2 * room for room in self._room)
        self._states = np.zeros(states * self._state_size, dtype=np.int64)
        self._labels = np.zeros(labels * self._label_size, dtype=np.int64)
        self._states[columns + 1] = chain.members * chain.duration.sum()
        self._states[columns + 2] = chain.members * chain.loose.sum()
        self._labels[self._label_size - 1] = FREE
        self._tally = np.zeros(TALLY.size, dtype=np.int64)
        self._tally[TALLY.states], self._tally[TALLY.least_left] = 1, NEVER
        self._level, self._last = 0, chain.members * columns

    @property
    def steps(self) -> int:
        """Labels made."""
        return int(self._tally[TALLY.steps])

    @property
    def is_over(self) -> bool:
        """Whether the last level was reached."""
        return self._level == self._last

    @property
    def is_exact(self) -> bool:
        """Whether no label was left out or merged."""
        return self.is_over and not self._tally[TALLY.merges]

    def run(self) -> int:
        """Go on until enough labels are made; return the least bound of a label, or the limit."""
        steps = self._params.frontier_steps
        while not self.is_over and not self._clock.is_over and self.steps < steps:
            level, before = self._level, self.steps
            self._level = self._grow()
            if self._level == level and not self._widen():
                break
            expect(100 * (self.steps - before))
        if self._width and not self.is_over:
            return self.upper
        return min(self.upper, *self._bounds(), NEVER)

    def _grow(self) -> int:
        params, is_narrow = self._params, self._width > 0
        few = params.frontier_call if is_compiled() else params.frontier_call // 64
        levels = FrontierLevels(
            first=self._level,
            last=self._last,
            states=self._room[0],
            labels=self._room[1],
            merged=NEVER if is_narrow else params.frontier_merged,
            width=self._width if is_narrow else NEVER,
            in_turn=int(is_narrow),
            upper=self.upper,
            steps=min(self.steps + few, params.frontier_steps),
        )
        table = np.full(2 * self._room[0] + 1, -1, dtype=np.int64)
        arrays = self._states, self._labels, table, self._tally
        return int(grow_frontier(self._chain, levels, *arrays))

    def _widen(self) -> bool:
        """Make room for four times as many states and labels; return whether there may be."""
        states, labels = 4 * self._room[0], 4 * self._room[1]
        if 2 * labels * self._label_size > self._params.frontier_words:
            return False
        self._states = _longer(self._states, 2 * states * self._state_size)
        self._labels = _longer(self._labels, 2 * labels * self._label_size)
        self._room = (states, labels)
        return True

    def _bounds(self) -> Iterator[int]:
        """Yield the lower bounds of all labels of the level that was reached."""
        newest, width = len(self._chain.duration) + 3, self._label_size
        for state in range(int(self._tally[TALLY.states])):
            row = (2 * state + self._level % 2) * self._state_size
            number = int(self._states[row + newest])
            while number >= 0:
                yield int(self._labels[number * width + width - 2])
                number = int(self._labels[number * width + width - 1])


def _longer(numbers: IntArray, size: int) -> IntArray:
    """Return numbers with zeros behind them."""
    return np.concatenate([numbers, np.zeros(size - len(numbers), dtype=np.int64)])

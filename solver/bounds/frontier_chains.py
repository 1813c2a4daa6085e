"""Chains of alike rows on one device or several, with the memory of each, for the frontier.

What other devices run becomes delays: the longest ways between the ops that are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Pool, Problem
from ppsolve.solver.bounds.frontier_blocks import ChainMoves, chain_moves
from ppsolve.solver.bounds.params import BoundsParams
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.frontier import DeviceChain, DeviceMoves
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.implied import Column, ImpliedOrder


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


class DeviceOps(NamedTuple):
    """A device whose pool serves the ops of one chain of alike rows."""

    resource: int
    columns: ChainColumns
    amounts: ColumnAmounts
    delays_ops: bool  # whether the capacity puts any ops in an order
    needs_search: bool  # whether simpler rules may miss what its memory forces

    @property
    def family(self) -> int:
        """The family of the rows."""
        return self.columns.chain[0].family


def device_ops(relaxations: Relaxations) -> Iterator[DeviceOps]:
    """Yield each device whose pool serves the ops of one chain of alike rows."""
    implied = relaxations.implied
    for order in implied.pools:
        local = _local_columns(relaxations, order.pool)
        if local is None:
            continue
        resource, columns = local
        family = columns.chain[0].family
        amounts = _amounts(implied.problem, order.pool, family)
        if amounts is None:
            continue
        ops = [*columns.chain, *(column for _, column in columns.loose)]
        takes = sum(amounts.acquire[column.index] > 0 for column in ops)
        # Of three ops of which one takes all, memory work was never less.
        needs_search = len(ops) != 3 or takes != 1
        yield DeviceOps(resource, columns, amounts, len(order.before) > 0, needs_search)


def _local_columns(
    relaxations: Relaxations, pool: Pool
) -> tuple[int, ChainColumns] | None:
    """Return resource and columns of a pool's ops; None where these are no chain."""
    problem = relaxations.problem
    ops = np.union1d(pool.acquire_op, pool.release_op)
    if not len(ops) or not problem.duration[ops].all():
        return None
    shared = set(problem.resources_of(int(ops[0])).tolist())
    for resource in sorted(shared):
        if not np.isin(ops, problem.ops_by_resource[resource]).all():
            continue
        for number, family in enumerate(problem.families):
            if np.isin(ops, family).all() and len(family) > 1:
                columns = _columns_on(relaxations, resource, number, pool)
                return None if columns is None else (resource, columns)
    return None


def _columns_on(
    relaxations: Relaxations, resource: int, number: int, pool: Pool
) -> ChainColumns | None:
    """Return the columns of a family on a resource as a chain and what is loose behind it."""
    problem = relaxations.problem
    first = problem.families[number][0]
    here = np.isin(first, problem.ops_by_resource[resource])
    here &= problem.duration[first] > 0
    takes = np.isin(first, pool.acquire_op)
    columns = [Column(number, index) for index in np.flatnonzero(here).tolist()]
    inside = {column for block in relaxations.blocks for column in block.inside}
    rows = chain_columns(relaxations.implied, columns, inside)
    if rows is None or any(takes[column.index] for _, column in rows.loose):
        return None
    return rows


def chain_columns(
    implied: ImpliedOrder, columns: Sequence[Column], loose: Collection[Column] = ()
) -> ChainColumns | None:
    """Return columns as a chain and the loose ones behind it, None where they are no such rows.

    Some are loose in any case.
    """
    columns = _in_order(implied, columns)
    if not loose and _is_chain(implied, columns):
        return ChainColumns(columns, [])
    behind = {
        column: any(implied.follows(column, other) for other in columns)
        for column in columns
    }
    chain = [column for column in columns if behind[column] and column not in loose]
    if not chain or not _is_chain(implied, chain):
        return None
    pairs = []
    for column in columns:
        if column in chain:
            continue
        before = [j for j, op in enumerate(chain) if implied.follows(op, column)]
        if not before:
            return None
        pairs.append((before[-1], column))
    return ChainColumns(chain, pairs)


def _in_order(implied: ImpliedOrder, columns: Sequence[Column]) -> list[Column]:
    """Return columns by how many of them follow, those with most behind them first."""
    behind = {
        column: sum(implied.follows(column, other) for other in columns)
        for column in columns
    }
    return sorted(columns, key=lambda column: -behind[column])


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


class Gathered(NamedTuple):
    """What a chain of several devices has of each op."""

    device: IntArray  # int64[L]: its device
    acquire: IntArray  # int64[L]
    change: IntArray  # int64[L]
    gives: BoolArray  # bool[L]: whether it or the work behind it gives back
    moves: ChainMoves


def chain_of(
    relaxations: Relaxations, devices: Sequence[DeviceOps]
) -> DeviceChain | None:
    """Return the chain of some devices of one family for the kernel.

    None where its ops are no chain, too many rows are on their way or, for a device span, that of
    the first op has not the last one too.
    """
    implied = relaxations.implied
    columns = [column for device in devices for column in device.columns.chain]
    columns = _in_order(implied, columns)
    if len(devices) > 1 and not _is_chain(implied, columns):
        return None
    gathered = _gather(relaxations, devices, columns)
    begin, end = (int(gathered.device[j]) for j in (0, -1))
    is_span = relaxations.is_on_spans
    if is_span and begin != end:
        return None
    duration = implied.problem.duration
    family = implied.problem.families[columns[0].family]
    index, last = np.array([column.index for column in columns]), family[-1]
    tables = _waiting_tables(relaxations, devices, len(family))
    rows = _rows_between(gathered, devices, len(family))
    if rows > relaxations.params.frontier_rows or tables is None:
        return None
    heads, tails = np.zeros_like(family[:, index]), np.zeros_like(last)
    if not is_span:
        heads = relaxations.strong_heads[family[:, index]]
        tails = (relaxations.full.tails - duration)[last]
    delay = np.array([*(implied.way(a, b) for a, b in pairwise(columns)), 0])
    length = duration[last[index]]
    to_end = int(length[-1] + tails[index[-1]]) + np.cumsum(delay[::-1])[::-1]
    to_device = _to_device(delay, gathered.device, len(devices))
    ends = [int(np.flatnonzero(gathered.device == d)[-1]) for d in range(len(devices))]
    loose_tail = np.array([_loose_tail(device, tails) for device in devices])
    if is_span:
        loose_tail[np.arange(len(devices)) != begin] = -NEVER
    gives = gathered.gives & (gathered.device == begin)
    return DeviceChain(
        device=gathered.device,
        duration=length,
        delay=delay,
        acquire=gathered.acquire,
        change=gathered.change,
        work=gathered.moves.work,
        load=gathered.moves.load,
        to_end=to_end,
        to_release=to_release(delay, length, gives),
        to_device=to_device.ravel(),
        heads=heads.ravel(),
        table=np.cumsum([0, *(len(held) for held, _ in tables)]),
        held=np.concatenate([held for held, _ in tables]),
        waiting=np.concatenate([work for _, work in tables]),
        moves=gathered.moves.moves,
        room=np.array([device.amounts.room for device in devices]),
        tail=np.array([to_end[j] - length[j] for j in ends]),
        loose_tail=loose_tail,
        members=len(family),
        rows=rows,
    )


def _gather(
    relaxations: Relaxations, devices: Sequence[DeviceOps], columns: list[Column]
) -> Gathered:
    """Return amounts, releases and moves of each column of a chain on its device."""
    family = relaxations.problem.families[columns[0].family]
    duration = relaxations.problem.duration[family[-1]]
    position = {column: j for j, column in enumerate(columns)}
    device_of, acquired, change = np.zeros((3, len(columns)), dtype=np.int64)
    gives = np.zeros(len(columns), dtype=np.bool_)
    loose = defaultdict[int, dict[Column, int]](dict)
    for number, device in enumerate(devices):
        acquire, release = device.amounts.acquire, device.amounts.release
        for column in device.columns.chain:
            j = position[column]
            device_of[j] = number
            acquired[j] = acquire[column.index]
            change[j] = acquire[column.index] - release[column.index]
            gives[j] = release[column.index] > 0
        for before, column in device.columns.loose:
            j = position[device.columns.chain[before]]
            loose[j][column] = int(duration[column.index])
            change[j] -= release[column.index]
            gives[j] |= release[column.index] > 0
    length = duration[[column.index for column in columns]]
    moves = chain_moves(
        relaxations.blocks, position, device_of, length, acquired, loose
    )
    return Gathered(device_of, acquired, change, gives, moves)


def _loose_tail(device: DeviceOps, tails: IntArray) -> int:
    """Return the least tail of the last op and of loose ones, from ends to the end of all."""
    ends = [device.columns.chain[-1], *(column for _, column in device.columns.loose)]
    return min(int(tails[column.index]) for column in ends)


def _rows_between(
    gathered: Gathered, devices: Sequence[DeviceOps], members: int
) -> int:
    """Return the most rows that can be between the first and the last op of a chain."""
    begin, end = gathered.device[0], gathered.device[-1]
    if begin != end:
        return members
    change = gathered.change[gathered.device == begin]
    return _rows_on_their_way(change, devices[begin].amounts.room, members)


def _rows_on_their_way(change: IntArray, room: int, members: int) -> int:
    """Return the most rows that can have begun and not ended, `members` where none is too many.

    `change`: what each op of a device adds to the amount in use.
    """
    held = np.cumsum(change)
    if len(held) == 1:
        return 1
    smallest = int(held[:-1].min())
    if held[-1] < 0 or smallest <= 0:
        return members
    return max(1, min(members, room // smallest))


def _waiting_tables(
    relaxations: Relaxations, devices: Sequence[DeviceOps], members: int
) -> list[tuple[IntArray, IntArray]] | None:
    """Return the tables of `_waiting` of each device, None where one has none."""
    tables = []
    for device in devices:
        pending, room = _pending(relaxations.implied, device), device.amounts.room
        table = _waiting(pending, room, members, relaxations.params)
        if table is None:
            return None
        tables.append(table)
    return tables


def _pending(implied: ImpliedOrder, device: DeviceOps) -> list[tuple[int, int]]:
    """Return the amount that each loose op of a device gives back, and its time."""
    family = implied.problem.families[device.family]
    return [
        (
            int(device.amounts.release[column.index]),
            int(implied.problem.duration[family[-1][column.index]]),
        )
        for _, column in device.columns.loose
    ]


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


def to_release(delay: IntArray, duration: IntArray, gives: BoolArray) -> IntArray:
    """Return the ticks from the start of each op to the end of the first that gives back."""
    ticks = np.full(len(duration), NEVER, dtype=np.int64)
    following = NEVER
    for j in range(len(duration) - 1, -1, -1):
        if gives[j]:
            following = int(duration[j])
        elif following < NEVER:
            following += int(delay[j])
        ticks[j] = following
    return ticks


def _to_device(delay: IntArray, device: IntArray, devices: int) -> IntArray:
    """Return the ticks from the start of each op to that of the first on each device, int64[L, K].

    It is 0 for the device of the op itself, `NEVER` for one that has no op behind.
    """
    ticks = np.full((len(delay), devices), NEVER, dtype=np.int64)
    following = np.full(devices, NEVER, dtype=np.int64)
    for j in range(len(delay) - 1, -1, -1):
        following = np.where(following < NEVER, following + delay[j], NEVER)
        following[device[j]] = 0
        ticks[j] = following
    return ticks


def _moves_of(chain: DeviceChain, here: IntArray) -> DeviceMoves:
    """Return the moves of some ops of a chain, numbered anew."""
    moves = chain.moves
    kept = np.isin(moves.op, here)
    partner = np.searchsorted(here, moves.partner)
    return DeviceMoves(
        op=np.searchsorted(here, moves.op[kept]),
        partner=np.where(moves.partner < 0, FREE, partner)[kept],
        ticks=moves.ticks[kept],
        acquire=moves.acquire[kept],
        loose=moves.loose[kept],
    )


def alone(chain: DeviceChain, device: int) -> DeviceChain:
    """Return one of a chain's devices by itself, without earliest starts."""
    here = np.flatnonzero(chain.device == device)
    start = np.cumsum([0, *chain.delay[:-1]])
    table = slice(chain.table[device], chain.table[device + 1])
    return DeviceChain(
        device=np.zeros_like(here),
        duration=chain.duration[here],
        delay=np.append(np.diff(start[here]), 0),
        acquire=chain.acquire[here],
        change=chain.change[here],
        work=chain.work[here],
        load=chain.load[here],
        to_end=chain.to_end[here],
        to_release=chain.duration[here],  # or later
        to_device=np.zeros_like(here),
        heads=np.zeros(chain.members * len(here), dtype=np.int64),
        table=chain.table[device : device + 2] - chain.table[device],
        held=chain.held[table],
        waiting=chain.waiting[table],
        moves=_moves_of(chain, here),
        room=chain.room[[device]],
        tail=chain.tail[[device]],
        loose_tail=chain.loose_tail[[device]],
        members=chain.members,
        rows=_rows_on_their_way(
            chain.change[here], int(chain.room[device]), chain.members
        ),
    )

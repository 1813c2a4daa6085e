"""Heads that count the work which a memory cap forces before an acquire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.params import ENDLESS, BoundsEffort, BoundsParams
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.memory_work import LaneMemory, raise_acquires, working_room
from ppsolve.solver.structure.holds import whole_units
from ppsolve.solver.structure.implied import Column, ImpliedOrder, Lane

MAX_SMALLEST = 2**60
"""Units of the smallest amount up to which the fraction left over is exact: three of them stay
below 64 bits. Beyond, it is rounded up, which lets more fit and only weakens the heads."""


@dataclass(frozen=True)
class ReleaseAmounts:
    """Tables of the releases that make room for an acquire, from the amounts of its lanes.

    Lanes of a regular pipeline have equal amounts on all devices, and share these tables.
    """

    taken: tuple[Fraction, ...]  # that each of the L lanes of a nest takes per row
    shares: tuple[
        Fraction, ...
    ]  # that an op of the first, or second, releases gives back at most
    available: Fraction  # free before any op
    members: int  # number of rows m

    @cached_property
    def _whole(self) -> tuple[IntArray, IntArray, int]:
        """Taken amounts, shares and the available amount in whole units."""
        amounts = (*self.taken, *self.shares, self.available)
        count = 2 * len(self.taken) * (self.members + 1)
        units, _ = whole_units(amounts, count)
        lanes = len(self.taken)
        return units[:lanes], units[lanes:-1], int(units[-1])

    def shortage(self, rows: IntArray) -> IntArray:
        """Return the amount that releases must free before each acquire, in units."""
        acquired, _, available = self._whole
        return (rows + 1).astype(acquired.dtype) * acquired.sum() - available

    def counts(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the numbers of first releases to try before the acquires of some rows.

        They are the least number, and how many from there on; 0 where an acquire fits at once. No
        series has more than j releases per lane before row j.
        """
        acquired, shares, _ = self._whole
        shortage = self.shortage(rows)
        fewest = -(-shortage // shares.sum())
        largest = np.clip(-(-shortage // shares[0]), -1, rows * len(acquired))
        fewest = np.clip(fewest, 0, largest + 1)
        number = np.where(shortage > 0, np.maximum(largest - fewest + 1, 0), 0)
        if len(shares) == 1:
            number = np.minimum(number, 1)
        return fewest.astype(np.int64), number.astype(np.int64)

    @cached_property
    def effort(self) -> int:
        """Number of sums that all choices of all acquires take, as an estimate."""
        rows = np.arange(self.members)
        return int((self.counts(rows)[1] * (rows + 1) * 3).sum())

    def choices(self, step: int) -> tuple[IntArray, IntArray]:
        """Return the least numbers of releases that make room for every `step`-th acquire.

        Rows of choices by acquire, int64[m + 1], and numbers of first and second releases, choice
        by choice, int64[2 * c]. A second release follows a first one, so its number is no larger.
        """
        rows = np.arange(self.members)
        fewest, number = self.counts(rows)
        number[(self.members - 1 - rows) % step > 0] = 0
        row = np.repeat(rows, number)
        first = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
        first += fewest[row]
        second = self._second(row, first)
        kept = second <= first
        pointer = np.concatenate(
            ([0], np.cumsum(np.bincount(row[kept], minlength=len(rows))))
        )
        return pointer.astype(np.int64), np.stack(
            (first[kept], second[kept]), axis=1
        ).ravel()

    def _second(self, row: IntArray, first: IntArray) -> IntArray:
        _, shares, _ = self._whole
        if len(shares) == 1:
            return np.zeros_like(first)
        short = self.shortage(row) - first.astype(shares.dtype) * shares[0]
        needed = np.maximum(-(-short // shares[1]), 0)
        return np.minimum(needed, first + 1).astype(np.int64)

    @cached_property
    def fractions(self) -> tuple[int, int, int, IntArray, IntArray]:
        """The fields ``smallest`` to ``released_over`` of `LaneMemory`."""
        acquired, shares, available = self._whole
        smallest = int(acquired.min())
        number = np.arange(len(acquired) * self.members + 1).astype(shares.dtype)
        released = [number * share for share in shares]
        released += [np.zeros_like(number)] * (2 - len(shares))
        amounts = np.concatenate([np.array([available], dtype=number.dtype), *released])
        times, over = amounts // smallest, amounts % smallest
        if smallest > MAX_SMALLEST:
            over, smallest = -(-over * MAX_SMALLEST // smallest), MAX_SMALLEST
        times = np.minimum(times, MAX_SMALLEST)  # more than all acquires together
        times, over = times.astype(np.int64), over.astype(np.int64)
        return smallest, int(times[0]), int(over[0]), times[1:], over[1:]


class MemoryWork:
    """The work that must precede each acquire on its own resource.

    Before acquire j of a lane, the resource has run its acquires 0..j-1, acquires 0..j of the
    lanes that enclose it, and enough releases to free memory. For any choice of these releases no
    op of the set starts before its head, so for every time c: start >= c + work of the set's ops
    with heads >= c. Nor can more acquires have started by c than fit beside the releases possible
    by then. The least such time over all choices of releases is a head. Together with the tail of
    the last acquires this adds the idle time of the fill (no release has returned yet) to that
    of the drain (no acquire is left).

    `implied`: the problem, n ops, with its implied order.
    `effort`: heads are raised until its clock is over.
    """

    def __init__(self, implied: ImpliedOrder, effort: BoundsEffort = ENDLESS) -> None:
        self._graph, self._clock, params = implied.full, *effort
        self._rounds = params.memory_rounds
        local = list(_local_nests(implied))
        amounts = [_amounts(implied, *fields) for fields in local]
        shared = {entry: entry for entry in dict.fromkeys(amounts)}
        sums = sum(shared[entry].effort for entry in amounts)
        # Both acquires and times are thinned, so that effort falls with the square.
        thinning = max(1, int((sums / params.memory_sums) ** 0.5 + 0.999))
        expect(min(sums, params.memory_sums) / 10)  # most choices are left early
        tables = {entry: _table_of(entry, thinning, params) for entry in shared}
        self._nests = [
            _Nest(implied, lane, nest, tables[entry])
            for (lane, nest, _), entry in zip(local, amounts, strict=True)
        ]

    def raise_heads(self, heads: IntArray) -> IntArray:
        """Return heads, int64[n] in ticks, that count the work before each acquire; none is lower.

        They may be relative to the start of a device.
        """
        for _ in range(self._rounds if self._nests else 0):
            raised = heads.copy()
            for nest in self._nests:
                if self._clock.is_over:
                    break
                nest.raise_heads(raised)
            raised = self._graph.heads(raised)
            if np.array_equal(raised, heads):
                break
            heads = raised
        return heads


def _local_nests(implied: ImpliedOrder) -> Iterator[tuple[Lane, list[Lane], Fraction]]:
    """Yield each lane whose nest is on one resource, the nest, and the room of the pool.

    What acquiring ops give back themselves is back before the next op of the resource starts, so it
    counts for the acquire in question alone: as room that is missing. In a nest of several lanes
    the latest acquire may be one of an enclosing lane, which gives nothing back itself; so there
    the room is left as it is, which only lowers the heads.
    """
    for order in implied.pools:
        room = order.pool.limit - order.holds.base
        for lane in order.lanes:
            nest = implied.nest_of(order.lanes, lane)
            if implied.may_be_instant(lane, nest):
                continue
            kept = lane.kept
            missing = lane.given_back if len(nest) == 1 else Fraction(0)
            nest = [kept if member is lane else member for member in nest]
            if _is_local(implied, nest):
                yield kept, nest, room - missing


def _is_local(implied: ImpliedOrder, nest: list[Lane]) -> bool:
    """Whether all lanes have one release, or two in a fixed order, on one resource.

    No column may belong to two lanes, as its work would then count twice.
    """
    columns = [column for lane in nest for column in lane.columns]
    if len(set(columns)) < len(columns):
        return False
    resources = {
        tuple(implied.problem.resources_of(implied.ops(c)[0])) for c in columns
    }
    counts = {len(lane.releases) for lane in nest}
    return (
        len(resources) == 1
        and len(resources.pop()) == 1
        and (counts == {1} or counts == {2})
        and all(_in_order(implied, lane) is not None for lane in nest)
    )


def _in_order(
    implied: ImpliedOrder, lane: Lane
) -> list[tuple[Column, Fraction]] | None:
    """Return a lane's releases, each after the one before it; None if they have no fixed order."""
    for order in permutations(lane.releases):
        if all(implied.follows(a[0], b[0]) for a, b in pairwise(order)):
            return list(order)
    return None


def _amounts(
    implied: ImpliedOrder, lane: Lane, nest: list[Lane], room: Fraction
) -> ReleaseAmounts:
    series = _series(implied, nest)
    return ReleaseAmounts(
        taken=tuple(member.amount for member in nest),
        shares=tuple(max(share for _, share in releases) for releases in series),
        available=room,
        members=len(implied.ops(lane.acquire)),
    )


def _series(
    implied: ImpliedOrder, nest: list[Lane]
) -> list[list[tuple[Column, Fraction]]]:
    """Return the first, and the second, release of each lane of a nest."""
    releases = [_in_order(implied, lane) or [] for lane in nest]
    return [list(same_rank) for same_rank in zip(*releases, strict=True)]


class _ReleaseTable(NamedTuple):
    """The choices of releases before every `step`-th acquire; times are thinned too."""

    amounts: ReleaseAmounts
    thinning: int
    step: int
    choices: tuple[IntArray, IntArray]


def _table_of(
    amounts: ReleaseAmounts, thinning: int, params: BoundsParams
) -> _ReleaseTable:
    step = max(thinning, (amounts.members - 1) // params.raised_acquires, 1)
    return _ReleaseTable(amounts, thinning, step, amounts.choices(step))


class _Nest:
    """The nest of one lane, and the choices of releases that free memory for its acquires.

    The first releases of all lanes count as one series, the second ones as another. Each op of a
    series counts with the shortest duration and the largest share, which only lowers the heads.
    """

    def __init__(
        self, implied: ImpliedOrder, lane: Lane, nest: list[Lane], table: _ReleaseTable
    ) -> None:
        amounts = table.amounts
        series = [
            [implied.ops(c) for c, _ in releases] for releases in _series(implied, nest)
        ]
        acquires = [implied.ops(member.acquire) for member in nest]
        duration = implied.problem.duration
        shortest = [
            min(int(duration[ops].min()) for ops in releases) for releases in series
        ]
        self._acquires = implied.ops(lane.acquire)
        self._columns = np.stack(
            [*acquires, *(ops for releases in series for ops in releases)]
        )
        self._work = working_room(len(self._columns), amounts.members, len(nest))
        self._room = LaneMemory(
            np.array([member is not lane for member in nest], dtype=np.int64),
            np.array([duration[ops[0]] for ops in acquires], dtype=np.int64),
            np.array([*shortest, 0], dtype=np.int64),
            *amounts.fractions,
            *table.choices,
            table.step,
            table.thinning,
        )

    def raise_heads(self, heads: IntArray) -> None:
        """Raise heads in place: every `step`-th acquire from the last one."""
        columns = np.maximum.accumulate(heads[self._columns], axis=1).ravel()
        raised = heads[self._acquires]
        raise_acquires(self._room, columns, raised, self._work)
        heads[self._acquires] = raised

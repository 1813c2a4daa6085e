"""Heads that count the work which a memory cap forces before an acquire."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.room import ReleaseAmounts
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.memory_work import LaneMemory, raise_acquires, working_room
from ppsolve.solver.structure.implied import Column, ImpliedOrder, Lane

MAX_ACQUIRES = 256
"""Acquires of one lane that are tightened; leaving some out only weakens the heads.

On 51 instances with memory (below 4,000 ops) 16 to 1024 give the same bounds.
"""

MAX_ROUNDS = 8
"""Rounds of tightening and propagation; each is valid by itself, so any number is.

On the 51 instances 1 round loses up to 3.6 % (``scan-4x8-2``), 2 rounds up to 1.8 %; 4, 8 and 16
give the same bounds.
"""

MAX_EFFORT = 10_000_000
"""Sums formed per round; beyond that some acquires and times c are left out, still validly.

On the 51 instances 1 to 100 million give the same bounds, 100,000 loses up to 1.1 % (16 x 48 at
capacity 1p).
"""


MAX_RETURNS = 200_000
"""Numbers of returns before the last acquire times heads, per lane, up to which the last return is
raised; beyond, its head stays as it is. V 16 x 48 at 1.25p has 11,000, which takes 5 % of the time
of all bounds; 1,024 micro-batches with room for all but a few would have 3 million per lane.
"""


class MemoryWork:
    """The work that must precede each acquire on its own resource.

    Before acquire j of a lane, the resource has run its acquires 0..j-1, acquires 0..j of the
    lanes that enclose it, and enough releases to free memory. For any choice of these releases no
    op of the set starts before its head, so for every time c: start >= c + work of the set's ops
    with heads >= c. Nor can more acquires have started by c than fit beside the releases possible
    by then. The least such time over all choices of releases is a head. Together with the tail of
    the last acquires this adds the idle time of the fill (no release has returned yet) to that
    of the drain (no acquire is left). First releases that did not run before the last acquire run
    behind it, one by one, and the last of them has a head of its own: a device that puts all of
    them off until then is late with the last one.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem, n ops, with its implied order.
    clock : Clock, optional
        Heads are raised until it is over.
    """

    def __init__(self, implied: ImpliedOrder, clock: Clock | None = None) -> None:
        self._graph = implied.full
        self._clock = clock or Clock()
        found = list(_local_nests(implied))
        known: dict[ReleaseAmounts, ReleaseAmounts] = {}
        amounts = [_amounts(implied, *parts) for parts in found]
        amounts = [known.setdefault(each, each) for each in amounts]
        effort = sum(each.effort for each in amounts)
        # Both acquires and times are thinned, so the effort falls with the square.
        thinning = max(1, int((effort / MAX_EFFORT) ** 0.5 + 0.999))
        expect(min(effort, MAX_EFFORT) / STEPS_SAVED)
        self._nests = [
            _Nest(implied, lane, nest, each, thinning)
            for (lane, nest, _), each in zip(found, amounts, strict=True)
        ]

    def raise_heads(self, heads: IntArray) -> IntArray:
        """Return heads that count the work before each acquire.

        Parameters
        ----------
        heads : int64[n]
            Valid heads in ticks, e.g. longest paths; for spans, relative to the start of a device.

        Returns
        -------
        int64[n]
            Valid heads in ticks, none lower than in `heads`.
        """
        for _ in range(MAX_ROUNDS if self._nests else 0):
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


STEPS_SAVED = 10
"""Sums of the estimate for each one that is formed: most choices are left early."""


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
            nest = [kept if other is lane else other for other in nest]
            if _is_local(implied, nest):
                yield kept, nest, room - missing


def _is_local(implied: ImpliedOrder, nest: list[Lane]) -> bool:
    """Return true if all lanes have one release, or two in a fixed order, on one resource.

    No column may belong to two lanes, as its work would then count twice.
    """
    columns = [column for lane in nest for column in lane.columns]
    if len(set(columns)) < len(columns):
        return False
    resources = {tuple(implied.problem.resources_of(implied.ops(c)[0])) for c in columns}
    counts = {len(lane.releases) for lane in nest}
    return (
        len(resources) == 1
        and len(resources.pop()) == 1
        and (counts == {1} or counts == {2})
        and all(_in_order(implied, lane) is not None for lane in nest)
    )


def _in_order(implied: ImpliedOrder, lane: Lane) -> list[tuple[Column, Fraction]] | None:
    """Return a lane's releases, each after the one before it; None if they have no fixed order."""
    for order in permutations(lane.releases):
        if all(implied.follows(a[0], b[0]) for a, b in pairwise(order)):
            return list(order)
    return None


def _amounts(implied: ImpliedOrder, lane: Lane, nest: list[Lane], room: Fraction) -> ReleaseAmounts:
    series = _series(implied, nest)
    return ReleaseAmounts(
        taken=tuple(other.amount for other in nest),
        shares=tuple(max(share for _, share in parts) for parts in series),
        available=room,
        members=len(implied.ops(lane.acquire)),
    )


def _series(implied: ImpliedOrder, nest: list[Lane]) -> list[list[tuple[Column, Fraction]]]:
    """Return the first, and the second, release of each lane of a nest."""
    releases = [_in_order(implied, lane) or [] for lane in nest]
    return [list(parts) for parts in zip(*releases, strict=True)]


class _Nest:
    """The nest of one lane, and the choices of releases that free memory for its acquires.

    The first releases of all lanes count as one series, the second ones as another. Each op of a
    series counts with the shortest duration and the largest share, which only lowers the heads.
    """

    def __init__(
        self,
        implied: ImpliedOrder,
        lane: Lane,
        nest: list[Lane],
        amounts: ReleaseAmounts,
        thinning: int,
    ) -> None:
        series = [[implied.ops(c) for c, _ in parts] for parts in _series(implied, nest)]
        acquires = [implied.ops(other.acquire) for other in nest]
        duration = implied.problem.duration
        shortest = [min(int(duration[ops].min()) for ops in parts) for parts in series]
        self._acquires = implied.ops(lane.acquire)
        self._columns = np.stack([*acquires, *(ops for parts in series for ops in parts)])
        is_short = len(amounts.returns) // 2 * self._columns.size <= MAX_RETURNS
        last = _last_return(implied, lane, nest) if is_short else None
        self._final = np.zeros(0, dtype=np.int64) if last is None else implied.ops(last)[-1:]
        self._work = working_room(len(self._columns), amounts.members, len(nest))
        step = max(thinning, (amounts.members - 1) // MAX_ACQUIRES, 1)
        self._room = LaneMemory(
            np.array([other is not lane for other in nest], dtype=np.int64),
            np.array([duration[ops[0]] for ops in acquires], dtype=np.int64),
            np.array([*shortest, 0], dtype=np.int64),
            *amounts.fractions,
            *amounts.choices(step),
            amounts.returns,
            0 if last is None else implied.way(lane.acquire, last),
            step,
            thinning,
        )

    def raise_heads(self, heads: IntArray) -> None:
        """Raise heads in place: every `step`-th acquire from the last one, and the last return."""
        columns = np.maximum.accumulate(heads[self._columns], axis=1).ravel()
        raised, final = heads[self._acquires], heads[self._final]
        raise_acquires(self._room, columns, raised, final, self._work)
        heads[self._acquires], heads[self._final] = raised, final


def _last_return(implied: ImpliedOrder, lane: Lane, nest: list[Lane]) -> Column | None:
    """Return the first release that follows all others of its row.

    None where they have no such order, or might run in part before the acquire of their row, which
    has no length then.
    """
    columns = [parts[0][0] for parts in (_in_order(implied, other) or [] for other in nest)]
    if (implied.problem.duration[implied.ops(lane.acquire)] > 0).all():
        for last in columns:
            if all(column == last or implied.follows(column, last) for column in columns):
                return last
    return None

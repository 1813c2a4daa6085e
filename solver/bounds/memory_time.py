"""Bounds on a flow by the time for which micro-batches hold parts of a pool of memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds.flow.flow import Paths
from ppsolve.solver.structure.implied import ImpliedOrder, Lane, PoolOrder

FloatArray = np.typing.NDArray[np.float64]

_DOWN = 1 - 1e-12
"""Rounds shares and sums down by far more than the error of sums of doubles."""


def memory_time(paths: Paths, replicas: int = 1) -> int:
    """Return the largest bound of a pool by the time for which micro-batches hold parts of it.

    From its acquire on, each micro-batch holds what it cannot have released yet, at least as long
    as the longest path to the release. At no moment do the shares of the pool add up to more than
    1, nor do dual feasible functions of them (Fekete and Schepers 2001), which see that two large
    parts do not fit together. So the makespan is no less than their sum over shares times lengths.
    Replicas share out the micro-batches, each with pools of its own.
    """
    pools = range(len(paths.flow.room))
    return max((_time_of(paths, pool, replicas) for pool in pools), default=0)


def memory_time_of_lanes(
    implied: ImpliedOrder, heads: IntArray, tails: IntArray
) -> int:
    """Return the same bound for alike micro-batches, which hold parts of a pool in lanes.

    Tails are the least times from starts to the end.
    """
    behind = tails - implied.problem.duration
    bounds = (_time_of_lanes(implied, order, heads, behind) for order in implied.pools)
    return max(bounds, default=0)


def _time_of_lanes(
    implied: ImpliedOrder, order: PoolOrder, heads: IntArray, behind: IntArray
) -> int:
    room = float(order.pool.limit - order.holds.base)
    if not order.lanes or room <= 0:
        return 0
    holds = [_lane_holds(implied, lane, room) for lane in order.lanes]
    firsts = np.concatenate([implied.ops(lane.acquire) for lane in order.lanes])
    lasts = [implied.ops(column) for lane in order.lanes for column, _ in lane.releases]
    idle = int(heads[firsts].min()) + int(behind[np.concatenate(lasts)].min())
    return _weighed(holds) + idle


def _lane_holds(implied: ImpliedOrder, lane: Lane, room: float) -> _PositionHolds:
    # All rows hold the same until the same releases.
    duration, releases = implied.problem.duration, []
    for column, amount in lane.releases:
        gap = 0 if column == lane.acquire else implied.way(lane.acquire, column)
        releases.append(
            (max(0, gap + int(duration[implied.ops(column)[0]])), float(amount))
        )
    releases.sort()
    rows = len(implied.ops(lane.acquire))
    moments = np.array([[end for end, _ in releases]])
    held = np.array([[amount for _, amount in releases]])
    return _PositionHolds(
        np.repeat(
            np.cumsum(held[:, ::-1], axis=1)[:, ::-1] / room * _DOWN, rows, axis=0
        ),
        np.repeat(np.diff(moments, axis=1, prepend=0).astype(np.float64), rows, axis=0),
    )


@dataclass(frozen=True)
class _PositionHolds:
    """Shares of the pool, float64[m, n], that micro-batches hold at least so long, in ticks."""

    share: FloatArray
    length: FloatArray


def _time_of(paths: Paths, pool: int, replicas: int) -> int:
    flow = paths.flow
    acquires = np.flatnonzero((flow.pool == pool) & flow.acquire.any(axis=0))
    holds = [_holds_of(paths, pool, position) for position in acquires.tolist()]
    matched = [hold for hold in holds if hold is not None]
    if not matched or len(matched) < len(holds) or flow.room[pool] <= 0:
        return 0
    releases = np.flatnonzero((flow.pool == pool) & flow.release.any(axis=0))
    idle = int(paths.head[:, acquires].min()) + int(paths.tail[:, releases].min())
    return _weighed(matched, replicas) + idle


def _holds_of(paths: Paths, pool: int, position: int) -> _PositionHolds | None:
    """Return the holds of a position; None where its own stage does not release just those."""
    flow = paths.flow
    is_release = (flow.pool == pool) & (flow.stage == flow.stage[position])
    releases = np.flatnonzero(is_release & flow.release.any(axis=0))
    later = releases[releases != position]
    amount = flow.release[:, releases]
    is_matched = bool((amount.sum(axis=1) == flow.acquire[:, position]).all())
    if not is_matched or not paths.precedes[position, later].all():
        return None
    gap = paths.gap(position)[:, releases] + flow.duration[:, [position]]
    moments = np.where(releases == position, 0, gap) + flow.duration[:, releases]
    order = np.argsort(moments, axis=1, kind="stable")
    moments, amount = (
        np.take_along_axis(moments, order, 1),
        np.take_along_axis(amount, order, 1),
    )
    return _PositionHolds(
        _left(amount) / float(flow.room[pool]) * _DOWN,
        np.diff(moments, axis=1, prepend=0).astype(np.float64),
    )


def _left(amount: IntArray) -> IntArray:
    """Return the amounts that are held before each release, int64[m, n]."""
    return np.cumsum(amount[:, ::-1], axis=1)[:, ::-1]


def _weighed(holds: list[_PositionHolds], replicas: int = 1) -> int:
    """Return the largest sum of weighed shares times lengths, for each of some replicas."""
    total = max(
        sum(float((weight(hold.share) * hold.length).sum()) for hold in holds)
        for weight in _weights(holds)
    )
    return math.ceil(total * _DOWN / replicas)


def _weights(
    holds: list[_PositionHolds],
) -> Iterator[Callable[[FloatArray], FloatArray]]:
    """Yield functions of shares whose sum is at most 1 wherever the sum of shares is."""
    for pieces in range(7):
        yield partial(_in_parts, pieces=pieces)
    small = np.unique(np.concatenate([hold.share.ravel() for hold in holds]))
    for threshold in small[(small > 0) & (small <= 0.5)].tolist():
        yield partial(_without_small, threshold=threshold)


def _in_parts(share: FloatArray, pieces: int) -> FloatArray:
    """Round shares so that ``pieces + 1`` of more than 1 / (pieces + 1) do not fit.

    No pieces leave the shares as they are.
    """
    return np.floor((pieces + 1) * share) / pieces if pieces else share


def _without_small(share: FloatArray, threshold: float) -> FloatArray:
    """Let shares below `threshold` count nothing, and what leaves room for none of them as 1."""
    rounded: FloatArray = np.where(share < threshold, 0.0, share)
    return np.where(share > 1 - threshold, 1.0, rounded)

"""Bounds on a flow that follow one micro-batch and count what each other one costs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.flow.flow import Paths
from ppsolve.solver.bounds.params import DEFAULT_PARAMS, BoundsParams

PARTS = 6
"""Weights are multiples of 1 / 6: thirds count where a backward takes twice a forward."""


@dataclass(frozen=True)
class _Side:
    """One end of the part of a chain that is followed, in one direction of time, in ticks."""

    head: IntArray  # int64[m, V], least time before each position
    work: (
        IntArray  # int64[m, V], work on its resource that is done once the position is
    )
    least: IntArray  # int64[V], least time before anything runs on its resource


def passing(
    paths: Paths, companions: int | None = None, params: BoundsParams = DEFAULT_PARAMS
) -> int:
    """Return the largest bound by the way of one micro-batch past all others, in ticks.

    Follow micro-batch i from position u to position v. On every resource on the way each other one
    runs before it or after it. It is before i at u, and its work there delays i; or it is after i
    at v, and its work there follows; or it overtakes i, which then waits on the way for at least
    its shortest op. What comes before u takes at least max(head of i, work of those before), so at
    least any mean of both, with weights p and 1 - p; likewise what comes after v. Each micro-batch
    then costs at least the least of its three terms, whatever the schedule. This is the bound of a
    flow shop by one of its jobs, with heads and tails.

    As many micro-batches as `companions` says pass together with any one, by default all others of
    the flow. The bound is 0 where no two positions in a row occupy resources.
    """
    chain = _chain(paths)
    if len(chain) < 2:
        return 0
    front, back = _side(paths), _side(paths.reversed)
    count = paths.flow.num_microbatches
    passages = _parts(paths, chain, _ends(len(chain), count, params))
    bounds = [_least(paths, front, back, passage, companions) for passage in passages]
    return max(bounds, default=0)


def _chain(paths: Paths) -> list[int]:
    """Return the positions of a longest path on which every op occupies a resource for a while."""
    flow = paths.flow
    busy = np.where(flow.resource == FREE, 0, flow.duration.min(axis=0))
    mean = np.where(busy > 0, flow.duration.mean(axis=0), 0.0)
    length, previous = mean.copy(), np.full(flow.num_positions, FREE)
    for before, after, _ in paths.edges:
        if length[before] + mean[after] > length[after]:
            length[after], previous[after] = length[before] + mean[after], before
    chain, position = [], int(length.argmax())
    while position != FREE:
        chain.append(position)
        position = int(previous[position])
    return [position for position in reversed(chain) if busy[position] > 0]


def _side(paths: Paths) -> _Side:
    flow = paths.flow
    is_shared = flow.resource[:, None] == flow.resource
    comes_first = paths.precedes | np.eye(flow.num_positions, dtype=bool)
    earliest = np.where(is_shared, paths.head.min(axis=0), np.iinfo(np.int64).max).min(
        axis=1
    )
    return _Side(
        paths.head, flow.duration @ (is_shared & comes_first).astype(np.int64), earliest
    )


def _ends(length: int, count: int, params: BoundsParams) -> IntArray:
    """Return the places of a chain at which a part may begin or end."""
    fitting = int((params.chain_terms / count) ** 0.5)
    size = min(length, params.chain_ends, max(2, fitting))
    return np.linspace(0, length - 1, size).astype(np.int64)


@dataclass(frozen=True)
class _Passage:
    """The way from a position to some later one, in ticks per micro-batch."""

    first: int
    last: int
    length: IntArray  # of all ops of the chain from the first to the last one
    gap: IntArray  # least time between these ops
    overtaking: IntArray  # shortest op behind the first one


def _parts(paths: Paths, chain: list[int], stops: IntArray) -> Iterator[_Passage]:
    duration, is_end = paths.flow.duration, set(stops.tolist())
    for begin in stops[:-1].tolist():
        first = chain[begin]
        span = paths.gap(first) + duration[:, [first]] + duration
        length = duration[:, first]
        shortest = duration[:, chain[begin + 1]]
        for index in range(begin + 1, len(chain)):
            last = chain[index]
            length = length + duration[:, last]
            shortest = np.minimum(shortest, duration[:, last])
            if index in is_end:
                yield _Passage(first, last, length, span[:, last] - length, shortest)


def _least(
    paths: Paths, front: _Side, back: _Side, passage: _Passage, companions: int | None
) -> int:
    """Return the bound of a part over all micro-batches and weights, in ticks."""
    duration, first, last = paths.flow.duration, passage.first, passage.last
    before, after = front.work[:, first], back.work[:, last]
    head, tail = front.head[:, first], back.head[:, last]
    busy_head = front.least[first] + before - duration[:, first]
    busy_tail = back.least[last] + after - duration[:, last]
    weight = np.arange(PARTS + 1)[:, None]
    heads = (PARTS - weight) * head + weight * busy_head
    tails = (PARTS - weight) * tail + weight * busy_tail
    costs = np.minimum((weight * before)[:, None], (weight * after)[None])
    best = 0
    for wait in (PARTS,) if not passage.gap.any() else (PARTS // 2, PARTS):
        cost = np.minimum(costs, wait * passage.overtaking)
        fixed = (
            heads[:, None]
            + tails[None]
            - cost
            + PARTS * passage.length
            + (PARTS - wait) * passage.gap
        )
        if companions is None:
            total_cost = cost.sum(axis=2)
        else:  # whoever they are, they cost no less than those that cost least
            total_cost = np.sort(cost, axis=2)[:, :, :companions].sum(axis=2)
            fixed += cost
        best = max(best, int((fixed.max(axis=2) + total_cost).max()))
    return -(-best // PARTS)

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
    paths: Paths, others: int | None = None, params: BoundsParams = DEFAULT_PARAMS
) -> int:
    """Return the largest bound by the way of one micro-batch past all others, in ticks.

    Follow micro-batch i from position u to position v. On every resource on the way each other one
    runs before it or after it. It is before i at u, and its work there delays i; or it is after i
    at v, and its work there follows; or it overtakes i, which then waits on the way for at least
    its shortest op. What comes before u takes at least max(head of i, work of those before), so at
    least any mean of both, with weights p and 1 - p; likewise what comes after v. Each micro-batch
    then costs at least the least of its three terms, whatever the schedule. This is the bound of a
    flow shop by one of its jobs, with heads and tails.

    `paths`: heads and tails of a flow.
    `others`: micro-batches that pass together with any one; by default all others of
        the flow.
    `params`: ends that are tried.
    Returns: ticks; 0 where no two positions in a row occupy resources.
    """
    chain = _chain(paths)
    if len(chain) < 2:
        return 0
    front, back = _side(paths), _side(paths.reversed)
    count = paths.flow.num_microbatches
    parts = _parts(paths, chain, _ends(len(chain), count, params))
    found = [_least(paths, front, back, part, others) for part in parts]
    return max(found, default=0)


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
    least = np.where(is_shared, paths.head.min(axis=0), np.iinfo(np.int64).max).min(
        axis=1
    )
    return _Side(
        paths.head, flow.duration @ (is_shared & comes_first).astype(np.int64), least
    )


def _ends(length: int, count: int, params: BoundsParams) -> IntArray:
    """Return the places of a chain at which a part may begin or end."""
    fitting = int((params.chain_terms / count) ** 0.5)
    most = min(length, params.chain_ends, max(2, fitting))
    return np.linspace(0, length - 1, most).astype(np.int64)


@dataclass(frozen=True)
class _Passage:
    """The way from a position to some later one, in ticks per micro-batch."""

    first: int
    last: int
    length: IntArray  # of all ops of the chain from the first to the last one
    gap: IntArray  # least time between these ops
    overtaking: IntArray  # shortest op behind the first one


def _parts(paths: Paths, chain: list[int], ends: IntArray) -> Iterator[_Passage]:
    duration, is_end = paths.flow.duration, set(ends.tolist())
    for begin in ends[:-1].tolist():
        first = chain[begin]
        way = paths.gap(first) + duration[:, [first]] + duration
        length = duration[:, first]
        shortest = duration[:, chain[begin + 1]]
        for place in range(begin + 1, len(chain)):
            last = chain[place]
            length = length + duration[:, last]
            shortest = np.minimum(shortest, duration[:, last])
            if place in is_end:
                yield _Passage(first, last, length, way[:, last] - length, shortest)


def _least(
    paths: Paths, front: _Side, back: _Side, part: _Passage, others: int | None
) -> int:
    """Return the bound of a part over all micro-batches and weights, in ticks."""
    duration, first, last = paths.flow.duration, part.first, part.last
    before, after = front.work[:, first], back.work[:, last]
    begin, end = front.head[:, first], back.head[:, last]
    busy_begin = front.least[first] + before - duration[:, first]
    busy_end = back.least[last] + after - duration[:, last]
    weight = np.arange(PARTS + 1)[:, None]
    begins = (PARTS - weight) * begin + weight * busy_begin
    ends = (PARTS - weight) * end + weight * busy_end
    costs = np.minimum((weight * before)[:, None], (weight * after)[None])
    best = 0
    for wait in (PARTS,) if not part.gap.any() else (PARTS // 2, PARTS):
        cost = np.minimum(costs, wait * part.overtaking)
        own = (
            begins[:, None]
            + ends[None]
            - cost
            + PARTS * part.length
            + (PARTS - wait) * part.gap
        )
        if others is None:
            rest = cost.sum(axis=2)
        else:  # whoever they are, they cost no less than those that cost least
            rest = np.sort(cost, axis=2)[:, :, :others].sum(axis=2)
            own += cost
        best = max(best, int((own.max(axis=2) + rest).max()))
    return -(-best // PARTS)

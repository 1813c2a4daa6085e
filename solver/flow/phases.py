"""Phases of a flow: how far one micro-batch can be, and what may follow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.kernels.state_search import FlowShape

MAX_PHASES = 4_096
"""Most phases: 8 stages with split backwards have 519, 11 have 4,106, which no search exhausts."""

Before = tuple[tuple[tuple[int, int], ...], ...]
"""By position: the positions before it, each with its lag."""


def shape_of(flow: Flow) -> FlowShape | None:
    """Return the phases and tables that flows of one shape share.

    Parameters
    ----------
    flow : Flow
        The flow.

    Returns
    -------
    FlowShape or None
        None where a state would need more than one moment per micro-batch and resource: ops that
        occupy no resource or take no time, a pool that ops of several resources use, two positions
        of a micro-batch that wait for other resources at once, a release of what was not acquired
        before; or where there are too many phases.
    """
    uses = ((flow.acquire != 0) | (flow.release != 0)).any(axis=0)
    pool = np.where(uses, flow.pool, FREE)
    owners = {(int(p), int(r)) for p, r in zip(pool, flow.resource, strict=True) if p != FREE}
    if (flow.resource == FREE).any() or (flow.duration <= 0).any():
        return None
    if len({p for p, _ in owners}) < len(owners):
        return None
    edges = sorted(zip(flow.after.tolist(), flow.before.tolist(), flow.lag.tolist(), strict=True))
    before = tuple(
        tuple((u, lag) for after, u, lag in edges if after == v) for v in range(flow.num_positions)
    )
    takes: list[bool] = np.any(flow.acquire > 0, axis=0).tolist()
    gives: list[bool] = np.any(flow.release > flow.acquire, axis=0).tolist()
    return _shape(
        before,
        tuple(flow.resource.tolist()),
        tuple(pool.tolist()),
        tuple(takes),
        tuple(gives),
        len(flow.room),
    )


@lru_cache(maxsize=16)
def _shape(
    before: Before,
    resource: tuple[int, ...],
    pool: tuple[int, ...],
    takes: tuple[bool, ...],
    gives: tuple[bool, ...],
    num_pools: int,
) -> FlowShape | None:
    masks = _masks(before)
    if len(masks) > MAX_PHASES:
        return None
    waits = tuple(
        tuple((u, lag) for u, lag in row if resource[u] != resource[v] or lag)
        for v, row in enumerate(before)
    )
    slots = [_waiting(mask, waits) for mask in masks]
    if max(map(len, slots)) > 1:
        return None
    slot = [found[0] if found else FREE for found in slots]
    order = _topological(before)
    moves = _moves(masks, before, waits, slot)
    holds = np.zeros((len(masks), num_pools), dtype=np.int64)
    for number, mask in enumerate(masks):
        holds[number, [pool[v] for v in order if mask >> v & 1 and pool[v] >= 0 and takes[v]]] = 1
        if any(gives[v] and not holds[number, pool[v]] for v in _options(mask, before)):
            return None
    pointer, earlier = _rows([[u for u, _ in row] for row in before])
    done = np.array([[mask >> v & 1 for v in range(len(before))] for mask in masks], dtype=np.int64)
    return FlowShape(
        np.array(resource),
        np.array(pool),
        pointer,
        earlier,
        np.array([lag for row in before for _, lag in row], dtype=np.int64),
        *_rows([_options(mask, before) for mask in masks]),
        *_rows([[v for v in order if not mask >> v & 1] for mask in masks]),
        moves.following,
        done.ravel(),
        np.array(slot),
        moves.gain,
        moves.keeps,
        holds.ravel(),
    )


def _options(mask: int, before: Before) -> list[int]:
    """Return the positions that can be next, by the bits of those that are done."""
    return [
        v
        for v, row in enumerate(before)
        if not mask >> v & 1 and all(mask >> u & 1 for u, _ in row)
    ]


def _masks(before: Before) -> list[int]:
    """Return the sets of positions that can be done, none first, one more than allowed at most."""
    masks, known = [0], {0}
    for mask in masks:
        for v in _options(mask, before):
            new = mask | 1 << v
            if new not in known and len(masks) <= MAX_PHASES:
                known.add(new)
                masks.append(new)
    return masks


def _waiting(mask: int, waits: Before) -> list[int]:
    """Return the positions for which something is under way from another resource."""
    return [
        v for v, row in enumerate(waits) if not mask >> v & 1 and any(mask >> u & 1 for u, _ in row)
    ]


def _topological(before: Before) -> list[int]:
    order: list[int] = []
    mask = 0
    while len(order) < len(before):
        order.append(_options(mask, before)[0])
        mask |= 1 << order[-1]
    return order


class _Moves(NamedTuple):
    """Tables by phase and position, see `FlowShape`."""

    following: IntArray
    gain: IntArray
    keeps: IntArray


def _moves(masks: list[int], before: Before, waits: Before, slot: list[int]) -> _Moves:
    number = {mask: index for index, mask in enumerate(masks)}
    size = len(before)
    following, gain = (np.full(len(masks) * size, FREE, dtype=np.int64) for _ in range(2))
    keeps = np.zeros(len(masks) * size, dtype=np.int64)
    for phase, mask in enumerate(masks):
        for v in _options(mask, before):
            new, at = number[mask | 1 << v], phase * size + v
            following[at] = new
            if slot[new] != FREE:
                gain[at] = max((lag for u, lag in waits[slot[new]] if u == v), default=FREE)
                keeps[at] = slot[new] == slot[phase]
    return _Moves(following, gain, keeps)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Return pointers and values of rows that differ in length."""
    pointer = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return pointer, np.array([value for row in rows for value in row], dtype=np.int64)

"""Bounds on a flow that follow each micro-batch from one resource to a later position."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.flow.paths import Paths
from ppsolve.solver.kernels.one_machine import Drain, empty_orders, least_drain

FEW_NODES = 1000
"""Nodes of the tree of orders per resource at first; more only raise the bound.

Compiled, the 28 published cases of unequal micro-batches take 1 to 24 ms; with 100,000 nodes the
bounds of 7 of them are up to 9 % higher, in up to 0.8 s.
"""


def drain_bound(paths: Paths, resources: list[int], nodes: int = FEW_NODES) -> int:
    """Return the least makespan over the orders in which resources finish micro-batches.

    The k micro-batches that a resource finishes first keep it busy, from their heads on. The one
    finished k-th goes on from then, and a later position takes them all, one by one. Tails alone
    say nothing of one micro-batch after another on that later position.

    Parameters
    ----------
    paths : Paths
        Heads and tails of a flow.
    resources : list of int
        Resources to finish on.
    nodes : int
        Nodes of each tree of orders.

    Returns
    -------
    int
        Lower bound on the makespan in ticks.
    """
    found = [0]
    for resource in resources:
        for drain, tail in _drains(paths, resource):
            orders = empty_orders(nodes, paths.flow.num_microbatches)
            found.append(int(least_drain(drain, orders)) + tail)
    return max(found)


def _drains(paths: Paths, resource: int) -> Iterator[tuple[Drain, int]]:
    """Yield the drain of a resource into the busiest later position, and the least tail of that.

    Of equally busy positions it is the last one.
    """
    flow = paths.flow
    own = np.flatnonzero(flow.resource == resource)
    elsewhere = (flow.resource != resource) & (flow.resource != FREE)
    later = np.flatnonzero(paths.precedes[own].all(axis=0) & elsewhere)
    if not len(own) or not len(later):
        return
    busy = flow.duration.sum(axis=0)
    to = int(max(later, key=lambda position: (busy[position], paths.head[:, position].sum())))
    row, position = paths.ops_of(resource)
    head = paths.head[row, position]
    order = np.argsort(-head, kind="stable")
    drain = Drain(
        head[order],
        flow.duration[row, position][order],
        row[order],
        *_passage(paths, own, elsewhere),
        np.min([paths.gap(position)[:, to] for position in own.tolist()], axis=0),
        flow.duration[:, to].copy(),
        paths.head[:, to].copy(),
        _twins(paths),
    )
    yield drain, int(paths.tail[:, to].min())


def _passage(
    paths: Paths, own: IntArray, elsewhere: np.typing.NDArray[np.bool_]
) -> tuple[IntArray, IntArray, int]:
    """Return the fields ``passage`` to ``begin`` of a drain, of the busiest earlier position."""
    flow = paths.flow
    work = flow.duration[:, own].sum(axis=1)
    earlier = np.flatnonzero(paths.precedes[:, own].all(axis=1) & elsewhere)
    if not len(earlier):
        return np.zeros_like(work), work, 0
    busy = flow.duration.sum(axis=0)
    at = int(max(earlier, key=lambda position: (busy[position], paths.tail[:, position].sum())))
    way = paths.gap(at)[:, own].min(axis=1)
    return flow.duration[:, at].copy(), way + work, int(paths.head[:, at].min())


def _twins(paths: Paths) -> IntArray:
    """Return for each micro-batch the next one with the same durations, or -1."""
    count = paths.flow.num_microbatches
    twins = np.full(count, -1, dtype=np.int64)
    known: dict[bytes, int] = {}
    for number in reversed(range(count)):
        twins[number] = known.get(key := paths.flow.duration[number].tobytes(), -1)
        known[key] = number
    return twins

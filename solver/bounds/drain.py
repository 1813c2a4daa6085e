"""Bounds on a flow by the orders in which a resource finishes its micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ppsolve.models.core.problem import FREE, BoolArray, IntArray
from ppsolve.solver.bounds.flow.flow import Paths, earlier_twins
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.bounds.params import BoundsParams
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.one_machine import Drain, empty_orders, least_drain


def resource_bounds(paths: Paths) -> list[int]:
    """Return the preemptive bound of each resource of a flow by itself, in ticks."""
    duration = paths.flow.duration
    return [
        preemptive_bound(paths.head[ops], duration[ops], paths.tail[ops])
        for ops in map(paths.ops_of, range(paths.flow.num_resources))
    ]


def drain(paths: Paths, params: BoundsParams, nodes: int | None = None) -> int:
    """Return the largest bound of busy resources and what follows, in both directions of time.

    Only the resources with the largest bounds are tried, as many as `params` says, with trees of
    `nodes` nodes, by default the few of `params`.
    """
    values, nodes = resource_bounds(paths), nodes or params.drain_nodes
    busiest = sorted(range(len(values)), key=lambda number: -values[number])
    busiest = busiest[: params.drained_resources]
    return max(
        drain_bound(direction, busiest, nodes) for direction in (paths, paths.reversed)
    )


def larger_drains(paths: Paths, params: BoundsParams, clock: Clock) -> Iterator[int]:
    """Yield the bounds of ever larger trees of orders; the smallest shows how fast they grow.

    No tree is begun that would outlast the clock, as far as the smaller one before it shows.
    """
    took, before = 0.0, params.drain_nodes
    for nodes in (params.drain_nodes, *params.more_nodes):
        if clock.left <= took * nodes / before:
            return
        began = clock.elapsed
        bound = drain(paths, params, nodes)
        took, before = clock.elapsed - began, nodes
        yield bound


def drain_bound(paths: Paths, resources: list[int], nodes: int) -> int:
    """Return the least makespan over the orders in which resources finish micro-batches, in ticks.

    The k micro-batches that a resource finishes first keep it busy, from their heads on. The one
    finished k-th goes on from then, and a later position takes them all, one by one. Each tree of
    orders has `nodes` nodes.
    """
    bounds = [0]
    for resource in resources:
        for towards, tail in _drains(paths, resource):
            orders = empty_orders(nodes, paths.flow.num_microbatches)
            bounds.append(int(least_drain(towards, orders)) + tail)
    return max(bounds)


def _drains(paths: Paths, resource: int) -> Iterator[tuple[Drain, int]]:
    """Yield the drain of a resource into the busiest later position, and the least tail of that.

    Of equally busy positions it is the last one.
    """
    flow = paths.flow
    positions = np.flatnonzero(flow.resource == resource)
    elsewhere = (flow.resource != resource) & (flow.resource != FREE)
    later = np.flatnonzero(paths.precedes[positions].all(axis=0) & elsewhere)
    if not len(positions) or not len(later):
        return
    busy = flow.duration.sum(axis=0)
    to = int(
        max(later, key=lambda position: (busy[position], paths.head[:, position].sum()))
    )
    row, position = paths.ops_of(resource)
    head = paths.head[row, position]
    order = np.argsort(-head, kind="stable")
    towards = Drain(
        head[order],
        flow.duration[row, position][order],
        row[order],
        *_passage(paths, positions, elsewhere),
        np.min([paths.gap(position)[:, to] for position in positions.tolist()], axis=0),
        flow.duration[:, to].copy(),
        paths.head[:, to].copy(),
        _later_twins(flow.duration),
    )
    yield towards, int(paths.tail[:, to].min())


def _passage(
    paths: Paths, positions: IntArray, elsewhere: BoolArray
) -> tuple[IntArray, IntArray, int]:
    """Return the fields ``passage`` to ``begin`` of a drain, of the busiest earlier position."""
    flow = paths.flow
    work = flow.duration[:, positions].sum(axis=1)
    earlier = np.flatnonzero(paths.precedes[:, positions].all(axis=1) & elsewhere)
    if not len(earlier):
        return np.zeros_like(work), work, 0
    busy = flow.duration.sum(axis=0)
    busiest = int(
        max(
            earlier,
            key=lambda position: (busy[position], paths.tail[:, position].sum()),
        )
    )
    gap = paths.gap(busiest)[:, positions].min(axis=1)
    return (
        flow.duration[:, busiest].copy(),
        gap + work,
        int(paths.head[:, busiest].min()),
    )


def _later_twins(table: IntArray) -> IntArray:
    """Return for each row of a table the next later row that is the same, or -1."""
    twins = earlier_twins(table[::-1])[::-1]
    return np.where(twins < 0, -1, len(table) - 1 - twins)

"""Lower bounds on the makespan of a flow: each micro-batch passes, in an order that is free."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.lower_bounds import Bound
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.drains import drain_bound
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.paths import Paths
from ppsolve.solver.kernels.machine import Ends, Jobs, empty_tree, least_end_with_ends

MAX_PAIRS = 300
"""Pairs of a first and a last op that are tried per resource; more only raise the bound.

On the 28 published cases of unequal micro-batches 30 lose up to 1.8 % of the best bound.
"""


MAX_DRAINS = 2
"""Resources from which micro-batches are followed, those that take longest by themselves. On the 28
cases it is always the last device that gives the best bound."""


def flow_bounds(flow: Flow, clock: Clock | None = None) -> list[Bound]:
    """Return lower bounds on the makespan of a flow, strongest first.

    Parameters
    ----------
    flow : Flow
        Micro-batches that may pass in any order.
    clock : Clock, optional
        Once it is over, no further rule is begun.

    Returns
    -------
    list of Bound
        Each in ticks, valid for every schedule; ties keep the simpler rule first.
    """
    paths, clock = Paths(flow), clock or Clock()
    found: list[Bound] = []
    for name, rule in RULES.items():
        if found and clock.is_over:
            break
        found.append(Bound(name, rule(paths)))
    return sorted(found, key=lambda bound: -bound.value)


def longest_path(paths: Paths) -> int:
    """Return the longest path of a micro-batch in ticks."""
    return int((paths.head + paths.flow.duration + paths.tail).max(initial=0))


def one_machine(paths: Paths) -> int:
    """Return the largest preemptive bound of a resource in ticks."""
    return max(_alone_on_each(paths), default=0)


def ends(paths: Paths) -> int:
    """Return the largest bound of a resource that tries which ops come first and last.

    All others run between them. Where memory cannot hold a micro-batch beside any other one, it has
    not both the first and the last op of its device.

    Parameters
    ----------
    paths : Paths
        Heads and tails of the flow.

    Returns
    -------
    int
        Ticks.
    """
    return max((_ends_of(paths, number) for number in range(paths.flow.num_resources)), default=0)


def drain(paths: Paths) -> int:
    """Return the largest bound of busy resources and what follows, in both directions of time.

    Parameters
    ----------
    paths : Paths
        Heads and tails of the flow.

    Returns
    -------
    int
        Ticks.
    """
    values = _alone_on_each(paths)
    busiest = sorted(range(len(values)), key=lambda number: -values[number])[:MAX_DRAINS]
    return max(drain_bound(paths, busiest), drain_bound(paths.reversed, busiest))


RULES: dict[str, Callable[[Paths], int]] = {
    "path": longest_path,
    "one-machine": one_machine,
    "ends": ends,
    "drain": drain,
}
"""Every lower bound on a flow by name, the simpler one first."""


def _alone_on_each(paths: Paths) -> list[int]:
    """Return the preemptive bound of each resource in ticks."""
    duration, resources = paths.flow.duration, range(paths.flow.num_resources)
    return [
        preemptive_bound(paths.head[ops], duration[ops], paths.tail[ops])
        for ops in (_ops_of(paths, number) for number in resources)
    ]


def _ops_of(paths: Paths, resource: int) -> tuple[IntArray, IntArray]:
    """Return micro-batches and positions of the ops that occupy a resource."""
    positions = np.flatnonzero(paths.flow.resource == resource)
    row, column = np.nonzero(paths.flow.duration[:, positions])
    return row, positions[column]


def _ends_of(paths: Paths, resource: int) -> int:
    flow = paths.flow
    row, position = _ops_of(paths, resource)
    order = np.argsort(-paths.tail[row, position], kind="stable")
    row, position = row[order], position[order]
    head = paths.head[row, position]
    by_head = np.argsort(head, kind="stable")
    by_tail = np.arange(len(row))[::-1]
    first, last = end_positions(paths, resource)
    candidates = Ends(
        by_head[np.isin(position[by_head], first)],
        by_tail[np.isin(position[by_tail], last)],
        row,
        _alone(flow, resource, first, last),
    )
    jobs = Jobs(head, flow.duration[row, position], paths.tail[row, position])
    leaf = np.argsort(by_head, kind="stable")
    return int(least_end_with_ends(jobs, leaf, candidates, empty_tree(len(row)), MAX_PAIRS))


def end_positions(paths: Paths, resource: int) -> tuple[IntArray, IntArray]:
    """Return the positions of a resource that may come first, and those that may come last.

    Parameters
    ----------
    paths : Paths
        V positions of a flow.
    resource : int
        The resource.

    Returns
    -------
    first, last : int64[a], int64[b]
        Positions that no other one of the resource must come before, or after.
    """
    positions = np.flatnonzero(paths.flow.resource == resource)
    if (paths.flow.duration[:, positions] == 0).any():
        return positions, positions  # what only an op of length zero comes before may be the first
    inner = paths.precedes[np.ix_(positions, positions)]
    return positions[~inner.any(axis=0)], positions[~inner.any(axis=1)]


def _alone(flow: Flow, resource: int, first: IntArray, last: IntArray) -> IntArray:
    """Return 1 for each micro-batch that leaves no room for some other one, int64[m].

    It then cannot have both the first and the last op of the resource.
    """
    held, pool = held_throughout(flow, first, last)
    if pool == FREE or len(held) == 1:
        return np.zeros(len(held), dtype=np.int64)
    largest = largest_acquire(flow, resource, pool)
    order = np.argsort(-largest)
    others = np.full(len(held), largest[order[0]])
    others[order[0]] = largest[order[1]]
    alone: IntArray = (held + others > flow.room[pool]).astype(np.int64)
    return alone


def held_throughout(flow: Flow, first: IntArray, last: IntArray) -> tuple[IntArray, int]:
    """Return the amounts that micro-batches hold between the first and last op of a resource.

    Parameters
    ----------
    flow : Flow
        m micro-batches.
    first, last : int64[a], int64[b]
        Positions that may come first, and last.

    Returns
    -------
    held : int64[m]
        Amount acquired by its first op and not released before its last one.
    pool : int
        Pool that it is held in, `FREE` where none is known.
    """
    held = np.zeros(flow.num_microbatches, dtype=np.int64)
    if len(first) != 1 or len(last) != 1:
        return held, FREE
    pool = int(flow.pool[first[0]])
    if pool == FREE or flow.pool[last[0]] != pool:
        return held, FREE
    others = np.flatnonzero(flow.pool == pool)
    released = flow.release[:, others].sum(axis=1) - flow.release[:, last[0]]
    return flow.acquire[:, first[0]] - released, pool


def largest_acquire(flow: Flow, resource: int, pool: int) -> IntArray:
    """Return the largest amount that each micro-batch acquires at once, int64[m].

    Parameters
    ----------
    flow : Flow
        m micro-batches.
    resource : int
        Resource whose ops count.
    pool : int
        The pool.

    Returns
    -------
    int64[m]
        Units of the pool.
    """
    local = (flow.pool == pool) & (flow.resource == resource)
    amount: IntArray = flow.acquire[:, local].max(axis=1)
    return amount

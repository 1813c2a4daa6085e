"""Lower bounds on the makespan of a flow: each micro-batch passes, in an order that is free."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.board import Bound
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.drains import FEW_NODES, drain_bound
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.holds import memory_time
from ppsolve.solver.flow.passing import passing
from ppsolve.solver.flow.paths import Paths
from ppsolve.solver.kernels.compilation import is_compiled
from ppsolve.solver.kernels.one_machine import Ends, Jobs, empty_tree, least_end_with_ends

MAX_PAIRS = 30
"""Pairs of a first and a last op that are tried per resource; more only raise the bound.

On the 28 published cases of unequal micro-batches and 512 recorded replica-steps 10 to 30,000
give the same best bounds.
"""

MAX_DRAINS = 2
"""Resources from which micro-batches are followed, those that take longest by themselves. On the 28
cases the first one gives the best bound; of 150 random pipelines with uneven stages in 106, the
second one in 32."""

MORE_NODES = (20_000, 100_000, 500_000)
"""Nodes of trees that are tried where schedule and bound do not meet."""


def flow_bounds(flow: Flow, clock: Clock | None = None, goal: float = math.inf) -> list[Bound]:
    """Return lower bounds on the makespan of a flow, strongest first.

    Parameters
    ----------
    flow : Flow
        Micro-batches that may pass in any order.
    clock : Clock, optional
        Once it is over, no further rule is begun.
    goal : float
        Ticks; nor once a bound is as large as this.

    Returns
    -------
    list of Bound
        Each in ticks, valid for every schedule; ties keep the simpler rule first.
    """
    return strongest_first(flow_bounds_in_turn(flow, clock, goal))


def strongest_first(bounds: Iterable[Bound]) -> list[Bound]:
    """Return bounds by value, the largest first; equals stay in their order."""
    return sorted(bounds, key=lambda bound: -bound.value)


def flow_bounds_in_turn(
    flow: Flow, clock: Clock | None = None, goal: float = math.inf
) -> Iterator[Bound]:
    """Yield lower bounds on the makespan of a flow as they are found.

    Parameters
    ----------
    flow : Flow
        Micro-batches that may pass in any order.
    clock : Clock, optional
        Once it is over, no further rule is begun; the first one always is.
    goal : float
        Ticks; nor once a bound is as large as this.

    Yields
    ------
    Bound
        Ticks, valid for every schedule; the simpler rule first.
    """
    paths, clock = Paths(flow), clock or Clock()
    for name, rule in RULES.items():
        found = Bound(name, rule(paths))
        yield found
        if clock.is_over or found.value >= goal:
            return


def deeper_bounds(flow: Flow, clock: Clock) -> Iterator[Bound]:
    """Yield ever larger bounds of ever larger trees of orders, while the time allows.

    Parameters
    ----------
    flow : Flow
        Micro-batches that may pass in any order.
    clock : Clock
        No tree is begun that would last longer, as far as the one before it shows.

    Yields
    ------
    Bound
        Ticks; none where kernels are not compiled, as a larger tree would take seconds.
    """
    paths, took = Paths(flow), 0.0
    for nodes, more in pairwise((FEW_NODES, *MORE_NODES)):
        if not is_compiled() or clock.left <= took * more / nodes:
            return
        began = clock.elapsed
        yield Bound("drain", drain(paths, more))
        took = clock.elapsed - began


def longest_path(paths: Paths) -> int:
    """Return the longest path of a micro-batch in ticks."""
    return int((paths.head + paths.flow.duration + paths.tail).max(initial=0))


def one_machine(paths: Paths) -> int:
    """Return the largest preemptive bound of a resource in ticks."""
    return max(paths.alone, default=0)


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


def drain(paths: Paths, nodes: int = FEW_NODES) -> int:
    """Return the largest bound of busy resources and what follows, in both directions of time.

    Parameters
    ----------
    paths : Paths
        Heads and tails of the flow.
    nodes : int
        Nodes of each tree of orders.

    Returns
    -------
    int
        Ticks.
    """
    values = paths.alone
    busiest = sorted(range(len(values)), key=lambda number: -values[number])[:MAX_DRAINS]
    return max(drain_bound(way, busiest, nodes) for way in (paths, paths.reversed))


RULES: dict[str, Callable[[Paths], int]] = {
    "path": longest_path,
    "one-machine": one_machine,
    "passing": passing,
    "ends": ends,
    "drain": drain,
    "memory-time": memory_time,
}
"""Every lower bound on a flow by name, those that take milliseconds first: where kernels are not
compiled and the machine is busy, trees of orders take all the time there is."""


def _ends_of(paths: Paths, resource: int) -> int:
    flow = paths.flow
    row, position = paths.ops_of(resource)
    order = np.argsort(-paths.tail[row, position], kind="stable")
    row, position = row[order], position[order]
    head = paths.head[row, position]
    by_head = np.argsort(head, kind="stable")
    by_tail = np.arange(len(row))[::-1]
    first, last = end_positions(paths, resource)
    may_begin, may_end = np.zeros((2, flow.num_positions), dtype=bool)
    may_begin[first] = may_end[last] = True
    candidates = Ends(
        by_head[may_begin[position[by_head]]],
        by_tail[may_end[position[by_tail]]],
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

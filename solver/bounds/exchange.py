"""Lower bounds on the slowest of several replicas that share out the micro-batches of a step."""

from __future__ import annotations

from heapq import heapify, heappushpop

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.solver.bounds.flow.flow import Flow, Paths
from ppsolve.solver.bounds.memory_time import memory_time
from ppsolve.solver.bounds.passing import passing


def exchange_bound(flow: Flow, replicas: int, *, equal: bool = True) -> int:
    """Return a lower bound on the makespan of the slowest replica, over all assignments.

    Per resource, the slowest replica takes at least as long as the mean of least head + load +
    least tail, where heads and tails of all replicas belong to different micro-batches; and as long
    as the lightest sets of micro-batches that some replica must take of the heaviest ones. The
    memory of all replicas holds every micro-batch for as long as it takes. Whoever shares a replica
    with a long micro-batch passes it.

    The flow has all M micro-batches of the step for K alike replicas; each takes M / K of them, or
    any number where `equal` is false, none included.
    """
    paths = Paths(flow)
    companions = flow.num_microbatches // replicas - 1 if equal else 0
    longest = int((paths.head + flow.duration + paths.tail).max())
    bounds = [longest, memory_time(paths, replicas), passing(paths, companions)]
    for resource in range(flow.num_resources):
        first, last = _end_positions(paths, resource)
        if not len(first):
            continue
        load = flow.duration[:, flow.resource == resource].sum(axis=1)
        head = _least(paths.head[:, first], flow.duration[:, first])
        tail = _least(paths.tail[:, last], flow.duration[:, last])
        is_apart = equal and flow.num_microbatches > replicas
        is_apart = is_apart and _leaves_no_room(flow, resource, first, last)
        bounds.append(_mean(load, head, tail, replicas, equal=equal, is_apart=is_apart))
        bounds.append(
            _heaviest(load, replicas, equal=equal) + int(head.min() + tail.min())
        )
    return max(bounds)


def _end_positions(paths: Paths, resource: int) -> tuple[IntArray, IntArray]:
    """Return the positions of a resource that may come first, and those that may come last."""
    positions = np.flatnonzero(paths.flow.resource == resource)
    if (paths.flow.duration[:, positions] == 0).any():
        return (
            positions,
            positions,
        )  # an op of length zero before another one says nothing
    inner = paths.precedes[np.ix_(positions, positions)]
    return positions[~inner.any(axis=0)], positions[~inner.any(axis=1)]


def _least(times: IntArray, duration: IntArray) -> IntArray:
    """Return the least head or tail of each micro-batch, int64[M]; 0 where an op has no length."""
    return np.where((duration == 0).any(axis=1), 0, times.min(axis=1))


def _leaves_no_room(flow: Flow, resource: int, first: IntArray, last: IntArray) -> bool:
    """Whether no micro-batch can have both the first and the last op beside any other one.

    That is where the least amounts that one holds throughout, and another one acquires at once,
    exceed the pool.
    """
    if len(first) != 1 or len(last) != 1 or (pool := int(flow.pool[first[0]])) == FREE:
        return False
    if flow.pool[last[0]] != pool:
        return False
    used = flow.pool == pool
    released = flow.release[:, used].sum(axis=1) - flow.release[:, last[0]]
    held = flow.acquire[:, first[0]] - released
    amount = flow.acquire[:, used & (flow.resource == resource)].max(axis=1)
    order = np.argsort(amount)
    beside = np.full(len(held), amount[order[0]])
    beside[order[0]] = amount[order[1]]
    return bool((held + beside > flow.room[pool]).all())


def _mean(
    load: IntArray,
    head: IntArray,
    tail: IntArray,
    replicas: int,
    *,
    equal: bool,
    is_apart: bool,
) -> int:
    """Return the least mean of head + load + tail over the replicas that take part."""
    total = int(load.sum())
    if is_apart:
        return -(-(total + apart_sum(head, tail, replicas)) // replicas)
    idle = np.cumsum(np.sort(head)) + np.cumsum(np.sort(tail))
    largest = min(replicas, len(load))
    taking_part = range(largest if equal else 1, largest + 1)
    return min(-(-(total + int(idle[count - 1])) // count) for count in taking_part)


def apart_sum(head: IntArray, tail: IntArray, count: int) -> int:
    """Return the least sum of `count` heads and `count` tails of different micro-batches.

    Sorted by head - tail, some least choice takes its heads before its tails: exchanging a head and
    a tail that are the other way round never adds to the sum. So every cut of that order is tried.
    There are at least 2 * count micro-batches.
    """
    order = np.argsort(head - tail, kind="stable")
    heads = _least_sums(head[order], count)
    tails = _least_sums(tail[order][::-1], count)[::-1]
    return int(
        (
            heads[count : len(head) - count + 1] + tails[count : len(tail) - count + 1]
        ).min()
    )


def _least_sums(values: IntArray, count: int) -> IntArray:
    """Return the sum of the `count` least of each prefix, int64[M + 1]; 0 where it has fewer."""
    kept = [-value for value in values[:count].tolist()]
    heapify(kept)
    sums = [0] * count + [-sum(kept)]
    for value in values[count:].tolist():
        sums.append(sums[-1] + value + heappushpop(kept, -value))
    return np.array(sums, dtype=np.int64)


def _heaviest(load: IntArray, replicas: int, *, equal: bool) -> int:
    """Return the largest load that some replica must take.

    Of the q K + 1 heaviest micro-batches some replica takes at least q + 1, and with equal counts
    it takes others beside, no lighter than the lightest.
    """
    heaviest = np.sort(load)[::-1]
    quota = len(load) // replicas
    lightest = np.concatenate([[0], np.cumsum(heaviest[::-1])])
    best = 0
    for rounds in range(-(-len(load) // replicas)):
        heavy = int(heaviest[rounds * replicas - rounds : rounds * replicas + 1].sum())
        best = max(
            best, heavy + (int(lightest[max(0, quota - rounds - 1)]) if equal else 0)
        )
    return best

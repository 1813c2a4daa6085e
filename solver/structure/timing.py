"""From op orders to earliest starts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

import numpy as np

from ppsolve.models.core.dag import Edges, chain_edges, find_cycle
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError
from ppsolve.solver.kernels.heaps import empty_heaps
from ppsolve.solver.kernels.longest_paths import (
    FirstComeState,
    FirstComeUse,
    earliest_starts,
    serve_first_come,
    sort_ops,
)
from ppsolve.solver.kernels.records import PrecedenceGraph, ResourceUse
from ppsolve.solver.structure.tables import graph_of, joined, resource_use_of


def time_orders(
    problem: Problem, orders: Sequence[IntArray], extra: Edges | None = None
) -> Schedule:
    """Start every op as early as the orders allow.

    Every op starts at the largest of: the end of the op before it in an order, the end of each
    predecessor plus its lag, its release time, its pinned start. A resource whose ops are not all
    in one of the orders serves them first come first served, ties by op number. An op that is in no
    order runs as soon as it is ready.

    Further precedences `extra`, such as those of a fused backward whose halves are separate ops,
    become the waits of the schedule. Where an order makes a pinned start impossible, that op starts
    later than its pin; memory is ignored. The checker reports both. A `DeadlockError` names the ops
    of a short cycle of orders and precedences.
    """
    edges = [chain_edges(orders), *([extra] if extra is not None else [])]
    graph = graph_of(problem, *edges)
    start = np.full(problem.num_ops, FREE, dtype=np.int64)
    served = _first_come_seats(problem, orders)
    if len(served.resource):
        _serve(problem, graph, served, start)
    else:
        _follow(graph, start)
    if start.min(initial=0) == FREE:
        raise DeadlockError(problem.op_names(short_cycle(problem, *edges)))
    return Schedule(problem, start, extra)


def _first_come_seats(problem: Problem, orders: Sequence[IntArray]) -> ResourceUse:
    """Return, by op, its resources whose ops are not all in one order."""
    use = resource_use_of(problem)
    owner = np.repeat(np.arange(problem.num_ops), np.diff(use.pointer))
    users = np.bincount(use.resource, minlength=problem.num_resources)
    ordered = np.zeros(problem.num_resources, dtype=np.bool_)
    member = np.zeros(problem.num_ops, dtype=np.bool_)
    for order in orders:
        member[:] = False
        member[order] = True
        inside = np.bincount(
            use.resource[member[owner]], minlength=problem.num_resources
        )
        ordered |= inside == users
    served = ~ordered[use.resource]
    sizes = np.bincount(owner[served], minlength=problem.num_ops)
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return ResourceUse(pointer, use.resource[served], problem.num_resources)


def _follow(graph: PrecedenceGraph, start: IntArray) -> None:
    """Start ops as soon as precedences allow, apart from those that wait for a cycle."""
    order = np.zeros_like(start)
    reached = order[: sort_ops(graph, graph.num_predecessors.copy(), order)]
    earliest = graph.earliest.copy()
    earliest_starts(graph, reached, earliest)
    start[reached] = earliest[reached]


def _serve(
    problem: Problem, graph: PrecedenceGraph, served: ResourceUse, start: IntArray
) -> None:
    """Start ops as soon as precedences and resources that serve first come allow."""
    state = FirstComeState(
        graph.num_predecessors.copy(),
        np.zeros(problem.num_resources, dtype=np.int64),
        empty_heaps(np.array([problem.num_ops])),
        graph.earliest.copy(),
    )
    serve_first_come(graph, _first_come_use(problem, served), state, start)


def _first_come_use(problem: Problem, served: ResourceUse) -> FirstComeUse:
    """Return the resources with the intervals that pinned ops keep free."""
    owner = np.repeat(np.arange(problem.num_ops), np.diff(served.pointer))
    held = problem.pinned[owner] != FREE
    resource, op = served.resource[held], owner[held]
    order = np.lexsort((problem.pinned[op], resource))
    begin, numbers = problem.pinned[op[order]], np.arange(problem.num_resources + 1)
    pointer = np.searchsorted(resource[order], numbers).astype(np.int64)
    end = begin + problem.duration[op[order]]
    return FirstComeUse(served, problem.pinned, pointer, begin, end)


def short_cycle(problem: Problem, *edges: Edges, searches: int = 64) -> list[int]:
    """Return a short cycle of precedences that have one, each op waiting for the one before it.

    The smallest op number comes first. A shorter cycle is searched from so many ops of a cycle;
    with fewer searches it may be longer.
    """
    before, after, _ = joined(problem, *edges)
    followers: dict[int, list[int]] = defaultdict(list)
    for first, second in zip(before.tolist(), after.tolist(), strict=True):
        followers[first].append(second)
    best = find_cycle(before, after)
    for origin in sorted(best)[:searches]:
        best = _shortest_through(followers, origin, len(best)) or best
    first = best.index(min(best))
    return best[first:] + best[:first]


def _shortest_through(
    followers: Mapping[int, list[int]], origin: int, limit: int
) -> list[int] | None:
    """Return the shortest cycle through `origin`, None unless it is shorter than `limit`."""
    parent = {origin: origin}
    frontier = deque([(origin, 1)])
    while frontier:
        op, length = frontier.popleft()
        if length >= limit:
            return None
        for waiter in followers.get(op, ()):
            if waiter == origin:
                path = [op]
                while path[-1] != origin:
                    path.append(parent[path[-1]])
                return path[::-1]
            if waiter not in parent:
                parent[waiter] = op
                frontier.append((waiter, length + 1))
    return None

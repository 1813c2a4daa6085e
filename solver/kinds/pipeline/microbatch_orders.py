"""Unequal micro-batches in other orders: by size, by clusters, and the best that a search finds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import (
    DeadlockError,
    HeuristicFailedError,
    NotApplicableError,
)
from ppsolve.models.kinds.pipeline.entries import sums_of
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.bounds.flow.evaluator import Evaluator, Timed, follows_orders
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from ppsolve.solver.bounds.flow.patterns import Pattern
from ppsolve.solver.bounds.flow.search import FLOW_SEARCH, PermutationSearch
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kinds.pipeline.adapters import adapted
from ppsolve.solver.kinds.pipeline.collectives import WITH_COLLECTIVES
from ppsolve.solver.kinds.pipeline.event_driven.schedulers import DYNAPIPE, EVENT_DRIVEN
from ppsolve.solver.kinds.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.kinds.pipeline.published import (
    A_PIPELINE,
    ONE_PIPE,
    PUBLISHED,
    UNEQUAL,
)
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import time_orders

PATTERNS = tuple(
    heuristic
    for heuristic in (*PUBLISHED, *EVENT_DRIVEN)
    if ONE_PIPE in heuristic.requirements
)
"""Published schedules of one pipe, under which micro-batches may take any order."""

# These two run the orders of others (`wait-free-cyclic`, `interleaved-1f1b`) and wait at barriers
# besides, so that they are never the best.
_WITH_BARRIERS = ("cyclic", "interleaved-cyclic-1f1b")
_FREE_PATTERNS = tuple(
    pattern for pattern in PATTERNS if pattern.name not in _WITH_BARRIERS
)

# Heuristics whose schedules are patterns to begin with.
_BEGUN_WITH = (
    *(adapted(pattern, WITH_COLLECTIVES) for pattern in PATTERNS),
    *(heuristic for heuristic in GENERIC if not heuristic.is_search),
)


@dataclass(frozen=True)
class OrderParams:
    """Orders of unequal micro-batches; numbers of clusters are those of DynaPipe's planner."""

    few_clusters: int = 4  # clusters of few micro-batches: 24 orders
    many_clusters: int = 3  # clusters of many micro-batches: 6 orders
    many_from: int = 21  # micro-batches from which on there are many
    max_orders: int = 25  # every order of four clusters, and the given one
    seed: int = 0  # of the order inside a cluster; DynaPipe's is random
    max_ops: int = (
        12_500  # ops placed under one pattern, in all orders of clusters together
    )
    seconds_between: float = (
        0.25  # least time between two told schedules: each is checked
    )


PARAMS = OrderParams()


def cluster_orders(work: IntArray, params: OrderParams = PARAMS) -> list[IntArray]:
    """Return the orders of micro-batches that DynaPipe's planner tries (Jiang et al. 2024).

    Micro-batches are put into clusters by the time of each, int64[m]. The first order is the given
    one, then comes every order of the clusters; inside a cluster micro-batches are in random order,
    the same in all.
    """
    count = (
        params.many_clusters if len(work) >= params.many_from else params.few_clusters
    )
    shuffled = np.random.default_rng(params.seed).permutation(len(work))
    cluster = clusters_of(work, count)[shuffled]
    members = [shuffled[cluster == number] for number in range(count)]
    present = [group for group in members if len(group)]
    return [np.arange(len(work)), *map(np.concatenate, itertools.permutations(present))]


def clusters_of(values: IntArray, count: int) -> IntArray:
    """Return the cluster of each value by k-means (Lloyd 1982), from quantiles.

    Clusters of lower values have lower numbers; some stay empty where fewer values differ.
    """
    centres = np.quantile(values, (np.arange(count) + 0.5) / count)
    nearest = np.zeros(len(values), dtype=np.int64)
    while True:
        before = nearest
        nearest = np.asarray(
            np.abs(values[:, None] - centres).argmin(axis=1), dtype=np.int64
        )
        for number in np.unique(nearest):
            centres[number] = values[nearest == number].mean()
        if (nearest == before).all():
            return nearest


def under_patterns(
    request: Request, patterns: Iterable[Heuristic], permutations: Sequence[IntArray]
) -> Proposal:
    """Run published schedules on orders of micro-batches, and keep the best.

    An order has the micro-batch at each place. Patterns that do not apply are left out. Once the
    clock of the request is over, the best so far is returned: the best valid schedule and the name
    of its pattern, or the shortest where none is valid. A `NotApplicableError` says that no pattern
    applies, or that every order waits for itself under those that do.
    """
    able = [
        pattern for pattern in patterns if pattern.obstacle(request.instance) is None
    ]
    proposals: list[Proposal] = []
    for permutation in permutations:
        if proposals and request.effort.clock.is_over:
            break
        for heuristic in able:
            # Published schedules take an order of micro-batches, as `StaticOrders` does.
            propose: Callable[..., Proposal] = heuristic.propose
            with suppress(NotApplicableError, DeadlockError, HeuristicFailedError):
                proposals.append(
                    replace(propose(request, permutation), pattern=heuristic.name)
                )
    if not proposals:
        raise NotApplicableError("needs a published schedule that applies")
    proposals.sort(key=lambda proposal: proposal.schedule.normalised().value)
    # Schedules of fused blocks have problems of their own.
    valid = (p for p in proposals if not check_schedule(p.schedule.problem, p.schedule))
    return next(valid, proposals[0])


def work_of(problem: Problem) -> IntArray:
    """Return the compute time of each micro-batch on all stages together, int64[m] in ticks."""
    ops = np.flatnonzero(problem.kind_mask(*COMPUTE_KINDS) & (problem.microbatch >= 0))
    work = np.zeros(int(problem.microbatch.max()) + 1, dtype=np.int64)
    np.add.at(work, problem.microbatch[ops], problem.duration[ops])
    return work


def sizes_of(instance: PipelineInstance, problem: Problem) -> IntArray:
    """Return the numbers by which micro-batches are ordered, int64[m].

    Where the pipeline has lengths, that is the sum of the squares of a micro-batch's sequence
    lengths, which is what attention takes; else its compute time in ticks.
    """
    if instance.lengths is None:
        return work_of(problem)
    return np.array(sums_of(instance.lengths).squares, dtype=np.int64)


def _by_size(sign: int, request: Request) -> Proposal:
    # Micro-batches of one size go by index.
    sizes = sign * sizes_of(request.instance, request.problem)
    return under_patterns(request, _FREE_PATTERNS, [np.argsort(sizes, kind="stable")])


def _clusters(request: Request, params: OrderParams = PARAMS) -> Proposal:
    problem = request.problem
    count = min(params.max_orders, max(2, params.max_ops // problem.num_ops))
    permutations = cluster_orders(work_of(problem), params)[:count]
    return under_patterns(request, _FREE_PATTERNS, permutations)


def search_orders(request: Request) -> Proposal:
    """Search over orders of micro-batches, then of ops, from the patterns of other heuristics.

    A `NotApplicableError` says that micro-batches pass different ops, or that no order says how
    full a pool is; a `HeuristicFailedError` that every pattern overruns a pool, whatever the order.
    """
    problem, effort = request.problem, request.effort
    flow = flow_of(problem)
    if flow is None or not follows_orders(flow):
        raise NotApplicableError("needs micro-batches that all pass the same ops")
    evaluator = Evaluator(flow)
    limited = effort.clock.is_limited
    changes = FLOW_SEARCH.least_steps if limited else FLOW_SEARCH.counted_steps
    expect(changes * flow.ops.size * flow.ops.size // 2)

    target, tell = effort.board.bound.value, _proposing(request, flow)
    search = PermutationSearch(evaluator, effort.clock, target, tell=tell)
    best = search.run(patterns_of(request, evaluator))
    if best is None:
        raise HeuristicFailedError("no published order keeps the memory limits")
    return Proposal(_timed_schedule(problem, flow, best))


def _proposing(request: Request, flow: Flow) -> Callable[[Timed], None]:
    board, due = request.effort.board, [time.monotonic()]

    def propose(timed: Timed) -> None:
        if time.monotonic() >= due[0]:
            board.propose(_timed_schedule(request.problem, flow, timed), "permutations")
            due[0] = time.monotonic() + PARAMS.seconds_between

    return propose


def patterns_of(request: Request, evaluator: Evaluator) -> Iterator[Timed]:
    """Yield the patterns of the best schedule so far and of all heuristics, each only once.

    Some overrun pools.
    """
    seen = set()
    for schedule in _schedules(request):
        pattern, permutation = Pattern.of(evaluator.flow, schedule)
        if pattern.key not in seen:
            seen.add(pattern.key)
            yield evaluator.timed(pattern, permutation)


def _schedules(request: Request) -> Iterator[Schedule]:
    incumbent = request.effort.board.schedule
    if incumbent is not None:
        yield incumbent
    for heuristic in _BEGUN_WITH:
        if heuristic.obstacle(request.instance) is None:
            with suppress(DeadlockError, HeuristicFailedError, NotApplicableError):
                yield heuristic.propose(request).schedule


def _timed_schedule(problem: Problem, flow: Flow, timed: Timed) -> Schedule:
    # Ops of no micro-batch run last on their resource, or first where they wait for none
    # (all-gather).
    graph = Dag(
        problem.num_ops, problem.before, problem.after, np.zeros_like(problem.lag)
    )
    is_behind = graph.heads((problem.microbatch != FREE).astype(np.int64)) > 0
    orders = []
    for order in timed.pattern.orders(flow, timed.permutation):
        resource = problem.resources_of(int(order[0]))[0]
        extra = np.setdiff1d(problem.ops_by_resource[resource], flow.ops)
        last = is_behind[extra]
        orders.append(np.concatenate([extra[~last], order, extra[last]]))
    return time_orders(problem, orders).normalised()


_of_unequal = partial(Heuristic, made_for=A_PIPELINE, requirements=(ONE_PIPE, UNEQUAL))

ORDERS = (
    _of_unequal(
        "descending",
        "micro-batches by size, long ones first, under the best published schedule",
        partial(_by_size, -1),
    ),
    _of_unequal(
        "ascending",
        "micro-batches by size, short ones first, under the best published schedule",
        partial(_by_size, +1),
    ),
    _of_unequal(
        "clusters",
        "DynaPipe's orders of clusters of micro-batches, under the best published schedule",
        _clusters,
        is_search=True,
        source=DYNAPIPE,
    ),
)
"""Orders of unequal micro-batches, each under every published schedule."""

PERMUTATIONS = _of_unequal(
    "permutations",
    "orders of unequal micro-batches under every pattern, annealed",
    search_orders,
    is_search=True,
)
"""The best order of micro-batches, then of ops, that a search finds."""

"""Unequal micro-batches in other orders: by size, by clusters, and the best that a search finds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import (
    DeadlockError,
    HeuristicFailedError,
    NotApplicableError,
)
from ppsolve.models.pipeline.entries import sums_of
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.flow.evaluator import Evaluator, Timed, follows_orders
from ppsolve.solver.flow.flow import Flow, flow_of
from ppsolve.solver.flow.patterns import Pattern
from ppsolve.solver.flow.search import COUNTED_STEPS, LEAST_STEPS, search_permutations
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.pipeline.collectives import with_collectives
from ppsolve.solver.pipeline.event_driven.schedulers import DYNAPIPE, EVENT_DRIVEN
from ppsolve.solver.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.pipeline.published import A_PIPELINE, ONE_PIPE, PUBLISHED, UNEQUAL
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import time_orders

FEW, MANY, MANY_FROM = 4, 3, 21
"""Clusters of few and of many micro-batches, and from how many on there are many: those of DynaPipe
(Jiang et al., EuroSys 2024), which keep the orders at 24 and 6."""

MAX_ORDERS = 25
"""Most orders: every one of four clusters, and the given one."""

SEED = 0
"""Seed of the order inside a cluster; DynaPipe's is random."""


def cluster_orders(work: IntArray) -> list[IntArray]:
    """Return the orders of micro-batches that DynaPipe's planner tries."""
    count = MANY if len(work) >= MANY_FROM else FEW
    shuffled = np.random.default_rng(SEED).permutation(len(work))
    cluster = clusters_of(work, count)[shuffled]
    members = [shuffled[cluster == number] for number in range(count)]
    present = [each for each in members if len(each)]
    return [np.arange(len(work)), *map(np.concatenate, itertools.permutations(present))]


def clusters_of(values: IntArray, count: int) -> IntArray:
    """Return the cluster of each value by k-means (Lloyd 1982), from quantiles.

    Parameters
    ----------
    values : int64[m]
        Numbers.
    count : int
        Number of clusters; some stay empty where fewer values differ.

    Returns
    -------
    int64[m]
    """
    centres = np.quantile(values, (np.arange(count) + 0.5) / count)
    nearest = np.zeros(len(values), dtype=np.int64)
    while True:
        before = nearest
        nearest = np.asarray(np.abs(values[:, None] - centres).argmin(axis=1), dtype=np.int64)
        for number in np.unique(nearest):
            centres[number] = values[nearest == number].mean()
        if (nearest == before).all():
            return nearest


PATTERNS = tuple(
    heuristic for heuristic in (*PUBLISHED, *EVENT_DRIVEN) if ONE_PIPE in heuristic.requirements
)
"""Published schedules of one pipe, under which micro-batches may take any order."""

WITH_BARRIERS = ("cyclic", "interleaved-cyclic-1f1b")
"""Patterns that run the orders of another one (`wait-free-cyclic`, `interleaved-1f1b`) and wait at
barriers besides, so that they are never the best."""

FREE_PATTERNS = tuple(pattern for pattern in PATTERNS if pattern.name not in WITH_BARRIERS)
"""Patterns that orders of micro-batches are tried under."""

MAX_OPS = 12_500
"""Ops that `clusters` places under one pattern, in all its orders together: all 25 up to 500 ops,
at least two beyond. On 8 devices and 16 micro-batches (256 ops, 480 with transfers) 25 orders under
five patterns take 0.6 to 1.3 s of processor time (tests/data/unequal)."""


class Permutable(Protocol):
    """A published schedule that takes an order of micro-batches."""

    def __call__(self, request: Request, permutation: IntArray | None = None) -> Proposal:
        """Schedule the micro-batches in an order."""


def under_patterns(
    request: Request, patterns: Iterable[Heuristic], permutations: Sequence[IntArray]
) -> Proposal:
    """Run published schedules on orders of micro-batches, and keep the best.

    Parameters
    ----------
    request : Request
    patterns : iterable of Heuristic
        Published schedules; those that do not apply are left out.
    permutations : sequence of int64[m]
        Orders: the micro-batch at each place.

    Returns
    -------
    Proposal
        The best valid schedule and the name of its pattern; the shortest where none is valid.

    Raises
    ------
    NotApplicableError
        No pattern applies, or every order waits for itself under those that do.
    """
    able = [pattern for pattern in patterns if pattern.obstacle(request.instance) is None]
    found: list[Proposal] = []
    for permutation in permutations:
        if not found or not request.effort.clock.is_over:
            found += _under_each(able, request, permutation)
    if not found:
        raise NotApplicableError("needs a published schedule that applies")
    found.sort(key=lambda proposal: proposal.schedule.normalised().value)
    valid = (each for each in found if not check_schedule(request.problem, each.schedule))
    return next(valid, found[0])


def _under_each(
    patterns: Iterable[Heuristic], request: Request, permutation: IntArray
) -> Iterator[Proposal]:
    for heuristic in patterns:
        pattern = cast("Permutable", heuristic.propose)
        with suppress(NotApplicableError, DeadlockError, HeuristicFailedError):
            yield replace(pattern(request, permutation), pattern=heuristic.name)


def work_of(problem: Problem) -> IntArray:
    """Return the compute time of each micro-batch on all stages together, int64[m] in ticks."""
    ops = np.flatnonzero(problem.kind_mask(*COMPUTE_KINDS) & (problem.microbatch >= 0))
    work = np.zeros(int(problem.microbatch.max()) + 1, dtype=np.int64)
    np.add.at(work, problem.microbatch[ops], problem.duration[ops])
    return work


def sizes_of(instance: PipelineInstance, problem: Problem) -> IntArray:
    """Return the numbers by which micro-batches are ordered.

    Parameters
    ----------
    instance : PipelineInstance
    problem : Problem

    Returns
    -------
    int64[m]
        The sum of the squares of its sequence lengths where the pipeline has lengths, which is
        what attention takes; else the compute time in ticks.
    """
    if instance.lengths is None:
        return work_of(problem)
    return np.array(sums_of(instance.lengths).squares, dtype=np.int64)


@dataclass(frozen=True)
class BySize:
    """Runs every published schedule that applies on micro-batches by size, and keeps the best."""

    sign: int

    def __call__(self, request: Request) -> Proposal:
        """Return the best schedule; micro-batches of one size go by index."""
        sizes = self.sign * sizes_of(request.instance, request.problem)
        return under_patterns(request, FREE_PATTERNS, [np.argsort(sizes, kind="stable")])


def clusters(request: Request) -> Proposal:
    """Return the best of DynaPipe's orders of clusters under all published schedules."""
    problem = request.problem
    count = min(MAX_ORDERS, max(2, MAX_OPS // problem.num_ops))
    permutations = cluster_orders(work_of(problem))[:count]
    return under_patterns(request, FREE_PATTERNS, permutations)


ORDERS = (
    Heuristic(
        "descending",
        "micro-batches by size, long ones first, under the best published schedule",
        BySize(-1),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
    ),
    Heuristic(
        "ascending",
        "micro-batches by size, short ones first, under the best published schedule",
        BySize(1),
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
    ),
    Heuristic(
        "clusters",
        "DynaPipe's orders of clusters of micro-batches, under the best published schedule",
        clusters,
        A_PIPELINE,
        (ONE_PIPE, UNEQUAL),
        is_search=True,
        source=DYNAPIPE,
    ),
)
"""Orders of unequal micro-batches, each under every published schedule."""


BEGUN_WITH = (
    *map(with_collectives, PATTERNS),
    *(heuristic for heuristic in GENERIC if not heuristic.is_search),
)
"""Heuristics whose schedules are patterns to begin with."""

_SECONDS_BETWEEN = 0.25
"""Least time between two schedules that are told: each is timed and checked as a whole problem."""


def permutations(request: Request) -> Proposal:
    """Search over orders of micro-batches, then of ops, from the patterns of other heuristics.

    Raises
    ------
    NotApplicableError
        Micro-batches pass different ops, or no order says how full a pool is.
    HeuristicFailedError
        Every pattern overruns a pool, whatever the order.
    """
    problem, effort = request.problem, request.effort
    flow = flow_of(problem)
    if flow is None or not follows_orders(flow):
        raise NotApplicableError("needs micro-batches that all pass the same ops")
    evaluator = Evaluator(flow)
    changes = LEAST_STEPS if effort.clock.is_limited else COUNTED_STEPS
    expect(changes * flow.ops.size * flow.ops.size // 2)

    best = search_permutations(
        evaluator,
        patterns_of(request, evaluator),
        effort.clock,
        target=effort.bound,
        tell=_teller(request, flow),
    )
    if best is None:
        raise HeuristicFailedError("no published order keeps the memory limits")
    return Proposal(schedule_of(problem, flow, best))


def _teller(request: Request, flow: Flow) -> Callable[[Timed], None] | None:
    tell, due = request.effort.tell, [time.monotonic()]

    def tell_of(found: Timed) -> None:
        if tell is not None and time.monotonic() >= due[0]:
            tell(schedule_of(request.problem, flow, found))
            due[0] = time.monotonic() + _SECONDS_BETWEEN

    return None if tell is None else tell_of


def patterns_of(request: Request, evaluator: Evaluator) -> Iterator[Timed]:
    """Yield the patterns of the best schedule so far and of all heuristics, each only once.

    Parameters
    ----------
    request : Request
    evaluator : Evaluator

    Yields
    ------
    Timed
        Some overrun pools.
    """
    seen = set()
    for schedule in _schedules(request):
        pattern, permutation = Pattern.of(evaluator.flow, schedule)
        if pattern.key not in seen:
            seen.add(pattern.key)
            yield evaluator.timed(pattern, permutation)


def _schedules(request: Request) -> Iterator[Schedule]:
    if request.effort.known is not None:
        yield request.effort.known
    for heuristic in BEGUN_WITH:
        if heuristic.obstacle(request.instance) is None:
            try:
                yield heuristic.propose(request).schedule
            except (DeadlockError, HeuristicFailedError, NotApplicableError):
                continue


def schedule_of(problem: Problem, flow: Flow, timed: Timed) -> Schedule:
    """Return the schedule of a line.

    Parameters
    ----------
    problem : Problem
    flow : Flow
    timed : Timed
        Order of slots on every resource, and the micro-batches in them.

    Returns
    -------
    Schedule
        All ops as early as the orders allow; those of no micro-batch run last on their resource,
        or first where they wait for none (all-gather).
    """
    graph = Dag(problem.num_ops, problem.before, problem.after, np.zeros_like(problem.lag))
    is_behind = graph.heads((problem.microbatch != FREE).astype(np.int64)) > 0
    orders = []
    for order in timed.pattern.orders(flow, timed.permutation):
        resource = problem.resources_of(int(order[0]))[0]
        others = np.setdiff1d(problem.ops_by_resource[resource], flow.ops)
        last = is_behind[others]
        orders.append(np.concatenate([others[~last], order, others[last]]))
    return time_orders(problem, orders).normalised()


PERMUTATIONS = Heuristic(
    "permutations",
    "orders of unequal micro-batches under every pattern, annealed",
    permutations,
    A_PIPELINE,
    (ONE_PIPE, UNEQUAL),
    is_search=True,
)

"""The heuristic ``permutations``: unequal micro-batches in the best order that a search finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ppsolve.models.core.problem import FREE, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import (
    DeadlockError,
    HeuristicFailedError,
    NotApplicableError,
)
from ppsolve.solver.flow.evaluator import Evaluator, Timed, follows_orders
from ppsolve.solver.flow.flow import Flow, flow_of
from ppsolve.solver.flow.patterns import Pattern
from ppsolve.solver.flow.search import COUNTED_STEPS, LEAST_STEPS, search_permutations
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.pipeline.collectives import with_collectives
from ppsolve.solver.pipeline.permuted import PATTERNS
from ppsolve.solver.pipeline.published import A_PIPELINE, ONE_PIPE, UNEQUAL
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import time_orders

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

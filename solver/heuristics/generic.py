"""The heuristics for every kind of instance: list scheduling of its problem, and searches."""

from __future__ import annotations

from collections.abc import Callable

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.frontier_beam import FRONTIER_BEAM, frontier_beam
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    HeuristicFunction,
    Proposal,
    Request,
)
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    backward_first,
    fillers,
    generate_parallel,
    generate_serial,
    longest_tail,
    most_work,
)
from ppsolve.solver.heuristics.order_search import ORDERS, obstacle, order_search
from ppsolve.solver.heuristics.params import COMPACTION
from ppsolve.solver.heuristics.spans import compact_spans
from ppsolve.solver.heuristics.sweep import SWEEP, list_sweep
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.timing import time_orders


def list_tail(problem: Problem) -> Schedule:
    """Schedule the longest tail (critical path) first; weight gradients fill idle time."""
    rank = longest_tail(problem)
    rule = PriorityRule(rank, fillers(problem), 1.0, 1.0, frees_memory=True)
    return settled(_parallel(problem, rule))


def list_work(problem: Problem) -> Schedule:
    """Schedule the micro-batch with most work left first; weight gradients fill idle time."""
    return _parallel(problem, PriorityRule(most_work(problem), fillers(problem)))


def list_backward_first(problem: Problem) -> Schedule:
    """Schedule backwards before forwards; weight gradients fill idle time."""
    return _parallel(problem, PriorityRule(backward_first(problem), fillers(problem)))


def list_serial(problem: Problem) -> Schedule:
    """Place ops one by one, longest tail first; weight gradients go into the gaps of the others.

    A `NotApplicableError` says that the problem has too many ops.
    """
    limit = 50_000  # takes 1 to 2 s; time may grow with the square of the ops
    if problem.num_ops > limit:
        raise NotApplicableError(
            f"needs at most {limit} ops (serial generation), got {problem.num_ops}"
        )
    return generate_serial(problem, longest_tail(problem), index_order(problem))


def settled(schedule: Schedule) -> Schedule:
    """Return a schedule with each op as early as its orders allow, where memory allows that too.

    Where device spans count, ops may have to start late: such a schedule is returned as it is.
    """
    if schedule.problem.objective is not Objective.MAKESPAN:
        return schedule
    early = time_orders(schedule.problem, schedule.resource_orders(), schedule.waits)
    return schedule if check_schedule(schedule.problem, early) else early


def _parallel(problem: Problem, rule: PriorityRule) -> Schedule:
    return generate_parallel(problem, rule, index_order(problem))


def _list(generate: Callable[[Problem], Schedule]) -> HeuristicFunction:
    def propose(request: Request) -> Proposal:
        schedule = generate(request.problem)
        if request.problem.objective is Objective.DEVICE_SPAN:
            schedule = compact_spans(
                schedule, request.effort.clock.share(COMPACTION.share)
            )
        return Proposal(schedule.normalised())

    return propose


def _swept(request: Request) -> Proposal:
    return Proposal(settled(list_sweep(request.problem, request.effort)).normalised())


def _ordered(request: Request) -> Proposal:
    effort = request.effort
    reason = obstacle(request.problem, effort.params.orders)
    if reason is not None:
        raise NotApplicableError(reason)
    schedule = effort.board.schedule or list_tail(request.problem).normalised()
    return Proposal(order_search(schedule, effort))


def _beamed(request: Request) -> Proposal:
    effort = request.effort
    schedule = frontier_beam(request.problem, effort) or effort.board.schedule
    return Proposal((schedule or list_tail(request.problem)).normalised())


GENERIC = (
    Heuristic("list-tail", "list scheduling, longest tail first", _list(list_tail)),
    Heuristic("list-work", "list scheduling, most work left first", _list(list_work)),
    Heuristic(
        "list-backward-first",
        "list scheduling, backward before forward before weight gradient",
        _list(list_backward_first),
    ),
    Heuristic(
        "list-serial",
        "serial generation by longest tail, each op into the first gap",
        _list(list_serial),
    ),
    Heuristic(
        SWEEP, "best of many list rules, justified and shaken", _swept, is_search=True
    ),
    Heuristic(
        ORDERS,
        "orders of ops and of micro-batches changed on the longest path, by annealing",
        _ordered,
        is_search=True,
    ),
    Heuristic(
        FRONTIER_BEAM,
        "alike micro-batches in tight memory, grown op by op in a beam over frontiers",
        _beamed,
        is_search=True,
    ),
)
"""Named list schedules, in the order of reports."""

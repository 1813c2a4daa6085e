"""The heuristics for every kind of instance: list scheduling of its problem."""

from __future__ import annotations

from collections.abc import Callable

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import NotApplicableError
from ppsolve.solver.heuristics import list_rules
from ppsolve.solver.heuristics.heuristic import (
    Heuristic,
    HeuristicFunction,
    Proposal,
    Request,
)
from ppsolve.solver.heuristics.order_search import ORDERS, obstacle, order_search
from ppsolve.solver.heuristics.spans import compact_spans
from ppsolve.solver.heuristics.sweep import SWEEP, list_sweep

_COMPACTION_SHARE = 0.5
"""Share of the time that is left for smaller spans; then the schedule must be checked and kept."""


def _list(generate: Callable[[Problem], Schedule]) -> HeuristicFunction:
    def propose(request: Request) -> Proposal:
        made = generate(request.problem)
        if request.problem.objective is Objective.DEVICE_SPAN:
            made = compact_spans(made, request.effort.clock.share(_COMPACTION_SHARE))
        return Proposal(made.normalised())

    return propose


def _swept(request: Request) -> Proposal:
    effort = request.effort
    found = list_sweep(request.problem, effort.clock, effort.board, goes_on=effort.uses_all)
    return Proposal(list_rules.settled(found).normalised())


def _ordered(request: Request) -> Proposal:
    effort, reason = request.effort, obstacle(request.problem)
    if reason is not None:
        raise NotApplicableError(reason)
    known = effort.board.schedule or list_rules.list_tail(request.problem).normalised()
    return Proposal(order_search(known, effort.clock, effort.board, goes_on=effort.uses_all))


GENERIC = (
    Heuristic("list-tail", "list scheduling, longest tail first", _list(list_rules.list_tail)),
    Heuristic("list-work", "list scheduling, most work left first", _list(list_rules.list_work)),
    Heuristic(
        "list-backward-first",
        "list scheduling, backward before forward before weight gradient",
        _list(list_rules.list_backward_first),
    ),
    Heuristic(
        "list-serial",
        "serial generation by longest tail, each op into the first gap",
        _list(list_rules.list_serial),
    ),
    Heuristic(
        SWEEP,
        "best of many list rules, justified and shaken",
        _swept,
        is_search=True,
    ),
    Heuristic(
        ORDERS,
        "orders of ops and of micro-batches changed on the longest path, by annealing",
        _ordered,
        is_search=True,
    ),
)
"""Named list schedules, in the order of reports."""

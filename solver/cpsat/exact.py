"""The exact answer: CP-SAT on memory amounts that are exact, or rounded both ways."""

from __future__ import annotations

import time
from dataclasses import replace

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.answer import EXACT, Company, ExactAnswer
from ppsolve.solver.cpsat.bisection import Bisection
from ppsolve.solver.cpsat.engine import Question, solve
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.params import BisectionParams
from ppsolve.solver.structure.implied import ImpliedOrder


def solve_exactly(
    implied: ImpliedOrder,
    board: Board,
    limits: SearchLimits,
    *,
    company: Company = Company.NEW,
    params: BisectionParams | None = None,
) -> ExactAnswer:
    """Solve a problem with CP-SAT, also where memory amounts have no small exact scale.

    Where a schedule is known, targets between it and the bound are refuted or met first.
    Such amounts are rounded down first: that bound is a bound of the problem, and that schedule is
    the answer if the checker accepts it. Otherwise the remaining time goes to the model with
    amounts rounded up, whose schedules are all valid.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem and its implied order.
    board : Board
        A board of the problem; begins with its incumbent and bound, and is told of better ones.
    limits : SearchLimits
        Limits of the search.
    company : Company
        What has searched the problem before, or searches it meanwhile.
    params : BisectionParams, optional
        Budgets of the questions.

    Returns
    -------
    ExactAnswer
        A valid schedule, if any, and a bound of the problem itself, in ticks.
    """
    began = time.monotonic()
    known, lower = board.schedule, board.bound.value
    spent, left = 0.0, limits
    if known is not None:

        def ask(question: Question, limits: SearchLimits) -> ExactAnswer:
            return solve(implied, question, limits, board)

        narrowed = Bisection(ask, board, limits, company=company, params=params)
        narrowed.run()
        if narrowed.is_closed or narrowed.is_interrupted:
            return narrowed.answer()
        lower, known = narrowed.lower, narrowed.schedule
        spent, left = narrowed.units, narrowed.left
    first = solve(implied, Question(lower, known), left, board)
    first = replace(first, deterministic_time=first.deterministic_time + spent)
    if first.memory_is_exact or first.schedule is None or _is_valid(first.schedule):
        if first.schedule is not None:
            board.propose(first.schedule, EXACT)
        return first
    left = limits.less(time.monotonic() - began, first.deterministic_time)
    lower = max(lower, first.bound or lower)
    second = solve(implied, Question(lower, known, rounding="up"), left, board)
    if second.infeasible:
        second = replace(second, schedule=None, infeasible=False)
    proved = second.stop_reason in {StopReason.PROVED, StopReason.INFEASIBLE}
    reason = StopReason.ROUNDING if proved else second.stop_reason
    return replace(second, bound=first.bound, stop_reason=reason)


def _is_valid(schedule: Schedule) -> bool:
    return not check_schedule(schedule.problem, schedule)

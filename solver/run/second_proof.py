"""A second look at what only CP-SAT has proved."""

from __future__ import annotations

from dataclasses import replace

from ppsolve.models.core.problem import Problem
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import EXACT, ExactAnswer, SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder


def search_below(
    implied: ImpliedOrder, analytic: int, claimed: int | None, limits: SearchLimits
) -> ExactAnswer:
    """Search for any schedule below a bound, trusting analytic bounds only.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem and its implied order.
    analytic : int
        Its best analytic bound in ticks.
    claimed : int or None
        The bound in ticks; None: search for any schedule.
    limits : SearchLimits
        Limits of the search.

    Returns
    -------
    ExactAnswer
        Infeasible where the bound holds; its schedule, if any, breaks no rule.

    Raises
    ------
    WrongScheduleError
        The schedule that was found breaks a rule.
    """
    from ppsolve.solver.exact.question import Question
    from ppsolve.solver.exact.search import solve

    below = Question(analytic, upper=None if claimed is None else claimed - 1)
    answer = solve(implied, below, replace(limits, gap=1.0))
    broken = _first_broken_rule(implied.problem, answer)
    if broken is None:
        return answer
    if answer.memory_is_exact:
        raise WrongScheduleError(f"{EXACT}: {broken}")
    # Memory that was rounded down lets schedules through that break a limit.
    return replace(answer, schedule=None)


def _first_broken_rule(problem: Problem, answer: ExactAnswer) -> str | None:
    violations = [] if answer.schedule is None else check_schedule(problem, answer.schedule)
    return str(violations[0]) if violations else None

"""A second look at what only CP-SAT has proved."""

from __future__ import annotations

from dataclasses import replace

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
    return checked(solve(implied, below, replace(limits, gap=1.0)))


def checked(answer: ExactAnswer) -> ExactAnswer:
    """Return an answer whose schedule, if any, breaks no rule.

    Raises `WrongScheduleError` where it breaks a rule that the model has.
    """
    found = answer.schedule
    violations = [] if found is None else check_schedule(found.problem, found)
    if not violations:
        return answer
    if answer.memory_is_exact:
        raise WrongScheduleError(f"{EXACT}: {violations[0]}")
    # Memory that was rounded down lets schedules through that break a limit.
    return replace(answer, schedule=None)

"""A second look at what only CP-SAT has proved."""

from __future__ import annotations

from dataclasses import replace

from ppsolve.models.core.problem import Problem
from ppsolve.solver.bounds import Bound, best_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.answer import ExactAnswer
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.kinds.task import EXACT, WrongScheduleError, load_exact_solver
from ppsolve.solver.structure.implied import ImpliedOrder


def search_below(
    implied: ImpliedOrder, bounds: list[Bound], claimed: int | None, limits: SearchLimits
) -> ExactAnswer:
    """Search for any schedule below a bound, trusting analytic bounds only.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem and its implied order.
    bounds : list of Bound
        Its analytic bounds.
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
    load_exact_solver()
    from ppsolve.solver.cpsat.engine import solve

    answer = solve(
        implied,
        lower=best_bound(bounds).value,
        incumbent=None,
        upper=None if claimed is None else claimed - 1,
        limits=replace(limits, gap=1.0),
    )
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

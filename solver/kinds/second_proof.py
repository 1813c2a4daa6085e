"""A second look at what only CP-SAT has proved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppsolve.models.core.problem import Problem
from ppsolve.solver.bounds import Bound, best_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.answer import ExactAnswer
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.kinds.few_devices import FEW_DEVICES
from ppsolve.solver.kinds.task import EXACT, Control, WrongScheduleError, load_exact_solver
from ppsolve.solver.structure.implied import ImpliedOrder

if TYPE_CHECKING:
    from ppsolve.solver.kinds.scheduling import ScheduleTask


def prove_again(task: ScheduleTask, control: Control, limits: SearchLimits) -> bool | None:
    """Prove the bound of a task, or that it has no schedule, with CP-SAT's defaults.

    Parameters
    ----------
    task : ScheduleTask
        Its bound is withdrawn where a better schedule contradicts it.
    control : Control
        The run, told about a better schedule.
    limits : SearchLimits
        Limits of the second proof.

    Returns
    -------
    bool or None
        As for `ppsolve.solver.kinds.task.Task.verify`.

    Raises
    ------
    WrongScheduleError
        The schedule that was found breaks a rule.
    """
    if task.value is not None and task.bound.name not in {EXACT, FEW_DEVICES}:
        return None
    claimed = None if task.value is None else task.bound.value
    plain = replace(limits, is_plain=True)
    answer = search_below(task.implied, task.bounds, claimed, plain)
    if answer.infeasible:
        return True
    if answer.schedule is None:
        return None
    task.bound = best_bound(task.bounds)
    task.offer_exact(answer.schedule, control)
    return False


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

"""Run CP-SAT on a problem: build the model, search it, answer."""

from __future__ import annotations

from collections.abc import Callable

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.answer import ExactAnswer, IncumbentSource
from ppsolve.solver.cpsat.demands import Rounding
from ppsolve.solver.cpsat.found import SharedIncumbent
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.model import CpsatModel, OutOfTimeError, index_ordered
from ppsolve.solver.cpsat.search import CpsatSearch
from ppsolve.solver.structure.implied import ImpliedOrder


def solve(
    implied: ImpliedOrder,
    *,
    lower: int,
    incumbent: Schedule | None,
    limits: SearchLimits,
    rounding: Rounding = "down",
    window_work: bool = False,
    upper: int | None = None,
    on_incumbent: Callable[[int], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
    feed: IncumbentSource | None = None,
    on_schedule: Callable[[Schedule], None] | None = None,
) -> ExactAnswer:
    """Minimise the problem's objective with CP-SAT.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem and its implied order.
    lower : int
        A proven lower bound in ticks, which becomes part of the model: CP-SAT's own bound can be
        far lower (1976 against 2186 ticks on 1536 ops).
    incumbent : Schedule or None
        Best known schedule; gives the horizon and the hint.
    limits : SearchLimits
        Limits of the search.
    rounding : {"up", "down"}
        Rounding of memory amounts that have no small exact scale.
    window_work : bool
        Count the work in every hole: proves more where holes are nearly full, takes longer.
    upper : int, optional
        Largest objective to look for, in ticks.
    on_incumbent, on_bound : callable, optional
        Called with each better objective value and bound, in ticks, from solver threads.

    feed : callable, optional
        Asked every 50 ms for the best schedule that was found elsewhere, None while there is none.
        The search ends where it meets the bound, and starts again from it where it leads for long.
    on_schedule : callable, optional
        Called with each better schedule of CP-SAT, from solver threads.

    Returns
    -------
    ExactAnswer
        Schedule, bound and reason of the stop; the schedule is None where the time did not suffice
        to build the model. Check the schedule before it is used.

    Raises
    ------
    MemoryInfeasible
        A pool's capacity cannot be kept.
    """
    clock = limits.start()
    ordered = None if incumbent is None else index_ordered(implied, incumbent)
    if ordered is not None and upper is None and ordered.value == lower:
        return ExactAnswer(ordered, lower, False, StopReason.PROVED, True, 0.0)
    try:
        model = CpsatModel.build(
            implied,
            lower=lower,
            upper=upper,
            hint=ordered,
            rounding=rounding,
            window_work=window_work,
            clock=clock,
        )
    except OutOfTimeError:
        return ExactAnswer(None, lower, False, StopReason.TIME, True, 0.0)
    if model is None:
        return ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 0.0)
    # With memory rounded down a schedule may exceed a limit: nobody is told.
    is_valid = model.constraints.memory_is_exact or rounding == "up"
    found = SharedIncumbent(
        model,
        on_incumbent=on_incumbent if is_valid else None,
        on_bound=on_bound,
        on_schedule=on_schedule if is_valid else None,
    )
    return CpsatSearch(model, found, limits, clock, feed).execute()

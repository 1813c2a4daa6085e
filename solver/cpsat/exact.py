"""The exact answer: CP-SAT on memory amounts that are exact, or rounded both ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.answer import ExactAnswer, IncumbentSource
from ppsolve.solver.cpsat.bisection import Bisection
from ppsolve.solver.cpsat.engine import solve
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder


def solve_exactly(
    implied: ImpliedOrder,
    *,
    lower: int,
    incumbent: Schedule | None,
    limits: SearchLimits,
    on_incumbent: Callable[[int], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
    feed: IncumbentSource | None = None,
    on_schedule: Callable[[Schedule], None] | None = None,
    is_searched: bool = False,
) -> ExactAnswer:
    """Solve a problem with CP-SAT, also where memory amounts have no small exact scale.

    Where a schedule is known, targets between it and the bound are refuted or met first.
    Such amounts are rounded down first: that bound is a bound of the problem, and that schedule is
    the answer if the checker accepts it. Otherwise the remaining time goes to the model with
    amounts rounded up, whose schedules are all valid.

    Parameters
    ----------
    implied, lower, incumbent, limits, on_incumbent, on_bound, feed, on_schedule
        As in `ppsolve.solver.cpsat.engine.solve`.
    is_searched : bool
        Searches have found the incumbent, so that nothing better is to be expected.

    Returns
    -------
    ExactAnswer
        A valid schedule, if any, and a bound of the problem itself, in ticks.
    """
    began = time.monotonic()
    attempt = partial(
        solve,
        implied,
        on_incumbent=on_incumbent,
        feed=feed,
        on_schedule=on_schedule,
    )
    spent, left = 0.0, limits
    if incumbent is not None:
        narrowed = Bisection(
            attempt, lower, incumbent, limits, on_bound, feed, is_searched=is_searched
        )
        narrowed.run()
        if narrowed.is_closed or narrowed.is_interrupted:
            return narrowed.answer()
        lower, incumbent = narrowed.lower, narrowed.schedule
        spent, left = narrowed.units, narrowed.left
    first = attempt(lower=lower, limits=left, incumbent=incumbent, on_bound=on_bound)
    first = replace(first, deterministic_time=first.deterministic_time + spent)
    if first.memory_is_exact or first.schedule is None or _is_valid(first.schedule):
        return first
    left = limits.less(time.monotonic() - began, first.deterministic_time)
    lower = max(lower, first.bound or lower)
    second = attempt(lower=lower, limits=left, incumbent=incumbent, rounding="up")
    if second.infeasible:
        second = replace(second, schedule=None, infeasible=False)
    proved = second.stop_reason in {StopReason.PROVED, StopReason.INFEASIBLE}
    reason = StopReason.ROUNDING if proved else second.stop_reason
    return replace(second, bound=first.bound, stop_reason=reason)


def _is_valid(schedule: Schedule) -> bool:
    return not check_schedule(schedule.problem, schedule)

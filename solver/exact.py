"""The exact answer: CP-SAT on memory amounts that are exact, or rounded both ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ppsolve.models.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.engine import Outcome, solve
from ppsolve.solver.implied import ImpliedOrder
from ppsolve.solver.limits import Limits


def solve_exactly(
    implied: ImpliedOrder,
    *,
    lower: int,
    incumbent: Schedule | None,
    limits: Limits,
    on_incumbent: Callable[[int], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
) -> Outcome:
    """Solve with CP-SAT; parameters as in `ppsolve.solver.cpsat.engine.solve`.

    Where memory amounts have no small exact scale, they are rounded down first: its bound is a
    bound of the problem, and its schedule is the answer if the checker accepts it. Otherwise
    the time that is left goes to the model with amounts rounded up, whose schedules are all valid.
    """

    def attempt(**changes: object) -> Outcome:
        arguments = {
            "lower": lower,
            "incumbent": incumbent,
            "limits": limits,
            "on_incumbent": on_incumbent,
            "on_bound": on_bound,
        }
        return solve(implied, **{**arguments, **changes})  # type: ignore[arg-type]

    began = time.monotonic()
    first = attempt()
    if first.memory_is_exact or first.schedule is None or _is_valid(first.schedule):
        return first
    if limits.seconds is not None:
        limits = replace(limits, seconds=max(0.0, limits.seconds - (time.monotonic() - began)))
    second = attempt(
        lower=max(lower, first.bound or lower), rounding="up", limits=limits, on_bound=None
    )
    if second.infeasible:
        return replace(first, schedule=None)
    return replace(second, bound=first.bound)


def _is_valid(schedule: Schedule) -> bool:
    return not check_schedule(schedule.problem, schedule)

"""A schedule without needless idle time, of the same makespan, so that a program can run it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.engine import Question, solve
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder

MOST_SECONDS = 10.0
"""Most seconds of the search. Programs of 48 ops take 0.1 s; one of 62 ops in free order has no
proof after 10 s, but any schedule found will do: the replay of its program order decides."""

MOST_UNITS = 5.0
"""Most deterministic units: the same programs take 0.01 units, and 1.7 without a proof."""


def idle_free_schedule(schedule: Schedule, limits: SearchLimits) -> Schedule | None:
    """Start all ops as early as the rules allow together, keeping the makespan.

    A program runs every node as soon as its streams and data allow; only waits and launches hold
    something back. Where caps make idle time useful, it has to be time until something ends.

    Parameters
    ----------
    schedule : Schedule
        A schedule of n ops.
    limits : SearchLimits
        Time that is left.

    Returns
    -------
    Schedule or None
        A schedule no longer than the one given; None where none is found in time.
    """
    problem = schedule.problem
    latest = schedule.makespan - problem.duration
    windows = {op: np.array([[0, last]], dtype=np.int64) for op, last in enumerate(latest.tolist())}
    early = replace(
        problem,
        objective=Objective.COMPLETION,
        weight=np.ones(problem.num_ops, dtype=np.int64),
        windows=windows,
    )
    seconds, units = limits.seconds, limits.deterministic
    within = replace(
        limits,
        seconds=MOST_SECONDS if seconds is None else min(seconds, MOST_SECONDS),
        deterministic=MOST_UNITS if units is None else min(units, MOST_UNITS),
        gap=0.0,
    )
    question = Question(0, Schedule(early, schedule.start))
    outcome = solve(ImpliedOrder(early), question, within)
    found = outcome.schedule
    return None if found is None else Schedule(problem, found.start)

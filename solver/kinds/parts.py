"""Searches of neighbourhoods by themselves: by one worker in turn, or by all in a race."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.heuristics.companion import ParallelSearch
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.portfolio import (
    NEIGHBOURHOODS,
    is_race,
    racing,
    searches_beside,
    takes_parts,
    turns_in_race,
)
from ppsolve.solver.kinds.task import Control
from ppsolve.solver.structure.implied import ImpliedOrder

if TYPE_CHECKING:
    from ppsolve.solver.cpsat.neighbourhood.search import WindowLNS

RACE_OPS = 4_000
"""Ops from which no worker searches the whole exactly: within a minute that hardly improves device
spans of so many ops, nor their bound."""

IN_TURN_SHARE = 0.5
"""Share of the time of the exact search for stretches of the best schedule, where there is only
one worker for both: as much for either as two workers give them side by side."""


def is_in_turn(problem: Problem, options: Options) -> bool:
    """Return true where one worker searches neighbourhoods first and then exactly.

    Parameters
    ----------
    problem : Problem
        The problem.
    options : Options
        Those of the run.

    Returns
    -------
    bool
        False where there are no neighbourhoods, or they run beside the exact search.
    """
    return takes_parts(problem) and not searches_beside(problem, options)


def search_in_turn(
    implied: ImpliedOrder, known: Schedule, bound: int, control: Control
) -> WindowLNS:
    """Return a search of stretches that has had its share of a run.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem with `is_in_turn`.
    known : Schedule
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.
    control : Control
        The run.

    Returns
    -------
    WindowLNS
        Its best schedule, and the deterministic time that it spent.
    """
    from ppsolve.solver.cpsat.neighbourhood.search import WindowLNS

    clock = control.clock.share(IN_TURN_SHARE)
    limits = replace(control.limits().scaled(IN_TURN_SHARE), clock=clock)
    search = WindowLNS(implied, known, bound, limits)
    search.run()
    return search


def is_raced(problem: Problem, control: Control) -> bool:
    """Return true where all workers search neighbourhoods of device spans.

    Parameters
    ----------
    problem : Problem
        The problem.
    control : Control
        The run; without a limit of wall time, or with one of deterministic time, the whole is
        searched exactly.

    Returns
    -------
    bool
        False for fewer than `RACE_OPS` ops and for one worker.
    """
    is_timed = control.clock.is_limited and control.options.deterministic_limit is None
    is_large = problem.num_ops >= RACE_OPS and is_race(problem)
    return is_large and is_timed and searches_beside(problem, control.options)


def race(
    implied: ImpliedOrder,
    known: Schedule,
    bound: int,
    control: Control,
    hear: Callable[[Schedule, str], bool],
) -> None:
    """Let all workers race, the first beside this one in turn with the sweep.

    It ends at the bound, where the gap is small enough, and with the clock.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem with `is_raced`.
    known : Schedule
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.
    control : Control
        The run.
    hear : callable
        Told, on this thread, of better schedules and of what found them; returns whether one is
        kept.
    """
    clock, options = control.clock, control.options
    enough = math.floor(bound / (1 - options.gap))
    shared = racing(implied, known, enough, clock, options)
    sweeper = ParallelSearch(turns_in_race(shared, implied.problem, known, enough), clock)
    more = range(options.used_workers - 2)
    others = [sweeper, *(ParallelSearch({NEIGHBOURHOODS: shared.run}, clock) for _ in more)]
    best = known

    def keep(schedule: Schedule, by: str, finder: ParallelSearch | None) -> None:
        nonlocal best
        if schedule.value < best.value and hear(schedule, by):
            best = schedule
            # Its own schedule would take the place of another one that the sweep goes on from.
            if finder is not sweeper:
                sweeper.learn(best, by)

    def exchange(better: Schedule | None) -> Schedule | None:
        if better is not None:
            keep(better, NEIGHBOURHOODS, None)
        for other in others:
            told = other.found()
            if told is not None:
                keep(told[1], told[0], other)
        return best

    try:
        with ExitStack() as stack:
            for other in others:
                stack.enter_context(other.at_work())
            shared.run(clock, exchange)
    finally:
        exchange(None)

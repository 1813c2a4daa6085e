"""The best order of a pipeline's whole ops, its collectives added greedily."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.exact import solve_exactly
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.pipeline.collectives import (
    add_collectives,
    whole_ops,
    without_collectives,
)
from ppsolve.solver.structure.implied import ImpliedOrder

RunAll = Callable[[PipelineInstance, Problem], Iterable[HeuristicOutcome]]
"""Runs every heuristic of pipelines."""

NAME = "best-pipeline"
"""Name of the heuristic in reports."""

PLAN_SHARE = 0.1
"""Share of the time for each of the two plans. Six of `instances/overlap_pipelines`, up to 4x8,
have both proved within 2 s; the share keeps larger ones from taking the exact search's time."""


def best_pipeline(
    instance: PipelineInstance, problem: Problem, limits: SearchLimits, run_all: RunAll
) -> HeuristicOutcome | None:
    """Plan whole ops exactly, with and without a look at the comm stream, and keep the better.

    Parameters
    ----------
    instance : PipelineInstance
    problem : Problem
    limits : SearchLimits
        Limits of the whole search.
    run_all : callable
        Runs the heuristics that the exact search of each plan begins with.

    Returns
    -------
    HeuristicOutcome or None
        ``best-pipeline`` with a valid schedule of `problem`; None if no plan led to one.
    """
    part = limits.scaled(PLAN_SHARE)
    wholes = (without_collectives(instance), whole_ops(instance))
    plans = (_planned(plan, part, run_all) for plan in wholes)
    found = [add_collectives(problem, plan) for plan in plans if plan is not None]
    valid = [schedule for schedule in found if not check_schedule(problem, schedule)]
    if not valid:
        return None
    best = min(valid, key=lambda schedule: schedule.value)
    return HeuristicOutcome(NAME, HeuristicStatus.FEASIBLE, best)


def _planned(plan: PipelineInstance, limits: SearchLimits, run_all: RunAll) -> Schedule | None:
    problem = lower_pipeline(plan)
    valid = [
        outcome.schedule
        for outcome in run_all(plan, problem)
        if outcome.status is HeuristicStatus.FEASIBLE and outcome.schedule is not None
    ]
    incumbent = min(valid, key=lambda found: found.value, default=None)
    answer = solve_exactly(ImpliedOrder(problem), lower=0, incumbent=incumbent, limits=limits)
    return answer.schedule or incumbent

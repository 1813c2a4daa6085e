"""Exact schedules with a pinned pipeline, so that the free search is never worse than them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kfac.cycle import lower_cycle
from ppsolve.models.kfac.instance import FREE_PIPELINE, KfacInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.exact import solve_exactly
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.kfac.pinned import pinned_cycle
from ppsolve.solver.structure.implied import ImpliedOrder

PREFIX = "pinned-"
"""Beginning of the names of heuristics that pin a pattern."""

NUM_PATTERNS = 2
"""Best pinned patterns that are solved exactly. On four of `instances/kfac/free` the best by greedy
filling was also the best when all of the first three were solved; the second one is a reserve."""

PATTERN_SHARE = 0.1
"""Share of the time for each of them. Those four take 0.2 s for three patterns; the share keeps
larger ones from taking the time of the free search."""


def solve_best_patterns(
    instance: KfacInstance,
    problem: Problem,
    outcomes: Iterable[HeuristicOutcome],
    limits: SearchLimits,
) -> Iterator[tuple[str, Schedule]]:
    """Solve the refresh cycle with the most promising patterns pinned.

    Parameters
    ----------
    instance : KfacInstance
    problem : Problem
    outcomes : iterable of HeuristicOutcome
        Outcomes of the heuristics, ``pinned-<pattern>`` among them.
    limits : SearchLimits
        Limits of the whole search.

    Yields
    ------
    (str, Schedule)
        Name of the pattern's heuristic and a valid schedule of `problem`.
    """
    if instance.pattern != FREE_PIPELINE:
        return
    ready = [
        (outcome.schedule.value, outcome.name, outcome.schedule)
        for outcome in outcomes
        if outcome.name.startswith(PREFIX)
        and outcome.status is HeuristicStatus.FEASIBLE
        and outcome.schedule is not None
    ]
    part = limits.scaled(PATTERN_SHARE)
    for _, name, schedule in sorted(ready, key=lambda item: item[:2])[:NUM_PATTERNS]:
        found = _solved(instance, name.removeprefix(PREFIX), schedule, part)
        if found is not None:
            again = Schedule(problem, found.start)
            if not check_schedule(problem, again):
                yield name, again


def _solved(
    instance: KfacInstance, pattern: str, incumbent: Schedule, limits: SearchLimits
) -> Schedule | None:
    try:
        cycle = lower_cycle(instance)
        pinned = replace(pinned_cycle(instance, cycle, pattern), windows={})
    except (InputError, NotApplicableError):
        return None
    answer = solve_exactly(
        ImpliedOrder(pinned), lower=0, incumbent=Schedule(pinned, incumbent.start), limits=limits
    )
    return answer.schedule

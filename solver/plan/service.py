"""The planner as the library offers it."""

from __future__ import annotations

from ppsolve.models.documents.errors import InputError
from ppsolve.models.plan.request import PlanRequest
from ppsolve.models.plan.result import Plan
from ppsolve.solver.clock import Clock
from ppsolve.solver.optimize.registry import known_heuristic
from ppsolve.solver.plan.progress import PlanListener
from ppsolve.solver.plan.report import report
from ppsolve.solver.plan.rounds import run_rounds
from ppsolve.solver.plan.search import PlanLimits, PlanSearch
from ppsolve.solver.plan.space import enumerate_space
from ppsolve.solver.run.options import Options

TIME_LIMIT, FINALISTS = 45.0, 12
"""Defaults. Of ``gpt-80x128``, on two cores with seven other processes, the best configuration
reached 12.20 samples/s after 4 s of CPU, 13.10 after 5.5, 13.46 after 13, and 13.55 ends a plan of
73 s of CPU. Finalists count only where the exact solver is reached: with fewer, small pipelines end
without a proof."""

RESERVED_SECONDS, RESERVED_SHARE = 1.0, 0.1
"""Part of the limit that is kept for the winner's document and the table. Of 24,576 ops and 1,170
configurations they took 0.2 to 0.3 s, three times that with other processes on the machine."""


def plan(
    request: PlanRequest,
    *,
    time_limit: float | None = TIME_LIMIT,
    finalists: int = FINALISTS,
    gap: float = 0.0,
    workers: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    exhaustive: bool = False,
    on_progress: PlanListener | None = None,
) -> Plan:
    """Find the configuration with the highest goodput, and say why every other one lost.

    Parameters
    ----------
    request : PlanRequest
        The model, the cluster and the configurations to choose from.
    time_limit : float or None
        Wall seconds for the plan; None: no limit. Whatever the limit, the first 64 configurations
        are tried until one has a schedule. In deterministic and exhaustive plans the limit of each
        exact search, in deterministic ones in CP-SAT's units.
    finalists : int
        Configurations given to the exact solver at most.
    gap : float
        Leave configurations that may be better by no more than this share.
    workers, seed, deterministic
        As for `ppsolve.optimize`.
    exhaustive : bool
        Prune nothing: give every configuration to the exact solver.
    on_progress : callable, optional
        Told about the state of the search.

    Returns
    -------
    Plan
        The winner with its goodput range, its instance and its checked schedule, the ranked table
        and the counts of what was pruned by which rule. An interrupt (Ctrl-C) returns what is
        known so far.

    Raises
    ------
    InputError
        An option is out of range, a schedule is unknown, or the search excludes everything.
    """
    _check_options(request, finalists)
    options = Options.checked(
        time_limit=time_limit, gap=gap, workers=workers, seed=seed, deterministic=deterministic
    )
    limits = PlanLimits(
        options.time_limit, finalists, workers, seed, deterministic, gap, exhaustive
    )
    limit = None if deterministic else options.time_limit
    clock = Clock(limit).before(min(RESERVED_SECONDS, RESERVED_SHARE * (limit or 0.0)))
    space = enumerate_space(request)
    search = PlanSearch(request, space, limits, on_progress, clock)
    with search.news.told_again():
        run_rounds(search)
    return report(search, space)


def _check_options(request: PlanRequest, finalists: int) -> None:
    if finalists < 0:
        raise InputError(f"expected a number >= 0, got {finalists}", field="finalists")
    for index, name in enumerate(request.search.schedules or ()):
        try:
            known_heuristic(name)
        except InputError as error:
            raise error.about(f"search.schedules[{index}]") from None

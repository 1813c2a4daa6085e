"""Who searches beside CP-SAT, and how the workers of a run are shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.companion import ParallelSearch, Search, ordering, sweeping
from ppsolve.solver.heuristics.draws import RandomStarts
from ppsolve.solver.heuristics.order_search import obstacle as obstacle_to_orders
from ppsolve.solver.heuristics.sweep import Exchange
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.structure.implied import ImpliedOrder

if TYPE_CHECKING:
    from ppsolve.solver.cpsat.neighbourhood.race import SuccessiveHalving
    from ppsolve.solver.cpsat.neighbourhood.search import WindowLNS

SWEEP, ORDERS, NEIGHBOURHOODS = "list-sweep", "order-search", "neighbourhoods"
"""Names of companions in reports."""

SWEEP_WORKERS, SWEEP_OPS = 4, 400
"""Workers and ops from which one worker sweeps beside CP-SAT, which then has at least three: its
full set of subsolvers proves more than any schedule saves. Smaller problems are mostly proved
before the sweep, which has already had its turn, finds more."""

NEIGHBOURHOOD_WORKERS, NEIGHBOURHOOD_OPS = 2, 500
"""Workers and ops from which one worker solves stretches of the best schedule. In 20 s of CPU time
on two threads, with it and without: uneven 16 x 16 with memory for 8 (768 ops) proved in 7.3 s,
0.22 % off; 16 x 24 with memory for 8 (1,152) 2.63 and 2.74 %; three others the same. Smaller
problems are mostly proved by CP-SAT with all workers."""


def companion(
    implied: ImpliedOrder, options: Options, clock: Clock, known: Schedule | None, bound: int
) -> ParallelSearch | None:
    """Return the search that takes one worker beside the exact one, None where all stay with it.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem.
    options : Options
        Those of the run; without a wall clock (`deterministic`) nothing runs beside anything.
    clock : Clock
        The companion ends with it.
    known : Schedule or None
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.

    Returns
    -------
    ParallelSearch or None
        Not yet at work.
    """
    if options.deterministic:
        return None
    workers, problem = options.used_workers, implied.problem
    if known is not None and searches_beside(problem, options):
        if is_race(problem):
            race = racing(implied, known, bound, clock, options)
            return ParallelSearch(turns_in_race(race, problem, known, bound), clock)
        limits = SearchLimits(seconds=None, seed=options.seed)
        searches = {NEIGHBOURHOODS: stretching(implied, known, bound, limits)}
        if obstacle_to_orders(problem) is None:
            searches[ORDERS] = ordering(known, bound)
        else:
            searches[SWEEP] = sweeping(problem, known, bound)
        return ParallelSearch(searches, clock)
    if workers >= SWEEP_WORKERS and problem.num_ops >= SWEEP_OPS:
        return ParallelSearch({SWEEP: sweeping(problem, known, bound)}, clock)
    return None


def searches_beside(problem: Problem, options: Options) -> bool:
    """Return true where heuristics that search go on beside the exact search.

    Then they need no more than their effort before it. With two workers and 20 s, 60 uneven
    pipelines of 16 x 64 at 1p and 1.25p: 50 proved in 5 minutes in all, mean gap 0.068 %; with
    shares of the time for each search before CP-SAT 48 in 10 minutes, 0.093 %.

    Parameters
    ----------
    problem : Problem
        The problem.
    options : Options
        Those of the run.

    Returns
    -------
    bool
        False with one worker, without a wall clock and where there are no neighbourhoods.
    """
    return takes_parts(problem) and _has_worker_beside(options)


def _has_worker_beside(options: Options) -> bool:
    return not options.deterministic and options.used_workers >= NEIGHBOURHOOD_WORKERS


def takes_parts(problem: Problem) -> bool:
    """Return true where neighbourhoods of a schedule are worth a worker or a share of the time."""
    from ppsolve.solver.cpsat.neighbourhood.part import obstacle

    return problem.num_ops >= NEIGHBOURHOOD_OPS and obstacle(problem) is None


def is_race(problem: Problem) -> bool:
    """Return true where searches of neighbourhoods from many starts race: for device spans."""
    return problem.objective is Objective.DEVICE_SPAN and takes_parts(problem)


def turns_in_race(
    halving: SuccessiveHalving, problem: Problem, known: Schedule, bound: int
) -> Mapping[str, Search]:
    """Return the searches that take turns beside a race.

    Parameters
    ----------
    halving : SuccessiveHalving
        The searches.
    problem : Problem
        The problem.
    known : Schedule
        The best schedule so far.
    bound : int
        Where to stop, in ticks.

    Returns
    -------
    mapping of str to callable
        The race, and the sweep: without its turns V 16 x 48 at 1.125p and 1.25p ended at 0.199 and
        0.237 % after 40 s, with them at 0.154 % and proved.
    """
    return {NEIGHBOURHOODS: halving.run, SWEEP: sweeping(problem, known, bound)}


def racing(
    implied: ImpliedOrder, known: Schedule, bound: int, clock: Clock, options: Options
) -> SuccessiveHalving:
    """Return a race of searches of neighbourhoods from starts by list rules.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem of which parts are taken.
    known : Schedule
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.
    clock : Clock
        Of the whole race.
    options : Options
        Its seed, of all random choices, and its workers.

    Returns
    -------
    SuccessiveHalving
        Nobody has begun.
    """
    from ppsolve.solver.cpsat.neighbourhood.race import SuccessiveHalving

    draw = RandomStarts(implied.problem, options.seed).next
    return SuccessiveHalving(implied, known, draw, bound, clock, options.seed, options.used_workers)


def stretching(implied: ImpliedOrder, known: Schedule, bound: int, limits: SearchLimits) -> Search:
    """Return the search of neighbourhoods as what a companion does.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem of which parts are taken.
    known : Schedule
        The best schedule so far.
    bound : int
        A lower bound on the objective in ticks.
    limits : SearchLimits
        Its seed.

    Returns
    -------
    callable
        Searches until its clock is over.
    """
    state: WindowLNS | None = None

    def search(clock: Clock, exchange: Exchange) -> None:
        nonlocal state
        from ppsolve.solver.cpsat.neighbourhood.search import WindowLNS

        other = exchange(None)
        if state is None or (other is not None and other.value < state.best.value):
            start = known if other is None or other.value >= known.value else other
            state = WindowLNS(implied, start, bound, limits)
        state.exchange = exchange
        state.go_on(clock)

    return search

"""The table of steps: which search runs when, and for which share of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import (
    EXACT,
    FEW_DEVICES,
    NEIGHBOURHOODS,
    VARIANTS,
    Company,
    SearchLimits,
)
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic
from ppsolve.solver.heuristics.order_search import ORDERS
from ppsolve.solver.heuristics.order_search import obstacle as obstacle_to_orders
from ppsolve.solver.heuristics.parallel_search import Turns, order_turns, sweep_turns
from ppsolve.solver.heuristics.sweep import SWEEP
from ppsolve.solver.kernels.compilation import expect, load_compiler
from ppsolve.solver.run.step import (
    Meanwhile,
    Step,
    Steps,
    Stop,
    Turn,
    always,
    in_parallel,
    whole,
)

SEARCHED = frozenset({EXACT, FEW_DEVICES, VARIANTS})
"""Names of bounds that are proved by CP-SAT; reports list the analytic ones."""

EXACT_SLACK = 0.25
"""Seconds beyond its clock that an exact search gets to return what it found."""


def _announce(turn: Turn, steps: int) -> None:
    """Let compiled code be loaded where so many steps for each op pay for it and time allows."""
    if turn.board.clock.left >= turn.steps.loading_seconds:
        expect(steps * turn.task.size)
        load_compiler()


# What applies when.


def has_time_to_search(turn: Turn) -> bool:
    """Apply unless only heuristics and bounds were asked for."""
    return turn.options.limits(turn.clock).seconds != 0


def is_small(turn: Turn) -> bool:
    """Apply to small problems with a schedule and a clock: CP-SAT proves most of them at once."""
    is_quick = (
        turn.task.size < turn.params.exact.quick_ops and turn.board.value is not None
    )
    has_clock = turn.options.limits(turn.clock).deterministic is None
    return is_quick and has_clock and has_time_to_search(turn)


def fits_a_model(turn: Turn) -> bool:
    """Apply to problems of which an exact model is built."""
    return turn.task.size <= turn.params.exact.most_ops and has_time_to_search(turn)


def has_windows(turn: Turn) -> bool:
    """Apply to problems with a schedule of which windows are solved anew."""
    from ppsolve.solver.exact.subproblem import obstacle

    return _has_parts(turn, turn.params.exact.windows.least_ops, obstacle)


def _has_parts(
    turn: Turn, min_size: int, obstacle: Callable[[Problem], str | None]
) -> bool:
    is_large, is_known = turn.task.size >= min_size, turn.board.schedule is not None
    return (
        fits_a_model(turn)
        and is_large
        and is_known
        and obstacle(turn.task.problem) is None
    )


def has_worker_for_windows(turn: Turn) -> bool:
    """Apply where windows get a worker of their own."""
    return (
        has_windows(turn)
        and turn.options.used_workers > 1
        and not turn.options.deterministic
    )


def has_windows_in_turn(turn: Turn) -> bool:
    """Apply where one worker solves windows first and then the whole."""
    return has_windows(turn) and not has_worker_for_windows(turn)


def has_orders_meanwhile(turn: Turn) -> bool:
    """Apply where orders are searched while CP-SAT is at work."""
    return has_windows(turn) and obstacle_to_orders(turn.task.problem) is None


def has_sweep_meanwhile(turn: Turn) -> bool:
    """Apply where list rules are swept while CP-SAT is at work: with windows, or many workers."""
    budget = turn.params.heuristics.turns
    if has_windows(turn):
        return not has_orders_meanwhile(turn)
    is_large = turn.task.size >= budget.sweep_ops
    return turn.options.used_workers >= budget.sweep_workers and is_large


def has_few_devices(turn: Turn) -> bool:
    """Apply to problems that parts of few devices bound."""
    from ppsolve.solver.exact.device_part import obstacle

    return _has_parts(turn, turn.params.exact.devices.least_ops, obstacle)


def has_frontier(turn: Turn) -> bool:
    """Apply to alike micro-batches in memory of which there is a schedule."""
    problem = turn.task.problem
    has_memory = bool(problem.pools) and bool(problem.families)
    return has_memory and turn.board.schedule is not None


def needs_second_proof(turn: Turn) -> bool:
    """Apply to proofs of CP-SAT alone, of small problems or where that was asked for."""
    board = turn.board
    is_proved = board.is_refuted or (board.is_closed and board.bound.name in SEARCHED)
    if turn.options.verify is False or not has_time_to_search(turn) or not is_proved:
        return False
    return turn.options.verify or turn.task.size < turn.steps.verified_ops


def has_loose_schedule(turn: Turn) -> bool:
    """Apply to schedules of CP-SAT, whose ops may begin later than they could."""
    best = turn.board.incumbent
    return best is not None and best.by in {EXACT, NEIGHBOURHOODS}


def asks_for_robust(turn: Turn) -> bool:
    """Apply where a schedule that jitter delays less was asked for."""
    return turn.options.robust is not None and turn.board.value is not None


# What runs.


def find_bounds(turn: Turn) -> None:
    """Raise the bound by the analytic rules, the cheap ones first."""
    _announce(turn, turn.steps.greedy_steps)
    turn.task.find_bounds(turn.clock)


def greedy_heuristics(turn: Turn) -> Iterator[Step]:
    """Yield a step for each heuristic that does not search, of large problems the safe ones first.

    A heuristic that may find the first schedule has all the time of the run.
    """
    is_large = turn.clock.is_limited and turn.task.size >= turn.steps.safe_first_ops
    greedy = [entry for entry in turn.heuristics if not entry.is_search]
    if is_large:
        greedy.sort(key=lambda entry: not entry.is_generic)
    for heuristic in greedy:
        if heuristic.name not in turn.task.outcomes:
            yield _heuristic_step(heuristic, turn)


def _greedy_share(turn: Turn) -> float:
    is_too_large = turn.task.size > turn.params.exact.most_ops
    return 1.0 if is_too_large else turn.steps.greedy_share


def first_schedule(turn: Turn) -> Iterator[Step]:
    """Yield a step for each heuristic that does not search, until there is any schedule."""
    for step in greedy_heuristics(turn):
        if turn.board.value is not None:
            return
        yield step


def _heuristic_step(heuristic: Heuristic, of_all: Turn) -> Step:
    """Return the step that runs one heuristic."""

    def share(turn: Turn) -> float:
        is_needed = turn.board.value is None and not heuristic.is_own
        return 1.0 if is_needed else turn.clock.part_for(of_all.clock.left)

    def run(turn: Turn) -> None:
        _run_heuristic(
            turn,
            heuristic,
            Effort(turn.clock, board=turn.board, params=turn.params.heuristics),
        )

    return Step(heuristic.name, always, share, run, runs_anyway=True)


def _run_heuristic(turn: Turn, heuristic: Heuristic, effort: Effort) -> None:
    """Run a heuristic, propose its schedule and note its outcome."""
    turn.task.run_heuristic(heuristic, effort)
    if turn.task.was_applied(heuristic.name):
        turn.tell("heuristic", heuristic.name)


def searching_heuristics(turn: Turn) -> Iterator[Step]:
    """Yield a step for each heuristic that searches."""
    for heuristic in turn.heuristics:
        if heuristic.is_search:
            run = partial(_search_by, heuristic)
            yield Step(heuristic.name, always, _search_share, run, slack_share=1.0)


def _search_share(turn: Turn) -> float:
    budget = turn.steps
    if turn.task.size > turn.params.exact.most_ops:
        return budget.last_search_share
    is_large = turn.task.size >= budget.large_search_ops
    share = budget.large_search_share if is_large else budget.search_share
    return min(share, budget.window_search_share) if has_windows(turn) else share


def _search_by(heuristic: Heuristic, turn: Turn) -> None:
    is_endless = (
        turn.task.size >= turn.steps.endless_ops and not has_worker_for_windows(turn)
    )
    _announce(turn, turn.steps.search_steps)
    _run_heuristic(
        turn,
        heuristic,
        Effort(turn.clock, is_endless, turn.board, turn.params.heuristics),
    )


def solve_quickly(turn: Turn) -> StopReason | None:
    """Search with CP-SAT for a moment, before heuristics that search."""
    params = turn.params.exact
    turn = turn.share(params.quick_share)
    limits = replace(turn.limits(), deterministic=params.quick_units)
    return solve_model(turn, limits, is_searched=False)


def solve_whole(turn: Turn) -> StopReason | None:
    """Search with CP-SAT from the best schedule and bound."""
    if turn.task.size > turn.params.exact.most_ops:
        return StopReason.TOO_LARGE
    return solve_model(turn, turn.limits(), is_searched=True)


def solve_model(
    turn: Turn, limits: SearchLimits, *, is_searched: bool
) -> StopReason | None:
    """Search with CP-SAT from the best schedule and bound; return why that ended.

    Where searches have found the schedule, little better is to be expected. A `WrongScheduleError`
    says that CP-SAT calls an instance infeasible that has a schedule.
    """
    from ppsolve.solver.exact.exact import solve_exactly

    task, board = turn.task, turn.board
    company = Company.SEARCHED if is_searched else Company.NEW
    company = Company.SHARED if turn.is_shared else company
    answer = solve_exactly(
        task.implied, board, limits, company, turn.params.exact.bisection
    )
    if answer.infeasible and board.schedule is not None:
        raise WrongScheduleError(
            "cp-sat calls an instance infeasible that has a schedule"
        )
    board.is_refuted = answer.infeasible
    if answer.bound is not None:
        board.raise_bound(answer.bound, EXACT)
    return task.conclude(answer, limits)


def search_windows(turn: Turn) -> StopReason | None:
    """Solve windows of the best schedule anew."""
    from ppsolve.solver.exact.window_lns import WindowLNS

    windows = turn.params.exact.windows
    return _run_out(
        turn, WindowLNS(turn.task.implied, turn.board, turn.limits(), windows)
    )


def _run_out(turn: Turn, search: Any) -> StopReason | None:
    search.run()
    turn.board.units += search.spent
    return StopReason.INTERRUPTED if search.is_interrupted else None


def window_turns(turn: Turn) -> Turns:
    """Return the search of windows in turns."""
    from ppsolve.solver.exact.window_lns import WindowLNS

    search: WindowLNS | None = None

    def run(clock: Clock) -> None:
        nonlocal search
        if search is None:
            limits = replace(turn.limits(), seconds=None, deterministic=None)
            search = WindowLNS(
                turn.task.implied, turn.board, limits, turn.params.exact.windows
            )
        search.run(clock)

    return run


def orders_meanwhile(turn: Turn) -> Turns:
    """Return the search over orders in turns."""
    schedule = turn.board.schedule
    assert schedule is not None
    return order_turns(schedule, turn.board, turn.params.heuristics)


def sweep_meanwhile(turn: Turn) -> Turns:
    """Return the sweep in turns."""
    return sweep_turns(turn.task.problem, turn.board, turn.params.heuristics)


def bound_by_frontiers(turn: Turn) -> None:
    """Raise the bound by the frontiers of a few devices."""
    raise_by_frontiers(turn, Relaxations(turn.task.implied, turn.clock))


def raise_by_frontiers(turn: Turn, relaxations: Relaxations) -> None:
    """Raise the bound by the frontiers of a few devices of a relaxed problem."""
    from ppsolve.solver.bounds.frontier_devices import FrontierDevices

    params, units = turn.params.frontier, turn.limits().deterministic
    steps = params.steps
    if units is not None:
        steps = min(steps, int(units * params.unit_steps))
    search = FrontierDevices(relaxations, turn.board, params, steps)
    search.run()
    turn.board.units += (steps - search.steps_left) / params.unit_steps


def bound_by_few_devices(turn: Turn) -> StopReason | None:
    """Raise the bound by parts of few devices, each solved by CP-SAT."""
    from ppsolve.solver.exact.few_devices import FewDevices

    params, limits = turn.params.exact.devices, turn.limits()
    if limits.deterministic is None and not turn.clock.is_limited:
        limits = replace(limits, deterministic=params.unlimited_units)
    return _run_out(turn, FewDevices(turn.task.implied, turn.board, limits, params))


def prove_again(turn: Turn) -> Stop | None:
    """Prove once more, with CP-SAT's defaults, what only CP-SAT has proved."""
    limits, budget = turn.limits(), turn.steps
    if turn.options.verify is None:
        if limits.seconds is None:
            limits = replace(limits, deterministic=budget.verified_units)
        elif (seconds := budget.verified_share * turn.board.clock.elapsed) >= (
            budget.verified_seconds
        ):
            limits = replace(limits, seconds=min(seconds, limits.seconds))
        else:
            return None
    claimed = turn.board.bound.value if turn.board.is_closed else None
    is_verified = turn.task.verify(replace(limits, seed=limits.seed + 1))
    turn.task.is_verified = is_verified
    if is_verified is not False:
        return None
    below = "" if claimed is None else f" below {turn.task.shown(claimed)}"
    return Stop(
        StopReason.DISAGREEMENT,
        f"two proofs of cp-sat disagree: the first found no schedule{below}, the second did",
    )


def make_robust(turn: Turn) -> None:
    """Replace the best schedule by one of equal makespan that jitter delays less."""
    turn.task.make_robust(turn.options.robust, turn.clock, turn.options.seed)


def settle(turn: Turn) -> None:
    """Let each op of the best schedule begin as early as its orders allow."""
    turn.task.settle()


BOUNDS = Step(
    "bounds", always, lambda t: t.steps.bounds_share, find_bounds, slack_share=1.0
)
GREEDY = Steps(
    "heuristics", always, _greedy_share, greedy_heuristics, is_one_entry=True
)
QUICK = Step("quick exact", is_small, whole, solve_quickly, EXACT_SLACK)
SEARCHES = Steps("searches", always, whole, searching_heuristics)
WINDOWS = Step(
    NEIGHBOURHOODS,
    has_windows_in_turn,
    lambda t: t.params.exact.windows.in_turn_share,
    search_windows,
    EXACT_SLACK,
)
FRONTIER = Step(
    "frontier", has_frontier, lambda t: t.params.frontier.share, bound_by_frontiers
)
DEVICES = Step(
    FEW_DEVICES,
    has_few_devices,
    lambda t: t.params.exact.devices.share,
    bound_by_few_devices,
)
CPSAT = Step(EXACT, always, whole, solve_whole)
MEANWHILE = (
    Meanwhile(NEIGHBOURHOODS, has_windows, window_turns),
    Meanwhile(ORDERS, has_orders_meanwhile, orders_meanwhile),
    Meanwhile(SWEEP, has_sweep_meanwhile, sweep_meanwhile),
)
WHOLE = Step(
    EXACT,
    has_time_to_search,
    whole,
    in_parallel(FRONTIER, DEVICES, CPSAT, meanwhile=MEANWHILE),
    EXACT_SLACK,
)
SETTLED = Step("settled", has_loose_schedule, whole, settle, runs_anyway=True)
VERIFIED = Step(
    "second proof",
    needs_second_proof,
    whole,
    prove_again,
    EXACT_SLACK,
    runs_anyway=True,
)
ROBUST = Step(
    "robust", asks_for_robust, whole, make_robust, runs_anyway=True, uses_reserve=True
)

STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    QUICK,
    SEARCHES,
    WINDOWS,
    WHOLE,
    SETTLED,
    VERIFIED,
    ROBUST,
)
"""The steps of an instance that is one problem."""

"""Exact searches of K-FAC work: the fewest iterations, the freshest schedule, pinned cycles."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kfac.cycle import lower_cycle
from ppsolve.models.kfac.instance import FREE_PIPELINE, KfacInstance, TieBreak
from ppsolve.models.kfac.pattern import RefreshPattern
from ppsolve.models.kfac.unrolling import (
    MAX_UNROLLED,
    LoweredRefresh,
    lower_refresh,
    unrolled_ops,
)
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.answer import ExactAnswer
from ppsolve.solver.cpsat.demands import Rounding
from ppsolve.solver.cpsat.engine import solve
from ppsolve.solver.cpsat.exact import solve_exactly
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.kfac.component import (
    ComponentResult,
    ComponentSchedule,
    completion_bound,
    end_weights,
)
from ppsolve.solver.kfac.pinned import pinned_cycle
from ppsolve.solver.kfac.requirements import fits_one_period
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

MAX_PLACES = 1_000_000
"""Most pairs of a K-FAC part and a hole of its device, over all iterations of a component, for
which an exact model is built. A pair may be an interval in the domain of an op's start, so this
bounds the size of the model. A number of iterations with more pairs is left open, and the stop
reason is `StopReason.TOO_LARGE`."""

PLAIN_SHARE = 0.5
"""Share of the time for the plain model, before the one that counts the work in every hole. On
`instances/kfac` the plain model settles every number of iterations that it is asked for within
0.03 deterministic units, but for one (replicas of Chimera) that 2.5 units of either leave open."""

PLAIN_UNITS = 10.0
"""Deterministic time for the plain model where there is no limit: 300 times that of those
numbers; without an end the second model would never have its turn."""

FIRST_PASS_LIMIT = 5.0
"""Most seconds (or deterministic units) for a number of iterations on the first pass, so that an
easy larger one need not wait for a hard smaller one: behind the open one above, the next takes
0.03 units."""

TIE_BREAK_LIMIT = 3.0
"""Most seconds (or deterministic units) for the tie-break of one component: on four devices of
Chimera (4x8) 0.5, 1.5 and 3 units give the same schedule, 6 units one that is 0.02 % fresher."""

TIE_BREAK_RESERVE = 1.25
"""Shares of the search are this much smaller than equal ones, so that tie-breaks have time left."""


@dataclass
class Budget:
    """Time of one run, shared out among the searches that are still to come.

    Parameters
    ----------
    limits : SearchLimits
        Limits of the whole run from now on.
    """

    limits: SearchLimits
    began: float = field(default_factory=time.monotonic)
    used_units: float = 0.0

    def share(self, parts: float, most: float | None = None) -> SearchLimits:
        """Return limits for one of several equal parts of the time that is left.

        Parameters
        ----------
        parts : float
            Number of parts.
        most : float, optional
            Most seconds (or deterministic units) of the part.

        Returns
        -------
        SearchLimits
        """
        left = self.limits.less(time.monotonic() - self.began, self.used_units).scaled(1 / parts)
        seconds, units = left.seconds, left.deterministic
        if most is not None:
            if seconds is not None:
                seconds = min(seconds, most)
            if units is not None or seconds is None:
                units = most if units is None else min(units, most)
        return replace(self.limits, seconds=seconds, deterministic=units, gap=0.0)

    def spend(self, outcome: ExactAnswer) -> None:
        """Count the deterministic time that a search took."""
        self.used_units += outcome.deterministic_time


class ComponentSearch:
    """Exact search for the fewest iterations of devices that share one number of them.

    Parameters
    ----------
    pattern : RefreshPattern
        The pinned pipeline and its K-FAC work.
    devices : sequence of int
        The devices, coupled by syncs (usually one).
    tie_break : TieBreak
        The secondary objective at the fewest iterations.
    budget : Budget
        Time of the run.
    """

    def __init__(
        self,
        pattern: RefreshPattern,
        devices: Sequence[int],
        tie_break: TieBreak,
        budget: Budget,
    ) -> None:
        self.pattern = pattern
        self.devices = devices
        self.tie_break = tie_break
        self.budget = budget

    def lowered(self, iterations: int, *, with_weights: bool = False) -> LoweredRefresh:
        """Lower the component at a number of iterations.

        Parameters
        ----------
        iterations : int
            Iterations of each of its devices.
        with_weights : bool
            Let the objective be the tie-break.

        Returns
        -------
        LoweredRefresh
            The problem in ticks.
        """
        counts = [iterations] * len(self.pattern.devices)
        weight_of = end_weights(self.tie_break) if with_weights else None
        return lower_refresh(self.pattern, counts, devices=self.devices, weight_of=weight_of)

    def fewest(self, known: ComponentResult, most: int, components_left: int) -> ComponentResult:
        """Search upwards from the bound until some number of iterations has a schedule.

        Parameters
        ----------
        known : ComponentResult
            Best known schedule and bound.
        most : int
            The largest number worth trying.
        components_left : int
            How many components share the time that is left.

        Returns
        -------
        ComponentResult
        """
        if known.is_proved:
            return known
        result = known
        if (
            known.best is None
            and known.lower < most
            and fits_one_period(self.pattern, self.devices)
        ):
            # Where the largest number is ruled out, all are: memory does not get easier.
            result = self._pass(known, range(most, most + 1), components_left, FIRST_PASS_LIMIT)
            if result.lower > most or result.stop_reason is StopReason.INTERRUPTED:
                return result
        result = self._pass(result, range(known.lower, most + 1), components_left, FIRST_PASS_LIMIT)
        if result.is_proved or _is_final(result):
            return result
        return self._pass(result, range(result.lower, most + 1), components_left)

    def _pass(
        self,
        result: ComponentResult,
        counts: range,
        components_left: int,
        most: float | None = None,
    ) -> ComponentResult:
        is_gapless = True
        for count in counts:
            if result.iterations is not None and count >= result.iterations:
                break
            limits = self.budget.share(components_left * TIE_BREAK_RESERVE, most)
            if limits.seconds == 0:
                return replace(result, stop_reason=StopReason.TIME)
            outcome = self._attempt(count, limits)
            if outcome.schedule is not None:
                result = replace(result, best=self._found(count, outcome.schedule))
            elif not outcome.infeasible:
                is_gapless = False
                result = replace(result, stop_reason=outcome.stop_reason)
            elif is_gapless:
                result = replace(result, lower=count + 1, by="cp-sat")
            if _is_stopped(outcome):
                return result
        return replace(result, stop_reason=StopReason.PROVED) if is_gapless else result

    def _found(self, iterations: int, schedule: Schedule) -> ComponentSchedule:
        lowered = self.lowered(iterations)
        return ComponentSchedule(lowered, Schedule(lowered.problem, schedule.start), "cp-sat")

    def is_too_large(self, iterations: int) -> bool:
        """Return True if no model of so many iterations is built."""
        counts = [iterations] * len(self.pattern.devices)
        places = sum(
            iterations
            * len(self.pattern.holes(device, 1))
            * sum(work.parts for work in self.pattern.devices[device].work)
            for device in self.devices
        )
        ops = unrolled_ops(self.pattern, counts, self.devices)
        return places > MAX_PLACES or ops > MAX_UNROLLED

    def _attempt(self, iterations: int, limits: SearchLimits) -> ExactAnswer:
        if self.is_too_large(iterations):
            return ExactAnswer(None, None, False, StopReason.TOO_LARGE, False, 0.0)
        implied = ImpliedOrder(self.lowered(iterations).problem)
        outcome = self._solve(implied, _plain_limits(limits), window_work=False)
        if outcome.schedule is None and not outcome.infeasible and not _is_stopped(outcome):
            outcome = self._solve(implied, limits.scaled(1 - PLAIN_SHARE), window_work=True)
        if outcome.schedule is not None and check_schedule(implied.problem, outcome.schedule):
            # Amounts of memory were rounded down; rounded up, every schedule keeps them.
            outcome = self._solve(
                implied, limits.scaled(1 - PLAIN_SHARE), window_work=True, rounding="up"
            )
            return replace(outcome, infeasible=False)
        return outcome

    def _solve(
        self,
        implied: ImpliedOrder,
        limits: SearchLimits,
        *,
        window_work: bool,
        incumbent: Schedule | None = None,
        rounding: Rounding = "down",
        lower: int = 0,
    ) -> ExactAnswer:
        try:
            outcome = solve(
                implied,
                lower=lower,
                incumbent=incumbent,
                limits=limits,
                rounding=rounding,
                window_work=window_work,
            )
        except MemoryInfeasible:
            return ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 0.0)
        self.budget.spend(outcome)
        return outcome

    def break_tie(self, result: ComponentResult, components_left: int) -> ComponentResult:
        """Improve a schedule without more iterations; its tie-break value gets a bound.

        Parameters
        ----------
        result : ComponentResult
            The best schedule.
        components_left : int
            How many components share the time that is left.

        Returns
        -------
        ComponentResult
            A schedule at least as good, with the value and bound of the tie-break in ticks.
        """
        if result.best is None or result.iterations is None or self.tie_break is TieBreak.NONE:
            return result
        if self.is_too_large(result.iterations):
            return result
        lowered = self.lowered(result.iterations, with_weights=True)
        incumbent = Schedule(lowered.problem, result.best.schedule.start)
        lower = completion_bound(self.pattern, self.devices, result.iterations, self.tie_break)
        limits = self.budget.share(components_left, TIE_BREAK_LIMIT)
        outcome = self._solve(
            ImpliedOrder(lowered.problem),
            limits,
            window_work=False,
            incumbent=incumbent,
            lower=lower,
        )
        best, by = incumbent, result.best.by
        better = outcome.schedule
        # Amounts of memory are rounded down: the bound holds, a schedule need not.
        is_valid = better is not None and not check_schedule(lowered.problem, better)
        if better is not None and is_valid and better.value < incumbent.value:
            best, by = better, "cp-sat"
        reason = result.stop_reason
        if _is_stopped(outcome):
            reason = StopReason.INTERRUPTED
        bound = max(lower, outcome.bound or 0)
        found = ComponentSchedule(lowered, best, by)
        return replace(
            result,
            best=found,
            stop_reason=reason,
            tie_break=self.tie_break,
            tie=(best.value, bound),
        )


def _plain_limits(limits: SearchLimits) -> SearchLimits:
    if limits.seconds is None and limits.deterministic is None:
        return replace(limits, deterministic=PLAIN_UNITS)
    return limits.scaled(PLAIN_SHARE)


def _is_final(result: ComponentResult) -> bool:
    return result.stop_reason in {StopReason.INTERRUPTED, StopReason.PROVED}


def _is_stopped(outcome: ExactAnswer) -> bool:
    return outcome.stop_reason is StopReason.INTERRUPTED


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

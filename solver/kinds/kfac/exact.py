"""Fewest iterations for one refresh, proved, and the freshest schedule among those."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.kfac.instance import TieBreak
from ppsolve.models.kinds.kfac.pattern import RefreshPattern
from ppsolve.models.kinds.kfac.unrolling import (
    MAX_UNROLLED,
    LoweredRefresh,
    lower_refresh,
    unrolled_ops,
)
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.exact.question import ExactAnswer, Question, SearchLimits
from ppsolve.solver.exact.search import solve
from ppsolve.solver.kinds.kfac.component import (
    ComponentResult,
    ComponentSchedule,
    completion_bound,
    end_weights,
)
from ppsolve.solver.kinds.kfac.requirements import fits_one_period
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(frozen=True)
class RefreshSearchParams:
    """Shares of the exact search for one refresh, and the largest model that is built."""

    max_places: int = (
        1_000_000  # pairs of a part and a hole: each may be an interval of a domain
    )
    first_pass: float = (
        5.0  # most seconds or units for a number, so that larger ones get a turn
    )
    tie_break: float = 3.0  # most seconds or units for the tie-break of a component
    reserve: float = (
        1.25  # shares are so much smaller, so that tie-breaks have time left
    )


@dataclass
class Budget:
    """Time of one run, shared out among the searches that are still to come."""

    limits: SearchLimits  # limits of the whole run from now on
    began: float = field(default_factory=time.monotonic)
    used_units: float = 0.0

    def share(self, shares: float, cap: float | None = None) -> SearchLimits:
        """Return limits for one of several equal shares of the time that is left.

        A share has at most `cap` seconds, or deterministic units.
        """
        remaining = self.limits.less(
            time.monotonic() - self.began, self.used_units
        ).scaled(1 / shares)
        seconds, units = remaining.seconds, remaining.deterministic
        if cap is not None:
            if seconds is not None:
                seconds = min(seconds, cap)
            if units is not None or seconds is None:
                units = cap if units is None else min(units, cap)
        return replace(self.limits, seconds=seconds, deterministic=units, gap=0.0)


@dataclass(frozen=True)
class ComponentSearch:
    """Exact search for the fewest iterations of devices that share one number of them."""

    pattern: RefreshPattern
    devices: Sequence[int]
    tie_break: TieBreak
    budget: Budget
    params: RefreshSearchParams = RefreshSearchParams()

    def lowered(self, iterations: int, *, with_weights: bool = False) -> LoweredRefresh:
        """Lower the component at some iterations; weights make the tie-break the objective."""
        weight_of = end_weights(self.tie_break) if with_weights else None
        return lower_refresh(
            self.pattern, iterations, devices=self.devices, weight_of=weight_of
        )

    def fewest(
        self, initial: ComponentResult, largest: int, components_left: int
    ) -> ComponentResult:
        """Search upwards from the bound until some number of iterations has a schedule.

        Numbers above `largest` are not worth trying. The time that is left is for `components_left`
        components.
        """
        if initial.is_proved:
            return initial
        result, first = initial, self.params.first_pass
        if (
            initial.best is None
            and initial.lower < largest
            and fits_one_period(self.pattern, self.devices)
        ):
            # Where the largest number is ruled out, all are: memory does not get easier.
            result = self._pass(
                initial, range(largest, largest + 1), components_left, first
            )
            if result.lower > largest or result.stop_reason is StopReason.INTERRUPTED:
                return result
        result = self._pass(
            result, range(initial.lower, largest + 1), components_left, first
        )
        # Nothing is left to search where every number is ruled out.
        if result.is_proved or result.stop_reason in {
            StopReason.INTERRUPTED,
            StopReason.PROVED,
        }:
            return result
        return self._pass(result, range(result.lower, largest + 1), components_left)

    def _pass(
        self,
        result: ComponentResult,
        counts: range,
        components_left: int,
        cap: float | None = None,
    ) -> ComponentResult:
        is_gapless = True
        for count in counts:
            if result.iterations is not None and count >= result.iterations:
                break
            limits = self.budget.share(components_left * self.params.reserve, cap)
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
        return ComponentSchedule(
            lowered, Schedule(lowered.problem, schedule.start), "cp-sat"
        )

    def is_too_large(self, iterations: int) -> bool:
        """Whether no model of so many iterations is built."""
        positions = sum(
            iterations
            * len(self.pattern.holes(device, 1))
            * sum(work.parts for work in self.pattern.devices[device].work)
            for device in self.devices
        )
        ops = unrolled_ops(self.pattern, iterations, self.devices)
        return positions > self.params.max_places or ops > MAX_UNROLLED

    def _attempt(self, iterations: int, limits: SearchLimits) -> ExactAnswer:
        if self.is_too_large(iterations):
            return ExactAnswer(None, None, False, StopReason.TOO_LARGE, False, 0.0)
        implied = ImpliedOrder(self.lowered(iterations).problem)
        began = time.monotonic()
        outcome = self._solve(implied, Question(0), limits)
        if outcome.schedule is not None and check_schedule(
            implied.problem, outcome.schedule
        ):
            # Amounts of memory were rounded down; rounded up, every schedule keeps them.
            remaining = limits.less(
                time.monotonic() - began, outcome.deterministic_time
            )
            outcome = self._solve(implied, Question(0, rounding="up"), remaining)
            return replace(outcome, infeasible=False)
        return outcome

    def _solve(
        self, implied: ImpliedOrder, question: Question, limits: SearchLimits
    ) -> ExactAnswer:
        try:
            outcome = solve(implied, question, limits)
        except MemoryInfeasible:
            return ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 0.0)
        self.budget.used_units += outcome.deterministic_time
        return outcome

    def break_tie(
        self, result: ComponentResult, components_left: int
    ) -> ComponentResult:
        """Improve a schedule without more iterations; its tie-break gets a value and bound."""
        if (
            result.best is None
            or result.iterations is None
            or self.tie_break is TieBreak.NONE
        ):
            return result
        if self.is_too_large(result.iterations):
            return result
        lowered = self.lowered(result.iterations, with_weights=True)
        incumbent = Schedule(lowered.problem, result.best.schedule.start)
        lower = completion_bound(
            self.pattern, self.devices, result.iterations, self.tie_break
        )
        limits = self.budget.share(components_left, self.params.tie_break)
        implied = ImpliedOrder(lowered.problem)
        outcome = self._solve(implied, Question(lower, incumbent), limits)
        best, by = incumbent, result.best.by
        better = outcome.schedule
        # Amounts of memory are rounded down: the bound holds, a schedule need not.
        is_valid = better is not None and not check_schedule(lowered.problem, better)
        if better is not None and is_valid and better.value < incumbent.value:
            best, by = better, "cp-sat"
        return replace(
            result,
            best=ComponentSchedule(lowered, best, by),
            stop_reason=StopReason.INTERRUPTED
            if _is_stopped(outcome)
            else result.stop_reason,
            tie_break=self.tie_break,
            tie=(best.value, max(lower, outcome.bound or 0)),
        )


def _is_stopped(outcome: ExactAnswer) -> bool:
    return outcome.stop_reason is StopReason.INTERRUPTED

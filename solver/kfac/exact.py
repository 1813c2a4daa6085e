"""Fewest iterations for one refresh, proved, and the freshest schedule among those."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kfac.instance import TieBreak
from ppsolve.models.kfac.pattern import RefreshPattern
from ppsolve.models.kfac.unrolling import (
    MAX_UNROLLED,
    LoweredRefresh,
    lower_refresh,
    unrolled_ops,
)
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.cpsat.demands import Rounding
from ppsolve.solver.cpsat.engine import ExactAnswer, solve
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.kfac.component import Answer, Found, weigher
from ppsolve.solver.kfac.requirements import is_tidy
from ppsolve.solver.kfac.tie_bounds import completion_bound
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

MAX_PLACES = 1_000_000
"""Most pairs of a K-FAC op and a hole that a model is built of."""

FIRST_SHARE = 0.5
"""Share of the time for the plain model, before the one that counts the work in every hole."""

FIRST_UNITS = 10.0
"""Deterministic time for the plain model where there is no limit."""

QUICK_LIMIT = 5.0
"""Most seconds (or deterministic units) for a number of iterations on the first pass: most are
settled at once, and an easy larger one should not wait for a hard smaller one."""

TIE_BREAK_LIMIT = 3.0
"""Most seconds (or deterministic units) for the tie-break of one component."""


@dataclass
class Budget:
    """Time that is left, shared out among what is still to be done.

    Parameters
    ----------
    limits : SearchLimits
        SearchLimits of the whole run from now on.
    """

    limits: SearchLimits
    began: float = field(default_factory=time.monotonic)
    used_units: float = 0.0

    def share(self, parts: float, most: float | None = None) -> SearchLimits:
        """Return limits for one of so many equal parts of what is left, `most` at most."""
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


class Component:
    """Exact search for the fewest iterations of devices that have one number of them.

    Parameters
    ----------
    pattern : RefreshPattern
        The pinned pipeline and its K-FAC work.
    devices : sequence of int
        The devices, coupled by syncs (usually one).
    tie_break : TieBreak
        What is minimised at the fewest iterations.
    budget : Budget
        Time.
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

    def lowered(self, iterations: int, *, weighed: bool = False) -> LoweredRefresh:
        """Lower the component at a number of iterations."""
        counts = [iterations] * len(self.pattern.devices)
        weigh = weigher(self.tie_break) if weighed else None
        return lower_refresh(self.pattern, counts, devices=self.devices, weigh=weigh)

    def fewest(self, known: Answer, most: int, parts: int) -> Answer:
        """Search upwards from the bound until some number of iterations has a schedule.

        Parameters
        ----------
        known : Answer
            Best known schedule and bound.
        most : int
            The largest number worth trying.
        parts : int
            How many components share the time that is left.
        """
        if known.is_proved:
            return known
        answer = known
        if known.found is None and known.lower < most and is_tidy(self.pattern, self.devices):
            # Where the largest number is ruled out, all are: memory does not get easier.
            answer = self._pass(known, range(most, most + 1), parts, QUICK_LIMIT)
            if answer.lower > most or answer.stop_reason is StopReason.INTERRUPTED:
                return answer
        answer = self._pass(answer, range(known.lower, most + 1), parts, QUICK_LIMIT)
        if answer.is_proved or _is_final(answer):
            return answer
        return self._pass(answer, range(answer.lower, most + 1), parts)

    def _pass(
        self, answer: Answer, counts: range, parts: int, quick: float | None = None
    ) -> Answer:
        """Try numbers of iterations in turn until one has a schedule."""
        is_gapless = True
        for count in counts:
            if answer.iterations is not None and count >= answer.iterations:
                break
            outcome = self._attempt(count, self.budget.share(parts * 1.25, quick))
            if outcome.schedule is not None:
                answer = replace(answer, found=self._found(count, outcome.schedule))
            elif not outcome.infeasible:
                is_gapless = False
                answer = replace(answer, stop_reason=outcome.stop_reason)
            elif is_gapless:
                answer = replace(answer, lower=count + 1, by="cp-sat")
            if _is_stopped(outcome):
                return answer
        return replace(answer, stop_reason=StopReason.PROVED) if is_gapless else answer

    def _found(self, iterations: int, schedule: Schedule) -> Found:
        lowered = self.lowered(iterations)
        return Found(lowered, Schedule(lowered.problem, schedule.start), "cp-sat")

    def is_too_large(self, iterations: int) -> bool:
        """Whether no model of so many iterations is built."""
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
        """Look for a schedule: first with the plain model, then counting work in holes."""
        if self.is_too_large(iterations):
            return ExactAnswer(None, None, False, StopReason.TOO_LARGE, False, 0.0)
        implied = ImpliedOrder(self.lowered(iterations).problem)
        outcome = self._solve(implied, _first(limits), window_work=False)
        if outcome.schedule is None and not outcome.infeasible and not _is_stopped(outcome):
            outcome = self._solve(implied, limits.scaled(1 - FIRST_SHARE), window_work=True)
        if outcome.schedule is not None and check_schedule(implied.problem, outcome.schedule):
            # Amounts of memory were rounded down; rounded up, every schedule keeps them.
            outcome = self._solve(
                implied, limits.scaled(1 - FIRST_SHARE), window_work=True, rounding="up"
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

    def break_tie(self, answer: Answer, parts: int) -> Answer:
        """Improve a schedule without more iterations; its tie-break value gets a bound."""
        if answer.found is None or answer.iterations is None or self.tie_break is TieBreak.NONE:
            return answer
        if self.is_too_large(answer.iterations):
            return answer
        lowered = self.lowered(answer.iterations, weighed=True)
        incumbent = Schedule(lowered.problem, answer.found.schedule.start)
        lower = completion_bound(self.pattern, self.devices, answer.iterations, self.tie_break)
        limits = self.budget.share(parts, TIE_BREAK_LIMIT)
        outcome = self._solve(
            ImpliedOrder(lowered.problem),
            limits,
            window_work=False,
            incumbent=incumbent,
            lower=lower,
        )
        best, by = incumbent, answer.found.by
        better = outcome.schedule
        # Amounts of memory are rounded down: the bound holds, a schedule need not.
        is_valid = better is not None and not check_schedule(lowered.problem, better)
        if better is not None and is_valid and better.value < incumbent.value:
            best, by = better, "cp-sat"
        reason = answer.stop_reason
        if _is_stopped(outcome):
            reason = StopReason.INTERRUPTED
        bound = max(lower, outcome.bound or 0)
        found = Found(lowered, best, by)
        return replace(
            answer,
            found=found,
            stop_reason=reason,
            tie_break=self.tie_break,
            tie=(best.value, bound),
        )


def _first(limits: SearchLimits) -> SearchLimits:
    if limits.seconds is None and limits.deterministic is None:
        return replace(limits, deterministic=FIRST_UNITS)
    return limits.scaled(FIRST_SHARE)


def _is_final(answer: Answer) -> bool:
    """Whether there is nothing left to search: interrupted, or every number ruled out."""
    return answer.stop_reason in {StopReason.INTERRUPTED, StopReason.PROVED}


def _is_stopped(outcome: ExactAnswer) -> bool:
    return outcome.stop_reason is StopReason.INTERRUPTED

"""The exact answer: ask for targets between bound and schedule, then minimise with CP-SAT."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.params import BisectionParams
from ppsolve.solver.exact.question import (
    EXACT,
    Company,
    ExactAnswer,
    Question,
    SearchLimits,
)
from ppsolve.solver.exact.search import solve
from ppsolve.solver.interruptible import await_at_exit
from ppsolve.solver.structure.implied import ImpliedOrder

Ask = Callable[[Question, SearchLimits], ExactAnswer]
"""Asks CP-SAT a question about one problem."""


class Bisection:
    """Questions about targets between the bound and the best schedule.

    A target far below the optimum leaves such narrow start windows that it is refuted at once, and
    a tight bound is met without any objective. A question takes one worker. With two, and no other
    search, halves of the gap are asked for on another thread. The limits are those of all questions
    and of the search after them; the board has a schedule.
    """

    def __init__(
        self,
        ask: Ask,
        board: Board,
        limits: SearchLimits,
        company: Company,
        params: BisectionParams,
    ) -> None:
        assert board.schedule is not None
        self.lower, self.schedule = board.bound.value, board.schedule
        self._analytic = self.lower
        self.units = 0.0
        self.is_interrupted = False
        self._put, self._board, self._limits = ask, board, limits
        self._company, self._params = company, params
        self._began = time.monotonic()
        self._clock: Clock = limits.start().share(self._params.share).apart()
        self._lock = threading.RLock()
        self._is_exact = True

    @property
    def left(self) -> SearchLimits:
        """Limits of the search that follows."""
        return self._limits.less(time.monotonic() - self._began, self.units)

    @property
    def is_closed(self) -> bool:
        """Whether the best schedule is within the gap."""
        value = self.schedule.value
        return value <= self.lower or value - self.lower <= self._limits.gap * value

    def answer(self) -> ExactAnswer:
        """Return the best schedule and bound, once no more is needed or Ctrl-C was pressed."""
        value = self.schedule.value
        reason = StopReason.PROVED if value <= self.lower else StopReason.GAP
        if not self.is_closed:
            reason = StopReason.INTERRUPTED
        return ExactAnswer(self.schedule, self.lower, False, reason, True, self.units)

    def run(self) -> None:
        """Ask until the gap is closed or the time for questions is up."""
        if self.schedule.problem.objective is Objective.COMPLETION:
            return
        if self._has_worker_to_spare:
            with self._halving_in_parallel():
                ask_better = partial(self._ask_better, share=self._params.paired_share)
                self._repeat(ask_better, self._minimise)
        else:
            self._repeat(*self._steps(), self._halve)

    @property
    def _has_worker_to_spare(self) -> bool:
        params = self._params
        is_small = self.schedule.problem.num_ops <= params.paired_ops
        is_free = (
            self._limits.workers == params.few_workers
            and self._limits.deterministic is None
        )
        return self._company is Company.SEARCHED and is_small and is_free

    @contextmanager
    def _halving_in_parallel(self) -> Iterator[None]:
        limits, self._limits = self._limits, replace(self._limits, workers=1)
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._repeat(
                    self._ask_bound,
                    partial(self._halve, share=self._params.proof_share),
                )
            except BaseException as error:
                failed.append(error)
                self._clock.stop()

        thread = threading.Thread(target=work, name="halves", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._clock.stop()
            await_at_exit(thread)
            thread.join(self._params.patience)
            self._limits = limits
        for error in failed:
            raise error

    def _repeat(self, *steps: Callable[[float], None]) -> None:
        budget = self._params.units
        while self._may_ask():
            for step in steps:
                if self._may_ask():
                    step(budget)
            budget *= 2
        if self.is_closed:
            self._clock.stop()

    def _steps(self) -> tuple[Callable[[float], None], ...]:
        if self._company is Company.SHARED:
            return self._ask_better, self._ask_bound, self._minimise
        if self._company is Company.SEARCHED:
            return self._ask_bound, self._ask_better, self._minimise
        return self._ask_bound, self._minimise

    def _ask_bound(self, budget: float) -> None:
        gap, params = self.schedule.value - self.lower, self._params
        is_wide = gap > params.wide_gap * self.schedule.value
        is_vain = is_wide and self._company is not Company.NEW
        if self.lower == self._analytic and not is_vain:
            self._ask(self.lower, params.longer * budget)

    def _ask_better(self, budget: float, share: float | None = None) -> None:
        share = self._params.proof_share if share is None else share
        budget *= self._params.longer
        self._ask(self.schedule.value - 1, budget, share, to_the_end=True)

    def _halve(self, budget: float, share: float | None = None) -> None:
        left_open: int | None = None
        while self._may_ask():
            value, lower = self.schedule.value, self.lower
            if left_open is not None and left_open >= value:
                left_open = None
            if (
                left_open is not None
                and (left_open - lower) * self._params.finest <= value - lower
            ):
                return
            target = (lower + (value if left_open is None else left_open) - 1) // 2
            if not self._ask(target, budget, share):
                left_open = target

    def _minimise(self, budget: float) -> None:
        limits = self._limits_of(self._params.longer * budget)
        answer = self._put(Question(self.lower, self.schedule), limits)
        self._learn(answer)
        self._raise(answer.bound or 0)

    def _may_ask(self) -> bool:
        self._take(self._board.schedule)
        units = self._limits.deterministic
        used_up = units is not None and self.units >= self._params.share * units
        done = self.is_closed or self.is_interrupted or not self._is_exact
        return not (done or used_up or self._clock.is_over)

    def _ask(
        self,
        target: int,
        units: float,
        share: float | None = None,
        *,
        to_the_end: bool = False,
    ) -> bool:
        limits = self._limits_of(units, share)
        gap = self._limits.gap if to_the_end else 1.0
        workers = 1 if limits.workers <= self._params.few_workers else limits.workers
        limits = replace(limits, gap=gap, workers=workers, dynamic_orders=True)
        answer = self._put(Question(self.lower, upper=target), limits)
        is_better = self._learn(answer)
        # Schedules beyond the target are above every bound up to it.
        self._raise(target + 1 if answer.infeasible else min(answer.bound or 0, target))
        return answer.infeasible or is_better

    def _learn(self, answer: ExactAnswer) -> bool:
        with self._lock:
            self.units += answer.deterministic_time
            self._is_exact &= answer.memory_is_exact
            self.is_interrupted |= answer.stop_reason is StopReason.INTERRUPTED
            return self._is_exact and self._take(answer.schedule)

    def _take(self, better: Schedule | None) -> bool:
        with self._lock:
            if better is None or better.value >= self.schedule.value:
                return False
            self.schedule = better
            return True

    def _limits_of(self, units: float, share: float | None = None) -> SearchLimits:
        share = self._params.question_share if share is None else share
        remaining = self.left
        if remaining.deterministic is not None:
            units = min(units, remaining.deterministic)
        seconds = self._clock.left * share / self._params.share
        return replace(
            remaining,
            seconds=min(seconds, remaining.seconds or seconds)
            if self._clock.is_limited
            else None,
            deterministic=units,
            clock=self._clock,
        )

    def _raise(self, bound: int) -> None:
        with self._lock:
            if bound > self.lower:
                self.lower = bound
                self._board.raise_bound(bound, EXACT)


def solve_exactly(
    implied: ImpliedOrder,
    board: Board,
    limits: SearchLimits,
    company: Company,
    params: BisectionParams,
) -> ExactAnswer:
    """Solve a problem with CP-SAT, also where memory amounts have no small exact scale.

    Where a schedule is known, targets between it and the bound come first. Amounts without a scale
    are rounded down: that bound is the problem's, and that schedule is the answer if the checker
    accepts it. Otherwise the remaining time goes to amounts rounded up, whose schedules are all
    valid.

    The board gives the first incumbent and bound, and is told of better ones. The answer has a
    valid schedule, if any, and a bound of the problem itself, in ticks.
    """
    began = time.monotonic()
    incumbent, lower = board.schedule, board.bound.value
    spent, remaining = 0.0, limits
    if incumbent is not None:

        def ask(question: Question, limits: SearchLimits) -> ExactAnswer:
            return solve(implied, question, limits, board)

        narrowed = Bisection(ask, board, limits, company, params)
        narrowed.run()
        if narrowed.is_closed or narrowed.is_interrupted:
            return narrowed.answer()
        lower, incumbent = narrowed.lower, narrowed.schedule
        spent, remaining = narrowed.units, narrowed.left
    first = solve(implied, Question(lower, incumbent), remaining, board)
    first = replace(first, deterministic_time=first.deterministic_time + spent)
    schedule = first.schedule
    if (
        first.memory_is_exact
        or schedule is None
        or not check_schedule(schedule.problem, schedule)
    ):
        if schedule is not None:
            board.propose(schedule, EXACT)
        return first
    remaining = limits.less(time.monotonic() - began, first.deterministic_time)
    lower = max(lower, first.bound or lower)
    second = solve(implied, Question(lower, incumbent, rounding="up"), remaining, board)
    if second.infeasible:
        second = replace(second, schedule=None, infeasible=False)
    proved = second.stop_reason in {StopReason.PROVED, StopReason.INFEASIBLE}
    reason = StopReason.ROUNDING if proved else second.stop_reason
    return replace(second, bound=first.bound, stop_reason=reason)

"""Close the gap from both sides: ask whether any schedule is as good as a target, and halve."""

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
from ppsolve.solver.attended import await_at_exit
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.answer import ExactAnswer, IncumbentSource
from ppsolve.solver.cpsat.limits import SearchLimits

Search = Callable[..., ExactAnswer]
"""`ppsolve.solver.cpsat.engine.solve` on one problem."""

UNITS = 1.0
"""Deterministic time of one question in the first round; doubled by each round. Linear pipelines of
576 ops were proved at their bound in 2.6, V and interleaved ones of 192 refuted in 1 to 2."""

FEW_WORKERS = 2
"""Workers up to which questions get one. Same run, CPU seconds on one worker / on two, with
CP-SAT's dynamic precedences: linear 8 x 24 met at its bound in 0.3 / 0.6, uneven 6 x 12 refuted in
0.15 / 0.35, V 4 x 8 in 0.6 / 1.1, interleaved 0.45 / 0.9. Without dynamic precedences the first was
not met in 2 s on one worker or two, and the second took 0.85 on one and more than 1.9 on two."""

LONGER = 4
"""How much longer a round minimises, or asks whether the analytic bound is met: a tight bound is
met or not, and nothing refutes it."""

QUESTION_SHARE = 0.15
"""Share of the time that is left for one question."""

PROOF_SHARE = 0.4
"""The same for the question which better schedule there is, asked first where somebody else looks
for schedules: what is left may be the proof that there is none. An uneven 16 x 16 with memory for
8 (768 ops) was proved by it in 0.3 units, 2.4 s of CPU time, and a 16 x 64 (3,072 ops) in 0.7 s,
where halving from the analytic bound was 0.5 % off after 20 s on two threads."""

MOST_OPS_BESIDE = 2_000
"""Ops up to which a second thread asks for halves: building a model of more takes a second, and
Python builds one at a time."""

BESIDE_SHARE = 0.6
"""The same where halves are asked for on another thread meanwhile: these have no need of the rest.
A step of FSDP (1,010 ops) was proved by 0.4 to 1 s of it without a break."""

BISECTION_SHARE = 0.8
"""Share of the time for all rounds, about half of which minimise; the rest minimises alone. With
half, a V placement of 4 x 8 was left at 5,267 of 5,239 after 35 s, with this at 5,267 of 5,244."""

FINEST = 8
"""A round ends where the refuted targets come within this part of the gap of an open one."""

WIDE = 0.02
"""Part of the value from which a gap is wide: no analytic bound is met that far below. On an 8 x 16
of unequal micro-batches, 9 % apart, this question took 2 of 13 seconds."""

PATIENCE = 1.0
"""Seconds to wait for a question on another thread that was told to end; it takes up to 0.3 unless
a large model is being built. Nobody hears of one that is left behind."""


class Bisection:
    """Questions about targets between the bound and the best schedule.

    A question takes one worker. With two, and nobody else at work, halves are asked for on another
    thread: 26 of 28 small pipelines were proved in 43 s, where rounds of both proved 25 in 49.
    A target far below the optimum leaves such narrow start windows that it is refuted at once, and
    a tight bound is met without any objective. On 2 workers a V and an interleaved placement of
    4 x 8 were refuted up to 98 % and 88 % of the optimum's gap in 0.4 to 0.9 s of CPU time per
    question, where minimising had raised the bound by 15 % and 0 % of the gap in 2 s; a linear
    8 x 24 was proved in 1.3 s, where minimising was not after 3.

    Parameters
    ----------
    search : callable
        Searches with CP-SAT.
    lower : int
        A proven lower bound, in ticks.
    incumbent : Schedule
        The best known schedule.
    limits : SearchLimits
        Limits of all questions and of what comes after them.
    on_bound : callable, optional
        Told about each better bound, in ticks.
    feed : callable, optional
        Asked for the best schedule that was found elsewhere.
    is_searched : bool
        Searches have found the schedule. Often nothing is better then, which every round asks
        before it minimises: an uneven 6 x 12 and 8 x 16 were proved in 6.8 and 4.4 s of CPU time,
        and not in 10 and 12 without. From list schedules halves are faster, 2.1 s instead of 3.7
        at the median of seven uneven 8 x 12.
    """

    def __init__(
        self,
        search: Search,
        lower: int,
        incumbent: Schedule,
        limits: SearchLimits,
        on_bound: Callable[[int], None] | None = None,
        feed: IncumbentSource | None = None,
        *,
        is_searched: bool = False,
    ) -> None:
        self.lower, self.schedule = lower, incumbent
        self._analytic = lower
        self.units = 0.0
        self.is_interrupted = False
        self._search, self._limits, self._on_bound = search, limits, on_bound
        self._feed, self._is_searched = feed, is_searched
        self._began = time.monotonic()
        self._clock: Clock = limits.start().share(BISECTION_SHARE).apart()
        self._lock = threading.RLock()
        self._is_exact = True

    @property
    def left(self) -> SearchLimits:
        """Limits of the search that follows."""
        return self._limits.less(time.monotonic() - self._began, self.units)

    @property
    def is_closed(self) -> bool:
        """Whether the best schedule is within the gap that is asked for."""
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
            with self._halving_beside():
                self._repeat(partial(self._ask_better, share=BESIDE_SHARE), self._minimise)
        else:
            self._repeat(*self._steps(), self._halve)

    @property
    def _has_worker_to_spare(self) -> bool:
        """Whether halves are asked for on a thread of their own, as a question takes one worker."""
        is_alone = self._feed is None and self._limits.deterministic is None
        is_small = self.schedule.problem.num_ops <= MOST_OPS_BESIDE
        is_free = is_alone and self._limits.workers == FEW_WORKERS
        return self._is_searched and is_small and is_free

    @contextmanager
    def _halving_beside(self) -> Iterator[None]:
        """Raise the bound on another thread as long as the context lasts."""
        whole, self._limits = self._limits, replace(self._limits, workers=1)
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._repeat(self._ask_bound, partial(self._halve, share=PROOF_SHARE))
            except BaseException as error:
                failed.append(error)
                self._clock.stop()

        beside = threading.Thread(target=work, name="halves", daemon=True)
        beside.start()
        try:
            yield
        finally:
            self._clock.stop()
            await_at_exit(beside)
            beside.join(PATIENCE)
            with self._lock:
                self._on_bound = None
            self._limits = whole
        for error in failed:
            raise error

    def _repeat(self, *steps: Callable[[float], None]) -> None:
        """Take steps in turn with twice the effort each time, while there is reason to."""
        budget = UNITS
        while self._may_ask():
            for step in steps:
                if self._may_ask():
                    step(budget)
            budget *= 2
        if self.is_closed:
            self._clock.stop()

    def _steps(self) -> tuple[Callable[[float], None], ...]:
        """Return the steps of a round before its halves: of a large gap they are met one by one."""
        if self._feed is not None:
            return self._ask_better, self._ask_bound, self._minimise
        if self._is_searched:
            return self._ask_bound, self._ask_better, self._minimise
        return self._ask_bound, self._minimise

    def _ask_bound(self, budget: float) -> None:
        """Ask whether the analytic bound is met, once; nobody else can refute it."""
        is_wide = self.schedule.value - self.lower > WIDE * self.schedule.value
        if self.lower == self._analytic and not (is_wide and self._is_searched):
            self._ask(self.lower, LONGER * budget)

    def _ask_better(self, budget: float, share: float = PROOF_SHARE) -> None:
        self._ask(self.schedule.value - 1, LONGER * budget, share, to_the_end=True)

    def _halve(self, budget: float, share: float = QUESTION_SHARE) -> None:
        """Ask for halves of the gap: above what is refuted, below what is left open."""
        left_open: int | None = None
        while self._may_ask():
            value, lower = self.schedule.value, self.lower
            if left_open is not None and left_open >= value:
                left_open = None
            if left_open is not None and (left_open - lower) * FINEST <= value - lower:
                return
            target = (lower + (value if left_open is None else left_open) - 1) // 2
            if not self._ask(target, budget, share):
                left_open = target

    def _minimise(self, budget: float) -> None:
        """Search for the best schedule for a while: it learns what single questions do not."""
        limits = self._question(LONGER * budget)
        answer = self._search(
            lower=self.lower, incumbent=self.schedule, limits=limits, on_bound=self._on_bound
        )
        self._learn(answer)
        self._raise(answer.bound or 0)

    def _may_ask(self) -> bool:
        self._listen()
        units = self._limits.deterministic
        used_up = units is not None and self.units >= BISECTION_SHARE * units
        done = self.is_closed or self.is_interrupted or not self._is_exact
        return not (done or used_up or self._clock.is_over)

    def _ask(
        self, target: int, units: float, share: float = QUESTION_SHARE, *, to_the_end: bool = False
    ) -> bool:
        """Ask whether a schedule of at most so many ticks exists, or which is the best one.

        Returns
        -------
        bool
            Whether there is an answer.
        """
        limits = self._question(units, share)
        gap = self._limits.gap if to_the_end else 1.0
        workers = 1 if limits.workers <= FEW_WORKERS else limits.workers
        limits = replace(limits, gap=gap, workers=workers, dynamic_orders=True)
        answer = self._search(lower=self.lower, incumbent=None, upper=target, limits=limits)
        is_better = self._learn(answer)
        # Schedules beyond the target are above every bound up to it.
        self._raise(target + 1 if answer.infeasible else min(answer.bound or 0, target))
        return answer.infeasible or is_better

    def _learn(self, answer: ExactAnswer) -> bool:
        """Take the schedule of an answer; return whether it is the best one."""
        with self._lock:
            self.units += answer.deterministic_time
            self._is_exact &= answer.memory_is_exact
            self.is_interrupted |= answer.stop_reason is StopReason.INTERRUPTED
            return self._is_exact and self._take(answer.schedule)

    def _listen(self) -> None:
        """Take the best schedule that was found elsewhere."""
        if self._feed is not None:
            self._take(self._feed())

    def _take(self, better: Schedule | None) -> bool:
        with self._lock:
            if better is None or better.value >= self.schedule.value:
                return False
            self.schedule = better
            return True

    def _question(self, units: float, share: float = QUESTION_SHARE) -> SearchLimits:
        """Return limits of one search."""
        left = self.left
        if left.deterministic is not None:
            units = min(units, left.deterministic)
        seconds = self._clock.left * share / BISECTION_SHARE
        return replace(
            left,
            seconds=min(seconds, left.seconds or seconds) if self._clock.is_limited else None,
            deterministic=units,
            clock=self._clock,
        )

    def _raise(self, bound: int) -> None:
        with self._lock:
            if bound > self.lower:
                self.lower = bound
                if self._on_bound is not None:
                    self._on_bound(bound)

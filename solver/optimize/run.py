"""One run of `optimize`: bounds, heuristics, searches, whatever the kind of the instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ppsolve.models.core.deferred import Deferred
from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    Status,
    StopReason,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.text import instance_data
from ppsolve.solver.attended import InterruptibleCall
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.kernels.compilation import answering_within, expect, load_compiler
from ppsolve.solver.kinds.entries import bound_entries, relative_gap, versions
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.task import EXACT, Task, load_exact_solver
from ppsolve.solver.optimize.progress import ProgressListener, ProgressReporter
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

RESERVED_SECONDS, RESERVED_PER_OP, MOST_RESERVED = 0.05, 2e-6, 0.25
"""Part of the limit that is kept for the result: seconds, seconds per op, share of the limit.

The result of 196,608 ops takes 0.15 s on a machine whose processors are all busy; entries of
heuristics are made as they end.
"""

GREEDY_STEPS, SEARCH_STEPS = 15, 300
"""Steps of kernels for each op: of bounds and schedules in all, and of one heuristic that searches.

A sweep places 110 ops for each op and 70,000 more, up to 700 for each: 300 is that of 350 ops.
"""

LOADING_SECONDS = 2.0
"""Seconds that must be left to load compiled code, which takes 0.8 s, on a busy machine 2."""

LARGE_OPS = 20_000
"""Instances of so many ops get list schedules first, which keep memory limits by themselves: of
what was published for pipelines some break them, and one schedule may be all there is time for."""

BOUNDS_SHARE = 0.15
"""Share of the time after which no further bound is sought; one that runs gets as much again."""

GREEDY_SHARE = 0.5
"""Share of the time for heuristics that do not search, where an exact search can follow."""

AFTER_SHARE = 0.25
"""The same of the time that a glance has left. Published schedules of 32 fixed replicas (2 stages,
8 micro-batches) took 1 s of a limit of 2 s, in which a glance proves the best one."""

SWEEP_SHARE = 0.3
"""Share of the time for each heuristic that searches, where an exact search can follow."""

STEADY_SHARE = 0.2
"""Share of the time in which the best schedule is made one that jitter delays less, where that is
asked for."""

LAST_SHARE = 0.2
"""Share that is left for the last schedule of such a heuristic where no exact search follows."""

SEARCH_SHARES = ((1_000, 0.3), (4_000, 0.6))
"""Ops from which a heuristic that searches goes on after its effort is spent, unless it does so
beside the exact search, and shares of the time. Below, CP-SAT proves most; from 4,000 ops on it
hardly improves a schedule within a minute."""

SHARE_BESIDE_PARTS = 0.4
"""The most such a share is where parts of the best schedule are solved anew afterwards, which
improves large ones too. Shipped 32 x 128 (12,288 ops), 24 s of CPU time: 0.47 % above the bound
with 0.4, 0.56 % with 0.6."""

VERIFIED_OPS, VERIFIED_SHARE = 200, 0.1
"""Ops below which a proof of CP-SAT is repeated unasked, and share of the time so far for that."""

VERIFIED_SECONDS, VERIFIED_UNITS = 0.003, 0.02
"""Seconds below which that is not begun, as the smallest models take so long to build, and
deterministic time for it where no clock runs. Proofs of shipped instances below 200 ops took 1 to
20 ms."""

EXACT_SLACK = 0.25
"""Seconds beyond its clock that a search gets to return what it found."""

OUT_OF_TIME = "not run to its end: the time limit was reached"


@dataclass
class _Ending:
    """Why a run stopped, and what there is to say about it."""

    reason: StopReason | None = None
    words: str | None = None


class SolveRun:
    """State of one run; `execute` returns its result.

    Parameters
    ----------
    task : Task
        The instance that is solved.
    heuristics : sequence of Heuristic
        What is run, in the order of the report.
    options : Options
        Limits and seed.
    listener : callable, optional
        Told about progress, by one thread at a time.
    clock : Clock, optional
        Clock of the whole call; one that begins now by default.
    """

    def __init__(
        self,
        task: Task,
        heuristics: Sequence[Heuristic],
        options: Options,
        listener: ProgressListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.task = task
        self.heuristics = heuristics
        self.options = options
        self.whole = options.clock() if clock is None else clock
        limit = self.whole.left if self.whole.is_limited else 0.0
        reserve = RESERVED_SECONDS + RESERVED_PER_OP * task.size
        self.ending = self.whole.before(min(reserve, MOST_RESERVED * limit))
        is_robust = options.robust is not None
        self.clock = self.ending.share(1 - STEADY_SHARE) if is_robust else self.ending
        self._teller = ProgressReporter(listener, self.whole, task.shown)
        self._end = _Ending()
        self._has_glanced = False
        self._is_verified: bool | None = None
        # Made as heuristics end, so that little is left to do for the result.
        self._entries: dict[str, HeuristicEntry] = {}
        self._work = InterruptibleCall(
            self._phases,
            self.ending,
            self._teller.tick,
            is_attended=self.whole.is_limited or self._teller.is_heard,
        )

    def execute(self) -> Result:
        """Run every phase until the optimum is proved or a limit is reached."""
        with answering_within(self.clock.left):
            is_complete = self._work.run()
        self._teller.close()
        if not is_complete:
            self.task = self.task.snapshot()
            self.task.outcomes += self._unfinished()
            if self._end.reason not in {StopReason.INFEASIBLE, StopReason.DISAGREEMENT}:
                self._end = _Ending(StopReason.PROVED if self.task.is_closed else StopReason.TIME)
        if self._work.is_interrupted and self._end.reason is not StopReason.INFEASIBLE:
            self._end = _Ending(StopReason.INTERRUPTED)
        return self._result()

    def limits(self) -> SearchLimits:
        """Return the limits of a search that begins now."""
        return self.options.limits(self.clock)

    def tell(
        self, event: str, source: str, value: int | None = None, bound: int | None = None
    ) -> None:
        """Tell the listener of an event.

        Parameters
        ----------
        event, source : str
            As in `Progress`.
        value, bound : int, optional
            Best value and bound so far; the task's by default.
        """
        task = self.task
        value = task.value if value is None else value
        self._teller.tell(event, source, value, task.bound.value if bound is None else bound)

    def _phases(self) -> None:
        try:
            self._announce(GREEDY_STEPS * self.task.size)
            self._find_bounds()
            self._run_heuristics()
            if self._end.reason is not StopReason.INTERRUPTED and not self._is_over():
                self._search()
            self._verify()
            if not self._is_impossible() and self._end.reason is not StopReason.INTERRUPTED:
                self._finish()
            if self.options.robust is not None and self.task.value is not None:
                self._steady(self.options.robust)
        except MemoryInfeasible as error:
            self._end = _Ending(StopReason.INFEASIBLE, str(error))

    def _steady(self, variation: float) -> None:
        """Make the best schedule one that jitter delays less."""
        self._teller.phase = "steadying"
        self._work.within(
            self.ending,
            lambda: self.task.steady(variation, self.ending, self.options.seed),
        )

    def _announce(self, steps: int) -> None:
        """Let compiled code be loaded where it pays and time allows."""
        if self.clock.left >= LOADING_SECONDS:
            expect(steps)
            load_compiler()

    def _find_bounds(self) -> None:
        self._teller.phase = "bounds"
        if self.clock.is_limited:
            # The cheapest apart: one that takes too long is broken off, and the first kernel of a
            # process loads LLVM, a tenth of a second that is no part of their share.
            first = self.clock.share(2 * BOUNDS_SHARE)
            self._work.within(first, lambda: self.task.find_bounds(Clock(0.0)))
        asked, hard = self.clock.share(BOUNDS_SHARE), self.clock.share(2 * BOUNDS_SHARE)
        self._work.within(hard, lambda: self.task.find_bounds(asked))
        self.tell("bound", self.task.bound.name)

    def _in_turn(self) -> Sequence[Heuristic]:
        """Return the heuristics by report, searches last, of a large instance the safe first."""
        if not self.clock.is_limited or self.task.size < LARGE_OPS:
            return sorted(self.heuristics, key=lambda h: h.is_search)
        return sorted(self.heuristics, key=lambda h: (h.is_search, not h.is_generic))

    def _run_heuristics(self) -> None:
        stretch = 1 / GREEDY_SHARE if self.task.is_too_large else 1.0
        greedy = self.clock.share(GREEDY_SHARE * stretch)
        for heuristic in self._in_turn():
            if self._end.reason is StopReason.INTERRUPTED:
                return
            if not heuristic.is_search:
                is_needed = self.task.value is None and not heuristic.is_own
                clock = self.clock if is_needed else greedy
                self._run_heuristic(heuristic, clock)
                if self._glances_now():
                    self._glance()
                    greedy = self.clock.share(AFTER_SHARE * stretch)
            elif not self._is_good_enough() and not self.clock.is_over:
                self._glance()
                if not self._is_good_enough() and self._end.reason is None:
                    self._run_search(heuristic)

    def _glances_now(self) -> bool:
        """Whether a task is glanced at as soon as it has any schedule."""
        task = self.task
        is_early = task.glances_first and task.value is not None and not self._has_glanced
        return is_early and not self.options.deterministic and not self._is_good_enough()

    def _glance(self) -> None:
        """Let a small problem be proved before any heuristic searches."""
        if self._has_glanced or self.limits().seconds == 0:
            return
        self._has_glanced = True
        self._teller.phase = EXACT
        self._work.within(self.clock, self._note_glance, EXACT_SLACK)

    def _note_glance(self) -> None:
        if self.task.glance(self) is StopReason.INTERRUPTED:
            self._end.reason = StopReason.INTERRUPTED

    def _run_search(self, heuristic: Heuristic) -> None:
        """Run a heuristic that searches: until time is over where no exact search follows."""
        task = self.task
        share = SWEEP_SHARE
        for size, larger in SEARCH_SHARES:
            share = larger if task.size >= size else share
        if task.has_parts:
            share = min(share, SHARE_BESIDE_PARTS)
        if task.is_too_large:
            share = 1 - LAST_SHARE
        uses_all = task.size >= SEARCH_SHARES[0][0] and not task.searches_beside(self.options)
        effort = Effort(
            self.clock.share(share),
            task.bound.value,
            uses_all=uses_all,
            known=task.best_schedule,
            tell=lambda better: self._hear(better, heuristic.name),
        )
        self._announce(SEARCH_STEPS * self.task.size)
        self._run_heuristic(heuristic, self.clock.share(min(1.0, 2 * share)), effort)

    def _hear(self, better: Schedule, by: str) -> None:
        """Keep a schedule of a search that goes on."""
        if self.task.hear(better, by):
            self.tell("incumbent", by)

    def _run_heuristic(
        self, heuristic: Heuristic, clock: Clock, effort: Effort | None = None
    ) -> None:
        """Run a heuristic until a clock is over; then it has failed."""
        task, before = self.task, self.task.value
        count = len(task.outcomes)
        self._teller.phase = heuristic.name
        is_run = not clock.is_over and self._work.within(
            clock, lambda: task.run_heuristic(heuristic, effort or Effort(clock))
        )
        if self._work.is_interrupted:
            return
        if not is_run:
            task.outcomes[count:] = [] if heuristic.is_search else [self._left_out(heuristic)]
        for outcome in task.outcomes[count:]:
            self._entries[outcome.name] = task.entry(outcome)
        if not task.outcomes[count:] or task.outcomes[-1].status is HeuristicStatus.NOT_APPLICABLE:
            return
        if task.value != before:
            self.tell("incumbent", heuristic.name)
        self.tell("heuristic", heuristic.name)

    def _left_out(self, heuristic: Heuristic) -> HeuristicOutcome:
        """Return the outcome of a heuristic that there was no time for."""
        reason = self.task.kind.obstacle(heuristic, self.task.instance)
        if reason is not None:
            return HeuristicOutcome(heuristic.name, HeuristicStatus.NOT_APPLICABLE, reason=reason)
        return HeuristicOutcome(heuristic.name, HeuristicStatus.FAILED, reason=OUT_OF_TIME)

    def _unfinished(self) -> list[HeuristicOutcome]:
        """Return the outcomes of heuristics that the run was left behind in, or before."""
        if self._work.is_interrupted:
            return []
        ended = {outcome.name for outcome in self.task.outcomes}
        waiting = (one for one in self.heuristics if not one.is_search and one.name not in ended)
        return [self._left_out(heuristic) for heuristic in waiting]

    def _is_good_enough(self) -> bool:
        """Whether the best schedule is proved or within the gap that is asked for."""
        task = self.task
        if task.value is None:
            return False
        return task.is_closed or (
            relative_gap(task.value, task.bound.value, task.value) <= self.options.gap
        )

    def _is_impossible(self) -> bool:
        """Whether it is proved that there is no schedule; notes why."""
        if self.task.infeasible is not None:
            self._end = _Ending(StopReason.INFEASIBLE, self.task.infeasible)
        return self._end.reason is StopReason.INFEASIBLE

    def _is_over(self) -> bool:
        """Whether there is nothing left to search for; notes why."""
        if self._is_impossible():
            return True
        if self._is_good_enough():
            closed = self.task.is_closed
            self._end.reason = StopReason.PROVED if closed else StopReason.GAP
            return True
        return False

    def _search(self) -> None:
        if self.task.is_too_large:
            self._end.reason = StopReason.TOO_LARGE
            return
        if self.limits().seconds == 0:
            self._end.reason = StopReason.TIME
            return
        # First: an interrupt while a compiled module is loading may be lost.
        load_exact_solver()
        self.tell("phase", EXACT)
        if not self._work.within(self.clock, self._try_strategies, EXACT_SLACK):
            self._end.reason = StopReason.PROVED if self.task.is_closed else StopReason.TIME

    def _try_strategies(self) -> None:
        for strategy in self.task.strategies(self.options):
            self._end.reason = strategy(self)
            if self._end.reason is StopReason.INFEASIBLE:
                self._end.words = "no schedule satisfies every rule (proved by cp-sat)"
            if self._end.reason is StopReason.INTERRUPTED or self._is_over():
                return

    def _verify(self) -> None:
        """Repeat a proof of CP-SAT, so that not it alone is to be trusted."""
        task, limits = self.task, self.limits()
        is_refuted = self._end.reason is StopReason.INFEASIBLE and task.infeasible is None
        if (
            self.options.verify is False
            or limits.seconds == 0
            or not (task.is_closed or is_refuted)
        ):
            return
        if self.options.verify is None:
            if task.size >= VERIFIED_OPS:
                return
            if limits.seconds is None:
                limits = replace(limits, deterministic=VERIFIED_UNITS)
            elif (seconds := VERIFIED_SHARE * self.whole.elapsed) >= VERIFIED_SECONDS:
                limits = replace(limits, seconds=min(seconds, limits.seconds))
            else:
                return
        limits = replace(limits, seed=limits.seed + 1)
        self._teller.phase = "verifying"
        self._work.within(self.clock, lambda: self._note_verified(limits), EXACT_SLACK)

    def _note_verified(self, limits: SearchLimits) -> None:
        claimed = self.task.bound.value if self.task.is_closed else None
        self._is_verified = self.task.verify(self, limits)
        if self._is_verified is False:
            below = "" if claimed is None else f" below {self.task.shown(claimed)}"
            words = (
                f"two proofs of cp-sat disagree: the first found no schedule{below}, the second did"
            )
            self._end = _Ending(StopReason.DISAGREEMENT, words)

    def _finish(self) -> None:
        if self.limits().seconds != 0:
            self._work.within(self.clock, self._improve_further, EXACT_SLACK)

    def _improve_further(self) -> None:
        self._end.reason = self.task.finish(self) or self._end.reason

    def _status(self) -> Status:
        if self._end.reason is StopReason.INFEASIBLE:
            return Status.INFEASIBLE
        if self.task.value is None:
            return Status.UNKNOWN
        return Status.OPTIMAL if self.task.is_closed else Status.FEASIBLE

    def _result(self) -> Result:
        task, options, status = self.task, self.options, self._status()
        model, _ = task.kind.documents(task.kind.value_unit(task.instance))
        fields = {
            "instance": task.instance.name,
            "kind": task.kind.name,
            "status": status,
            "objective": task.objective,
            "time_unit": task.scale.unit,
            "value_unit": task.kind.value_unit(task.instance),
            "stop_reason": self._end.reason or StopReason.PROVED,
            "reason": self._end.words,
            "bound_verified": self._is_verified,
            "wall_seconds": round(self.whole.elapsed, 3),
            "seed": options.seed,
            "workers": options.used_workers,
            "deterministic": options.deterministic,
            "robust": options.robust,
            "tick_error": task.scale.time(task.tick_error),
            "versions": versions(),
            "instance_document": Deferred(partial(instance_data, task.instance)),
            "bounds": bound_entries(task.bounds, task.shown),
            "heuristics": [self._entry(outcome) for outcome in self._in_order(task.outcomes)],
            **({} if status is Status.INFEASIBLE else self._found()),
        }
        result: Result = model.model_validate(fields)
        return result

    def _in_order(self, outcomes: Sequence[HeuristicOutcome]) -> list[HeuristicOutcome]:
        """Return outcomes in the order of reports, those of searches last."""
        place = {heuristic.name: number for number, heuristic in enumerate(self.heuristics)}
        return sorted(outcomes, key=lambda outcome: place.get(outcome.name, len(place)))

    def _entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic beside the best value."""
        entry = self._entries.get(outcome.name) or self.task.entry(outcome)
        value, best = self.task.value_of(outcome), self.task.value
        if value is None or best is None:
            return entry
        return entry.model_copy(update={"gap": relative_gap(value, best, best)})

    def _found(self) -> dict[str, Any]:
        """Return the best schedule's figures, its bound and its gap."""
        task, value = self.task, self.task.value
        found: dict[str, Any] = {
            "bound": task.shown(task.bound.value),
            "bound_by": task.bound.name,
            "bottleneck": task.bottleneck(),
        }
        if value is not None:
            found["value"] = task.shown(value)
            found["gap"] = relative_gap(value, task.bound.value, value)
            found["best_by"] = task.best_by
        return found | task.figures()

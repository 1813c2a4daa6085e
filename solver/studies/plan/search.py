"""State of a search over configurations, and the steps that look at one more closely."""

from __future__ import annotations

import heapq
from contextlib import suppress
from dataclasses import replace
from functools import cache

from ppsolve.models.core.result import Result
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.plan.request import PlanRequest
from ppsolve.models.studies.plan.result import Configuration, Rule
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics, quick_heuristics
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.claimed import RULE
from ppsolve.solver.kinds.pipeline.runtimes.timing import figures_of
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.solve_run import SolveRun
from ppsolve.solver.studies.goodput.step import StepTime
from ppsolve.solver.studies.plan.arrays import PipelineArrays
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.candidate import Candidate, Level
from ppsolve.solver.studies.plan.list_scheduling import (
    FIRST_RULE,
    QuickSchedule,
    QuickScheduler,
    result_of,
)
from ppsolve.solver.studies.plan.params import PlanLimits, WarmUpRule
from ppsolve.solver.studies.plan.progress import (
    PHASES,
    PlanListener,
    PlanNews,
    PlanProgress,
)
from ppsolve.solver.studies.plan.space import ConfigurationSpace
from ppsolve.solver.studies.plan.split import Boundaries, SplitUndecidedError
from ppsolve.solver.studies.plan.split_search import SplitSearch


class PlanSearch:
    """State of one search, and the steps by which candidates are refined.

    The levels are a bound for any split of the layers, a split with the work bound, heuristics with
    all bounds, the exact solver. `strategy.py` says in which order. `listener` is told the
    state of the search; `clock` ends it, by default after the time limit.
    """

    def __init__(
        self,
        request: PlanRequest,
        space: ConfigurationSpace,
        limits: PlanLimits,
        listener: PlanListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.request, self.limits = request, limits
        options = limits.options
        self.clock = clock or Clock(
            None if options.deterministic else options.time_limit
        )
        self._splits = {
            profile.variant: SplitSearch(
                request.alone(profile), limits.params, self.clock, limits.runtime
            )
            for profile in request.profiles
        }
        self.news = PlanNews(listener, self.clock, self._progress)
        self._solved = 0
        self._tried = set[int]()
        self._efficiency = cache(request.goodput.efficiency)
        self.winner: Candidate | None = None
        self.result: Result | None = None
        self.interrupted = False
        self.candidates = [
            self._candidate(index, configuration)
            for index, configuration in enumerate(space.configurations)
        ]

    def builder(self, configuration: Configuration) -> PipelineBuilder:
        """Return the builder for the profile of a configuration."""
        return self._splits[configuration.variant].builder

    def quick(self, configuration: Configuration) -> QuickScheduler:
        """Return the scheduler for the profile of a configuration."""
        return self._splits[configuration.variant].quick

    def _splits_of(self, candidate: Candidate) -> SplitSearch:
        return self._splits[candidate.configuration.variant]

    @property
    def open_candidates(self) -> list[Candidate]:
        """Candidates that are not proved impossible."""
        return [c for c in self.candidates if c.ruled_out is None]

    def prove(self) -> None:
        """Refine the most promising candidate until the winner beats all or limits end it."""
        queue = [(c.promise, c) for c in self.open_candidates]
        heapq.heapify(queue)
        while queue:
            promise, candidate = heapq.heappop(queue)
            self.tell(candidate)
            _ = self.is_late or self.is_outdone(candidate)
            if promise != candidate.promise:
                heapq.heappush(queue, (candidate.promise, candidate))
                continue
            if self.is_beaten(candidate) and not self.limits.exhaustive:
                return
            if self._next_split(candidate) is not None or self._may_list(candidate):
                self.refine(candidate)
                if candidate.ruled_out is None:
                    heapq.heappush(queue, (candidate.promise, candidate))

    def note(self, candidate: Candidate) -> None:
        """Let a candidate that has a better schedule be the winner, if it is the best."""
        if candidate.step.reached is None:
            return
        best = self.winner
        if best is None or candidate is best or candidate.standing < best.standing:
            if best is not None and best is not candidate and not best.is_finalist:
                best.start = None
            self.winner, self.result = candidate, None
        elif not candidate.is_finalist:
            candidate.start = None

    def finish(self) -> None:
        """Make the document of the winner's schedule, if no run has made it."""
        winner = self.winner
        if winner is None or self.result is not None:
            return
        start = winner.known_start()
        arrays, method = winner.arrays, winner.step.method
        assert start is not None and arrays is not None and method is not None
        instance = self._instance(winner)
        self.result = result_of(instance, arrays, start, method)
        if self.limits.runtime is not None:
            figures = figures_of(self.limits.runtime, instance, method)
            self.result = self.result.model_copy(update={RULE: figures})

    def is_outdone(self, candidate: Candidate) -> bool:
        """Whether it is beaten once the bound of all its splits is found, which takes some time."""
        if (
            candidate.is_searched
            and not candidate.is_bounded
            and not self.is_beaten(candidate)
        ):
            candidate.is_bounded = True
            candidate.rest = max(
                candidate.rest, self._splits_of(candidate).bound(candidate)
            )
        return self.is_beaten(candidate)

    def is_beaten(self, candidate: Candidate) -> bool:
        """Whether the winner reaches at least the highest goodput of the candidate."""
        if self.winner is None or candidate is self.winner:
            return False
        promise = (
            candidate.promise[0] * (1 - self.limits.options.gap),
            candidate.index,
        )
        return promise >= self.winner.standing

    def tell(self, candidate: Candidate) -> None:
        """Tell the listener the next step of a candidate, if there is news."""
        self.news.tell(PHASES[min(candidate.level, 3)])

    @property
    def high(self) -> float:
        """Goodput that no configuration exceeds."""
        return max(self._best, *(c.high for c in self.open_candidates), 0.0)

    def _progress(self, phase: str) -> PlanProgress:
        return PlanProgress(
            seconds=self.clock.elapsed,
            phase=phase,
            examined=sum(map(self._is_examined, self.candidates)),
            enumerated=len(self.candidates),
            best=None if self.winner is None else self.winner.low,
            bound=self.high,
        )

    def _is_examined(self, candidate: Candidate) -> bool:
        is_decided = candidate.ruled_out is not None or self.is_beaten(candidate)
        is_known = (
            candidate.level > Level.ENUMERATED or candidate.step.reached is not None
        )
        return is_decided or is_known

    def _candidate(self, index: int, configuration: Configuration) -> Candidate:
        builder = self.builder(configuration)
        efficiency = self._efficiency(configuration.batch_size)
        rate = (
            configuration.batch_size
            * efficiency
            * UNITS_PER_SECOND[self.request.time_unit]
        )
        step = StepTime(builder.least_step(configuration))
        candidate = Candidate(index, configuration, rate, efficiency, step)
        if candidate.is_searched:
            candidate.rest = candidate.step.floor
        needed = builder.lack_of_memory(
            configuration.microbatch_size, configuration.pipeline_depth
        )
        if needed is not None:
            candidate.lose_by_memory(needed)
        return candidate

    def may_refine_split(self, candidate: Candidate) -> bool:
        """Whether the split of a candidate can be, and the limits allow it."""
        is_done = candidate.is_final or candidate.is_stuck or candidate.is_closed
        if is_done or candidate.level is Level.SOLVED:
            return False
        if self.limits.exhaustive:
            return True
        if self.is_late:
            return False
        if candidate.level < Level.MEASURED:
            return True
        return self._solved < self.limits.finalists and not self.clock.is_over

    @property
    def is_late(self) -> bool:
        """Whether the time is up, and there is a winner or enough was tried to find one.

        If no configuration fits, planning may exceed its limit.
        """
        enough = self.limits.params.least_tried
        return (
            self.winner is not None or len(self._tried) >= enough
        ) and self.clock.is_over

    def refine(self, candidate: Candidate) -> None:
        """Look at a split of a candidate more closely by one level, or list its other splits."""
        split = self._next_split(candidate)
        if self._may_list(candidate) and (
            split is None or candidate.level >= Level.MEASURED
        ):
            with suppress(InputError):
                self._splits_of(candidate).list_others(candidate, self._best)
            self._choose_split(candidate)
        elif split is not None:
            self.refine_split(split)
            self._choose_split(candidate)
        if self.limits.runtime is not None and candidate.is_exhausted:
            self._lose_by_memory(candidate)

    def may_raise(self, candidate: Candidate) -> bool:
        """Whether refining a candidate looks at its own split, or lists others."""
        return self._next_split(candidate) is candidate or self._may_list(candidate)

    def _next_split(self, candidate: Candidate) -> Candidate | None:
        # Its own, then the most promising one, of those that can be refined and may win.
        ranked = sorted(candidate.others or (), key=lambda c: c.promise)
        splits = filter(self.may_refine_split, (candidate, *ranked))
        return next(
            (c for c in splits if self.limits.exhaustive or self._may_win(c)), None
        )

    def _may_win(self, split: Candidate) -> bool:
        return self.winner is None or split.split_high > self._best

    @property
    def _best(self) -> float:
        return 0.0 if self.winner is None else self.winner.low

    def _may_list(self, candidate: Candidate) -> bool:
        if candidate.arrays is None or candidate.is_listed:
            return False
        is_allowed = self.limits.exhaustive or not self.is_late
        return is_allowed and candidate.rest_high > self._best

    def _choose_split(self, candidate: Candidate) -> None:
        # Of the splits listed the one that reaches most.
        best = max(candidate.others or (), key=lambda c: c.low, default=candidate)
        if best.low > candidate.low:
            result, best.result = best.result, None
            candidate.swap_split(best)
            self.note(candidate)
            if self.winner is candidate:
                self.result = result

    def has_open_splits(self, candidate: Candidate) -> bool:
        """Whether splits of a candidate that are not listed may be better than its own."""
        is_open = candidate.is_searched and candidate.rest_high > candidate.low
        return is_open and candidate.arrays is not None and candidate.others is None

    def improve_split(self, candidate: Candidate, steps: int, seed: int = 0) -> None:
        """Search for a split of a candidate that has a better quick schedule, where one may exist.

        `steps`, `seed`: splits that are rated, and which.
        """
        if not self.has_open_splits(candidate):
            return
        effort = self.limits.params.later_effort if seed else 1
        self.improve_under_orders(candidate, steps * effort, seed)
        splits = self._splits_of(candidate)
        if not splits.has_other_schedules(candidate) or self.is_late:
            return
        old = candidate.arrays
        assert old is not None
        with suppress(InputError):
            arrays = splits.improved(candidate, steps, seed)
            if arrays is not None:
                quick = splits.schedule(arrays, splits.rules(candidate))
                is_better = self._adopt_better(candidate, arrays, quick)
                candidate.challenger = (old if is_better else arrays, None)

    def improve_by_sweeps(self, candidate: Candidate, steps: int, seed: int) -> None:
        """Sweep splits of a candidate that are close to its own, as `improve_split`."""
        if not self.has_open_splits(candidate):
            return
        with suppress(InputError):
            best = self._splits_of(candidate).improved_by_sweeps(candidate, steps, seed)
            if best is not None and self._adopt_better(candidate, *best):
                candidate.is_finalist = True

    def improve_under_orders(
        self, candidate: Candidate, steps: int, seed: int = 0
    ) -> None:
        """Search for a better split under fixed orders, as `improve_split`."""
        if not self.has_open_splits(candidate):
            return
        with suppress(InputError):
            improved = self._splits_of(candidate).improved_under_orders(
                candidate, steps, seed
            )
            if improved is None:
                return
            arrays, quick = improved
            # Sweeps go on from its schedule.
            candidate.is_finalist |= quick is not None
            is_better = self._adopt_better(candidate, arrays, quick)
            if quick is not None and not is_better:
                candidate.challenger = (arrays, quick.start)

    def _adopt_better(
        self,
        candidate: Candidate,
        arrays: PipelineArrays,
        schedule: QuickSchedule | None,
    ) -> bool:
        # Take over another split, if its schedule is better; what is known of the old one is lost.
        if not candidate.take(schedule):
            return False
        candidate.show(tuple(arrays.pipeline.boundaries), None, arrays)
        candidate.step.floor = self.quick(candidate.configuration).bound(arrays)
        candidate.level, candidate.is_final = Level.SHAPED, False
        self.note(candidate)
        return True

    def refine_split(self, candidate: Candidate) -> None:
        """Look at the split of a candidate more closely by one level."""
        self._tried.add(candidate.index)
        candidate.level = Level(candidate.level + 1)
        if candidate.level is Level.SHAPED:
            self._shape(candidate)
            return
        try:
            instance = self._instance(candidate)
        except InputError as error:
            candidate.is_stuck, candidate.reason = True, str(error)
            return
        if candidate.level is Level.MEASURED:
            self._measure(candidate, instance)
        else:
            self._solve(candidate)

    def schedule(self, candidate: Candidate) -> None:
        """Give a candidate a split and a schedule that take milliseconds, if there are such."""
        self._tried.add(candidate.index)
        if candidate.arrays is None:
            self.sketch(candidate)
        if candidate.arrays is not None:
            with suppress(InputError):
                candidate.take(
                    self._splits_of(candidate).schedule(candidate.arrays, (FIRST_RULE,))
                )
                self.note(candidate)
            if (
                candidate.step.reached is None
                and self.request.search.schedules is not None
            ):
                # The orders that are allowed may need another split, with less memory.
                steps = self.limits.params.first_orders[1]
                self.improve_under_orders(candidate, steps)

    def sketch(self, candidate: Candidate) -> bool:
        """Give a candidate a split that takes no search; return true if there is one.

        The split is final if no split has a faster slowest device; the candidate is then shaped.
        """
        try:
            configuration = candidate.configuration
            split = self.builder(configuration).split(configuration, quick=True)
            if split is None:
                self._lose_by_memory(candidate)
            else:
                candidate.show(
                    *split, self.quick(configuration).arrays(configuration, split[0])
                )
                if candidate.is_searched or candidate.split_proved is not False:
                    self._finish_shape(candidate)
        except (SplitUndecidedError, InputError):
            self._tried.add(candidate.index)
        return candidate.arrays is not None

    def is_tried(self, candidate: Candidate) -> bool:
        """Whether a candidate was scheduled, refined, or found to have no quick split."""
        return candidate.index in self._tried

    def schedule_by(self, candidate: Candidate, rules: tuple[WarmUpRule, ...]) -> None:
        """Schedule a candidate by some rules, if it has a split, and note a better schedule."""
        arrays, quick = candidate.arrays, self.quick(candidate.configuration)
        if arrays is not None and candidate.take(quick.by_rules(arrays, rules)):
            self.note(candidate)

    def sweep(self, candidate: Candidate, steps: int) -> None:
        """Look for a better schedule by `list-sweep`, from the known one, if it has a split.

        `steps`: schedules tried after the rules of the sweep.
        """
        if candidate.arrays is None:
            return
        candidate.is_finalist = True
        start, quick = candidate.known_start(), self.quick(candidate.configuration)
        if candidate.take(quick.swept(candidate.arrays, start, steps, self.clock)):
            self.note(candidate)
        if candidate.challenger is not None and not self.is_late:
            challenger, candidate.challenger = candidate.challenger, None
            schedule = self._splits_of(candidate).swept(*challenger, steps)
            if schedule is not None and not self._adopt_better(
                candidate, challenger[0], schedule
            ):
                low = candidate.samples_per_time / schedule.makespan
                if low * self.limits.params.close_splits > candidate.low:
                    candidate.challenger = (challenger[0], schedule.start)

    def _adopt(
        self, candidate: Candidate, boundaries: Boundaries, proved: bool | None
    ) -> None:
        # Take over a split, if its schedule is not longer than the known one.
        arrays = self.quick(candidate.configuration).arrays(
            candidate.configuration, boundaries
        )
        is_first = candidate.step.reached is None
        if (
            candidate.take(self._splits_of(candidate).schedule(arrays, (FIRST_RULE,)))
            or is_first
        ):
            candidate.show(boundaries, proved, arrays)
            self.note(candidate)

    def _finish_shape(self, candidate: Candidate) -> None:
        assert candidate.arrays is not None
        candidate.level = Level.SHAPED
        bound = self.quick(candidate.configuration).bound(candidate.arrays)
        candidate.step.floor = max(candidate.step.floor, bound)

    def _shape(self, candidate: Candidate) -> None:
        # Of two splits the one that was scheduled better stays.
        try:
            builder = self.builder(candidate.configuration)
            split = builder.split(candidate.configuration)
            if split is None:
                self._lose_by_memory(candidate)
            elif candidate.boundaries != split[0]:
                builder.refuse_large(candidate.configuration)
                self._adopt(candidate, *split)
            if candidate.arrays is not None:
                self._finish_shape(candidate)
        except (SplitUndecidedError, InputError) as error:
            candidate.is_stuck, candidate.reason = True, str(error)

    def _lose_by_memory(self, candidate: Candidate) -> None:
        c, builder = candidate.configuration, self.builder(candidate.configuration)
        if builder.runtime is not None:
            candidate.lose_by_orders(builder.runtime.title)
            return
        needed = builder.least_memory(c.microbatch_size, builder.stage_to_device(c))
        candidate.lose_by_memory(needed)

    def measure_peaks(self) -> None:
        """Find what those need that no order of a runtime fits, while there is time.

        Each takes a search, and nothing but the report tells it.
        """
        for candidate in self.candidates:
            builder = self.builder(candidate.configuration)
            is_open = candidate.ruled_out is Rule.MEMORY and candidate.needed is None
            if builder.runtime is None or not is_open:
                continue
            if self.is_late:
                return
            boundaries = None if candidate.is_searched else candidate.boundaries
            peak = builder.least_peak(candidate.configuration, boundaries)
            candidate.fullest, candidate.needed = peak

    def _measure(self, candidate: Candidate, instance: PipelineInstance) -> None:
        allowed, runtime = self.request.search.schedules, self.limits.runtime
        if runtime is not None and candidate.arrays is not None:
            # Other splits may fit where no order fits this one.
            self._take_best_order(candidate)
            candidate.is_final = True
            return
        if allowed is not None:
            self._take_best_order(candidate)
        names = quick_heuristics(instance) if allowed is None else list(allowed)
        self._run(candidate, names, Options(time_limit=0.0))
        candidate.is_final = allowed is not None and candidate.ruled_out is None

    def _take_best_order(self, candidate: Candidate) -> None:
        assert candidate.arrays is not None
        splits = self._splits_of(candidate)
        if candidate.take(splits.best_under_orders(candidate.arrays)):
            self.note(candidate)

    def _solve(self, candidate: Candidate) -> None:
        self._solved += 1
        seconds = self.limits.options.time_limit
        if self.limits.share_time:
            seconds = max(1.0, self.clock.left * self.limits.params.share_of_time)
        self._solve_within(candidate, seconds)

    def _solve_within(self, candidate: Candidate, seconds: float | None) -> None:
        options = replace(self.limits.options, time_limit=seconds, gap=0.0)
        self._run(candidate, None, options)

    def solve_again(self) -> None:
        """Divide the rest of the time among the candidates that the exact solver left undecided.

        The most promising one comes first; each goes on from its best schedule.
        """
        if not self.limits.share_time:
            return
        open_ones = sorted(
            filter(self._is_undecided, self.candidates), key=lambda c: c.promise
        )
        for number, candidate in enumerate(open_ones):
            seconds = self.clock.left / (len(open_ones) - number)
            if seconds >= self.limits.params.least_again and not self.is_beaten(
                candidate
            ):
                self.tell(candidate)
                self._solve_within(candidate, seconds)

    def _is_undecided(self, candidate: Candidate) -> bool:
        is_solved = candidate.level is Level.SOLVED and candidate.ruled_out is None
        return is_solved and not candidate.is_closed and not self.is_beaten(candidate)

    def _run(
        self, candidate: Candidate, names: list[str] | None, options: Options
    ) -> None:
        # It starts from the best schedule that is known; the next run starts from the best of this.
        seconds = None if options.deterministic else options.time_limit or None
        instance = self._instance(candidate)
        heuristics = chosen_heuristics(instance, names)
        task = kind_of(instance).task(instance)
        candidate.offer_known(task)
        clock = self.clock.within(seconds)
        run = SolveRun(task, heuristics, options, lambda _: self.tell(candidate), clock)
        self._learn(candidate, run.execute())
        candidate.solved = None
        if (
            task.schedule is not None
            and task.best_by is not None
            and not candidate.is_closed
        ):
            candidate.solved = (task.schedule.start, task.best_by)

    def _learn(self, candidate: Candidate, result: Result) -> None:
        candidate.learn(result)
        if result.makespan is not None and candidate.step.reached == result.makespan:
            candidate.result = None if candidate.parent is None else result
            if candidate.parent is None:
                self.note(candidate)
            if self.winner is candidate:
                self.result = result
        if result.stop_reason.is_by_caller:
            raise KeyboardInterrupt

    def _instance(self, candidate: Candidate) -> PipelineInstance:
        assert candidate.boundaries is not None
        if candidate.instance is None:
            builder = self.builder(candidate.configuration)
            builder.refuse_large(candidate.configuration)
            pipeline = builder.pipeline(candidate.configuration, candidate.boundaries)
            candidate.instance = pipeline.instance()
        return candidate.instance

"""Best-first search over configurations: look closest at what may still win."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ppsolve.models.core.result import Result, StopReason
from ppsolve.models.core.timescale import UNITS_PER_SECOND
from ppsolve.models.documents.errors import InputError, is_interrupt
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.plan.request import PlanRequest
from ppsolve.models.plan.result import Configuration, Rule
from ppsolve.solver.goodput.step import Step
from ppsolve.solver.optimize.api import optimize
from ppsolve.solver.optimize.registry import quick_heuristics
from ppsolve.solver.plan.building import Builder
from ppsolve.solver.plan.candidate import Candidate, Level
from ppsolve.solver.plan.curve import QUICK, work_time
from ppsolve.solver.plan.space import Space
from ppsolve.solver.plan.split import SplitUndecidedError


@dataclass(frozen=True)
class PlanLimits:
    """How far to go: the options of `ppsolve.plan`; `seconds` is its `time_limit`."""

    seconds: float | None
    finalists: int
    workers: int | None
    seed: int
    deterministic: bool
    gap: float
    exhaustive: bool


@dataclass(frozen=True)
class PlanProgress:
    """State of a plan.

    Parameters
    ----------
    seconds : float
        Wall time since the start.
    phase : str
        What the configuration at hand is given to.
    examined, enumerated : int
        Configurations decided or looked at more closely than all are, and all of them.
    best : float or None
        Best goodput reached, in samples per second.
    bound : float
        Goodput that no configuration exceeds.
    """

    seconds: float
    phase: str
    examined: int
    enumerated: int
    best: float | None
    bound: float


PlanListener = Callable[[PlanProgress], None]

SHAPED_PER_SAMPLE = 40
"""Of so many candidates with a split, one is scheduled whatever the others may reach.

With 40 heuristics run for 39 of the 1,022 configurations of ``gpt-48x32``. With fewer they run for
more of them than a proof needs; with more the first schedules, which prune, come later.
"""

TELL_EVERY = 0.1
"""Seconds between reports of progress within a phase."""

SHARE_OF_TIME = 0.2
"""Of the remaining time, what one finalist may take.

With more the first ones leave no time for the others, with less hard ones end before their proof.
"""


class PlanSearch:
    """One search; `run` decides every candidate as far as the limits allow.

    Candidates are refined in the order of what they may still reach: a floor for any split of the
    layers, the balanced split with the work bound, heuristics with all bounds, the exact solver.
    The search is over when what the best of the rest may reach has been reached.
    """

    def __init__(
        self,
        request: PlanRequest,
        space: Space,
        limits: PlanLimits,
        listener: PlanListener | None = None,
    ) -> None:
        self.request, self.limits = request, limits
        self._builder = Builder(request)
        self._listener = listener
        self._began = time.monotonic()
        self._solved = 0
        self._shaped: list[Candidate] = []
        self._told: tuple[Level | None, float] = (None, 0.0)
        self._efficiency = lru_cache(maxsize=None)(self._efficiency_of)
        self.winner: Candidate | None = None
        self.result: Result | None = None
        self.interrupted = False
        self.candidates = [
            self._candidate(index, configuration)
            for index, configuration in enumerate(space.configurations)
        ]

    def run(self) -> None:
        """Refine until every candidate is beaten, ruled out, or as far as the limits allow."""
        try:
            self._refine_all()
        except (KeyboardInterrupt, ImportError) as error:
            if not is_interrupt(error):
                raise
            self.interrupted = True

    def _refine_all(self) -> None:
        queue = [(c.promise, c) for c in self.candidates if c.ruled_out is None]
        heapq.heapify(queue)
        while queue:
            promise, candidate = heapq.heappop(queue)
            if promise != candidate.promise:
                heapq.heappush(queue, (candidate.promise, candidate))
                continue
            self._tell(candidate)
            if self.is_beaten(candidate) and not self.limits.exhaustive:
                return
            if self._may_refine(candidate):
                self._refine(candidate)
                self._sample(candidate)
                if candidate.ruled_out is None:
                    heapq.heappush(queue, (candidate.promise, candidate))

    def _sample(self, candidate: Candidate) -> None:
        """Measure the most promising of those shaped, from time to time.

        So there is something soon, and what has been reached prunes what is only shaped.
        """
        if candidate.level is not Level.SHAPED or candidate.instance is None:
            return
        self._shaped.append(candidate)
        if self.winner is not None and len(self._shaped) < SHAPED_PER_SAMPLE:
            return
        waiting = [c for c in self._shaped if c.level is Level.SHAPED]
        self._shaped.clear()
        if waiting:
            self._refine(min(waiting, key=lambda c: c.promise))

    def is_beaten(self, candidate: Candidate) -> bool:
        """Whether the winner reaches at least what the candidate may."""
        if self.winner is None or candidate is self.winner:
            return False
        promise = (candidate.promise[0] * (1 - self.limits.gap), candidate.index)
        return promise >= self.winner.standing

    @property
    def elapsed(self) -> float:
        """Wall seconds since the search was set up."""
        return time.monotonic() - self._began

    def _tell(self, candidate: Candidate) -> None:
        if self._listener is None or not self._is_news(candidate):
            return
        phases = ("splits and bounds", "heuristics", "exact solver", "finishing")
        self._listener(
            PlanProgress(
                seconds=self.elapsed,
                phase=phases[min(candidate.level, 3)],
                examined=sum(map(self._is_examined, self.candidates)),
                enumerated=len(self.candidates),
                best=None if self.winner is None else self.winner.low,
                bound=max(candidate.high, 0.0 if self.winner is None else self.winner.low),
            )
        )

    def _is_examined(self, candidate: Candidate) -> bool:
        is_decided = candidate.ruled_out is not None or self.is_beaten(candidate)
        return is_decided or candidate.level > Level.ENUMERATED

    def _is_news(self, candidate: Candidate) -> bool:
        """Whether to report again: a new phase, or some time after the last report."""
        is_news = candidate.level != self._told[0] or self.elapsed > self._told[1] + TELL_EVERY
        if is_news:
            self._told = (candidate.level, self.elapsed)
        return is_news

    def _candidate(self, index: int, configuration: Configuration) -> Candidate:
        efficiency = self._efficiency(configuration.batch_size)
        units = UNITS_PER_SECOND[self.request.time_unit]
        candidate = Candidate(
            index=index,
            configuration=configuration,
            samples_per_time=configuration.batch_size * efficiency * units,
            efficiency=efficiency,
            step=Step(self._floor(configuration)),
        )
        needed = self._builder.lack_of_memory(
            configuration.microbatch_size, configuration.pipeline_depth
        )
        if needed is not None:
            candidate.rule_out(Rule.MEMORY, self._lack(needed))
        return candidate

    def _efficiency_of(self, batch_size: int) -> float:
        statistics = self.request.goodput
        if statistics.grad is None:
            return 1.0
        return float(statistics.grad.params.efficiency(batch_size / statistics.init_batch_size))

    def _floor(self, configuration: Configuration) -> Fraction:
        """Return a step time below which no split and no schedule is.

        Some device does at least its share of the work; one micro-batch passes all layers twice.
        """
        size, builder = configuration.microbatch_size, self._builder
        share = Fraction(configuration.microbatches, configuration.pipeline_depth)
        shortest = builder.shortest_step(size, configuration.backward)
        return max(builder.layers(size).total * share, shortest)

    def _may_refine(self, candidate: Candidate) -> bool:
        if candidate.is_final or candidate.is_stuck or candidate.level is Level.SOLVED:
            return False
        if candidate.step.reached is not None and candidate.low >= candidate.high:
            return False
        if self.limits.exhaustive:
            return True
        if candidate.level < Level.MEASURED and self.winner is None:
            return True
        if self._is_late():
            return False
        return candidate.level < Level.MEASURED or self._solved < self.limits.finalists

    def _is_late(self) -> bool:
        seconds = None if self.limits.deterministic else self.limits.seconds
        return seconds is not None and self.elapsed > seconds

    def _refine(self, candidate: Candidate) -> None:
        candidate.level = Level(candidate.level + 1)
        if candidate.level is Level.SHAPED:
            self._shape(candidate)
        elif candidate.level is Level.MEASURED:
            self._measure(candidate)
        else:
            self._solve(candidate)

    def _shape(self, candidate: Candidate) -> None:
        try:
            split = self._builder.split(candidate.configuration)
            if split is None:
                needed = self._builder.least_memory(candidate.configuration)
                candidate.rule_out(Rule.MEMORY, self._lack(needed))
                return
            candidate.boundaries, candidate.split_proved = split
            self._builder.refuse_large(candidate.configuration)
            instance = self._builder.instance(candidate.configuration, candidate.boundaries)
            floor = work_time(instance)
        except (SplitUndecidedError, InputError) as error:
            candidate.is_stuck, candidate.reason = True, str(error)
            return
        candidate.instance = instance
        candidate.step.floor = max(candidate.step.floor, floor)

    def _lack(self, needed: Fraction | None) -> str:
        capacity = float(self.request.cluster.memory or 0)
        least = "" if needed is None else f"some device needs {float(needed):,.12g} bytes or more, "
        return (
            "proved: no split of the layers leaves room for the states and one micro-batch: "
            f"{least}capacity {capacity:,.12g}"
        )

    def _measure(self, candidate: Candidate) -> None:
        instance, schedules = self._instance(candidate), self.request.search.schedules
        heuristics = schedules or quick_heuristics(instance)
        self._learn(candidate, optimize(instance, heuristics=heuristics, **QUICK))
        candidate.is_final = schedules is not None and candidate.ruled_out is None

    def _solve(self, candidate: Candidate) -> None:
        self._solved += 1
        limits = self.limits
        seconds = limits.seconds
        if seconds is not None and not limits.deterministic and not limits.exhaustive:
            seconds = max(1.0, (seconds - self.elapsed) * SHARE_OF_TIME)
        result = optimize(
            self._instance(candidate),
            time_limit=seconds,
            workers=limits.workers,
            seed=limits.seed,
            deterministic=limits.deterministic,
        )
        self._learn(candidate, result)

    def _learn(self, candidate: Candidate, result: Result) -> None:
        candidate.learn(result)
        is_its_best = result.makespan is not None and candidate.step.reached == result.makespan
        best = self.winner
        is_best = best is None or candidate is best or candidate.standing < best.standing
        if is_its_best and is_best:
            self.winner, self.result = candidate, result
        if result.stop_reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt

    @staticmethod
    def _instance(candidate: Candidate) -> PipelineInstance:
        assert candidate.instance is not None
        return candidate.instance

"""A configuration on its way through the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.result import Result, Status
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.studies.plan.result import Configuration, Rule
from ppsolve.solver.heuristics.sweep import SWEEP
from ppsolve.solver.studies.goodput.step import Interval, StepTime
from ppsolve.solver.studies.plan.arrays import PipelineArrays
from ppsolve.solver.studies.plan.list_scheduling import (
    BY_RULE,
    QuickSchedule,
    offer_start,
    start_by_rule,
)
from ppsolve.solver.studies.plan.params import WarmUpRule


class Level(IntEnum):
    """How closely a configuration has been looked at."""

    ENUMERATED = 0
    SHAPED = 1
    MEASURED = 2
    SOLVED = 3


@dataclass
class Candidate:
    """A configuration with the proven range of its step time.

    `index`: its place in the space; earlier ones win ties.
    `samples_per_time`: goodput of a step that takes one time unit: batch x efficiency x
        units per second.
    `efficiency`: of its batch size.
    `step`: bound and best schedule of its step.
    `level`: its last step of refinement.
    `is_final`, `is_stuck`: no other schedule of the request reaches more; it cannot be
        refined.
    `ruled_out`, `reason`: the rule that excludes it, and its proof in words; or why it
        is stuck.
    `needed`, `fullest`: bytes that some device needs under all that is open, where
        nothing fits; and that device.
    `boundaries`, `split_proved`: the layers at which stages begin and end, and whether
        that is proved to be balanced (None for an even split).
    `rest`: lower bound of its step under all splits but this one and the `others`;
        infinite where the split is fixed. Bound, schedule and level are those of its
        own split.
    `others`: the splits that may be better, each as a candidate; None while they are
        not listed.
    `is_bounded`, `is_listed`: the bound of all splits was found; it was tried to list
        the others.
    `parent`, `result`: the candidate of which this is another split; and a better
        schedule found for it.
    `challenger`: tuple of PipelineArrays and int64[n] or None, or None, a split whose
        sweep may reach more, better by the same rules or just replaced; and starts.
    `instance`, `arrays`: the pipeline of one replica, once it was needed.
    `rule`, `start`: WarmUpRule or None, int64[n] or None, the rule of the best quick
        schedule; or its starts in ticks of the profile, which only the winner and
        finalists keep.
    `is_finalist`: work goes on from its best schedule.
    `rounds`: rounds of sweeps that it has had.
    `solved`: tuple of int64[n] and str, or None, starts and source of the best schedule
        of its last run of heuristics or the exact solver, in ticks of its problem,
        while it is undecided and no quick schedule is better.
    """

    index: int
    configuration: Configuration
    samples_per_time: float
    efficiency: float
    step: StepTime
    level: Level = Level.ENUMERATED
    is_final: bool = False
    is_stuck: bool = False
    ruled_out: Rule | None = None
    reason: str = ""
    needed: Fraction | None = None
    fullest: int | None = None
    boundaries: tuple[int, ...] | None = None
    split_proved: bool | None = None
    rest: Fraction | float = math.inf
    others: list[Candidate] | None = None
    is_bounded: bool = False
    is_listed: bool = False
    parent: Candidate | None = None
    result: Result | None = None
    challenger: tuple[PipelineArrays, IntArray | None] | None = None
    instance: PipelineInstance | None = None
    arrays: PipelineArrays | None = None
    rule: WarmUpRule | None = None
    start: IntArray | None = None
    is_finalist: bool = False
    rounds: int = 0
    solved: tuple[IntArray, str] | None = None

    @property
    def goodput(self) -> Interval:
        """Proven range of the goodput of any schedule, in samples per second."""
        return Interval(min(self.low, self.high), self.high)

    @property
    def is_searched(self) -> bool:
        """Whether any split of its layers is allowed."""
        return self.configuration.layer_split == "searched"

    @property
    def split_floor(self) -> Fraction | float:
        """Lower bound on the step of its own split, of allowed schedules."""
        if not self.is_final:
            return self.step.floor
        return math.inf if self.step.reached is None else self.step.reached

    @property
    def rest_floor(self) -> Fraction | float:
        """Lower bound on the step of all other splits."""
        listed = (c.split_floor for c in self.others or () if c.ruled_out is None)
        return min((self.rest, *listed))

    @property
    def step_range(self) -> Interval:
        """Proven range of the step time of any split and schedule; without one it has no end."""
        reached = math.inf if self.step.reached is None else self.step.reached
        return Interval(
            min(float(self.split_floor), float(self.rest_floor), reached), reached
        )

    @property
    def high(self) -> float:
        """Goodput that no allowed schedule of any split exceeds."""
        return max(self.split_high, self.rest_high)

    @property
    def split_high(self) -> float:
        """Goodput that no allowed schedule of its own split exceeds."""
        return self.samples_per_time / float(self.split_floor)

    @property
    def rest_high(self) -> float:
        """Goodput that no allowed schedule of another split exceeds."""
        return self.samples_per_time / float(self.rest_floor)

    @property
    def low(self) -> float:
        """Goodput that a checked schedule reaches; 0 without one."""
        return (
            0.0
            if self.step.reached is None
            else self.samples_per_time / self.step.reached
        )

    @property
    def is_closed(self) -> bool:
        """Whether no schedule of its split is better than the one that is known."""
        return self.step.reached is not None and self.low >= self.split_high

    @property
    def promise(self) -> tuple[float, int]:
        """Key for sorting by the highest goodput it may still reach."""
        return (-self.high, self.index)

    @property
    def outlook(self) -> tuple[float, int]:
        """Key for sorting by the highest goodput that its split may reach, if it has one."""
        return (-self.high if self.boundaries is None else -self.split_high, self.index)

    @property
    def standing(self) -> tuple[float, int]:
        """Key for sorting by the highest goodput it has reached."""
        return (-self.low, self.index)

    def known_start(self) -> IntArray | None:
        """Return the starts of its best quick schedule in ticks of the profile: int64[n]."""
        if self.rule is not None and self.arrays is not None:
            return start_by_rule(self.arrays, self.rule)
        return self.start

    def offer_known(self, task: Any) -> None:
        """Propose its best schedule to the board of a task of its pipeline."""
        if self.solved is not None:
            start, name = self.solved
            task.board.propose(Schedule(task.problem, start), name)
        elif (self.rule or self.is_finalist) and self.arrays is not None:
            seed = self.known_start()
            if seed is not None:
                offer_start(task, self.arrays, seed, BY_RULE if self.rule else SWEEP)

    def learn(self, result: Result) -> None:
        """Take over the schedule and bound of a run."""
        if result.status is Status.INFEASIBLE and self.is_searched:
            self.step.floor = math.inf
            return
        if result.status is Status.INFEASIBLE:
            self.ruled_out = Rule.MEMORY
            self.reason = f"proved: {result.reason or 'no schedule fits'}"
            return
        self.step.learn(result)
        if self.step.method != BY_RULE:
            self.rule = None

    def lose_by_memory(self, needed: Fraction | None) -> None:
        """Rule it out, as no split of the layers fits the memory."""
        self.ruled_out, self.needed = Rule.MEMORY, needed
        self.reason = (
            "proved: no split of the layers leaves room for the states and one "
            "micro-batch"
        )

    def lose_by_orders(self, title: str) -> None:
        """Rule it out, as no order of a runtime fits the memory, whatever the split if any is open.

        `title`: the runtime.
        """
        self.ruled_out = Rule.MEMORY
        which = ", under any split of the layers" if self.is_searched else ""
        self.reason = f"proved: none of the orders that {title} runs fits{which}"

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is open that may have a schedule."""
        return math.inf == self.split_floor == self.rest_floor

    def swap_split(self, candidate: Candidate) -> None:
        """Exchange the split, its schedule and all that is known of it with another candidate."""
        for name in OF_SPLIT:
            mine, its = getattr(self, name), getattr(candidate, name)
            setattr(self, name, its)
            setattr(candidate, name, mine)

    def show(
        self, boundaries: tuple[int, ...], proved: bool | None, arrays: PipelineArrays
    ) -> None:
        """Give it a split, with its arrays, and whether the split is proved to be balanced."""
        self.arrays, self.instance = arrays, None
        self.boundaries, self.split_proved = boundaries, proved

    def take(self, schedule: QuickSchedule | None) -> bool:
        """Take over a quick schedule; return true if it is better than the known one."""
        if schedule is None or (self.step.reached or math.inf) <= schedule.makespan:
            return False
        self.step.reached, self.step.method = schedule.makespan, schedule.method
        self.rule, self.start, self.solved = schedule.rule, schedule.start, None
        return True


OF_SPLIT = (
    *("boundaries", "split_proved", "arrays", "instance", "step", "level", "reason"),
    *("is_final", "is_stuck", "is_finalist", "rule", "start", "solved", "ruled_out"),
)
"""Fields of a candidate that are about its split."""

"""A configuration on its way through the search, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction

from ppsolve.models.core.result import HeuristicStatus, Result, Status
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.plan.result import Configuration, Range, Rule


class Level(IntEnum):
    """How closely a configuration has been looked at."""

    ENUMERATED = 0
    SHAPED = 1
    MEASURED = 2
    SOLVED = 3


@dataclass
class Candidate:
    """A configuration with the proven range of its step time.

    Parameters
    ----------
    index : int
        Its place in the space; earlier ones win ties.
    configuration : Configuration
        What it is.
    samples_per_time : float
        Goodput of a step that takes one time unit: batch x efficiency x units per second.
    efficiency : float
        Of its batch size.
    floor : Fraction or float
        No schedule has a shorter step.
    level : Level
        How closely it has been looked at.
    reached : float or None
        Step time of the best checked schedule.
    is_final : bool
        What it reaches is all that the schedules of the request reach.
    is_stuck : bool
        It cannot be looked at more closely.
    ruled_out, reason
        The rule that excludes it, and its proof in words.
    boundaries : tuple of int or None
        The layers at which stages begin and end.
    split_proved : bool or None
        Whether the split is proved to be balanced; None where it is not meant to be.
    instance : PipelineInstance or None
        The pipeline of one replica.
    schedule_by : str or None
        What made the best schedule.
    failures : list of str
        Why schedules were not found.
    """

    index: int
    configuration: Configuration
    samples_per_time: float
    efficiency: float
    floor: Fraction | float
    level: Level = Level.ENUMERATED
    reached: float | None = None
    is_final: bool = False
    is_stuck: bool = False
    ruled_out: Rule | None = None
    reason: str = ""
    boundaries: tuple[int, ...] | None = None
    split_proved: bool | None = None
    instance: PipelineInstance | None = None
    schedule_by: str | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def high(self) -> float:
        """Goodput that no schedule exceeds; what is reached, where nothing else is allowed."""
        if self.is_final:
            return self.low
        return self.samples_per_time / float(self.floor)

    @property
    def low(self) -> float:
        """Goodput that a checked schedule reaches; 0 without one."""
        return 0.0 if self.reached is None else self.samples_per_time / self.reached

    @property
    def promise(self) -> tuple[float, int]:
        """What it may still reach, for sorting: the most promising first."""
        return (-self.high, self.index)

    @property
    def standing(self) -> tuple[float, int]:
        """What it has reached, for sorting: the best first."""
        return (-self.low, self.index)

    @property
    def goodput(self) -> Range:
        """Proven range of the goodput of any schedule, in samples per second."""
        return Range(low=self.low, high=max(self.low, self.samples_per_time / float(self.floor)))

    def rule_out(self, rule: Rule, reason: str) -> None:
        """Note that it cannot be chosen."""
        self.ruled_out, self.reason = rule, reason

    def learn(self, result: Result) -> None:
        """Take over what a run has found and proved."""
        if result.status is Status.INFEASIBLE:
            self.rule_out(Rule.MEMORY, f"proved: {result.reason or 'no schedule fits'}")
            return
        if result.bound is not None:
            self.floor = max(self.floor, result.bound)
        if result.makespan is not None and (self.reached is None or result.makespan < self.reached):
            self.reached, self.schedule_by = float(result.makespan), result.best_by
        entries = sorted(
            result.heuristics, key=lambda e: e.status is HeuristicStatus.NOT_APPLICABLE
        )
        self.failures = [
            f"{entry.name}: {entry.reason}"
            for entry in entries
            if entry.status is not HeuristicStatus.FEASIBLE and entry.reason
        ]

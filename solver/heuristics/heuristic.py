"""What a heuristic is: a name, what it needs of an instance, and one callable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.pipeline.instance import PipelineInstance


@dataclass(frozen=True)
class Request:
    """What a heuristic is asked for.

    Parameters
    ----------
    instance : Instance
        The instance, for heuristics that were published for its kind.
    problem : Problem
        The lowered instance.
    group_size : int, optional
        Micro-batches per group, for heuristics that run micro-batches in groups.
    """

    instance: Instance
    problem: Problem
    group_size: int | None = None


@dataclass(frozen=True)
class Proposal:
    """A heuristic's schedule and, for pipelines, the action strings of each device.

    For overlap instances `order` is the program order, as positions of nodes, and `broken` a rule
    of programs that it breaks and no schedule can show.
    """

    schedule: Schedule
    orders: list[list[str]] | None = None
    order: list[int] | None = None
    broken: str | None = None


HeuristicFunction = Callable[[Request], Proposal]
"""The one type of every heuristic; may raise `NotApplicableError` or a deadlock error."""


class Family(Enum):
    """Which instances a heuristic was made for, in words."""

    ANY = "everything"
    PIPELINE = "a pipeline"
    CYCLE = "K-FAC work around a described pipeline (objective makespan)"
    REFRESH = "K-FAC work around a pinned pipeline (objective iterations)"
    OVERLAP = "a program of kernels and collectives (kind overlap)"

    @classmethod
    def of(cls, instance: Instance) -> Family:
        """Return the family of an instance."""
        if isinstance(instance, KfacInstance):
            is_cycle = instance.judged_by is Objective.MAKESPAN
            return cls.CYCLE if is_cycle else cls.REFRESH
        if isinstance(instance, OverlapInstance):
            return cls.OVERLAP
        return cls.PIPELINE if isinstance(instance, PipelineInstance) else cls.ANY


@dataclass(frozen=True)
class Requirement:
    """Something a heuristic needs of a pipeline, in words and as a test."""

    words: str
    holds: Callable[[PipelineInstance], bool]


@dataclass(frozen=True)
class Heuristic:
    """A named heuristic.

    Parameters
    ----------
    name : str
        The name that users give.
    summary : str
        What it does, in one line.
    plan : HeuristicFunction
        Builds the schedule.
    family : Family
        What it schedules.
    requirements : tuple of Requirement
        What it needs of a pipeline.
    is_search : bool
        Whether it tries many schedules, and is left out once the optimum is known.
    """

    name: str
    summary: str
    plan: HeuristicFunction
    family: Family = Family.ANY
    requirements: tuple[Requirement, ...] = ()
    is_search: bool = False

    @property
    def needs(self) -> str:
        """What the heuristic needs, in words."""
        if self.family is Family.ANY:
            return "applies to everything"
        words = [requirement.words for requirement in self.requirements]
        return "needs " + ", ".join([self.family.value, *words])

    def obstacle(self, instance: Instance) -> str | None:
        """Return in words what `instance` lacks, or None if the heuristic applies."""
        if self.family not in {Family.ANY, Family.of(instance)}:
            return f"needs {self.family.value}"
        if isinstance(instance, PipelineInstance):
            for requirement in self.requirements:
                if not requirement.holds(instance):
                    return f"needs {requirement.words}"
        return None


@dataclass(frozen=True)
class HeuristicOutcome:
    """What became of one heuristic on one instance.

    Parameters
    ----------
    name : str
        The heuristic.
    status : HeuristicStatus
        Feasible, infeasible, not applicable or failed.
    schedule : Schedule or None
        The schedule, kept where it breaks a rule such as memory.
    reason : str or None
        Why it is not feasible.
    orders : list of list of str, or None
        Action strings per device, for pipelines.
    order : list of int, or None
        Program order of an overlap instance, as positions of nodes.
    """

    name: str
    status: HeuristicStatus
    schedule: Schedule | None = None
    reason: str | None = None
    orders: list[list[str]] | None = None
    order: list[int] | None = None

"""The type of a heuristic: a name, requirements on instances, and one callable."""

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
    """The input of a heuristic.

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

    For overlap instances `order` is the program order, as positions of nodes, and `broken` names a
    rule of programs that the order breaks, where the schedule alone does not show it.
    """

    schedule: Schedule
    orders: list[list[str]] | None = None
    order: list[int] | None = None
    broken: str | None = None


HeuristicFunction = Callable[[Request], Proposal]
"""The one type of every heuristic; may raise `NotApplicableError` or a deadlock error."""


class Family(Enum):
    """Kind of instance that a heuristic is made for; the value is its description."""

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
    """A condition on pipelines, as a description and as a test."""

    words: str
    holds: Callable[[PipelineInstance], bool]


@dataclass(frozen=True)
class Heuristic:
    """A named heuristic.

    Parameters
    ----------
    name : str
        Name in commands and reports.
    summary : str
        Description in one line.
    plan : HeuristicFunction
        Builds the schedule.
    family : Family
        Kind of instance that it applies to.
    requirements : tuple of Requirement
        Conditions on pipelines.
    is_search : bool
        It tries many schedules, and is skipped once the optimum is known.
    """

    name: str
    summary: str
    plan: HeuristicFunction
    family: Family = Family.ANY
    requirements: tuple[Requirement, ...] = ()
    is_search: bool = False

    @property
    def requirements_text(self) -> str:
        """Description of the instances that the heuristic applies to."""
        if self.family is Family.ANY:
            return "applies to everything"
        words = [requirement.words for requirement in self.requirements]
        return "needs " + ", ".join([self.family.value, *words])

    def obstacle(self, instance: Instance) -> str | None:
        """Return the requirement that an instance fails, or None if the heuristic applies."""
        if self.family not in {Family.ANY, Family.of(instance)}:
            return f"needs {self.family.value}"
        if isinstance(instance, PipelineInstance):
            for requirement in self.requirements:
                if not requirement.holds(instance):
                    return f"needs {requirement.words}"
        return None


@dataclass(frozen=True)
class HeuristicOutcome:
    """Outcome of one heuristic on one instance.

    Parameters
    ----------
    name : str
        The heuristic.
    status : HeuristicStatus
        Feasible, infeasible, not applicable or failed.
    schedule : Schedule or None
        The schedule; kept even where it breaks a rule such as memory.
    reason : str or None
        Reason for any status other than feasible.
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

"""What a heuristic is: a name, what it needs of an instance, and one callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock

EVERYTHING = "everything"
"""What heuristics are made for that look at the problem alone."""

OURS = "ppsolve"
"""Source of heuristics that nobody else has published."""


@dataclass(frozen=True)
class Effort:
    """How long a heuristic that searches may go on, and where it reports.

    Parameters
    ----------
    clock : Clock
        Once it is over, the best so far is returned.
    uses_all : bool
        Whether to go on until the clock is over.
    board : Board
        The run's board, or one of its own.
    """

    clock: Clock = field(default_factory=Clock)
    uses_all: bool = False
    board: Board = field(default_factory=Board)


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
    effort : Effort
        How long a heuristic that searches may go on.
    follow : callable, optional
        Times orders of ops, given by names or numbers in the words of the instance's kind.
    """

    instance: Any
    problem: Problem
    group_size: int | None = None
    effort: Effort = field(default_factory=Effort)
    follow: Callable[[Sequence[Sequence[Any]]], Proposal] | None = None


@dataclass(frozen=True)
class Proposal:
    """A heuristic's schedule and, for pipelines, the action strings of each device.

    For programs `order` is the program order, as positions of nodes, and `broken` a rule of
    programs that it breaks and no schedule can show. `pattern` names the published schedule behind
    the best of several.
    """

    schedule: Schedule
    orders: Sequence[list[str]] | None = None
    order: list[int] | None = None
    broken: str | None = None
    pattern: str | None = None


HeuristicFunction = Callable[[Request], Proposal]
"""Type of every heuristic; may raise `NotApplicableError` or a deadlock error."""


@dataclass(frozen=True)
class Requirement:
    """Something a heuristic needs of an instance of its kind, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Heuristic:
    """A named heuristic.

    Parameters
    ----------
    name : str
        The name that users give.
    summary : str
        What it does, in one line.
    propose : HeuristicFunction
        Builds the schedule.
    made_for : str
        What it schedules, in words.
    requirements : tuple of Requirement
        What it needs of an instance of its kind.
    is_search : bool
        Whether it tries many schedules, and is left out once the optimum is known.
    orders : callable, optional
        Returns the order of actions of each device, where it does not depend on times.
    is_own : bool
        Whether a user wrote it, so that nothing is known of what it does.
    source : str
        The paper or system that it is from.
    """

    name: str
    summary: str
    propose: Callable[[Any], Any]
    made_for: str = EVERYTHING
    requirements: tuple[Requirement, ...] = ()
    is_search: bool = False
    orders: Callable[[Request], Any] | None = None
    is_own: bool = False
    source: str = OURS

    @property
    def is_generic(self) -> bool:
        """Whether it looks at the problem alone, whatever the kind."""
        return self.made_for == EVERYTHING

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs of an instance of its kind, each in words."""
        return tuple(requirement.words for requirement in self.requirements)

    @property
    def requirements_text(self) -> str:
        """What the heuristic needs, in words."""
        if self.is_generic:
            return "applies to everything"
        return "needs " + ", ".join([self.made_for, *self.needs])

    def obstacle(self, instance: Instance) -> str | None:
        """Return in words what an instance of its kind lacks, or None if the heuristic applies."""
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
    orders : sequence of list of str, or None
        Action strings per device, for pipelines.
    order : list of int, or None
        Program order of an overlap instance, as positions of nodes.
    pattern : str or None
        Published schedule behind it, where it is the best of several.
    """

    name: str
    status: HeuristicStatus
    schedule: Schedule | None = None
    reason: str | None = None
    orders: Sequence[list[str]] | None = None
    order: list[int] | None = None
    pattern: str | None = None

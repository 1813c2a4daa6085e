"""What a heuristic is: a name, what it needs of an instance, and one callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import BrokenRule, HeuristicStatus
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.params import HeuristicParams

EVERYTHING = "everything"
"""Heuristics that look at the problem alone are made for it."""

OURS = "ppsolve"


@dataclass(frozen=True)
class Effort:
    """How long a heuristic that searches may go on, and where it reports."""

    clock: Clock = field(
        default_factory=Clock
    )  # once it is over, the best so far is returned
    uses_all: bool = False  # whether to go on until the clock is over
    board: Board = field(default_factory=Board)  # the run's board, or one of its own
    params: HeuristicParams = HeuristicParams()  # budgets


@dataclass(frozen=True)
class Request:
    """What a heuristic is asked for."""

    instance: Any  # the instance, for heuristics that were published for its kind
    problem: Problem  # the lowered instance
    # micro-batches per group, for heuristics that run micro-batches in groups
    group_size: int | None = None
    effort: Effort = field(
        default_factory=Effort
    )  # how long a heuristic that searches may go on
    # times orders of ops, given by names or numbers in the words of the instance's kind
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
    """A named heuristic."""

    name: str  # the name that users give
    summary: str  # what it does, in one line
    propose: Callable[[Any], Any]  # builds the schedule
    made_for: str = EVERYTHING  # what it schedules, in words
    requirements: tuple[
        Requirement, ...
    ] = ()  # what it needs of an instance of its kind
    # whether it tries many schedules, and is left out once the optimum is known
    is_search: bool = False
    # returns the order of actions of each device, where it does not depend on times
    orders: Callable[[Request], Any] | None = None
    is_own: bool = (
        False  # whether a user wrote it, so that nothing is known of what it does
    )
    source: str = OURS  # the paper or system that it is from

    @property
    def is_generic(self) -> bool:
        """Whether it looks at the problem alone, whatever the kind."""
        return self.made_for == EVERYTHING

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs of an instance of its kind, each in words."""
        return tuple(requirement.words for requirement in self.requirements)

    def obstacle(self, instance: Instance) -> str | None:
        """Return in words what an instance of its kind lacks, or None if the heuristic applies."""
        for requirement in self.requirements:
            if not requirement.holds(instance):
                return f"needs {requirement.words}"
        return None


@dataclass(frozen=True)
class HeuristicOutcome:
    """What became of one heuristic on one instance."""

    name: str  # the heuristic
    status: HeuristicStatus  # feasible, infeasible, not applicable or failed
    schedule: Schedule | None = (
        None  # the schedule, kept where it breaks a rule such as memory
    )
    reason: str | None = None  # why it is not feasible
    orders: Sequence[list[str]] | None = (
        None  # action strings per device, for pipelines
    )
    order: list[int] | None = (
        None  # program order of an overlap instance, as positions of nodes
    )
    pattern: str | None = (
        None  # published schedule behind it, where it is the best of several
    )
    broken: BrokenRule | None = None  # the rule that the reason tells of

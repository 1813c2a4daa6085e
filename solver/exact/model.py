"""The CP-SAT model of one problem: its rules, its objective and a hint."""

from __future__ import annotations

from typing import Self

import numpy as np
from ortools.sat.python import cp_model

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.constraints import Constraints
from ppsolve.solver.exact.parameters import ModelTraits
from ppsolve.solver.exact.params import MODEL
from ppsolve.solver.exact.question import Question
from ppsolve.solver.exact.variables import Variables, add_objective
from ppsolve.solver.exact.windows import Windows, start_windows
from ppsolve.solver.structure.implied import ImpliedOrder


class OutOfTimeError(Exception):
    """The clock ran out while a model was built."""


class CpsatModel:
    """Variables, constraints and objective of one problem, between two objectives in ticks."""

    def __init__(
        self, variables: Variables, constraints: Constraints, lower: int, upper: int
    ) -> None:
        self.lower, self.upper = lower, upper
        self.variables = variables
        self.constraints = constraints
        self.implied = constraints.implied

    @property
    def cp(self) -> cp_model.CpModel:
        """The model of CP-SAT."""
        return self.variables.model

    @property
    def memory_is_exact(self) -> bool:
        """Whether its memory rules are exactly the problem's."""
        return self.constraints.memory_is_exact

    def schedule_of(self, solution: list[int]) -> Schedule:
        """Return the schedule of a solution."""
        return Schedule(self.implied.problem, self.variables.starts_in(solution))

    def adopt(self, schedule: Schedule) -> Schedule:
        """Return a schedule with alike micro-batches in index order."""
        return index_ordered(self.implied, schedule)

    @property
    def traits(self) -> ModelTraits:
        """Properties that decide the parameters of a search."""
        problem, literals = self.implied.problem, len(self.variables.orders)
        is_span = problem.objective is Objective.DEVICE_SPAN
        return ModelTraits(
            has_plain_intervals=self.constraints.has_plain_intervals,
            is_mostly_alike=2 * sum(f.size for f in problem.families)
            >= problem.num_ops,
            has_many_literals=self.constraints.has_many_literals,
            is_small_span=is_span and 0 < literals <= MODEL.small_span_literals,
        )

    @classmethod
    def build(
        cls, implied: ImpliedOrder, question: Question, clock: Clock
    ) -> Self | None:
        """Build the model of a problem; None where some op has no possible start.

        The known schedule of the question is in index order. An `OutOfTimeError` says that the
        clock, which is asked between parts of the rules, is over; a `MemoryInfeasible` that the
        capacity of a pool cannot be kept.
        """
        _ask(clock)
        hint, upper = question.known, question.upper
        windows = start_windows(implied, upper if hint is None else hint.value)
        if windows.op_without_start(implied.problem) is not None:
            return None
        _ask(clock)
        highest = (
            _largest_objective(implied.problem, windows) if hint is None else hint.value
        )
        highest = highest if upper is None else min(highest, upper)
        lower = min(question.lower, highest)
        variables = Variables(cp_model.CpModel(), implied, windows, lower, highest)
        model = cls(
            variables,
            Constraints(variables, implied, question.rounding),
            lower,
            highest,
        )
        model.fill(question, clock)
        return model

    def fill(self, question: Question, clock: Clock) -> None:
        """Add every rule, the objective and a hint."""
        for _ in self.constraints.add_all():
            _ask(clock)
        add_objective(self.variables, self.implied)
        if question.known is not None:
            self.variables.hint(question.known)
        _ask(clock)


def _ask(clock: Clock) -> None:
    if clock.is_over:
        raise OutOfTimeError


def _largest_objective(problem: Problem, windows: Windows) -> int:
    if problem.objective is Objective.COMPLETION:
        return int(problem.weight @ (windows.latest + problem.duration))
    return windows.horizon


def index_ordered(implied: ImpliedOrder, schedule: Schedule) -> Schedule:
    """Relabel alike micro-batches so that starts ascend within each column of a family.

    That keeps every rule and the objective, see `ppsolve.solver.structure.implied`.
    """
    start = schedule.start.copy()
    for family in implied.problem.families:
        start[family] = np.sort(start[family], axis=0)
    return Schedule(schedule.problem, start)

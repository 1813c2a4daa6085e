"""How schedules of any kind of instance are judged: their problem, value and analytic bound."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.base import as_decimal
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.pattern import rendezvous_of
from ppsolve.models.kfac.unrolling import lower_refresh
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.kfac.bounds import iterations_bound
from ppsolve.solver.kfac.pattern import pattern_of
from ppsolve.solver.kfac.requirements import coupled_devices
from ppsolve.solver.optimize.kinds import kind_of, lower
from ppsolve.solver.structure.implied import ImpliedOrder

Iterations = Sequence[int] | None
"""Iterations of each device, for K-FAC work around a pinned pipeline; None for all others."""


class Judge:
    """What schedules of one instance are judged by.

    Parameters
    ----------
    instance : Instance
        The instance.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.counts_iterations = kind_of(instance).value_unit(instance) == "iterations"

    def problem(self, iterations: Iterations = None) -> Problem:
        """Return the problem that a schedule of so many iterations is for."""
        if self.counts_iterations:
            pattern = pattern_of(self.instance)  # type: ignore[arg-type]
            return lower_refresh(pattern, iterations or [1] * len(pattern.devices)).problem
        return lower(self.instance)

    def objective(self, problem: Problem) -> Objective:
        """Return the objective of the instance."""
        return Objective.ITERATIONS if self.counts_iterations else problem.objective

    def value(self, schedule: Schedule, iterations: Iterations) -> Decimal:
        """Return the objective value of a schedule, in iterations or the instance's time unit."""
        if self.counts_iterations:
            return Decimal(max(iterations or (1,)))
        return as_decimal(schedule.problem.scale.time(schedule.value))

    def bound(self, problem: Problem) -> tuple[str, Decimal]:
        """Return the best analytic lower bound and its name.

        Raises
        ------
        MemoryInfeasible
            No schedule keeps the capacity of a pool.
        """
        if self.counts_iterations:
            pattern = pattern_of(self.instance)  # type: ignore[arg-type]
            groups = coupled_devices(pattern, rendezvous_of(pattern))
            bounds = [iterations_bound(pattern, devices) for devices in groups]
            best = max(bounds, key=lambda bound: bound.value)
            return best.by, Decimal(best.value)
        strongest = best_bound(lower_bounds(ImpliedOrder(problem)))
        return strongest.name, as_decimal(problem.scale.time(strongest.value))

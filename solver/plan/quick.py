"""Schedules of configurations in milliseconds: walked, or by the names that a request allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import HeuristicStatus, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import (
    DeadlockError,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import MAX_LOWERED
from ppsolve.models.plan.result import Configuration
from ppsolve.solver.board import Board
from ppsolve.solver.bounds import work_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Heuristic, Request
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.optimize.kinds import kind_of
from ppsolve.solver.optimize.registry import chosen_heuristics
from ppsolve.solver.pipeline.actions import Chains, Order, resolved
from ppsolve.solver.pipeline.kind import PipelineTask
from ppsolve.solver.plan.building import PipelineBuilder
from ppsolve.solver.plan.floors import makespan_floor
from ppsolve.solver.plan.outline import Outline, outline, outlined
from ppsolve.solver.plan.walk import NAME, WalkRule, best_walk, refuse_wrong
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.solve_run import SolveRun

MOST_WALKED = 250_000
"""Larger pipelines get no quick schedule: the walk and the check of one take half a second."""

SWEEP = "list-sweep"
"""Name of the heuristic that finalists are swept by."""


class Reached(NamedTuple):
    """A checked schedule: makespan in the unit of the request, and its name in reports.

    What made it is `rule`, or there are its starts in ticks of the profile.
    """

    makespan: float
    method: str
    rule: WalkRule | None = None
    start: IntArray | None = None


class QuickScheduler:
    """Quick schedules of one request. Pipelines that are the same are scheduled once."""

    def __init__(self, builder: PipelineBuilder) -> None:
        self._builder = builder
        self._known: dict[tuple[object, ...], Reached | None] = {}
        self._shape: PipelineInstance | None = None
        self._ordered: dict[str, Chains] = {}

    def outline(self, configuration: Configuration, boundaries: Sequence[int]) -> Outline:
        """Return the outline of a configuration under a split.

        Parameters
        ----------
        configuration : Configuration
            The configuration.
        boundaries : sequence of int
            First layer of each stage, then the number of layers.

        Returns
        -------
        Outline
            Its arrays, in ticks of the profile and grains.

        Raises
        ------
        InputError
            The pipeline is too large, or one of its times is.
        """
        shown = outline(self._builder.pipeline(configuration, boundaries))
        if shown.num_ops > min(MOST_WALKED, MAX_LOWERED):
            raise InputError(f"expected at most {MOST_WALKED} ops, got {shown.num_ops}")
        return shown

    def floor(self, shown: Outline) -> Fraction:
        """Return a time below which no schedule is, in the unit of the request."""
        return makespan_floor(shown) * shown.pipeline.layers.tick

    def reach(self, shown: Outline, rules: tuple[WalkRule, ...]) -> Reached | None:
        """Return the best of several rules, None where all of them wait for good.

        Parameters
        ----------
        shown : Outline
            The pipeline.
        rules : tuple of WalkRule
            What is tried.

        Returns
        -------
        Reached or None
            Its schedule has passed the checker.
        """
        key = (rules, *shown.key)
        if key not in self._known:
            expect(shown.num_ops * len(rules))
            walked = best_walk(shown, rules)
            found = None if walked is None else Reached(walked.makespan, NAME, walked.rule)
            self._known[key] = found
        return self._known[key]

    def named(self, shown: Outline, names: Sequence[str]) -> Reached | None:
        """Return the schedule of the first of these heuristics that makes one.

        Parameters
        ----------
        shown : Outline
            The pipeline.
        names : sequence of str
            Heuristics; those that search are left out.

        Returns
        -------
        Reached or None
            None where none applies and fits the memory.
        """
        instance, problem = outlined(shown)
        for heuristic in chosen_heuristics(instance, names):
            found = None if heuristic.is_search else self._made(heuristic, instance, problem)
            if found is not None:
                makespan = float(problem.scale.time(found.makespan))
                return Reached(makespan, heuristic.name, start=found.start)
        return None

    def _made(
        self, heuristic: Heuristic, instance: PipelineInstance, problem: Problem
    ) -> Schedule | None:
        """Return the schedule of a heuristic; None where it does not apply or breaks a rule."""
        kind = kind_of(instance)
        if heuristic.orders is None or instance.collectives is not None:
            outcome = kind.run_heuristic(heuristic, instance, problem)
            return outcome.schedule if outcome.status is HeuristicStatus.FEASIBLE else None
        if kind.obstacle(heuristic, instance) is not None:
            return None
        try:
            chains = self._chains(heuristic.name, heuristic.orders, instance, problem)
            # Most of these orders take more memory than there is; timing and checking one to find
            # that out takes 10 to 50 ms.
            schedule = None if chains.overfills(problem) else chains.timed(problem)
        except (NotApplicableError, DeadlockError):
            return None
        return None if schedule is None or check_schedule(problem, schedule) else schedule

    def _chains(
        self,
        name: str,
        orders: Callable[[Request], Sequence[Order]],
        instance: PipelineInstance,
        problem: Problem,
    ) -> Chains:
        """Return published orders as ops; those of the last shape are kept."""
        if self._shape is not instance:
            self._shape = instance
            self._ordered.clear()
        if name not in self._ordered:
            self._ordered[name] = resolved(problem, orders(Request(instance, problem)))
        return self._ordered[name]

    def swept(
        self, shown: Outline, known: IntArray | None, steps: int, clock: Clock
    ) -> Reached | None:
        """Return the schedule of a `list-sweep` of so many steps.

        Parameters
        ----------
        shown : Outline
            The pipeline.
        known : int64[n] or None
            A schedule to begin from, in ticks of the profile.
        steps : int
            Schedules tried after its rules.
        clock : Clock
            Ends it early.

        Returns
        -------
        Reached or None
            Checked; None where every rule waits for good.

        Raises
        ------
        WrongScheduleError
            The checker refuses it.
        """
        problem = outlined(shown)[1]
        expect(shown.num_ops * steps)
        first = None if known is None else Schedule(problem, known)
        try:
            board = Board.beginning(first, makespan_floor(shown))
            found = list_sweep(problem, clock, board, steps=steps)
        except MemoryDeadlockError:
            return None
        refuse_wrong(found, SWEEP)
        return Reached(float(problem.scale.time(found.makespan)), SWEEP, start=found.start)


def walked_start(shown: Outline, rule: WalkRule) -> IntArray:
    """Return the starts that a rule makes of a pipeline.

    Parameters
    ----------
    shown : Outline
        A pipeline on which the rule does not wait for good.
    rule : WalkRule
        The rule.

    Returns
    -------
    int64[n]
        Starts in ticks of the profile.
    """
    walked = best_walk(shown, (rule,))
    assert walked is not None
    return walked.schedule.start


def offer_start(task: ScheduleTask, shown: Outline, start: IntArray, name: str) -> None:
    """Give a task a schedule, which it checks.

    Parameters
    ----------
    task : ScheduleTask
        The pipeline as an instance.
    shown : Outline
        The same pipeline.
    start : int64[n]
        Ticks of the profile.
    name : str
        What made the schedule.
    """
    factor = shown.pipeline.layers.tick / task.problem.scale.tick
    exact = start * factor.numerator // factor.denominator
    task.board.propose(Schedule(task.problem, exact), name)


class _KnownTask(PipelineTask):
    """A pipeline whose schedule is known; of the bounds only the cheapest is worked out."""

    def find_bounds(self, clock: Clock | None = None) -> None:
        self.board.raise_bound(work_bound(self.problem), "work")


def documented(instance: PipelineInstance, shown: Outline, start: IntArray, name: str) -> Result:
    """Return the result that holds a schedule, checked against the instance itself.

    Parameters
    ----------
    instance, shown, start, name
        As for `offer_start`.

    Returns
    -------
    Result
        With the work bound and without entries of heuristics.
    """
    kind = kind_of(instance)
    task = _KnownTask(kind, instance, kind.lower(instance))
    offer_start(task, shown, start, name)
    return SolveRun(task, (), Options(time_limit=0.0)).execute()

"""Pipelines solved for one runtime: every order of few, or the best of all that it may run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ppsolve.models.core.metrics import measure
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import Bottleneck, HeuristicStatus, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.modes import has_open_modes, modes_of
from ppsolve.models.kinds.pipeline.replicas import RuntimeFigures
from ppsolve.solver.board import Admit, Board, Incumbent
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome
from ppsolve.solver.kinds.pipeline.programs.shape import PipelineShape, shape_of
from ppsolve.solver.kinds.pipeline.runtimes.claims import rows_of
from ppsolve.solver.kinds.pipeline.runtimes.family import RuntimeFamily
from ppsolve.solver.kinds.pipeline.runtimes.timing import RuntimeSettings, settings_of
from ppsolve.solver.run.schedule_task import START, ScheduleTask
from ppsolve.solver.run.step import Step, Steps, always, whole
from ppsolve.solver.run.steps import find_bounds
from ppsolve.solver.run.task import Task
from ppsolve.solver.structure.holds import MemoryInfeasible

ORDERS_OF_RUNTIME = "runtime orders"
"""Name of this step, and of the bound of all orders, in reports."""


RUNTIME_STEPS: tuple[Step | Steps, ...] = (Step(ORDERS_OF_RUNTIME, always, whole, find_bounds),)
"""The steps of a pipeline for a runtime of few orders: each is timed."""


class RuntimeTask(ScheduleTask):
    """A pipeline for a runtime that runs few orders.

    Parameters
    ----------
    kind : Kind
        The kind of pipelines.
    instance : PipelineInstance
        The pipeline.
    family : RuntimeFamily
        The runtime, which has no obstacle to the pipeline.
    exact : bool
        As for `Kind.lower`.
    """

    steps: ClassVar[tuple[Step | Steps, ...]] = RUNTIME_STEPS
    proves_instance: ClassVar[bool] = False

    def __init__(
        self, kind: Any, instance: PipelineInstance, family: RuntimeFamily, *, exact: bool
    ) -> None:
        super().__init__(kind, instance, _problem(kind, instance, exact=exact))
        self.family = family
        self.settings: dict[str, RuntimeSettings] = {}

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Time every order; the best one is the bound, unless the clock is over before."""
        least: tuple[float, str] | None = None
        for each in settings_of(self.family, self.instance):
            if clock is not None and clock.is_over:
                super().find_bounds(clock)
                return
            self.settings[each.words] = each
            outcome = self._outcome(each)
            self.note(outcome)
            if outcome.reason is not None:
                found = _excess(outcome.schedule), f"{each.words}: {outcome.reason}"
                least = found if least is None else min(least, found)
        if self.board.value is not None:
            self.board.raise_bound(self.board.value, ORDERS_OF_RUNTIME)
        elif least is not None:
            raise MemoryInfeasible(f"{self._among('none')} fits; {least[1]}")

    def _outcome(self, each: RuntimeSettings) -> HeuristicOutcome:
        try:
            schedule = each.timed(self.instance, self.problem)
        except DeadlockError as error:
            return HeuristicOutcome(each.words, HeuristicStatus.FAILED, reason=str(error))
        broken = check_schedule(schedule.problem, schedule)
        status = HeuristicStatus.INFEASIBLE if broken else HeuristicStatus.FEASIBLE
        reason = str(broken[0]) if broken else None
        return HeuristicOutcome(each.words, status, schedule, reason)

    def _among(self, which: str) -> str:
        return f"{which} of the orders that {self.family.title} runs ({len(self.settings)} timed)"

    def begin_from(self, given: Any) -> None:
        """Refuse: every order is tried."""
        raise InputError(f"expected none: {self.family.title} runs few orders", field="start")

    def refuse_robust(self) -> None:
        """Refuse: every order is tried."""
        raise InputError(f"expected none: {self.family.title} runs few orders", field="robust")

    def bottleneck(self) -> Bottleneck | None:
        """Return that all orders were timed, of a run that timed them all."""
        if self.board.bound.name != ORDERS_OF_RUNTIME:
            return super().bottleneck()
        return Bottleneck(
            rule=ORDERS_OF_RUNTIME,
            value=self.shown(self.board.bound.value),
            why=f"{self._among('none')} is shorter",
            lowered_by="a runtime that runs other orders",
        )

    def runtime_figures(self, free: Result | None) -> RuntimeFigures:
        """Return the settings that were found, and what they cost.

        Parameters
        ----------
        free : Result or None
            The best of all schedules, where it was searched.
        """
        best = self.board.incumbent
        value, bound = (None, None) if free is None else (free.value, free.bound)
        price = None
        if best is not None and value:
            price = float(self.shown(best.value)) / float(value) - 1
        return RuntimeFigures(
            name=self.family.name,
            settings={} if best is None else self.settings[best.by].named,
            order=None if best is None else best.by,
            orders=len(self.settings),
            free_value=value,
            free_bound=bound,
            price=price,
        )


def _problem(kind: Any, instance: PipelineInstance, *, exact: bool) -> Problem:
    modes = modes_of(instance)
    if modes is not None and has_open_modes(instance):
        return lower_pipeline(instance, exact=exact, choice=modes.relaxed)
    return kind.lower(instance, exact=exact)


def _excess(schedule: Schedule | None) -> float:
    """Return the largest peak of a schedule as a share of the capacity."""
    if schedule is None:
        return np.inf
    pairs = zip(measure(schedule).peak_memory, schedule.problem.pools, strict=True)
    return max((float(peak) / float(pool.limit or 1) for peak, pool in pairs), default=0.0)


def task_for(kind: Any, instance: PipelineInstance, family: RuntimeFamily, *, exact: bool) -> Task:
    """Return the task of a pipeline for a runtime: of few orders, or of what it admits.

    Parameters
    ----------
    kind, instance, family, exact
        As of `RuntimeTask`.

    Returns
    -------
    Task
    """
    if family.is_finite:
        return RuntimeTask(kind, instance, family, exact=exact)
    task: Task = kind.task(family.narrowed(instance), exact=exact)
    task.board = Board(_Runnable(family, shape_of(instance), task.admit))
    return task


@dataclass(frozen=True)
class _Runnable:
    """Admits schedules that a runtime can run, micro-batches that are alike in index order."""

    family: RuntimeFamily
    shape: PipelineShape
    admit: Admit

    def __call__(
        self, schedule: Schedule, by: str, best: int | None, order: list[int] | None
    ) -> Incumbent | None:
        if best is not None and schedule.value >= best:
            return None
        schedule = by_index(schedule)
        rows = rows_of(schedule)
        try:
            if rows is None:
                raise InputError("an op runs in pieces, with others between them", field=START)
            self.family.order_of(rows, self.shape)
        except InputError as error:
            if by == START:
                raise error.about(START) from None
            return None
        return self.admit(schedule, by, best, order)


def by_index(schedule: Schedule) -> Schedule:
    """Return a schedule in which alike ops run in the order of their micro-batches."""
    start = schedule.start.copy()
    for family in schedule.problem.families:
        for column in family.T:
            start[column] = np.sort(start[column])
    return Schedule(schedule.problem, start)

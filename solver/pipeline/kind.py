"""The kind ``pipeline``: stages on devices, micro-batches, and optional collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ppsolve.models.core.problem import Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.bounds import flow_bounds
from ppsolve.solver.flow.flow import flow_of
from ppsolve.solver.heuristics.heuristic import HeuristicOutcome, Proposal
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import Control, Strategy
from ppsolve.solver.pipeline.collectives import orders_if_whole, with_collectives
from ppsolve.solver.pipeline.event_driven.heuristics import EVENT_DRIVEN
from ppsolve.solver.pipeline.permutations import PERMUTATIONS
from ppsolve.solver.pipeline.permuted import ORDERS
from ppsolve.solver.pipeline.published import PUBLISHED


@dataclass(frozen=True)
class PipelineKind(Kind[PipelineInstance]):
    """Pipelines: published schedules have action strings, collectives a search of their own."""

    def task(self, instance: PipelineInstance, *, round_up: bool = False) -> ScheduleTask:
        """Return the task of solving a pipeline.

        Parameters
        ----------
        instance : PipelineInstance
            The pipeline.
        round_up : bool
            Round times up where they have no common tick within the limit.

        Returns
        -------
        ScheduleTask
            The task.
        """
        return PipelineTask(self, instance, self.lower(instance, round_up=round_up))

    def adapt(self, instance: PipelineInstance, schedule: Schedule) -> Proposal:
        """Add the action strings of each device to a schedule.

        Parameters
        ----------
        instance : PipelineInstance
            The pipeline.
        schedule : Schedule
            A schedule of its problem.

        Returns
        -------
        Proposal
            The schedule; without action strings where ops run in several segments.
        """
        return Proposal(schedule, orders_if_whole(schedule))

    def run_all(self, instance: PipelineInstance, problem: Problem) -> Iterator[HeuristicOutcome]:
        """Run every heuristic on a pipeline.

        Parameters
        ----------
        instance : PipelineInstance
            The pipeline.
        problem : Problem
            Its problem.

        Yields
        ------
        HeuristicOutcome
            The outcome of each heuristic, in the order of reports.
        """
        for heuristic in self.heuristics_of(instance):
            yield self.run_heuristic(heuristic, instance, problem)


class PipelineTask(ScheduleTask):
    """A pipeline that is being solved."""

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find every analytic bound; of unequal micro-batches those on their flow too."""
        super().find_bounds(clock)
        alike = max(map(len, self.problem.families), default=0)
        if self.objective is not Objective.MAKESPAN or alike == self.instance.num_microbatches:
            return  # index order says more of micro-batches that are all alike
        flow = flow_of(self.problem)
        stronger = [] if flow is None else flow_bounds(flow, clock)
        self._note_bounds([b for b in stronger if b.value > self.bound.value] + self.bounds)

    def strategies(self, options: Options) -> Iterator[Strategy]:
        """Yield the best order of whole ops where there are collectives, then the exact search."""
        if self.instance.collectives is not None and options.heuristics is None:
            yield self.plan_whole_ops
        yield from super().strategies(options)

    def plan_whole_ops(self, control: Control) -> StopReason:
        """Order whole ops exactly, and add their collectives greedily."""
        from ppsolve.solver.pipeline.best_order import best_pipeline

        limits, before = control.limits(), self.value
        outcome = best_pipeline(self.instance, self.problem, limits, PIPELINE.run_all)
        if outcome is not None:
            self.add(outcome)
            if self.value != before:
                control.tell("incumbent", outcome.name)
        return StopReason.TIME


PIPELINE = PipelineKind(
    "pipeline",
    PipelineInstance,
    lower_pipeline,
    (*map(with_collectives, (*PUBLISHED, *EVENT_DRIVEN, *ORDERS)), PERMUTATIONS),
)

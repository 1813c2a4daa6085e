"""Replicas as what a pipeline leaves open: which of them runs which micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import (
    assignment_violations,
    lower_joint,
    read_assignment,
)
from ppsolve.solver.kinds.pipeline.part import OpenPart

if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import Heuristic
    from ppsolve.solver.run.schedule_task import ScheduleTask


class ReplicasPart(OpenPart):
    """Replicas, whose micro-batches are fixed or may be exchanged."""

    attribute = "replicas"

    def needs_search_of_choices(self, instance: PipelineInstance) -> bool:
        """Whether replicas have slices."""
        return instance.slices is not None

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the assignment that a document claims."""
        return lower_joint(instance, read_assignment(document, instance), exact=exact)

    def false_choices(self, instance: PipelineInstance, data: Any) -> list[Violation]:
        """Return the claim of an assignment that is none."""
        return assignment_violations(data, instance)

    def violations(
        self, instance: PipelineInstance, data: Any, schedule: Schedule | None
    ) -> list[Violation]:
        """Return the claim of a choice that is none; no runtime can be claimed."""
        return self.false_choices(instance, data)

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the micro-batches of each replica."""
        from ppsolve.solver.kinds.pipeline.replicas.heuristics import members_of

        return {"assignment": members_of(schedule.problem)}

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of replicas; micro-batches that are exchanged are a flow."""
        from ppsolve.solver.kinds.pipeline.open.decisions import CHOSEN_REPLICAS
        from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask
        from ppsolve.solver.kinds.pipeline.replicas.steps import flow_of_all

        task = ChoiceTask(kind, instance, exact=exact, alone=CHOSEN_REPLICAS)
        if CHOSEN_REPLICAS in task.space.fields:
            task.flow = flow_of_all(instance)
        return task

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return that searches know no exchange of micro-batches."""
        replicas = instance.replicas
        if heuristic.is_search and replicas is not None and replicas.is_free:
            return "needs micro-batches that stay in their replicas"
        return None

"""Blocks and devices of fillers as what a pipeline leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.pipeline.filler_devices import (
    choice_of_devices,
    device_choices,
    devices_of_schedule,
)
from ppsolve.models.kinds.pipeline.fused import (
    choice_of_pairs,
    fused_problem,
    pairs_of_schedule,
)
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.overlap_blocks import PROGRAMS, timed_by
from ppsolve.solver.kinds.inner import InnerInstances
from ppsolve.solver.kinds.pipeline.part import OpenPart

if TYPE_CHECKING:
    from ppsolve.solver.run.schedule_task import ScheduleTask


class FusedPart(OpenPart):
    """Forwards and backwards that may run as one block."""

    attribute = "overlap"

    def needs_search_of_choices(self, instance: PipelineInstance) -> bool:
        """Whether blocks are beside steps or fillers."""
        return not instance.is_one_plain_step

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the blocks that a document claims; without one, of none."""
        instance = timed_by(instance, document)
        if document is None:
            return lower_pipeline(instance, exact=exact)
        blocks = fused_problem(instance, exact=exact)
        return blocks.problem(choice_of_pairs(blocks, document.get("fused") or []))

    def false_choices(self, instance: PipelineInstance, data: Any) -> list[Violation]:
        """Return the false claims of programs of blocks."""
        from ppsolve.solver.kinds.pipeline.blocks import program_violations

        return program_violations(instance, data)

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the names of the ops of each block."""
        return {"fused": pairs_of_schedule(schedule)}

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of choosing blocks."""
        from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask

        return ChoiceTask(kind, instance, exact=exact)

    def inner(self, instance: PipelineInstance) -> InnerInstances | None:
        """Return the programs whose best orders are the times of blocks.

        No pipeline gets shorter where a block takes longer.
        """
        blocks = instance.overlap
        if blocks is None or not blocks.programs:
            return None
        return InnerInstances(
            dict(blocks.programs),
            f"overlap.{PROGRAMS}",
            PROGRAMS,
            lambda times: instance.model_copy(
                update={"overlap": blocks.with_times(times)}
            ),
        )


class FillerDevicesPart(OpenPart):
    """Fillers that may run on one of several devices."""

    attribute = "has_device_choice"

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the devices that a document claims; without one, of the first."""
        base = lower_pipeline(instance, exact=exact)
        if document is None:
            return base
        choices = device_choices(instance, base)
        return choices.problem(
            choice_of_devices(choices, document.get("devices") or {})
        )

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the devices of fillers that are not on their first one."""
        return {"devices": devices_of_schedule(instance, schedule)}

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of choosing devices."""
        from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask

        return ChoiceTask(kind, instance, exact=exact)

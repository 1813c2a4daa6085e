"""Layers as what a pipeline leaves open: which stage has which of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.layers import (
    CHOSEN_LAYERS,
    counts_of_document,
    layers_violations,
    named_counts,
)
from ppsolve.models.kinds.pipeline.lowering import lower_split
from ppsolve.solver.kinds.pipeline.part import OpenPart

if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import Heuristic
    from ppsolve.solver.run.schedule_task import ScheduleTask


class LayersPart(OpenPart):
    """Layers that stages share out."""

    attribute = "layers"

    @property
    def heuristics(self) -> tuple[Heuristic, ...]:
        """Heuristics that share layers out."""
        from ppsolve.solver.kinds.pipeline.layers.steps import SPLIT_HEURISTICS

        return SPLIT_HEURISTICS

    def needs_search_of_choices(self, instance: PipelineInstance) -> bool:
        """Whether layers are beside slices, steps or fillers."""
        return instance.slices is not None or not instance.is_one_plain_step

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the split that a document claims, or of an even one."""
        return lower_split(
            instance, counts_of_document(instance, document)[0], exact=exact
        )

    def false_choices(self, instance: PipelineInstance, data: Any) -> list[Violation]:
        """Return the claim of a split that is none."""
        return layers_violations(instance, data)

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the number of layers of each stage and type."""
        layers, counts = instance.layers, schedule.problem.choices.get(CHOSEN_LAYERS)
        assert layers is not None
        if counts is None:
            return None
        return {"layers": named_counts(layers, counts)}

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of sharing layers out."""
        from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask

        return ChoiceTask(kind, instance, exact=exact, alone=CHOSEN_LAYERS)

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return that generic searches are left out: the orders of the best split come later."""
        from ppsolve.solver.heuristics.generic import GENERIC

        searches = {generic.name for generic in GENERIC if generic.is_search}
        is_left_out = heuristic.name in searches and not heuristic.is_own
        return f"needs {heuristic.made_for}" if is_left_out else None

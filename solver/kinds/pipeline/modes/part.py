"""Memory modes as what a pipeline leaves open: which activations are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.modes import (
    CHOSEN_MODES,
    MemoryModes,
    choice_of,
    has_open_modes,
    modes_of,
    modes_violations,
)
from ppsolve.solver.kinds.pipeline.part import OpenPart

if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import Heuristic
    from ppsolve.solver.run.schedule_task import ScheduleTask


class ModesPart(OpenPart):
    """Modes of the activations of each stage, open or given."""

    attribute = "has_modes"

    @property
    def heuristics(self) -> tuple[Heuristic, ...]:
        """Heuristics that choose a mode for each stage."""
        from ppsolve.solver.kinds.pipeline.modes.baselines import BASELINES
        from ppsolve.solver.kinds.pipeline.modes.just_in_time import RELOAD_LISTS

        return (*BASELINES, RELOAD_LISTS)

    def needs_search_of_choices(self, instance: PipelineInstance) -> bool:
        """Whether open modes are beside slices, steps, fillers or collectives inside ops."""
        return has_open_modes(instance) and not instance.has_whole_ops

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the modes that are given, or that a document claims."""
        modes = _modes(instance)
        choice = None if modes.given is not None else choice_of(modes, document)[0]
        return lower_pipeline(instance, exact=exact, choice=choice)

    def false_choices(self, instance: PipelineInstance, data: Any) -> list[Violation]:
        """Return the claim of modes that are none."""
        return modes_violations(_modes(instance), data)

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the mode of each stage by name."""
        modes = _modes(instance)
        choice = modes.given
        if choice is None:
            choice = schedule.problem.choices.get(CHOSEN_MODES)
        return None if choice is None else {"modes": modes.as_names(choice)}

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of choosing modes; where they are given, that of a plain pipeline."""
        modes = _modes(instance)
        if modes.given is not None:
            return super().task(kind, instance, exact=exact)
        from ppsolve.solver.kinds.pipeline.open.task import ChoiceTask

        return ChoiceTask(kind, instance, exact=exact)

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return that a heuristic does not choose modes that are open."""
        if has_open_modes(instance) and heuristic not in self.heuristics:
            return "needs a list with the mode of each stage"
        return None


def _modes(instance: PipelineInstance) -> MemoryModes:
    modes = modes_of(instance)
    assert modes is not None
    return modes

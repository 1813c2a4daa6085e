"""What an optional thing of a pipeline leaves open beside the orders of ops, as one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.solver.kinds.pipeline.claimed import claims_runtime

if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request
    from ppsolve.solver.kinds.inner import InnerInstances
    from ppsolve.solver.run.schedule_task import ScheduleTask


class OpenPart:
    """An optional thing of a pipeline that leaves more open than orders; by itself nothing more.

    A choice of what is open makes a plain problem. A document claims the choice in fields of its
    own, beside the starts of the ops.
    """

    attribute: ClassVar[str] = ""
    """Attribute of pipelines that is there, or true, where they have the part."""

    @property
    def heuristics(self) -> tuple[Heuristic, ...]:
        """Heuristics that choose too, in the order of reports; others' pipelines run none."""
        return ()

    def needs_search_of_choices(self, instance: PipelineInstance) -> bool:
        """Whether what it is beside is none that its own task knows."""
        return False

    def problem(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Return the problem of the choice that a document claims, or of a first one."""
        return lower_pipeline(instance, exact=exact)

    def false_choices(self, instance: PipelineInstance, data: Any) -> list[Violation]:
        """Return the claims of a document that are no choice."""
        return []

    def violations(
        self, instance: PipelineInstance, data: Any, schedule: Schedule | None
    ) -> list[Violation]:
        """Return the false claims of a document, apart from the starts of its schedule."""
        wrong = self.false_choices(instance, data)
        if wrong or not claims_runtime(data):
            return wrong
        from ppsolve.solver.kinds.pipeline.runtimes.claims import runtime_violations

        return runtime_violations(instance, data, schedule)

    def claims(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the fields by which a document claims the choice of a schedule."""
        return None

    def task(
        self, kind: Any, instance: PipelineInstance, *, exact: bool
    ) -> ScheduleTask:
        """Return the task of solving a pipeline; `kind` is the `PipelineKind`."""
        from ppsolve.solver.kinds.pipeline.task import PipelineTask

        return PipelineTask(kind, instance, kind.lower(instance, exact=exact))

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return why the part keeps a heuristic from being run, None if it does not."""
        return None

    def proposal(
        self,
        propose: Callable[[Heuristic, Request], Proposal],
        heuristic: Heuristic,
        request: Request,
    ) -> Proposal:
        """Return the proposal of a heuristic, which `propose` asks for one choice."""
        return propose(heuristic, request)

    def inner(self, instance: PipelineInstance) -> InnerInstances | None:
        """Return the instances that are solved before the pipeline, None where there are none."""
        return None

"""The kind ``pipeline``: stages on devices, micro-batches, and optional collectives."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.replicas import PipelineEntry, PipelineResult
from ppsolve.models.kinds.pipeline.transfers import doubtful_units
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.pipeline.claimed import as_claimed
from ppsolve.solver.kinds.pipeline.grammar import compute_rows, is_compute
from ppsolve.solver.kinds.pipeline.parts import PARTS, part_of

# Searches are imported where they run, so that a file is read and checked without them.
if TYPE_CHECKING:
    from ppsolve.solver.heuristics.heuristic import (
        Heuristic,
        HeuristicOutcome,
        Proposal,
        Request,
    )
    from ppsolve.solver.kinds.inner import InnerInstances
    from ppsolve.solver.kinds.narrowing import Narrowing
    from ppsolve.solver.run.task import Task


def _comma_separated(names: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


@dataclass(frozen=True)
class PipelineKind(Kind[PipelineInstance]):
    """Pipelines: published schedules have action strings, collectives are added."""

    orders_are: ClassVar[str | None] = "order of each device"

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that run pipelines."""
        from ppsolve.solver.kinds.pipeline.runtimes.families import FAMILIES

        return tuple(family.name for family in FAMILIES)

    def order_lines(self, found: Result | HeuristicEntry) -> list[str] | None:
        """Return a line for each device: its actions (``0F3``), as PyTorch's schedule files.

        Ops without an action string, such as those cut by collectives, are written by name.
        ``_PipelineScheduleRuntime._load_csv`` of `torch.distributed.pipelining` reads the actions.
        """
        orders = found.orders
        if orders is None and found.schedule is not None:
            orders = found.schedule.orders()
        return None if orders is None else list(map(_comma_separated, orders))

    def heuristics_of(self, instance: PipelineInstance) -> tuple[Heuristic, ...]:
        """Return the heuristics of a pipeline: those of its part, and none of other parts."""
        open_part = part_of(instance)
        foreign = {
            heuristic.name
            for owner in PARTS
            if owner is not open_part
            for heuristic in owner.heuristics
        }
        return tuple(
            heuristic
            for heuristic in super().heuristics_of(instance)
            if heuristic.name not in foreign
            and open_part.obstacle(heuristic, instance) is None
        )

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return why a heuristic cannot be run."""
        reason = part_of(instance).obstacle(heuristic, instance)
        return reason or super().obstacle(heuristic, instance)

    def problem_of(
        self, instance: PipelineInstance, *, exact: bool, document: Any
    ) -> Problem:
        """Lower a pipeline with the choice that a document claims.

        For a document that claims a runtime ranks run one op after the other.
        """
        instance = as_claimed(instance, document)
        return part_of(instance).problem(instance, exact=exact, document=document)

    def refuted(
        self,
        instance: PipelineInstance,
        problem: Problem,
        data: Any,
        schedule: Schedule | None,
    ) -> list[Violation]:
        """Return the claim of a choice or of a runtime that is none."""
        instance = as_claimed(instance, data)
        return part_of(instance).violations(instance, data, schedule)

    def claims_of(
        self, instance: PipelineInstance, schedule: Schedule
    ) -> dict[str, Any] | None:
        """Return the choice of a schedule, of what the pipeline leaves open."""
        return part_of(instance).claims(instance, schedule)

    def entry_of(
        self, instance: PipelineInstance, problem: Problem, outcome: HeuristicOutcome
    ) -> HeuristicEntry:
        """Return the entry of one heuristic, with the modes of its schedule."""
        entry = super().entry_of(instance, problem, outcome)
        schedule = outcome.schedule
        claims = None if schedule is None else self.claims_of(instance, schedule)
        return PipelineEntry(**dict(entry), **(claims or {}))

    def doubts(self, instance: PipelineInstance) -> Iterator[str]:
        """Yield a line for transfers and latencies that are far from the times of the ops."""
        yield from doubtful_units(instance)

    def task(self, instance: PipelineInstance, *, exact: bool = False) -> Task:
        """Return the task of solving a pipeline."""
        return part_of(instance).task(self, instance, exact=exact)

    def claimed_task(
        self, instance: PipelineInstance, data: Any, *, exact: bool
    ) -> Task:
        """Return the task that a result is of: for the runtime that it claims, if any."""
        from ppsolve.solver.kinds.pipeline.runtimes.claims import claimed_runtime

        family = claimed_runtime(instance, data)
        if family is None:
            return self.task(instance, exact=exact)
        from ppsolve.solver.kinds.pipeline.runtimes.task import task_for

        return task_for(self, instance, family, exact=exact)

    def for_runtime(
        self, instance: PipelineInstance, runtime: str, *, exact: bool
    ) -> Narrowing:
        """Return a pipeline for a runtime, which may refuse it."""
        from ppsolve.solver.kinds.pipeline.runtimes.narrowing import RuntimeNarrowing

        return RuntimeNarrowing(self, instance, runtime, exact=exact)

    def inner(self, instance: PipelineInstance) -> InnerInstances | None:
        """Return the programs of fused blocks."""
        return part_of(instance).inner(instance)

    def with_files(self, data: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Read the programs of fused blocks that are files."""
        if not data.get("overlap"):
            return data
        from ppsolve.solver.kinds.pipeline.blocks import with_program_files

        return with_program_files(data, folder)

    def _proposal(self, heuristic: Heuristic, request: Request) -> Proposal:
        return part_of(request.instance).proposal(
            self._proposal_of_choice, heuristic, request
        )

    def _proposal_of_choice(self, heuristic: Heuristic, request: Request) -> Proposal:
        proposal = super()._proposal(heuristic, request)
        if heuristic.is_own or not len(request.problem.points):
            return proposal
        from ppsolve.solver.structure.points import without_crossings

        apart = without_crossings(proposal.schedule)
        return (
            proposal
            if apart is proposal.schedule
            else replace(proposal, schedule=apart)
        )

    def adapt(self, instance: PipelineInstance, schedule: Schedule) -> Proposal:
        """Add the action strings of each device to a schedule."""
        from ppsolve.solver.heuristics.heuristic import Proposal
        from ppsolve.solver.kinds.pipeline.collectives import orders_of_one_step

        return Proposal(schedule, orders_of_one_step(instance, schedule))

    def follow(
        self,
        instance: PipelineInstance,
        problem: Problem,
        orders: Sequence[Sequence[Any]],
    ) -> Proposal:
        """Time orders of action strings, one per device, or of ops."""
        if not all(is_compute(step) for order in orders for step in order):
            return super().follow(instance, problem, orders)
        from ppsolve.solver.heuristics.heuristic import Proposal
        from ppsolve.solver.kinds.pipeline.actions import (
            Order,
            action_strings,
            schedule_actions,
        )
        from ppsolve.solver.kinds.pipeline.collectives import actions_are_ops

        if not actions_are_ops(instance):
            raise InputError(
                "expected names or numbers of ops: actions do not say which piece of an op with "
                "collectives or slices, which step or where fillers run",
                source=instance.name,
                field="orders",
                code=ErrorCode.CONFLICT,
            )
        devices = len(problem.span_resources)
        if len(orders) != devices:
            raise InputError(
                f"expected {devices} orders, got {len(orders)}", code=ErrorCode.LENGTH
            )
        device_orders = [Order.of(row) for row in compute_rows(orders)]
        return Proposal(
            schedule_actions(problem, device_orders), action_strings(device_orders)
        )


PIPELINE = PipelineKind(
    "pipeline",
    PipelineInstance,
    lower_pipeline,
    "ppsolve.solver.kinds.pipeline.heuristics:HEURISTICS",
    PipelineResult,
    PipelineEntry,
)

"""The kind ``pipeline``: stages on devices, micro-batches, and optional collectives."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.violation import Violation
from ppsolve.models.documents.errors import InputError
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
from ppsolve.models.kinds.pipeline.joint import assignment_violations, lower_joint, read_assignment
from ppsolve.models.kinds.pipeline.layers import (
    counts_of_document,
    layers_violations,
    named_counts,
)
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, lower_split
from ppsolve.models.kinds.pipeline.modes import (
    choice_of,
    has_open_modes,
    modes_of,
    modes_violations,
)
from ppsolve.models.kinds.pipeline.overlap_blocks import timed_by
from ppsolve.models.kinds.pipeline.replicas import PipelineEntry, PipelineResult
from ppsolve.models.kinds.pipeline.transfers import doubtful_units
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.bounds.registry import costly_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.heuristics.generic import GENERIC
from ppsolve.solver.heuristics.heuristic import Heuristic, HeuristicOutcome, Proposal, Request
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.pipeline.actions import Order, action_strings, schedule_actions
from ppsolve.solver.kinds.pipeline.blocks import program_violations
from ppsolve.solver.kinds.pipeline.bubbles import with_fillers
from ppsolve.solver.kinds.pipeline.collectives import orders_if_whole, with_collectives
from ppsolve.solver.kinds.pipeline.event_driven.schedulers import EVENT_DRIVEN
from ppsolve.solver.kinds.pipeline.grammar import compute_rows, is_compute
from ppsolve.solver.kinds.pipeline.layers.task import SPLIT_HEURISTICS, LayersTask
from ppsolve.solver.kinds.pipeline.microbatch_orders import ORDERS, PERMUTATIONS
from ppsolve.solver.kinds.pipeline.modes.baselines import BASELINES
from ppsolve.solver.kinds.pipeline.modes.task import ModesTask
from ppsolve.solver.kinds.pipeline.options.task import FillersTask, OptionsTask
from ppsolve.solver.kinds.pipeline.published import PUBLISHED, SLICED_ORDERS
from ppsolve.solver.kinds.pipeline.replicas.heuristics import with_replicas
from ppsolve.solver.kinds.pipeline.replicas.task import replicas_task
from ppsolve.solver.kinds.pipeline.runtimes.claims import as_claimed, runtime_violations
from ppsolve.solver.kinds.pipeline.small_flow import (
    STATES,
    StateSearchParams,
    search_states,
)
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Steps, Turn, inserted, replaced, whole
from ppsolve.solver.run.steps import (
    QUICK,
    STEPS,
    WINDOWS,
    has_time_to_search,
    is_small,
)
from ppsolve.solver.structure.points import without_crossings

MANY_STEPS = 1_000_000
"""Steps of kernels that this takes: an order, extended once, moves all micro-batches."""


def exchanges(instance: PipelineInstance) -> bool:
    """Whether replicas may exchange micro-batches."""
    return instance.replicas is not None and instance.replicas.is_free


def _comma_separated(names: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


@dataclass(frozen=True)
class PipelineKind(Kind[PipelineInstance]):
    """Pipelines: published schedules have action strings, collectives are added."""

    orders_are: ClassVar[str | None] = "order of each device"

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
        """Return the heuristics of a pipeline; none searches where micro-batches are exchanged.

        Where modes are open they choose modes, under an order of a published schedule.
        """
        if has_open_modes(instance):
            return BASELINES
        others = BASELINES if instance.layers is not None else (*BASELINES, *SPLIT_HEURISTICS)
        names = {one.name for one in others}
        known = tuple(one for one in super().heuristics_of(instance) if one.name not in names)
        if instance.layers is not None:
            generic = {one.name for one in GENERIC if one.is_search}
            return tuple(one for one in known if one.name not in generic)
        return tuple(one for one in known if not (one.is_search and exchanges(instance)))

    def obstacle(self, heuristic: Heuristic, instance: PipelineInstance) -> str | None:
        """Return why a heuristic cannot be run."""
        if heuristic.is_search and exchanges(instance):
            return "needs micro-batches that stay in their replicas"
        if has_open_modes(instance) and heuristic not in BASELINES:
            return "needs a list with the mode of each stage"
        return super().obstacle(heuristic, instance)

    def problem_of(self, instance: PipelineInstance, *, exact: bool, document: Any) -> Problem:
        """Lower a pipeline; one with replicas with the assignment of a document.

        For a document that claims a runtime ranks run one op after the other.
        """
        instance = as_claimed(timed_by(instance, document), document)
        if instance.overlap is not None and document is not None:
            blocks = fused_problem(instance, exact=exact)
            return blocks.problem(choice_of_pairs(blocks, document.get("fused") or []))
        if instance.has_device_choice and document is not None:
            open_problem = device_choices(instance, lower_pipeline(instance, exact=exact))
            choice = choice_of_devices(open_problem, document.get("devices") or {})
            return open_problem.problem(choice)
        if instance.layers is not None:
            return lower_split(instance, counts_of_document(instance, document)[0], exact=exact)
        if instance.replicas is None:
            modes = modes_of(instance)
            if modes is not None and has_open_modes(instance):
                choice, _ = choice_of(modes, document)
                return lower_pipeline(instance, exact=exact, choice=choice)
            return super().problem_of(instance, exact=exact, document=document)
        return lower_joint(instance, read_assignment(document, instance), exact=exact)

    def refuted(
        self, instance: PipelineInstance, problem: Problem, data: Any, schedule: Schedule | None
    ) -> list[Violation]:
        """Return the claim of an assignment, of modes or of a runtime that is none."""
        if instance.replicas is not None:
            return assignment_violations(data, instance)
        if instance.layers is not None:
            return layers_violations(instance, data)
        modes = modes_of(as_claimed(instance, data))
        wrong = program_violations(instance, data)
        wrong += [] if modes is None else modes_violations(modes, data)
        return wrong or runtime_violations(instance, data, schedule)

    def claims_of(self, instance: PipelineInstance, schedule: Schedule) -> dict[str, Any] | None:
        """Return the modes, the split of layers, the blocks or the devices of a schedule."""
        if instance.overlap is not None:
            return {"fused": pairs_of_schedule(schedule)}
        if instance.has_device_choice:
            return {"devices": devices_of_schedule(instance, schedule)}
        modes, layers = modes_of(instance), instance.layers
        choice = schedule.problem.choice
        if layers is not None and choice.shape == (len(layers.names), instance.num_stages):
            return {"layers": named_counts(layers, choice)}
        if modes is None or choice.shape != modes.shape:
            return None
        return {"modes": modes.as_names(choice)}

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

    def task(self, instance: PipelineInstance, *, exact: bool = False) -> ScheduleTask:
        """Return the task of solving a pipeline."""
        if instance.replicas is not None:
            return replicas_task(self, instance, exact=exact, alone=PipelineTask)
        if instance.overlap is not None:
            return OptionsTask(self, instance, fused_problem(instance, exact=exact))
        if instance.has_device_choice:
            base = self.lower(instance, exact=exact)
            return FillersTask(self, instance, device_choices(instance, base))
        if instance.layers is not None:
            return LayersTask(self, instance, self.lower(instance, exact=exact))
        modes = modes_of(instance)
        if modes is None or modes.given is not None:
            return PipelineTask(self, instance, self.lower(instance, exact=exact))
        relaxed = lower_pipeline(instance, exact=exact, choice=modes.relaxed)
        return ModesTask(self, instance, modes, relaxed)

    def _proposal(self, heuristic: Heuristic, request: Request) -> Proposal:
        proposal = super()._proposal(heuristic, request)
        if heuristic.is_own:
            return proposal
        apart = without_crossings(proposal.schedule)
        return proposal if apart is proposal.schedule else replace(proposal, schedule=apart)

    def adapt(self, instance: PipelineInstance, schedule: Schedule) -> Proposal:
        """Add the action strings of each device to a schedule."""
        whole = orders_if_whole(schedule) if instance.is_one_plain_step else None
        return Proposal(schedule, whole)

    def follow(
        self, instance: PipelineInstance, problem: Problem, orders: Sequence[Sequence[Any]]
    ) -> Proposal:
        """Time orders of action strings, one per device, or of ops."""
        if not all(is_compute(step) for order in orders for step in order):
            return super().follow(instance, problem, orders)
        is_whole = instance.is_one_plain_step and problem.slices == 1
        if instance.collectives is not None or not is_whole:
            raise InputError(
                "expected names or numbers of ops: actions do not say which piece of an op with "
                "collectives or slices, which step or where fillers run",
                source=instance.name,
                field="orders",
            )
        devices = len(problem.span_resources)
        if len(orders) != devices:
            raise InputError(f"expected {devices} orders, got {len(orders)}")
        found = [Order.of(row) for row in compute_rows(orders)]
        return Proposal(schedule_actions(problem, found), action_strings(found))


def has_tiny_flow(turn: Turn) -> bool:
    """Apply to flows of so few ops that their states are searched before orders."""
    flow, most = turn.task.flow, StateSearchParams().most_ops
    return has_time_to_search(turn) and flow is not None and turn.task.size <= most


def has_flow_and_clock(turn: Turn) -> bool:
    """Apply to unequal micro-batches: more orders are followed for a while."""
    is_timed = has_time_to_search(turn) and not turn.options.deterministic
    return is_timed and turn.task.flow is not None


def is_small_and_alike(turn: Turn) -> bool:
    """Apply to small problems with alike micro-batches; of others orders are searched first."""
    return turn.task.flow is None and is_small(turn)


def raise_flow_bounds(turn: Turn) -> None:
    """Raise the bound of unequal micro-batches by rules that take more time."""
    expect(MANY_STEPS)
    board, known = turn.board, Relaxations(turn.task.implied, turn.clock)
    upper = NEVER if board.value is None else board.value
    for found in costly_bounds(known, board.bound.value, upper):
        board.raise_bound(found.value, found.name, found.resource)


TINY_FLOW = Step(STATES, has_tiny_flow, whole, search_states)
FLOW_BOUNDS = Step("flow bounds", has_flow_and_clock, whole, raise_flow_bounds)
QUICK_ALIKE = replace(QUICK, applies=is_small_and_alike)

PIPELINE_STEPS = inserted(
    replaced(STEPS, QUICK.name, TINY_FLOW, QUICK_ALIKE),
    WINDOWS.name,
    FLOW_BOUNDS,
)
"""The steps of a pipeline: those of any problem, and of flows of unequal micro-batches."""


class PipelineTask(ScheduleTask):
    """A pipeline that is being solved."""

    steps: ClassVar[tuple[Step | Steps, ...]] = PIPELINE_STEPS

    @cached_property
    def flow(self) -> Flow | None:
        """The flow of unequal micro-batches; index order says more of those that are all alike."""
        paths = Relaxations(self.implied).paths
        return None if paths is None else paths.flow


# The flow of `permutations` has the collectives: none is added to its schedules.
_ORDERS = (*PUBLISHED, *SLICED_ORDERS, *EVENT_DRIVEN, *ORDERS)
_ALONE = (*map(with_collectives, _ORDERS), PERMUTATIONS)

PIPELINE = PipelineKind(
    "pipeline",
    PipelineInstance,
    lower_pipeline,
    (*map(with_replicas, map(with_fillers, _ALONE)), *BASELINES, *SPLIT_HEURISTICS),
    PipelineResult,
    PipelineEntry,
)

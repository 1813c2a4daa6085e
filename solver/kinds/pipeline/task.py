"""A plain pipeline that is being solved: its steps are those of any problem, and of flows."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.bounds.registry import costly_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.pipeline.small_flow import (
    STATES,
    StateSearchParams,
    search_states,
)
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Turn, inserted, replaced, whole
from ppsolve.solver.run.steps import (
    QUICK,
    STEPS,
    WINDOWS,
    has_time_to_search,
    is_small,
)

MANY_STEPS = 1_000_000
"""Steps of kernels that this takes: an order, extended once, moves all micro-batches."""


def has_tiny_flow(turn: Turn) -> bool:
    """Apply to flows of so few ops that their states are searched before orders."""
    is_tiny = turn.task.size <= StateSearchParams().most_ops
    return has_time_to_search(turn) and turn.task.flow is not None and is_tiny


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
    board, relaxations = turn.board, Relaxations(turn.task.implied, turn.clock)
    upper = NEVER if board.value is None else board.value
    for bound in costly_bounds(relaxations, board.bound.value, upper):
        board.raise_bound(bound.value, bound.name, bound.resource)


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

    steps = PIPELINE_STEPS

    @cached_property
    def flow(self) -> Flow | None:
        """The flow of unequal micro-batches; index order says more of those that are all alike."""
        paths = Relaxations(self.implied).paths
        return None if paths is None else paths.flow

"""Exact searches of special pipelines: states of small flows, and short schedules stretched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.bounds.flow.states import StatesParams, solve_states
from ppsolve.solver.exact.periodic import steady_schedule
from ppsolve.solver.exact.periodic.steady_state import PARAMS
from ppsolve.solver.heuristics.heuristic import Heuristic, Proposal, Request, Requirement
from ppsolve.solver.kinds.pipeline.published import A_PIPELINE, has_unequal_microbatches
from ppsolve.solver.run.step import Turn

STATES = "states"
"""Name of the search in reports."""

NO_VALUE = 2**62
"""Upper bound in ticks where no schedule is known."""


@dataclass(frozen=True)
class StateSearchParams:
    """Which flows are searched through states, and how far."""

    most_ops: int = 48  # ops of a flow: of twice as many none is proved
    most_placed: int = 1_000_000  # ops that may be placed: 0.5 to 2 s compiled
    share: float = 0.45  # of the time; of a minute it leaves enough to compile the kernel


def search_states(turn: Turn, params: StateSearchParams | None = None) -> None:
    """Search the states of a small flow; nothing is done for one that lacks ops of the problem.

    Parameters
    ----------
    turn : Turn
        What is solved, a pipeline with a flow.
    params : StateSearchParams, optional
        Budgets.
    """
    task, board, params = turn.task, turn.board, params or StateSearchParams()
    flow: Flow = task.flow
    if not flow.ops.size == task.size <= params.most_ops:
        return
    answer = solve_states(
        flow,
        NO_VALUE if board.value is None else board.value,
        lower=board.bound.value,
        clock=turn.clock.share(params.share),
        params=StatesParams(max_placed=params.most_placed),
    )
    if answer is None:
        return
    if answer.starts is not None:
        starts = np.zeros(task.size, dtype=np.int64)
        starts[flow.ops] = answer.starts
        board.propose(Schedule(task.problem, starts), STATES)
    board.raise_bound(answer.bound, STATES)


ALIKE = Requirement(
    "micro-batches that are all alike", lambda instance: not has_unequal_microbatches(instance)
)
MANY = Requirement(
    f"micro-batches >= {PARAMS.least_times} x devices",
    lambda instance: instance.num_microbatches >= PARAMS.least_times * instance.num_devices,
)


def steady_state(request: Request) -> Proposal:
    """Return the schedule of a few micro-batches with a periodic middle for the others."""
    return Proposal(steady_schedule(request.problem, request.effort))


STEADY_STATE = Heuristic(
    "steady-state",
    "fill and drain of a short schedule, and a cycle in between",
    steady_state,
    A_PIPELINE,
    (ALIKE, MANY),
    is_search=True,
)

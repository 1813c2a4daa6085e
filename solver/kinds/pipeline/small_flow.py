"""The exact search of small pipelines through the states of their flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds.flow.flow import Flow
from ppsolve.solver.bounds.flow.states import StatesParams, solve_states
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.run.step import Turn

STATES = "states"
"""Name of the search in reports."""


@dataclass(frozen=True)
class StateSearchParams:
    """Which flows are searched through states, and how far."""

    most_ops: int = 48  # ops of a flow: of twice as many none is proved
    most_placed: int = 1_000_000  # ops that may be placed: 0.5 to 2 s compiled
    share: float = (
        0.45  # of the time; of a minute it leaves enough to compile the kernel
    )


def search_states(turn: Turn, params: StateSearchParams | None = None) -> None:
    """Search the states of a small flow; nothing is done for one that lacks ops of the problem."""
    task, board, params = turn.task, turn.board, params or StateSearchParams()
    flow: Flow = task.flow
    if not flow.ops.size == task.size <= params.most_ops:
        return
    answer = solve_states(
        flow,
        NEVER if board.value is None else board.value,
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

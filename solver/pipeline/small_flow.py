"""Small pipelines: the states of their flow are searched before CP-SAT gets its turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds import Bound
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.states import solve_states
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import Control

NO_VALUE = 2**62
"""Upper bound in ticks where no schedule is known."""


@dataclass(frozen=True)
class StateSearchParams:
    """Which flows are searched through states, and how far."""

    most_ops: int = 48  # ops of a flow: of twice as many none is proved
    most_placed: int = 1_000_000  # ops that may be placed: 0.5 to 2 s compiled
    share: float = 0.45  # of the time; of a minute it leaves enough to compile the kernel


def search_states(
    task: ScheduleTask,
    flow: Flow,
    control: Control,
    params: StateSearchParams = StateSearchParams(),
) -> None:
    """Search the states of a small flow; keep a better schedule and a better bound.

    Nothing is done for a flow that lacks ops of the problem.

    Parameters
    ----------
    task : ScheduleTask
    flow : Flow
    control : Control
        The run, told about what is found.
    params : StateSearchParams
    """
    if not flow.ops.size == task.size <= params.most_ops:
        return
    name = "states"
    answer = solve_states(
        flow,
        NO_VALUE if task.value is None else task.value,
        lower=task.bound.value,
        clock=control.clock.share(params.share),
        max_placed=params.most_placed,
    )
    if answer is None:
        return
    if answer.starts is not None:
        starts = np.zeros(task.size, dtype=np.int64)
        starts[flow.ops] = answer.starts
        if task.offer(Schedule(task.problem, starts), name):
            control.tell("incumbent", name)
    if answer.bound > task.bound.value:
        task.bound = Bound(name, answer.bound)
        control.tell("bound", name)

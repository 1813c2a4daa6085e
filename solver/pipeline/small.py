"""Small pipelines: the states of their flow are searched before CP-SAT gets its turn."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds import Bound
from ppsolve.solver.flow.flow import Flow
from ppsolve.solver.flow.states import solve_states
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import Control

NAME = "states"
"""Name of the search through states in reports."""

MOST_OPS = 128
"""Ops of a flow whose states are searched."""

MOST_PLACED = 1_000_000
"""Ops that may be placed, 0.5 to 2 s compiled. Of 512 recorded steps (2 stages, 8 micro-batches,
memory as 1F1B holds) half are proved with 4,200 and all with 84,000."""

SHARE = 0.45
"""Share of the time. Of a minute it leaves enough to compile the kernel."""

NO_VALUE = 2**62
"""Upper bound where no schedule is known."""


def search_states(task: ScheduleTask, flow: Flow, control: Control) -> None:
    """Search the states of a small flow; keep a better schedule and a better bound.

    Nothing is done for a flow that lacks ops of the problem.

    Parameters
    ----------
    task : ScheduleTask
        What is solved.
    flow : Flow
        The flow of its problem.
    control : Control
        The run, told about what is found.
    """
    if not flow.ops.size == task.size <= MOST_OPS:
        return
    upper = NO_VALUE if task.value is None else task.value
    clock = control.clock.share(SHARE)
    answer = solve_states(flow, upper, clock=clock, max_placed=MOST_PLACED)
    if answer is None:
        return
    if answer.starts is not None:
        starts = np.zeros(task.size, dtype=np.int64)
        starts[flow.ops] = answer.starts
        if task.offer(Schedule(task.problem, starts), NAME):
            control.tell("incumbent", NAME)
    if answer.bound > task.bound.value:
        task.bound = Bound(NAME, answer.bound)
        control.tell("bound", NAME)

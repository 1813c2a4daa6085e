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

MOST_OPS = 48
"""Ops of a flow whose states are searched. With log-normal times (sigma 0.6) and memory as 1F1B
holds, fused 2 x 8, 3 x 6, 4 x 4 and split 2 x 8 were proved (3 of 3 each, 0.02 to 0.2 s of
processor time), 2 x 12 in 2 of 3; of 4 x 8 and 2 x 16 none, 8 to 14 % above their bound."""

MOST_PLACED = 1_000_000
"""Ops that may be placed, 0.5 to 2 s compiled. Of 512 recorded steps (2 stages, 8 micro-batches,
memory as 1F1B holds) half are proved with 1,500 and all with 85,000."""

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
    control : Control
        The run, told about what is found.
    """
    if not flow.ops.size == task.size <= MOST_OPS:
        return
    upper = NO_VALUE if task.value is None else task.value
    clock = control.clock.share(SHARE)
    lower = task.bound.value
    answer = solve_states(flow, upper, lower=lower, clock=clock, max_placed=MOST_PLACED)
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

"""A part in which devices that cannot be left sooner are held where they are, for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.solver.bounds import work_by_resource
from ppsolve.solver.cpsat.neighbourhood.part import Subproblem
from ppsolve.solver.kernels.window_bound import NEVER


@dataclass(frozen=True, eq=False)
class Held:
    """A part in which full devices have deadlines in place of a share in the objective.

    Parameters
    ----------
    part : Subproblem
        Its problem has a window for each op of a full device.
    value : int
        Makespan of the known schedule there, in ticks: the longest path from the other devices,
        and a time that is the same for all paths.
    """

    part: Subproblem
    value: int


def hold_full(part: Subproblem, goal: int) -> Held | None:
    """Return a part that asks for shorter paths from all devices that are not full.

    The value of a schedule is its longest path of all. A stretch seldom shortens all long ones, as
    one device is idle here and another one elsewhere. So a device whose work here leaves it no path
    as short as the goal is full: it may be left as late as it is now, and others have to be left
    sooner. That alone makes no shorter schedule, but once each path is shortened somewhere, the
    schedule is shorter.

    Parameters
    ----------
    part : Subproblem
        k ops.
    goal : int
        Ticks below which paths from other devices need not fall, less than the known value.

    Returns
    -------
    Held or None
        None where no device is full, or no path from another one exceeds the goal.
    """
    problem, count = part.problem, len(part.ops)
    left = part.known.end[:count] + part.tail
    most = _deadlines(part, left, goal)
    full = most < -NEVER
    value = int(left[~full].max(initial=NEVER))
    if not full.any() or value <= goal:
        return None
    latest = most - part.tail - problem.duration[:count]
    has_deadline = full & (part.tail > NEVER // 2)
    # Ends of full devices count for the makespan too: it must exceed them whatever they are.
    beyond = max(0, int((most - part.tail)[has_deadline].max(initial=goal)) - goal)
    kept = ~np.append(full, False)[problem.before] | (problem.after < count)
    to_end = np.where(problem.after == count, beyond, 0)
    release = problem.release.copy()
    release[count] = goal + beyond
    held = replace(
        problem,
        before=problem.before[kept],
        after=problem.after[kept],
        lag=(problem.lag + to_end)[kept],
        release=release,
        windows={
            op: np.array([[0, latest[op]]], dtype=np.int64)
            for op in np.flatnonzero(has_deadline).tolist()
        },
    )
    return Held(replace(part, problem=held), value + beyond)


def _deadlines(part: Subproblem, left: IntArray, goal: int) -> IntArray:
    """Return until when the full device of each op must be left, -`NEVER` for others, int64[k].

    `left` is the longest path through the end of each op.
    """
    most = np.full(len(left), -NEVER, dtype=np.int64)
    for least, resource in work_by_resource(part.problem, part.implied.plain):
        if least > goal:
            own = part.problem.ops_by_resource[resource]
            most[own] = np.minimum(most[own], left[own].max())
    return most

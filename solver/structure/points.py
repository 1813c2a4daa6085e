"""Schedules timed anew by the order of their ops, and those in which ops run across points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.timing import time_orders


def in_sequence(schedule: Schedule, resources: Sequence[int] | IntArray) -> Schedule:
    """Return a schedule in which these resources run their ops in order, as early as possible.

    The order is that of starts; other resources serve first come, first served. No op waits for
    itself: sorted by start, end and level each op stands behind all that it waits for, as what an
    op of no time waits for starts before it, or at the same moment with a lower level. Memory that
    is acquired and released by ops of one resource is no fuller than before: an op of no time that
    lay inside another one stands behind it, and so takes and gives back later, in the same order.

    No two ops of positive length overlap before, and no op runs across another one of no time
    after.
    """
    problem, waits = schedule.problem, schedule.waits
    level = Dag.of(problem, *([] if waits is None else [waits])).level
    ranked = np.lexsort((level, schedule.end, schedule.start))
    rank = np.zeros(problem.num_ops, dtype=np.int64)
    rank[ranked] = np.arange(problem.num_ops)
    held = [problem.ops_by_resource[resource] for resource in resources]
    return time_orders(problem, [ops[np.argsort(rank[ops])] for ops in held], waits)


def without_crossings(schedule: Schedule) -> Schedule:
    """Return a schedule in which no op runs across a point; one without is returned as it is."""
    problem = schedule.problem
    if not len(problem.points):
        return schedule
    if not any(_is_crossed(schedule, ops) for ops in problem.ops_by_resource):
        return schedule
    return in_sequence(schedule, range(problem.num_resources))


def _is_crossed(schedule: Schedule, ops: IntArray) -> bool:
    """Whether one of the ops of a resource, which do not overlap, runs across a point."""
    duration, holds_place = (
        schedule.problem.duration[ops],
        schedule.problem.holds_place[ops],
    )
    points, timed = ops[holds_place & (duration == 0)], ops[duration > 0]
    if not len(points) or not len(timed):
        return False
    timed = timed[np.argsort(schedule.start[timed])]
    before = np.searchsorted(schedule.start[timed], schedule.start[points]) - 1
    is_behind = before >= 0
    running = timed[before[is_behind]]
    return bool(np.any(schedule.end[running] > schedule.start[points[is_behind]]))

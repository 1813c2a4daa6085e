"""Pipelines with replicas that are being solved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.replicas import Members, first_members
from ppsolve.solver.bounds import Bound
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import Control, Strategy
from ppsolve.solver.pipeline.replicas.heuristics import Part, members_of, parts_of

LEAST_SECONDS = 0.3
"""Least time that the exact search of one replica gets in a round: building its model takes a
tenth of it for 64 ops. With less, replicas are left as they are more often."""

Alone = Callable[[Any, PipelineInstance, Any], ScheduleTask]
"""Makes the task of one replica of its kind, instance and problem."""


def replicas_task(
    kind: Any, instance: PipelineInstance, *, round_up: bool, alone: Alone
) -> ScheduleTask:
    """Return the task of solving a pipeline with replicas.

    Parameters
    ----------
    kind : Kind
        The kind of pipelines.
    instance : PipelineInstance
        A pipeline with replicas.
    round_up : bool
        Round times up where they have no common tick within the limit.
    alone : callable
        Makes the task of one replica.

    Returns
    -------
    ScheduleTask
        Where the assignment is fixed, one that solves replicas apart, the slowest first; else one
        that exchanges micro-batches too.
    """
    return FixedTask(kind, instance, kind.lower(instance, round_up=round_up), alone)


@dataclass
class _Share:
    """What a run lends to the search of one replica: a part of its time, and no listener."""

    options: Options
    clock: Clock

    def limits(self) -> SearchLimits:
        """Return the limits of a search that begins now."""
        return self.options.limits(self.clock)

    def tell(self, *event: Any) -> None:
        """Tell nobody."""


class ReplicasTask(ScheduleTask):
    """A pipeline with replicas."""

    @property
    def is_too_large(self) -> bool:
        """Never: replicas are searched one by one."""
        return False

    @property
    def members(self) -> Members:
        """Micro-batches of each replica, in the order in which the best schedule starts them."""
        schedule = self.schedule
        return first_members(self.instance) if schedule is None else _by_start(schedule)

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has."""
        found = super().figures()
        return found | {"assignment": self.members} if found else found


class FixedTask(ReplicasTask):
    """A pipeline whose replicas run the micro-batches that they are given.

    Nothing links replicas, so that the longest optimum of a replica is the optimum of all, and the
    bound of any replica is one of all.
    """

    def __init__(self, kind: Any, instance: PipelineInstance, problem: Any, alone: Alone) -> None:
        super().__init__(kind, instance, problem)
        self._alone = alone

    def strategies(self, options: Options) -> Iterator[Strategy]:
        """Yield the search of one replica after the other, the slowest first."""
        yield self.solve_each

    def solve_each(self, control: Control) -> StopReason:
        """Solve replicas apart until the slowest is proved."""
        round_up = self.scale.worst_relative_error > 0
        members = members_of(self.problem)
        parts = parts_of(self.instance, members, round_up=round_up)
        tasks: dict[int, ScheduleTask] = {}
        starts = [np.zeros(part.problem.num_ops, dtype=np.int64) for part in parts]
        if self.schedule is not None:
            starts = [self.schedule.start[part.ops] for part in parts]
        while not self.is_closed and not control.clock.is_over:
            values = [_span(part, start) for part, start in zip(parts, starts, strict=True)]
            slowest = int(np.argmax(values))
            if slowest not in tasks:
                tasks[slowest] = self._task(parts[slowest], starts[slowest], control)
            task = tasks[slowest]
            open_ones = sum(value > self.bound.value for value in values)
            left = control.clock.left
            share = control.clock.within(max(LEAST_SECONDS, left / max(1, open_ones)))
            before = task.value
            stop = self._search(task, _Share(control.options, share))
            if task.bound.value > self.bound.value:
                self.bound = Bound(task.bound.name, task.bound.value)
            if task.schedule is not None:
                starts[slowest] = task.schedule.start
            joint = Schedule(self.problem, np.concatenate(starts))
            if self.hear(joint, task.best_by or "replicas"):
                control.tell("incumbent", self.best_by or "")
            if stop is StopReason.INTERRUPTED:
                return stop
            if task.value == before and not task.is_closed and share.left > 0:
                return stop
        return StopReason.PROVED if self.is_closed else StopReason.TIME

    def _task(self, part: Part, start: Any, control: Control) -> ScheduleTask:
        task = self._alone(self.kind, part.instance, part.problem)
        task.find_bounds(control.clock.share(0.1))
        task.hear(Schedule(part.problem, start), self.best_by or "")
        return task

    def _search(self, task: ScheduleTask, control: _Share) -> StopReason:
        stop = StopReason.TIME
        for strategy in task.strategies(control.options):
            stop = strategy(control)
            if task.is_closed or stop is StopReason.INTERRUPTED or control.clock.is_over:
                return stop
        return stop


def _span(part: Part, start: Any) -> int:
    return int((start + part.problem.duration).max())


def _by_start(schedule: Schedule) -> Members:
    """Return the micro-batches of each replica by the start of their first op."""
    problem = schedule.problem
    first = np.full(int(problem.microbatch.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, problem.microbatch, schedule.start)
    return tuple(
        tuple(sorted(those, key=lambda number: (int(first[number]), number)))
        for those in members_of(problem)
    )

"""Pipelines with replicas that are being solved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.joint import first_members, lower_joint, lower_replicas
from ppsolve.models.pipeline.replicas import Members, fault
from ppsolve.solver.bounds import Bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.flow.bounds import flow_bounds
from ppsolve.solver.flow.exchange_bounds import exchange_bound
from ppsolve.solver.flow.flow import Flow, flow_of
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.exchange import TOO_LONG
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import Control, Strategy, WrongScheduleError
from ppsolve.solver.pipeline.replicas.enumerate_assignments import NAME as EVERY
from ppsolve.solver.pipeline.replicas.enumerate_assignments import AssignmentEnumeration, has_few
from ppsolve.solver.pipeline.replicas.heuristics import (
    ReplicaProblem,
    members_of,
    parts_of,
)
from ppsolve.solver.pipeline.replicas.search import ReplicaSearch
from ppsolve.solver.pipeline.replicas.shape import ReplicaShape
from ppsolve.solver.pipeline.small_flow import NO_VALUE

LEAST_SECONDS = 0.3
"""Least time that the exact search of one replica gets in a round: building its model takes a
tenth of it for 64 ops. With less, replicas are left as they are more often."""

TELLING_SECONDS = 1.0
"""Seconds of exchange after which a better assignment is told of."""

EXCHANGE_STEPS = 1e7
"""Ops placed in a second of exchange, compiled, at the least; announced, so that it is compiled."""

ORDERED = "replicas"
"""Name of the search over the orders of all replicas in reports."""

GLANCE_SHARE, GLANCE_PATIENCES = 0.5, (0.01, 1.0)
"""Part of the time for it, and seconds on the slowest replica without a better order after which it
ends. More time is of use only where replicas have far more than 8 micro-batches. With the shorter
patience first, as for training steps, small replicas are soon proved: 32 recorded ones of 2 x 8 in
0.2 s of processor time, where 1 s was waited before."""

EVERY_SHARE, EVERY_PATIENCE = 0.4, 0.05
"""Part of the time for the proof over all assignments, and seconds of exchange without a better one
before it. Not tuned: what is proved takes a small part of it."""

Alone = Callable[[Any, PipelineInstance, Any], ScheduleTask]
"""Makes the task of one replica of its kind, instance and problem."""


def replicas_task(
    kind: Any, instance: PipelineInstance, *, exact: bool, alone: Alone
) -> ScheduleTask:
    """Return the task of solving a pipeline with replicas.

    Parameters
    ----------
    kind : Kind
        The kind of pipelines.
    instance : PipelineInstance
        A pipeline with replicas.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.
    alone : callable
        Makes the task of one replica.

    Returns
    -------
    ScheduleTask
        Where the assignment is fixed, one that solves replicas apart, the slowest first; else one
        that exchanges micro-batches too.
    """
    problem = kind.lower(instance, exact=exact)
    if instance.replicas is not None and instance.replicas.is_free:
        return FreeTask(kind, instance, problem)
    return FixedTask(kind, instance, problem, alone)


SMALL_OPS, PROVING_SHARE = 48, 0.4
"""Ops of all replicas up to which they are proved one by one before their orders are searched, and
the share of the time for it. Two replicas of 2 x 2 take 0.1 s instead of 7 s of a limit of 20 s. 32
recorded replicas of 2 x 8 were proved in 14 of 16 steps within 2 s where this came first, in all
where their orders did."""


@dataclass
class _ReplicaControl:
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

    is_one_free_problem = False

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

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find the bounds of the joint problem, and the largest of any replica's flow."""
        super().find_bounds(clock)
        if self.objective is not Objective.MAKESPAN:
            return
        largest: dict[str, int] = {}
        for part in self._parts():
            flow = flow_of(part.problem)
            for bound in [] if flow is None else flow_bounds(flow, clock):
                largest[bound.name] = max(bound.value, largest.get(bound.name, 0))
        found = [Bound(name, value) for name, value in largest.items() if value > self.bound.value]
        self._note_bounds(sorted(found, key=lambda bound: -bound.value) + self.bounds)

    @property
    def glances_first(self) -> bool:
        """Whether the orders of all replicas are searched once there is any schedule."""
        return self.objective is Objective.MAKESPAN and self.size > SMALL_OPS

    def _parts(self) -> list[ReplicaProblem]:
        return parts_of(self.instance, members_of(self.problem))

    def glance(self, control: Control) -> StopReason | None:
        """Prove few small replicas one by one; else order the micro-batches of all."""
        if self.objective is not Objective.MAKESPAN or control.options.deterministic:
            return super().glance(control)
        if self.size <= SMALL_OPS:
            stop = self.solve_each(
                _ReplicaControl(control.options, control.clock.share(PROVING_SHARE))
            )
            if self.is_closed or stop is StopReason.INTERRUPTED:
                return stop
        self._order(control)
        return None

    def _order(self, control: Control) -> None:
        """Order the micro-batches of all replicas by a walk."""
        try:
            shape = ReplicaShape(self.instance, self.scale)
        except InputError:  # its micro-batches are no flow
            return
        expect(EXCHANGE_STEPS)
        clock = control.clock.share(GLANCE_SHARE)
        search = ReplicaSearch(shape, shape.flow, control.options.seed + 1, clock)
        for patience in GLANCE_PATIENCES:
            if search.value > search.bound:
                search.run(clock, patience)
        if search.value < TOO_LONG and self.hear(_numbered(search.schedule, self.problem), ORDERED):
            control.tell("incumbent", ORDERED)
        if search.bound > self.bound.value:
            self.bound = Bound(ORDERED, search.bound)
            control.tell("bound", ORDERED)

    def strategies(self, options: Options) -> Iterator[Strategy]:
        """Yield the search of one replica after the other, the slowest first."""
        yield self.solve_each

    def solve_each(self, control: Control) -> StopReason:
        """Solve replicas apart until the slowest is proved; those without a schedule come first."""
        parts = self._parts()
        tasks: dict[int, ScheduleTask] = {}
        starts: list[IntArray | None] = [None] * len(parts)
        if self.schedule is not None:
            starts = [self.schedule.start[part.ops] for part in parts]
        while not self.is_closed and not control.clock.is_over:
            values = [_value(part, start) for part, start in zip(parts, starts, strict=True)]
            slowest = int(np.argmax(values))
            if slowest not in tasks:
                tasks[slowest] = self._task(parts[slowest], starts[slowest], control)
            task = tasks[slowest]
            open_ones = sum(value > self.bound.value for value in values)
            left = control.clock.left
            share = control.clock.within(max(LEAST_SECONDS, left / max(1, open_ones)))
            before = task.value
            stop = self._search(task, _ReplicaControl(control.options, share))
            if task.bound.value > self.bound.value:
                self.bound = Bound(task.bound.name, task.bound.value)
            if task.schedule is not None:
                starts[slowest] = task.schedule.start
            known = [start for start in starts if start is not None]
            if len(known) == len(parts) and self.hear(
                Schedule(self.problem, np.concatenate(known)), task.best_by or "replicas"
            ):
                control.tell("incumbent", self.best_by or "")
            if stop is StopReason.INTERRUPTED:
                return stop
            if task.value == before and not task.is_closed and share.left > 0:
                return stop
        return StopReason.PROVED if self.is_closed else StopReason.TIME

    def _task(self, part: ReplicaProblem, start: IntArray | None, control: Control) -> ScheduleTask:
        task = self._alone(self.kind, part.instance, part.problem)
        task.find_bounds(control.clock.share(0.1))
        if start is not None:
            task.hear(Schedule(part.problem, start), self.best_by or "")
        share = control.clock.within(max(LEAST_SECONDS, control.clock.left / 2))
        task.glance(_ReplicaControl(control.options, share))
        return task

    def _search(self, task: ScheduleTask, control: _ReplicaControl) -> StopReason:
        stop = StopReason.TIME
        for strategy in task.strategies(control.options):
            stop = strategy(control)
            if task.is_closed or stop is StopReason.INTERRUPTED or control.clock.is_over:
                return stop
        return stop


class FreeTask(ReplicasTask):
    """A pipeline whose replicas may exchange micro-batches.

    Every assignment has a problem of its own; `problem` is that of the first one, on which named
    heuristics run. Bounds hold for all assignments.
    """

    is_whole = False

    def __init__(self, kind: Any, instance: PipelineInstance, problem: Problem) -> None:
        super().__init__(kind, instance, problem)
        everyone = tuple(range(instance.num_microbatches))
        (whole,) = lower_replicas(instance, (everyone,))
        flow = flow_of(whole)
        if flow is None:
            raise InputError(
                'expected "delay", "link" or "send_queue" where micro-batches may be exchanged',
                source=instance.name,
                field="p2p.mode",
            )
        self._flow: Flow = flow
        self._search: ReplicaSearch | None = None

    def problem_of(self, given: Any) -> Problem:
        """Return the problem of the assignment that a document, or a `Schedule`, has."""
        if isinstance(given, Schedule):
            return lower_joint(self.instance, members_of(given.problem))
        problem: Problem = self.kind.lower(self.instance, document=given)
        return problem

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find the bound that holds for all assignments; refuse memory that holds too little."""
        _ = self.implied.full
        replicas = self.instance.replicas
        value = exchange_bound(self._flow, replicas.count, equal=replicas.counts == "equal")
        self.bounds = [Bound("exchange", value)]
        self.bound = self.bounds[0]

    def glance(self, control: Control) -> StopReason | None:
        """Search for nothing: CP-SAT would prove the optimum of one assignment only."""
        return None

    def strategies(self, options: Options) -> Iterator[Strategy]:
        """Yield a proof over all assignments where they are few, then the exchange."""
        if has_few(self.instance):
            yield self.try_every
        yield self.exchange

    def try_every(self, control: Control) -> StopReason:
        """Go through the assignments for a part of the time."""
        search = self._search_with(control.options.seed + 1)
        if not control.options.deterministic:
            search.run(control.clock.share(EVERY_SHARE), EVERY_PATIENCE)
        self._hear(search, control)
        upper = NO_VALUE if self.value is None else self.value
        every = AssignmentEnumeration(self.instance, self.scale, search.loads, upper)
        for members, starts in every.improve(control.clock.share(EVERY_SHARE)):
            found = Schedule(lower_joint(self.instance, members), np.concatenate(starts))
            self.refuse_wrong(found, EVERY)
            if self.hear(found, EVERY):
                control.tell("incumbent", EVERY)
        if every.bound > self.bound.value:
            self.bound = Bound(EVERY, every.bound)
            control.tell("bound", EVERY)
        return StopReason.PROVED if self.is_closed else StopReason.TIME

    def exchange(self, control: Control) -> StopReason:
        """Exchange micro-batches until the time is over or the bound is met."""
        search = self._search_with(control.options.seed + 1)
        self._hear(search, control)
        expect(EXCHANGE_STEPS)
        while not self.is_closed and not control.clock.is_over:
            search.run(control.clock.within(TELLING_SECONDS), math.inf)
            self._hear(search, control)
            if control.options.deterministic and not control.clock.is_limited:
                break
        return StopReason.PROVED if self.is_closed else StopReason.TIME

    def _search_with(self, seed: int) -> ReplicaSearch:
        """Return the search by exchange, which goes on where it was left."""
        if self._search is None:
            self._search = ReplicaSearch(ReplicaShape(self.instance, self.scale), self._flow, seed)
        return self._search

    def _hear(self, search: ReplicaSearch, control: Control) -> None:
        """Keep the best of a search, if it is valid for the pipeline lowered once more."""
        if search.value >= TOO_LONG:
            return
        found = search.schedule
        problem = lower_joint(self.instance, members_of(found.problem))
        self.refuse_wrong(Schedule(problem, found.start), "exchange")
        if self.hear(Schedule(problem, found.start), "exchange"):
            control.tell("incumbent", "exchange")

    def hear(self, schedule: Schedule, by: str) -> bool:
        """Keep a schedule of any assignment if it is valid and the best one."""
        return not check_schedule(schedule.problem, schedule) and self.offer(schedule, by)

    def refuse_wrong(self, schedule: Schedule, by: str) -> None:
        """Raise an error if a schedule breaks a rule of the problem of its assignment."""
        violations = check_schedule(schedule.problem, schedule)
        wrong = fault(
            self.instance.replicas, members_of(schedule.problem), self.instance.num_microbatches
        )
        if violations or wrong:
            raise WrongScheduleError(f"{by}: {wrong or violations[0]}")


def _numbered(found: Schedule, problem: Problem) -> Schedule:
    """Return a schedule of the same ops with the numbers that they have in another problem."""
    start = np.empty_like(found.start)
    start[_by_label(problem)] = found.start[_by_label(found.problem)]
    return Schedule(problem, start)


def _by_label(problem: Problem) -> IntArray:
    return np.lexsort((problem.microbatch, problem.stage, problem.kind, problem.replica))


def _value(part: ReplicaProblem, start: IntArray | None) -> int:
    return NO_VALUE if start is None else Schedule(part.problem, start).value


def _by_start(schedule: Schedule) -> Members:
    """Return the micro-batches of each replica by the start of their first op."""
    problem = schedule.problem
    first = np.full(int(problem.microbatch.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, problem.microbatch, schedule.start)
    return tuple(
        tuple(sorted(those, key=lambda number: (int(first[number]), number)))
        for those in members_of(problem)
    )

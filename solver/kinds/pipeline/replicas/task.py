"""Pipelines with replicas that are being solved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import (
    first_members,
    lower_joint,
    lower_replicas,
)
from ppsolve.models.kinds.pipeline.replicas import Members, fault
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from ppsolve.solver.bounds.registry import assignment_bounds, flow_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.microbatch_exchange import TOO_LONG
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.pipeline.replicas.enumerate_assignments import NAME as EVERY
from ppsolve.solver.kinds.pipeline.replicas.enumerate_assignments import (
    AssignmentEnumeration,
    has_few,
)
from ppsolve.solver.kinds.pipeline.replicas.heuristics import (
    ReplicaProblem,
    members_of,
    parts_of,
)
from ppsolve.solver.kinds.pipeline.replicas.search import ReplicaSearch
from ppsolve.solver.kinds.pipeline.replicas.shape import ReplicaShape
from ppsolve.solver.kinds.pipeline.small_flow import STATES
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Steps, Turn, in_sequence, whole
from ppsolve.solver.run.steps import (
    BOUNDS,
    GREEDY,
    QUICK,
    ROBUST,
    SEARCHES,
    SETTLED,
    VERIFIED,
    first_schedule,
    has_time_to_search,
    is_small,
)

LEAST_SECONDS = 0.3
"""Least time that the exact search of one replica gets in a round: building its model takes a
tenth of it for 64 ops. With less, replicas are left as they are more often."""

TELLING_SECONDS = 1.0
"""Seconds of exchange after which a better assignment is told of."""

EXCHANGE_STEPS = 1e7
"""Ops placed in a second of exchange, compiled, at the least; announced, so that it is compiled."""

ORDERED = "replicas"
"""Name of the search over the orders of all replicas in reports."""

ORDERS_SHARE, ORDERS_PATIENCES = 0.5, (0.01, 1.0)
"""Part of the time for the orders of all replicas, and seconds on the slowest replica without a
better order after which that ends, the shorter first: small replicas are soon proved."""

AFTER_ORDERS = 0.25
"""Share of the time for heuristics that do not search after that."""

EVERY_SHARE, EVERY_PATIENCE = 0.4, 0.05
"""Part of the time for the proof over all assignments, and seconds of exchange without a better one
before it. Not tuned: what is proved takes a small part of it."""

Alone = Callable[[Any, PipelineInstance, Any], ScheduleTask]
"""Makes the task of one replica of its kind, instance and problem."""


def replicas_task(
    kind: Any, instance: PipelineInstance, *, exact: bool, make_task: Alone
) -> ScheduleTask:
    """Return the task of solving a pipeline with replicas.

    Where the assignment is fixed, it solves replicas apart, the slowest first, each by a task of
    its own; else it exchanges micro-batches too. Times without a common tick within the limit are
    refused if exact, else rounded up.
    """
    problem = kind.lower(instance, exact=exact)
    if instance.replicas is not None and instance.replicas.is_free:
        return FreeTask(kind, instance, problem)
    return FixedTask(kind, instance, problem, make_task)


SMALL_OPS, PROVING_SHARE = 48, 0.4
"""Ops of all replicas up to which they are proved one by one before their orders are searched, and
the share of the time for it. Two replicas of 2 x 2 take 0.1 s instead of 7 s of a limit of 20 s. 32
recorded replicas of 2 x 8 were proved in 14 of 16 steps within 2 s where this came first, in all
where their orders did."""


class ReplicasTask(ScheduleTask):
    """A pipeline with replicas."""

    @property
    def members(self) -> Members:
        """Micro-batches of each replica, in the order in which the best schedule starts them."""
        schedule = self.schedule
        return first_members(self.instance) if schedule is None else _by_start(schedule)

    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has."""
        fields = super().figures()
        return fields | {"assignment": self.members} if fields else fields


def orders_are_searched(turn: Turn) -> bool:
    """Apply where the orders of all replicas are searched as soon as there is any schedule."""
    is_makespan = turn.task.objective is Objective.MAKESPAN
    return has_time_to_search(turn) and is_makespan and not turn.options.deterministic


def is_large_step(turn: Turn) -> bool:
    """Apply before all but the first heuristics have run: these take long, orders do not."""
    return orders_are_searched(turn) and turn.task.size > SMALL_OPS


def is_small_step(turn: Turn) -> bool:
    """Apply to few small replicas, which are proved one by one first."""
    return orders_are_searched(turn) and turn.task.size <= SMALL_OPS


def solve_small_replicas(turn: Turn) -> StopReason | None:
    """Prove few small replicas one by one; else order the micro-batches of all."""
    stop = solve_each_replica(turn.share(PROVING_SHARE))
    if turn.board.is_closed or stop is StopReason.INTERRUPTED:
        return stop
    search_replica_orders(turn)
    return None


def search_replica_orders(turn: Turn) -> None:
    """Order the micro-batches of all replicas by local search."""
    task, board = turn.task, turn.board
    try:
        shape = ReplicaShape(task.instance, task.scale)
    except InputError:  # its micro-batches are no flow
        return
    expect(EXCHANGE_STEPS)
    clock = turn.clock.share(ORDERS_SHARE)
    search = ReplicaSearch(shape, shape.flow, turn.options.seed + 1, clock)
    for patience in ORDERS_PATIENCES:
        if search.value > search.bound:
            search.run(clock, patience)
    if search.value < TOO_LONG:
        board.propose(_numbered(search.schedule, task.problem), ORDERED)
    board.raise_bound(search.bound, ORDERED)


def solve_each_replica(turn: Turn) -> StopReason | None:
    """Solve replicas apart until the slowest is proved; those without a schedule come first."""
    task, board, clock = turn.task, turn.board, turn.clock
    replicas: list[ReplicaProblem] = task.parts()
    tasks: dict[int, ScheduleTask] = {}
    starts: list[IntArray | None] = [None] * len(replicas)
    if task.schedule is not None:
        starts = [task.schedule.start[replica.ops] for replica in replicas]
    while not board.is_closed and not clock.is_over:
        values = [
            _value(replica, start)
            for replica, start in zip(replicas, starts, strict=True)
        ]
        slowest = int(np.argmax(values))
        if slowest not in tasks:
            tasks[slowest] = task.task_of(replicas[slowest], starts[slowest], turn)
        inner = tasks[slowest]
        open_ones = sum(value > board.bound.value for value in values)
        share = clock.within(max(LEAST_SECONDS, clock.left / max(1, open_ones)))
        before = inner.board.value
        stop = in_sequence(replace(turn, task=inner, clock=share), _exact_steps(inner))
        board.raise_bound(inner.board.bound.value, inner.board.bound.name)
        if inner.schedule is not None:
            starts[slowest] = inner.schedule.start
        present = [start for start in starts if start is not None]
        if len(present) == len(replicas):
            board.propose(
                Schedule(task.problem, np.concatenate(present)),
                inner.best_by or ORDERED,
            )
        if stop is StopReason.INTERRUPTED:
            return stop
        if inner.board.value == before and not inner.board.is_closed and share.left > 0:
            return stop if isinstance(stop, StopReason) else None
    return None


EACH_REPLICA = Step(
    "replicas one by one", has_time_to_search, whole, solve_each_replica, 0.25
)
ORDERS_OF_ALL = Step(
    "replicas' orders", is_large_step, whole, search_replica_orders, 0.25
)

FIXED_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    Steps("first schedule", is_large_step, whole, first_schedule),
    ORDERS_OF_ALL,
    replace(
        GREEDY,
        share=lambda t: AFTER_ORDERS if is_large_step(t) else t.steps.greedy_share,
    ),
    Step("small replicas", is_small_step, whole, solve_small_replicas, 0.25),
    replace(QUICK, applies=lambda t: is_small(t) and not orders_are_searched(t)),
    SEARCHES,
    EACH_REPLICA,
    SETTLED,
    VERIFIED,
    ROBUST,
)
"""The steps of replicas that run the micro-batches they are given."""


class FixedTask(ReplicasTask):
    """A pipeline whose replicas run the micro-batches that they are given.

    Nothing links replicas, so that the longest optimum of a replica is the optimum of all, and the
    bound of any replica is one of all.
    """

    steps = FIXED_STEPS

    def __init__(
        self, kind: Any, instance: PipelineInstance, problem: Any, make_task: Alone
    ) -> None:
        super().__init__(kind, instance, problem)
        self._make_task = make_task

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound by the joint problem, and by the largest bound of any replica's flow."""
        super().find_bounds(clock)
        if self.objective is not Objective.MAKESPAN:
            return
        for replica in self.parts():
            flow = flow_of(replica.problem)
            for bound in [] if flow is None else flow_bounds(flow, clock):
                if bound.value > self.board.bound.value:
                    self.board.raise_bound(bound.value, bound.name)

    def parts(self) -> list[ReplicaProblem]:
        """Return the problem of each replica."""
        return parts_of(self.instance, members_of(self.problem))

    def task_of(
        self, replica: ReplicaProblem, start: IntArray | None, turn: Turn
    ) -> ScheduleTask:
        """Return the task of one replica, begun from its starts in the best schedule, if any.

        Bounds and a quick exact search have run, with what the search of all may use.
        """
        task = self._make_task(self.kind, replica.instance, replica.problem)
        task.board.clock, task.board.gap = turn.clock, turn.options.gap
        task.find_bounds(turn.clock.share(0.1))
        if start is not None:
            task.board.propose(
                Schedule(replica.problem, start), self.best_by or ORDERED
            )
        share = turn.clock.within(max(LEAST_SECONDS, turn.clock.left / 2))
        steps = [step for step in task.steps if isinstance(step, Step)]
        quick = [step for step in steps if step.name in {QUICK.name, STATES}][:2]
        in_sequence(replace(turn, task=task, clock=share), quick)
        return task


def has_few_assignments(turn: Turn) -> bool:
    """Apply where the assignments are so few that all are looked at."""
    return has_time_to_search(turn) and has_few(turn.task.instance)


def try_every_assignment(turn: Turn) -> None:
    """Go through the assignments for a part of the time."""
    task, board = turn.task, turn.board
    search = task.search_with(turn.options.seed + 1)
    if not turn.options.deterministic:
        search.run(turn.clock.share(EVERY_SHARE), EVERY_PATIENCE)
    task.propose_best(search)
    upper = NEVER if board.value is None else board.value
    every = AssignmentEnumeration(task.instance, task.scale, search.loads, upper)
    for members, starts in every.improve(turn.clock.share(EVERY_SHARE)):
        problem = lower_joint(task.instance, members)
        board.propose(Schedule(problem, np.concatenate(starts)), EVERY)
    board.raise_bound(every.bound, EVERY)


def exchange_microbatches(turn: Turn) -> None:
    """Exchange micro-batches until the time is over or the bound is met."""
    task, board = turn.task, turn.board
    search = task.search_with(turn.options.seed + 1)
    task.propose_best(search)
    expect(EXCHANGE_STEPS)
    while not board.is_closed and not turn.clock.is_over:
        search.run(turn.clock.within(TELLING_SECONDS), math.inf)
        task.propose_best(search)
        if turn.options.deterministic and not turn.clock.is_limited:
            break


FREE_STEPS: tuple[Step | Steps, ...] = (
    BOUNDS,
    GREEDY,
    Step(EVERY, has_few_assignments, whole, try_every_assignment, 0.25),
    Step("exchange", has_time_to_search, whole, exchange_microbatches, 0.25),
)
"""The steps of replicas that may exchange micro-batches."""


class FreeTask(ReplicasTask):
    """A pipeline whose replicas may exchange micro-batches.

    Every assignment has a problem of its own; `problem` is that of the first one, on which named
    heuristics run. Bounds hold for all assignments.
    """

    steps = FREE_STEPS
    unproved: str | None = "replicas may exchange micro-batches"

    def __init__(self, kind: Any, instance: PipelineInstance, problem: Problem) -> None:
        super().__init__(kind, instance, problem)
        everyone = tuple(range(instance.num_microbatches))
        (whole_problem,) = lower_replicas(instance, (everyone,))
        flow = flow_of(whole_problem)
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
        return self.kind.lower(self.instance, document=given)

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Raise the bound for all assignments; refuse memory that holds too little."""
        _ = self.implied.full
        replicas = self.instance.replicas
        equal = replicas.counts == "equal"
        for bound in assignment_bounds(self._flow, replicas.count, equal=equal):
            self.board.raise_bound(bound.value, bound.name)

    def search_with(self, seed: int) -> ReplicaSearch:
        """Return the search by exchange, which goes on where it was left."""
        if self._search is None:
            self._search = ReplicaSearch(
                ReplicaShape(self.instance, self.scale), self._flow, seed
            )
        return self._search

    def propose_best(self, search: ReplicaSearch) -> None:
        """Propose the best schedule of a search, for the pipeline lowered once more."""
        if search.value < TOO_LONG:
            schedule = search.schedule
            problem = lower_joint(self.instance, members_of(schedule.problem))
            self.board.propose(Schedule(problem, schedule.start), "exchange")

    def wrong_choice(self, schedule: Schedule) -> str | None:
        """Return the fault of its assignment."""
        members, count = members_of(schedule.problem), self.instance.num_microbatches
        return fault(self.instance.replicas, members, count)


def _exact_steps(task: ScheduleTask) -> list[Step]:
    """Return the steps of one replica after all heuristics."""
    steps = task.steps[task.steps.index(SEARCHES) + 1 :]
    return [step for step in steps if isinstance(step, Step) and not step.runs_anyway]


def _numbered(schedule: Schedule, problem: Problem) -> Schedule:
    """Return a schedule of the same ops with the numbers that they have in another problem."""
    start = np.empty_like(schedule.start)
    start[_by_label(problem)] = schedule.start[_by_label(schedule.problem)]
    return Schedule(problem, start)


def _by_label(problem: Problem) -> IntArray:
    return np.lexsort(
        (problem.microbatch, problem.stage, problem.kind, problem.replica)
    )


def _value(replica: ReplicaProblem, start: IntArray | None) -> int:
    return NEVER if start is None else Schedule(replica.problem, start).value


def _by_start(schedule: Schedule) -> Members:
    """Return the micro-batches of each replica by the start of their first op."""
    problem = schedule.problem
    first = np.full(int(problem.microbatch.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, problem.microbatch, schedule.start)
    return tuple(
        tuple(sorted(microbatches, key=lambda number: (int(first[number]), number)))
        for microbatches in members_of(problem)
    )

"""The steps of pipelines that leave nothing open but the micro-batches of replicas, if that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import (
    lower_joint,
    lower_replicas,
)
from ppsolve.models.kinds.pipeline.replicas import Members
from ppsolve.solver.board import Bound
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from ppsolve.solver.bounds.registry import flow_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.microbatch_exchange import TOO_LONG
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kinds.pipeline.open.decisions import CHOSEN_REPLICAS
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
from ppsolve.solver.kinds.pipeline.task import PipelineTask
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.step import Step, Steps, Turn, in_sequence, whole
from ppsolve.solver.run.steps import (
    QUICK,
    SEARCHES,
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

SMALL_OPS, PROVING_SHARE = 48, 0.4
"""Ops of all replicas up to which they are proved one by one before their orders are searched, and
the share of the time for it. Two replicas of 2 x 2 take 0.1 s instead of 7 s of a limit of 20 s. 32
recorded replicas of 2 x 8 were proved in 14 of 16 steps within 2 s where this came first, in all
where their orders did."""


def runs_fixed_replicas(turn: Turn) -> bool:
    """Apply to replicas that run the micro-batches they are given, where no more is open.

    Nothing links them: the longest optimum of a replica is the optimum of all, and the bound of any
    replica is one of all.
    """
    return turn.task.alone == CHOSEN_REPLICAS and turn.task.flow is None


def exchanges(turn: Turn) -> bool:
    """Apply to replicas that may exchange micro-batches, where no more is open."""
    return has_time_to_search(turn) and turn.task.flow is not None


def orders_are_searched(turn: Turn) -> bool:
    """Apply where the orders of all replicas are searched as soon as there is any schedule."""
    is_makespan = turn.task.objective is Objective.MAKESPAN
    is_timed = has_time_to_search(turn) and not turn.options.deterministic
    return is_timed and is_makespan and runs_fixed_replicas(turn)


def is_large_step(turn: Turn) -> bool:
    """Apply before all but the first heuristics have run: these take long, orders do not."""
    return orders_are_searched(turn) and turn.task.size > SMALL_OPS


def is_small_step(turn: Turn) -> bool:
    """Apply to few small replicas, which are proved one by one first."""
    return orders_are_searched(turn) and turn.task.size <= SMALL_OPS


def is_small_in_all(turn: Turn) -> bool:
    """Apply to small problems of all replicas whose orders are not searched before."""
    is_fixed = runs_fixed_replicas(turn) and not orders_are_searched(turn)
    return is_fixed and is_small(turn)


def is_apart(turn: Turn) -> bool:
    """Apply where replicas are solved one by one."""
    return has_time_to_search(turn) and runs_fixed_replicas(turn)


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
    replicas = parts_of(task.instance, members_of(task.problem))
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
            tasks[slowest] = _task_of(replicas[slowest], starts[slowest], turn)
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


def _task_of(
    replica: ReplicaProblem, start: IntArray | None, turn: Turn
) -> PipelineTask:
    """Return the task of one replica, begun from its starts in the best schedule, if any.

    Bounds and a quick exact search have run, with what the search of all may use.
    """
    task = PipelineTask(turn.task.kind, replica.instance, replica.problem)
    task.board.clock, task.board.gap = turn.clock, turn.options.gap
    task.find_bounds(turn.clock.share(0.1))
    if start is not None:
        by = turn.task.best_by or ORDERED
        task.board.propose(Schedule(replica.problem, start), by)
    share = turn.clock.within(max(LEAST_SECONDS, turn.clock.left / 2))
    steps = [step for step in task.steps if isinstance(step, Step)]
    quick = [step for step in steps if step.name in {QUICK.name, STATES}][:2]
    in_sequence(replace(turn, task=task, clock=share), quick)
    return task


def bound_replicas(
    instance: PipelineInstance, problem: Problem, clock: Clock | None
) -> Iterator[Bound]:
    """Yield the bounds of the flow of each replica."""
    for replica in parts_of(instance, members_of(problem)):
        flow = flow_of(replica.problem)
        if flow is not None:
            yield from flow_bounds(flow, clock)


def flow_of_all(instance: PipelineInstance) -> Flow:
    """Return the flow of all micro-batches on one replica, if they may be exchanged.

    An `InputError` says that there is none.
    """
    (problem,) = lower_replicas(instance, (tuple(range(instance.num_microbatches)),))
    flow = flow_of(problem)
    if flow is None:
        raise InputError(
            'expected "delay", "link" or "send_queue" where micro-batches may be exchanged',
            source=instance.name,
            field="p2p.mode",
            code=ErrorCode.CONFLICT,
        )
    return flow


def has_few_assignments(turn: Turn) -> bool:
    """Apply where the assignments are so few that all are looked at."""
    return exchanges(turn) and has_few(turn.task.instance)


def _exchange(turn: Turn) -> ReplicaSearch:
    """Return the search by exchange, which goes on where it was left."""
    task = turn.task
    if task.exchange is None:
        shape = ReplicaShape(task.instance, task.scale)
        task.exchange = ReplicaSearch(shape, task.flow, turn.options.seed + 1)
    return task.exchange


def _propose_best(turn: Turn, search: ReplicaSearch) -> None:
    """Propose the best schedule of a search, for the pipeline lowered once more."""
    if search.value < TOO_LONG:
        schedule = search.schedule
        problem = lower_joint(turn.task.instance, members_of(schedule.problem))
        turn.board.propose(Schedule(problem, schedule.start), "exchange")


def try_every_assignment(turn: Turn) -> None:
    """Go through the assignments for a part of the time."""
    task, board = turn.task, turn.board
    search = _exchange(turn)
    if not turn.options.deterministic:
        search.run(turn.clock.share(EVERY_SHARE), EVERY_PATIENCE)
    _propose_best(turn, search)
    upper = NEVER if board.value is None else board.value
    every = AssignmentEnumeration(task.instance, task.scale, search.loads, upper)
    for members, starts in every.improve(turn.clock.share(EVERY_SHARE)):
        problem = lower_joint(task.instance, members)
        board.propose(Schedule(problem, np.concatenate(starts)), EVERY)
    board.raise_bound(every.bound, EVERY)


def exchange_microbatches(turn: Turn) -> None:
    """Exchange micro-batches until the time is over or the bound is met."""
    board = turn.board
    search = _exchange(turn)
    _propose_best(turn, search)
    expect(EXCHANGE_STEPS)
    while not board.is_closed and not turn.clock.is_over:
        search.run(turn.clock.within(TELLING_SECONDS), math.inf)
        _propose_best(turn, search)
        if turn.options.deterministic and not turn.clock.is_limited:
            break


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


def members_by_start(schedule: Schedule) -> Members:
    """Return the micro-batches of each replica by the start of their first op."""
    problem = schedule.problem
    numbers = problem.microbatch // problem.slices  # FREE, -1, stays the last entry
    first = np.full(int(numbers.max()) + 2, np.iinfo(np.int64).max)
    np.minimum.at(first, numbers, schedule.start)
    return tuple(
        tuple(sorted(microbatches, key=lambda number: (int(first[number]), number)))
        for microbatches in members_of(problem)
    )


FIRST_OF_REPLICAS = (
    Steps("first schedule", is_large_step, whole, first_schedule),
    Step("replicas' orders", is_large_step, whole, search_replica_orders, 0.25),
)
REST_OF_REPLICAS = (
    Step("small replicas", is_small_step, whole, solve_small_replicas, 0.25),
    replace(QUICK, applies=is_small_in_all),
    replace(SEARCHES, applies=runs_fixed_replicas),
    Step("replicas one by one", is_apart, whole, solve_each_replica, 0.25),
    Step(EVERY, has_few_assignments, whole, try_every_assignment, 0.25),
    Step("exchange", exchanges, whole, exchange_microbatches, 0.25),
)

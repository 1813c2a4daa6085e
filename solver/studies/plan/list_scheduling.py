"""Schedules of configurations in milliseconds: by priority rules, or by allowed heuristics.

The rules: backwards first, as many forwards as the memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import HeuristicStatus, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import (
    DeadlockError,
    ErrorCode,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import MAX_LOWERED
from ppsolve.models.studies.plan.result import Configuration
from ppsolve.solver.api.kinds import kind_of
from ppsolve.solver.api.registry import chosen_heuristics
from ppsolve.solver.board import Board, refuse_wrong
from ppsolve.solver.bounds import work_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, Request
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kinds.pipeline.actions import Chains, resolved
from ppsolve.solver.run.options import Options
from ppsolve.solver.run.schedule_task import ScheduleTask
from ppsolve.solver.run.solve_run import SolveRun
from ppsolve.solver.studies.plan.arrays import PipelineArrays, lowered
from ppsolve.solver.studies.plan.building import PipelineBuilder
from ppsolve.solver.studies.plan.params import WarmUpRule

FIRST_RULE = WarmUpRule()
"""The rule by which every configuration is scheduled."""

BY_RULE = "walk"
"""Name of schedules by rules in reports."""

SWEEP = "list-sweep"
"""Name of the heuristic that sweeps finalists."""


class QuickSchedule(NamedTuple):
    """A checked schedule: makespan in the unit of the request, and its source in reports.

    Either `rule` made it, or it has its starts in ticks of the profile.
    """

    makespan: float
    method: str
    rule: WarmUpRule | None = None
    start: IntArray | None = None


class QuickScheduler:
    """Quick schedules of one request. Equal pipelines are scheduled once."""

    def __init__(self, builder: PipelineBuilder) -> None:
        self._builder = builder
        self._known: dict[tuple[object, ...], QuickSchedule | None] = {}

    def arrays(
        self, configuration: Configuration, boundaries: Sequence[int]
    ) -> PipelineArrays:
        """Return the arrays of a configuration under a split, in ticks of the profile and grains.

        Raises `InputError` where the pipeline is too large, or one of its times is.
        """
        arrays = PipelineArrays.of(self._builder.pipeline(configuration, boundaries))
        # The schedule and the check of a larger one take half a second.
        limit = 250_000
        if arrays.num_ops > min(limit, MAX_LOWERED):
            raise InputError(
                f"expected at most {limit} ops, got {arrays.num_ops}",
                code=ErrorCode.RANGE,
            )
        return arrays

    def bound(self, arrays: PipelineArrays) -> Fraction:
        """Return a lower bound on the makespan, in the unit of the request."""
        return arrays.bound * arrays.pipeline.layers.tick

    def by_rules(
        self, arrays: PipelineArrays, rules: tuple[WarmUpRule, ...]
    ) -> QuickSchedule | None:
        """Return the best schedule by several rules.

        None where a device has no room for one micro-batch.
        """
        key = (rules, *arrays.key)
        if key not in self._known:
            expect(arrays.num_ops * len(rules))
            best = best_schedule(arrays, rules)
            self._known[key] = best and QuickSchedule(
                unit_time(best[1]), BY_RULE, best[0]
            )
        return self._known[key]

    def makespan(
        self, arrays: PipelineArrays, rules: Sequence[WarmUpRule]
    ) -> int | None:
        """Return the makespan of the best of some rules in ticks of the profile, unchecked.

        None where a device has no room for one micro-batch.
        """
        expect(arrays.num_ops * len(rules))
        starts = (_start(arrays, rule) for rule in rules)
        return min(
            (end_of(arrays, start) for start in starts if start is not None),
            default=None,
        )

    def named(
        self, arrays: PipelineArrays, names: Sequence[str]
    ) -> QuickSchedule | None:
        """Return the schedule of the first of these heuristics that makes one within the memory.

        Heuristics that search are left out.
        """
        instance, problem = lowered(arrays)
        for heuristic in chosen_heuristics(instance, names):
            schedule = (
                None
                if heuristic.is_search
                else self._made(heuristic, instance, problem)
            )
            if schedule is not None:
                return QuickSchedule(
                    unit_time(schedule), heuristic.name, start=schedule.start
                )
        return None

    def _made(
        self, heuristic: Heuristic, instance: PipelineInstance, problem: Problem
    ) -> Schedule | None:
        kind, orders = kind_of(instance), heuristic.orders
        if orders is None or instance.collectives is not None:
            outcome = kind.run_heuristic(heuristic, instance, problem)
            return (
                outcome.schedule if outcome.status is HeuristicStatus.FEASIBLE else None
            )
        if kind.obstacle(heuristic, instance) is not None:
            return None
        return fitting_schedule(
            lambda: resolved(problem, orders(Request(instance, problem))), problem
        )

    def swept(
        self, arrays: PipelineArrays, start: IntArray | None, steps: int, clock: Clock
    ) -> QuickSchedule | None:
        """Return the schedule of a `list-sweep`, None where every rule ends in a memory deadlock.

        `start`: int64[n] or None, starts of a schedule to begin from, in ticks of the profile.
        `steps`: schedules tried after its rules.
        """
        problem = lowered(arrays)[1]
        expect(arrays.num_ops * steps)
        first = None if start is None else Schedule(problem, start)
        try:
            board = Board.beginning(first, arrays.bound)
            schedule = list_sweep(problem, Effort(clock, board=board), steps=steps)
        except MemoryDeadlockError:
            return None
        refuse_wrong(schedule, SWEEP)
        return QuickSchedule(unit_time(schedule), SWEEP, start=schedule.start)


def fitting_schedule(make: Callable[[], Chains], problem: Problem) -> Schedule | None:
    """Return the schedule of orders, checked; None where they break a rule or wait for each other.

    `make`: returns the orders; None too where it raises `NotApplicableError`.
    """
    try:
        chains = make()
        # Most of these orders exceed the memory; timing and checking one to find that out takes
        # 10 to 50 ms.
        schedule = None if chains.overfills(problem) else chains.timed(problem)
    except (NotApplicableError, DeadlockError):
        return None
    return None if schedule is None or check_schedule(problem, schedule) else schedule


def unit_time(schedule: Schedule) -> float:
    """Return the makespan of a schedule in the unit of its problem."""
    return float(schedule.problem.scale.time(schedule.makespan))


def best_schedule(
    arrays: PipelineArrays, rules: Sequence[WarmUpRule]
) -> tuple[WarmUpRule, Schedule] | None:
    """Return the shortest schedule by several rules, checked, and its rule; the first of equals.

    It is in ticks of the profile; None where a device has no room for one micro-batch.
    """
    starts = [(rule, _start(arrays, rule)) for rule in rules]
    placed = [(rule, start) for rule, start in starts if start is not None]
    if not placed:
        return None
    if any(rule.passes for rule in rules):
        problem = lowered(arrays)[1]
        justifier = Justifier(problem)
        placed = [
            (rule, justifier.improve(Schedule(problem, start), rule.passes).start)
            for rule, start in placed
        ]
    rule, start = min(placed, key=lambda pair: end_of(arrays, pair[1]))
    schedule = Schedule(lowered(arrays)[1], start)
    refuse_wrong(schedule, BY_RULE)
    return rule, schedule


def start_by_rule(arrays: PipelineArrays, rule: WarmUpRule) -> IntArray:
    """Return the starts of the ops of a pipeline by a rule that has a schedule of it.

    int64[n], in ticks of the profile.
    """
    best = best_schedule(arrays, (rule,))
    assert best is not None
    return best[1].start


def _start(arrays: PipelineArrays, rule: WarmUpRule) -> IntArray | None:
    limits = _most_in_flight(arrays, rule.warm_up)
    start = arrays.stages.starts(0, limits, rule.patience)
    return None if start is None else with_tails(arrays, start)


def _most_in_flight(arrays: PipelineArrays, warm_up: float | None) -> IntArray | None:
    """Return the most micro-batches between forward and backward: int64[S], None for all."""
    if warm_up is None:
        return None
    stages, devices = len(arrays.device), len(arrays.stages.room)
    usual = warm_up * np.arange(stages, 0, -1) * devices / stages
    return np.clip(np.ceil(usual).astype(np.int64), 1, arrays.microbatches)


def _last_ends(arrays: PipelineArrays, start: IntArray) -> IntArray:
    rows, stages = arrays.duration.shape
    return start.reshape(rows, stages, -1)[:, :, -1] + arrays.duration


def _tail_starts(arrays: PipelineArrays, start: IntArray) -> IntArray:
    # All-reduces and optimizer steps, first come first served.
    finishes = _last_ends(arrays, start)
    release, idle = finishes[-1], np.zeros((2, len(arrays.stages.room)), dtype=np.int64)
    np.maximum.at(idle[1], arrays.device, finishes.max(axis=0))
    starts = []
    for field, length in arrays.tails.items():
        stream = int(field == "optimizer")
        begin = np.zeros_like(release)
        for stage in np.argsort(release, kind="stable").tolist():
            device = arrays.device[stage]
            begin[stage] = max(release[stage], idle[stream, device])
            idle[stream, device] = begin[stage] + length[stage]
        starts.append(begin)
        release = begin + length
    return np.stack(starts, axis=1).ravel() if starts else np.zeros(0, dtype=np.int64)


def with_tails(arrays: PipelineArrays, start: IntArray) -> IntArray:
    """Return starts with those of all-reduces and optimizer steps behind them.

    `start`: int64[n], starts of the ops of micro-batches, in ticks of the profile.
    """
    return np.concatenate([start, _tail_starts(arrays, start)])


def end_of(arrays: PipelineArrays, start: IntArray) -> int:
    """Return the makespan of a schedule in index order, in ticks of the profile."""
    end = _last_ends(arrays, start[: arrays.num_ops]).max()
    if arrays.tails:
        tails = start[arrays.num_ops :].reshape(len(arrays.device), -1)
        end = max(end, (tails + np.stack([*arrays.tails.values()], axis=1)).max())
    return int(end)


def offer_start(
    task: ScheduleTask, arrays: PipelineArrays, start: IntArray, name: str
) -> None:
    """Give a task a schedule, which it checks.

    `task`: the pipeline as an instance.
    `start`: int64[n], in ticks of the profile.
    `name`: source of the schedule.
    """
    factor = arrays.pipeline.layers.tick / task.problem.scale.tick
    exact = start * factor.numerator // factor.denominator
    task.board.propose(Schedule(task.problem, exact), name)


def result_of(
    instance: PipelineInstance, arrays: PipelineArrays, start: IntArray, name: str
) -> Result:
    """Return the result that holds a schedule, checked against the instance itself.

    It has the work bound and no entries of heuristics.
    """
    kind = kind_of(instance)
    task = ScheduleTask(kind, instance, kind.lower(instance))
    task.steps = ()
    task.board.raise_bound(work_bound(task.problem), "work")
    offer_start(task, arrays, start, name)
    return SolveRun(task, (), Options(time_limit=0.0)).execute()

"""Schedules of configurations in milliseconds: by priority rules, or by allowed heuristics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import HeuristicStatus, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import (
    DeadlockError,
    InputError,
    MemoryDeadlockError,
    NotApplicableError,
)
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import MAX_LOWERED
from ppsolve.models.plan.result import Configuration
from ppsolve.solver.bounds import Bound, best_bound, work_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Heuristic, Request
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.in_flight import walk
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.scheduling import ScheduleTask
from ppsolve.solver.kinds.task import WrongScheduleError
from ppsolve.solver.optimize.kinds import kind_of
from ppsolve.solver.optimize.registry import chosen_heuristics
from ppsolve.solver.optimize.run import SolveRun
from ppsolve.solver.pipeline.actions import Chains, Order, resolved
from ppsolve.solver.pipeline.kind import PipelineTask
from ppsolve.solver.plan.arrays import Outline, links_of, makespan_floor, outline, outlined
from ppsolve.solver.plan.building import PipelineBuilder


@dataclass(frozen=True)
class WalkRule:
    """How devices choose.

    Parameters
    ----------
    patience : int
        A weight gradient waits for another op that comes soon if the idle time is at most
        `patience` x the delay that it would cause.
    warm_up : float or None
        Micro-batches between forward and backward of a stage, at most: this many times what 1F1B
        has there; None: as many as the memory holds.
    passes : int
        Pairs of passes of justification that follow: all ops later, then earlier, into the gaps.
    """

    patience: int = 1
    warm_up: float | None = 1.0
    passes: int = 0

    def most(self, stages: int, devices: int, count: int) -> IntArray:
        """Return the most micro-batches of `count` between forward and backward, by stage.

        Parameters
        ----------
        stages, devices, count : int
            Size of the pipeline.

        Returns
        -------
        int64[S]
            At least 1 each.
        """
        if self.warm_up is None:
            return np.full(stages, count)
        usual = self.warm_up * np.arange(stages, 0, -1) * devices / stages
        most: IntArray = np.clip(np.ceil(usual).astype(np.int64), 1, count)
        return most


FIRST = WalkRule()
"""The rule that every configuration is walked by: of eight tried on 63 configurations of 82 layers
on 16 to 64 devices it was 0.04 % above the best of them on average, 0.6 % at most."""

RULES = (
    *(WalkRule(patience, warm_up) for warm_up in (0.5, 0.8, 0.9, 1.0, 1.25) for patience in (1, 4)),
    WalkRule(0, 1.0),
    WalkRule(2, 1.0),
    WalkRule(16, 0.5),
    WalkRule(1, None),
)
"""Rules for promising configurations. On seven of them (24 to 98 thousand ops, little memory) the
best of 60 rules, of five patiences and twelve warm-ups, was 1.3 to 5.0 % better than `FIRST`."""

PASSES = 4
"""Pairs of passes that justify a walk. On the four best configurations of ``gpt-80x128`` the first
gains 3.6 to 5.7 %, the next two 0.6 to 1.7 % more; all four take 0.05 s of 24,640 ops, as much as
four walks."""

NAME = "walk"
"""Name of these schedules in reports."""


@dataclass(frozen=True, eq=False)
class ListSchedule:
    """A checked schedule.

    Parameters
    ----------
    rule : WalkRule
        The rule that made it.
    schedule : Schedule
        The schedule, in the ticks of the profile.
    """

    rule: WalkRule
    schedule: Schedule

    @property
    def makespan(self) -> float:
        """Makespan in the unit of the request."""
        return float(self.schedule.problem.scale.time(self.schedule.makespan))


def best_walk(shown: Outline, rules: tuple[WalkRule, ...]) -> ListSchedule | None:
    """Return the shortest schedule by several rules, checked; by the first rule of equals.

    Parameters
    ----------
    shown : Outline
        The pipeline.
    rules : tuple of WalkRule
        What is tried.

    Returns
    -------
    ListSchedule or None
        None where a device has no room for one micro-batch.

    Raises
    ------
    WrongScheduleError
        The checker refuses it.
    """
    placed = [(rule, _placed(shown, rule)) for rule in rules]
    if any(rule.passes for rule in rules):
        placed = _justified(shown, placed)
    found = [
        (_end(shown, start), place) for place, (_, start) in enumerate(placed) if start is not None
    ]
    if not found:
        return None
    rule, start = placed[min(found)[1]]
    assert start is not None
    schedule = Schedule(outlined(shown)[1], start)
    refuse_wrong(schedule, NAME)
    return ListSchedule(rule, schedule)


def refuse_wrong(schedule: Schedule, name: str) -> None:
    """Check a schedule.

    Parameters
    ----------
    schedule : Schedule
        Any schedule.
    name : str
        What made it.

    Raises
    ------
    WrongScheduleError
        The checker refuses it.
    """
    violations = check_schedule(schedule.problem, schedule)
    if violations:
        raise WrongScheduleError(f"{name}: {violations[0]} ({len(violations)} in all)")


def justified(rule: WalkRule) -> WalkRule:
    """Return a rule whose walk is justified."""
    return replace(rule, passes=PASSES)


def _justified(
    shown: Outline, placed: list[tuple[WalkRule, IntArray | None]]
) -> list[tuple[WalkRule, IntArray | None]]:
    problem = outlined(shown)[1]
    justifier = Justifier(problem)
    return [
        (rule, start)
        if start is None
        else (rule, justifier.improve(Schedule(problem, start), rule.passes).start)
        for rule, start in placed
    ]


def _placed(shown: Outline, rule: WalkRule) -> IntArray | None:
    rows, stages = shown.duration.shape
    count, devices = shown.microbatches, len(shown.room)
    there, back = links_of(shown)
    arrival = shown.duration.copy()
    arrival[0] += there
    arrival[1] += back
    shape = (stages, count, rows, devices, rule.patience)
    start = np.zeros(shown.num_ops, dtype=np.int64)
    stuck = walk(
        np.array(shape, dtype=np.int64),
        _members(shown.device, devices),
        shown.device,
        shown.duration.ravel(),
        arrival.ravel(),
        shown.held,
        shown.freed.ravel(),
        rule.most(stages, devices, count),
        shown.room,
        np.zeros(rows * stages, dtype=np.int64),
        *np.zeros((3, devices), dtype=np.int64),
        start,
    )
    return None if stuck else np.concatenate([start, _tails(shown, start)])


def _members(device: IntArray, devices: int) -> IntArray:
    """Return pointers to the stages of each device, then these, the last first."""
    last_first = np.arange(len(device))[::-1]
    order = last_first[np.argsort(device[last_first], kind="stable")]
    ends = devices + 1 + np.cumsum(np.bincount(device, minlength=devices))
    return np.concatenate([[devices + 1], ends, order])


def _tails(shown: Outline, start: IntArray) -> IntArray:
    """Return the starts of all-reduces and optimizer steps, first come first served."""
    rows, stages = shown.duration.shape
    ends = start.reshape(rows, stages, -1)[:, :, -1] + shown.duration
    ready, idle = ends[-1], np.zeros((2, len(shown.room)), dtype=np.int64)
    np.maximum.at(idle[1], shown.device, ends.max(axis=0))
    found = []
    for stream, length in enumerate((shown.allreduce, shown.optimizer)):
        if length is None:
            continue
        begin = np.zeros(stages, dtype=np.int64)
        for stage in np.argsort(ready, kind="stable").tolist():
            own = shown.device[stage]
            begin[stage] = max(ready[stage], idle[stream, own])
            idle[stream, own] = begin[stage] + length[stage]
        found.append(begin)
        ready = begin + length
    return np.stack(found, axis=1).ravel() if found else np.zeros(0, dtype=np.int64)


def _end(shown: Outline, start: IntArray) -> int:
    """Return the makespan in ticks."""
    rows, stages = shown.duration.shape
    ends = start[: shown.num_ops].reshape(rows, stages, -1)[:, :, -1] + shown.duration
    tails = [part for part in (shown.allreduce, shown.optimizer) if part is not None]
    if not tails:
        return int(ends.max())
    after = start[shown.num_ops :].reshape(stages, -1) + np.stack(tails, axis=1)
    return int(max(ends.max(), after.max()))


MOST_WALKED = 250_000
"""Larger pipelines get no quick schedule: the walk and the check of one take half a second."""

SWEEP = "list-sweep"
"""Name of the heuristic that finalists are swept by."""


class Reached(NamedTuple):
    """A checked schedule: makespan in the unit of the request, and its name in reports.

    What made it is `rule`, or there are its starts in ticks of the profile.
    """

    makespan: float
    method: str
    rule: WalkRule | None = None
    start: IntArray | None = None


class QuickScheduler:
    """Quick schedules of one request. Pipelines that are the same are scheduled once."""

    def __init__(self, builder: PipelineBuilder) -> None:
        self._builder = builder
        self._known: dict[tuple[object, ...], Reached | None] = {}
        self._shape: PipelineInstance | None = None
        self._ordered: dict[str, Chains] = {}

    def outline(self, configuration: Configuration, boundaries: Sequence[int]) -> Outline:
        """Return the outline of a configuration under a split.

        Parameters
        ----------
        configuration : Configuration
            The configuration.
        boundaries : sequence of int
            First layer of each stage, then the number of layers.

        Returns
        -------
        Outline
            Its arrays, in ticks of the profile and grains.

        Raises
        ------
        InputError
            The pipeline is too large, or one of its times is.
        """
        shown = outline(self._builder.pipeline(configuration, boundaries))
        if shown.num_ops > min(MOST_WALKED, MAX_LOWERED):
            raise InputError(f"expected at most {MOST_WALKED} ops, got {shown.num_ops}")
        return shown

    def floor(self, shown: Outline) -> Fraction:
        """Return a time below which no schedule is, in the unit of the request."""
        return makespan_floor(shown) * shown.pipeline.layers.tick

    def reach(self, shown: Outline, rules: tuple[WalkRule, ...]) -> Reached | None:
        """Return the best of several rules, None where all of them wait for good.

        Parameters
        ----------
        shown : Outline
            The pipeline.
        rules : tuple of WalkRule
            What is tried.

        Returns
        -------
        Reached or None
            Its schedule has passed the checker.
        """
        key = (rules, *shown.key)
        if key not in self._known:
            expect(shown.num_ops * len(rules))
            walked = best_walk(shown, rules)
            found = None if walked is None else Reached(walked.makespan, NAME, walked.rule)
            self._known[key] = found
        return self._known[key]

    def named(self, shown: Outline, names: Sequence[str]) -> Reached | None:
        """Return the schedule of the first of these heuristics that makes one.

        Parameters
        ----------
        shown : Outline
            The pipeline.
        names : sequence of str
            Heuristics; those that search are left out.

        Returns
        -------
        Reached or None
            None where none applies and fits the memory.
        """
        instance, problem = outlined(shown)
        for heuristic in chosen_heuristics(instance, names):
            found = None if heuristic.is_search else self._made(heuristic, instance, problem)
            if found is not None:
                makespan = float(problem.scale.time(found.makespan))
                return Reached(makespan, heuristic.name, start=found.start)
        return None

    def _made(
        self, heuristic: Heuristic, instance: PipelineInstance, problem: Problem
    ) -> Schedule | None:
        """Return the schedule of a heuristic; None where it does not apply or breaks a rule."""
        kind = kind_of(instance)
        if heuristic.orders is None or instance.collectives is not None:
            outcome = kind.run_heuristic(heuristic, instance, problem)
            return outcome.schedule if outcome.status is HeuristicStatus.FEASIBLE else None
        if kind.obstacle(heuristic, instance) is not None:
            return None
        try:
            chains = self._chains(heuristic.name, heuristic.orders, instance, problem)
            # Most of these orders take more memory than there is; timing and checking one to find
            # that out takes 10 to 50 ms.
            schedule = None if chains.overfills(problem) else chains.timed(problem)
        except (NotApplicableError, DeadlockError):
            return None
        return None if schedule is None or check_schedule(problem, schedule) else schedule

    def _chains(
        self,
        name: str,
        orders: Callable[[Request], Sequence[Order]],
        instance: PipelineInstance,
        problem: Problem,
    ) -> Chains:
        """Return published orders as ops; those of the last shape are kept."""
        if self._shape is not instance:
            self._shape = instance
            self._ordered.clear()
        if name not in self._ordered:
            self._ordered[name] = resolved(problem, orders(Request(instance, problem)))
        return self._ordered[name]

    def swept(
        self, shown: Outline, known: IntArray | None, steps: int, clock: Clock
    ) -> Reached | None:
        """Return the schedule of a `list-sweep` of so many steps.

        Parameters
        ----------
        shown : Outline
            The pipeline.
        known : int64[n] or None
            A schedule to begin from, in ticks of the profile.
        steps : int
            Schedules tried after its rules.
        clock : Clock
            Ends it early.

        Returns
        -------
        Reached or None
            Checked; None where every rule waits for good.

        Raises
        ------
        WrongScheduleError
            The checker refuses it.
        """
        problem = outlined(shown)[1]
        expect(shown.num_ops * steps)
        first = None if known is None else Schedule(problem, known)
        try:
            found = list_sweep(
                problem, clock, known=first, bound=makespan_floor(shown), steps=steps
            )
        except MemoryDeadlockError:
            return None
        refuse_wrong(found, SWEEP)
        return Reached(float(problem.scale.time(found.makespan)), SWEEP, start=found.start)


def walked_start(shown: Outline, rule: WalkRule) -> IntArray:
    """Return the starts that a rule makes of a pipeline.

    Parameters
    ----------
    shown : Outline
        A pipeline on which the rule does not wait for good.
    rule : WalkRule
        The rule.

    Returns
    -------
    int64[n]
        Starts in ticks of the profile.
    """
    walked = best_walk(shown, (rule,))
    assert walked is not None
    return walked.schedule.start


def offer_start(task: ScheduleTask, shown: Outline, start: IntArray, name: str) -> None:
    """Give a task a schedule, which it checks.

    Parameters
    ----------
    task : ScheduleTask
        The pipeline as an instance.
    shown : Outline
        The same pipeline.
    start : int64[n]
        Ticks of the profile.
    name : str
        What made the schedule.
    """
    factor = shown.pipeline.layers.tick / task.problem.scale.tick
    exact = start * factor.numerator // factor.denominator
    task.offer(Schedule(task.problem, exact), name)


class _KnownTask(PipelineTask):
    """A pipeline whose schedule is known; of the bounds only the cheapest is worked out."""

    def find_bounds(self, clock: Clock | None = None) -> None:
        self.bounds = [Bound("work", work_bound(self.problem))]
        self.bound = best_bound(self.bounds)


def documented(instance: PipelineInstance, shown: Outline, start: IntArray, name: str) -> Result:
    """Return the result that holds a schedule, checked against the instance itself.

    Parameters
    ----------
    instance, shown, start, name
        As for `offer_start`.

    Returns
    -------
    Result
        With the work bound and without entries of heuristics.
    """
    kind = kind_of(instance)
    task = _KnownTask(kind, instance, kind.lower(instance))
    offer_start(task, shown, start, name)
    return SolveRun(task, (), Options(time_limit=0.0)).execute()

"""Quick schedules of configurations: backwards first, as many forwards as the memory holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.kernels.in_flight import walk
from ppsolve.solver.plan.outline import Outline, links_of, outlined


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

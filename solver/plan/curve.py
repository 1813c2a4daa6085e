"""Measures how the makespan of a pipeline grows with its micro-batches, by checked schedules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import whole_numbers
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.result import HeuristicStatus, Result, Status, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError, PpsolveError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.bounds import Bound, best_bound, lower_bounds, work_bound
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.goodput.curve import ScheduleCurve, timed_replicas
from ppsolve.solver.kinds.task import WrongScheduleError
from ppsolve.solver.optimize.api import check, optimize
from ppsolve.solver.optimize.kinds import lower as lower_instance
from ppsolve.solver.optimize.progress import Progress, ProgressListener
from ppsolve.solver.optimize.registry import find_heuristic, quick_heuristics, run_heuristic
from ppsolve.solver.structure.implied import ImpliedOrder
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

LONGEST_RUN = 17
"""Neighbouring numbers of micro-batches that are measured by default, at most."""

MEMORY_SPACING = 1.25
"""Bounds that count memory take long; they are found anew once M has grown by this factor."""


class NoScheduleError(PpsolveError):
    """No schedule of a pipeline was found for one number of micro-batches.

    Parameters
    ----------
    microbatches : int
        That number.
    reasons : list of str
        Why: one per heuristic, or what the exact solver says.
    is_proved : bool
        Whether it is proved that there is none.
    """

    def __init__(self, microbatches: int, reasons: Sequence[str], *, is_proved: bool) -> None:
        self.microbatches = microbatches
        self.reasons = list(reasons)
        self.is_proved = is_proved
        what = "there is no schedule (proved)" if is_proved else "no schedule was found"
        super().__init__(f"with {microbatches} micro-batches {what}: {'; '.join(reasons)}")


def measure_curve(
    instance: PipelineInstance,
    microbatches: Sequence[int],
    *,
    replicas: int | None = None,
    heuristics: Sequence[str] | None = None,
    exact: bool = False,
    round_up: bool = False,
    on_progress: ProgressListener | None = None,
    **options: Any,
) -> ScheduleCurve:
    """Measure the makespan of a pipeline at several numbers of micro-batches.

    What is measured is the makespan, whatever the objective of the instance. Every schedule has
    passed the checker. Where fewer micro-batches took longer than more, the schedule of the more
    counts, with micro-batches left out.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline; its own number of micro-batches is ignored. Its micro-batches are alike.
    microbatches : sequence of int
        Where to measure, see `default_microbatches`.
    replicas : int, optional
        Data-parallel copies that the all-reduces (or reduce-scatters) of the pipeline were timed
        for. The curve then answers for that number only.
    heuristics : sequence of str, optional
        The best of these is taken; all that apply and do not search by default. A schedule that
        exceeds the memory does not count, so a curve of ``gpipe`` may hold further out than its
        memory does: what is extrapolated is not known to fit.
    exact : bool
        Solve every point with `ppsolve.optimize`, to which all that follows is passed on.
    round_up : bool
        Round times up where they have no common tick.
    on_progress : callable, optional
        Told which point comes next, and all that exact runs tell.
    **options
        Of `ppsolve.optimize`; `time_limit` is 10 seconds for each point by default.

    Returns
    -------
    ScheduleCurve
        In the time unit of the instance; knows whether the pipeline has all-reduces or
        reduce-scatters of gradients.

    Raises
    ------
    InputError
        Unknown heuristic, durations per micro-batch, or numbers of micro-batches that the
        placement does not allow (odd ones of bidirectional pipes), or a number of replicas of a
        pipeline without all-reduces.
    NoScheduleError
        No schedule was found for one of the numbers.
    KeyboardInterrupt
        Interrupted; what was measured so far is lost.
    """
    _check_alike(instance)
    copies = timed_replicas(replicas, has_sync=_has_sync(instance))
    wanted = sorted(set(np.atleast_1d(_whole(microbatches)).tolist()))
    measuring = _Measuring(heuristics, round_up, on_progress)
    passed_on = {"heuristics": heuristics, "round_up": round_up, "on_progress": on_progress}
    points: list[_Point] = []
    for place, number in enumerate(wanted):
        sized = with_microbatches(instance, number)
        measuring.tell(f"{number} micro-batches ({place + 1} of {len(wanted)})")
        if exact:
            result = optimize(sized, **{"time_limit": 10.0, **options, **passed_on})
            points.append(_solved(sized, result, round_up=round_up))
        else:
            points.append(measuring.point(sized))
    return _curve(instance, points, copies)


def default_microbatches(instance: PipelineInstance) -> tuple[int, ...]:
    """Return numbers of micro-batches that show the warm-up, the steady state and its period.

    For D devices:

    - 1, 2, 4, ... while warm-up and cool-down are most of the makespan;
    - all from 4D to 6D. Published orders with latency repeat after a divisor of D micro-batches,
      as many as are under way at once, and 2D + 1 neighbours are needed to see D of them repeat.
      By 4D the steady state is reached: in 60 random uneven pipelines of 3 to 6 devices the
      pattern seen from 4D on always gave the makespan of 1F1B and GPipe at 16D, that from 2D on
      not always;
    - 8D, which refutes a pattern that was still warm-up.

    Bidirectional pipes have D of their own under way in each pipe and take even numbers: from 4D
    to 8D, and 12D. Where these are more than `LONGEST_RUN` numbers, or the placement is looped
    (interleaved schedules take whole groups of D), only multiples of the D (or 2D) from twice to
    six times, and eight times: the slope is still exact for every period that divides it.
    """
    pipes = 2 if instance.placement == "bidirectional" else 1
    cycle = pipes * instance.num_devices
    is_coarse = _is_looped(instance) or 2 * instance.num_devices >= LONGEST_RUN
    step, first = (cycle, 2 * cycle) if is_coarse else (pipes, 4 * instance.num_devices)
    run = range(first, first + 2 * max(cycle, 2 * step) + 1, step)
    few = [pipes * 2**k for k in range(first.bit_length()) if pipes * 2**k < first]
    return (*few, *run, run[-1] + 2 * cycle)


def with_microbatches(instance: PipelineInstance, number: int) -> PipelineInstance:
    """Return the pipeline with another number of micro-batches, judged by its makespan.

    Raises
    ------
    InputError
        The placement does not allow that number, or the pipeline becomes too large.
    """
    changed = {"num_microbatches": number, "objective": Objective.MAKESPAN}
    return PipelineInstance.parse({**dict(instance), **changed}, instance.name)


def _is_looped(instance: PipelineInstance) -> bool:
    devices = instance.stage_to_device
    return len(devices) > instance.num_devices > 1 and all(
        device == stage % instance.num_devices for stage, device in enumerate(devices)
    )


def _has_sync(instance: PipelineInstance) -> bool:
    collectives = instance.collectives
    scatters = collectives is not None and collectives.reduce_scatter is not None
    return scatters or instance.allreduce is not None


def _whole(microbatches: Sequence[int]) -> IntArray:
    numbers = whole_numbers("microbatches", microbatches)
    if not numbers.size:
        raise InputError("expected at least one number of micro-batches", field="microbatches")
    return numbers


def _check_alike(instance: PipelineInstance) -> None:
    for field, entry in instance.times:
        for stage, item in enumerate(entry if isinstance(entry, tuple) else ()):
            if isinstance(item, tuple):
                raise InputError(
                    "expected one number per stage: durations per micro-batch say nothing of "
                    "other numbers of micro-batches",
                    source=instance.name,
                    field=f"times.{field}[{stage}]",
                )


@dataclass(frozen=True)
class _Point:
    """One measured number of micro-batches; times in the unit of the instance."""

    microbatches: int
    makespan: float
    bound: float
    work_bound: float
    method: str


def _curve(instance: PipelineInstance, points: list[_Point], replicas: int | None) -> ScheduleCurve:
    best = points[-1]
    for place in range(len(points) - 1, -1, -1):
        point = points[place]
        if point.makespan > best.makespan:
            point = replace(point, makespan=best.makespan, method=best.method)
            points[place] = point
        best = point
    return ScheduleCurve(
        microbatches=[point.microbatches for point in points],
        makespans=[point.makespan for point in points],
        bounds=[point.bound for point in points],
        work_bounds=[point.work_bound for point in points],
        methods=[point.method for point in points],
        time_unit=instance.time_unit,
        multiple=2 if instance.placement == "bidirectional" else 1,
        has_sync=_has_sync(instance),
        replicas=replicas,
    )


def _solved(instance: PipelineInstance, result: Result, *, round_up: bool) -> _Point:
    number = instance.num_microbatches
    if result.stop_reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    if result.makespan is None or result.bound is None:
        reasons = [result.reason or f"stopped: {result.stop_reason}"]
        raise NoScheduleError(number, reasons, is_proved=result.status is Status.INFEASIBLE)
    violations = check(instance, result, round_up=round_up)
    if violations:
        raise WrongScheduleError(f"{result.best_by}: {violations[0]} ({len(violations)} in all)")
    work = _work(lower_instance(instance, round_up=round_up))
    return _Point(number, result.makespan, result.bound, work, result.best_by or "")


def _work(problem: Problem) -> float:
    return problem.scale.time(work_bound(problem))


class _Measuring:
    """Measures points by heuristics, cheapest first; remembers when memory was last counted."""

    def __init__(
        self,
        heuristics: Sequence[str] | None,
        round_up: bool,
        listener: ProgressListener | None,
    ) -> None:
        if isinstance(heuristics, str):
            raise InputError(f'expected a list of names, got "{heuristics}"', field="heuristics")
        self._names = None if heuristics is None else [find_heuristic(h).name for h in heuristics]
        if self._names == []:
            raise InputError("expected at least one heuristic", field="heuristics")
        self._round_up = round_up
        self._listener = listener
        self._began = time.monotonic()
        self._counted = 0

    def tell(self, what: str) -> None:
        if self._listener is not None:
            self._listener(Progress("phase", time.monotonic() - self._began, what))

    def point(self, instance: PipelineInstance) -> _Point:
        problem = lower_instance(instance, round_up=self._round_up)
        bounds = self._bounds(instance, problem)
        bound = best_bound(bounds)
        schedule, method = self._best(instance, problem, bound)
        in_units = problem.scale.time
        return _Point(
            instance.num_microbatches,
            in_units(schedule.makespan),
            in_units(bound.value),
            _work(problem),
            method,
        )

    def _bounds(self, instance: PipelineInstance, problem: Problem) -> list[Bound]:
        """Return bounds; those without memory, which hold as well, near a point with it."""
        number = instance.num_microbatches
        if number < MEMORY_SPACING * self._counted:
            return lower_bounds(ImpliedOrder(replace(problem, pools=())))
        self._counted = number
        try:
            return lower_bounds(ImpliedOrder(problem))
        except MemoryInfeasible as error:
            raise NoScheduleError(number, [str(error)], is_proved=True) from None

    def _best(
        self, instance: PipelineInstance, problem: Problem, bound: Bound
    ) -> tuple[Schedule, str]:
        best: tuple[Schedule, str] | None = None
        reasons = []
        for name in self._names or quick_heuristics(instance):
            outcome = run_heuristic(name, instance, problem)
            if outcome.status is not HeuristicStatus.FEASIBLE or outcome.schedule is None:
                reasons.append(f"{name} {outcome.status.replace('_', ' ')}: {outcome.reason}")
                continue
            schedule = _checked(outcome.schedule.normalised(), name, bound)
            if best is None or schedule.makespan < best[0].makespan:
                best = schedule, name
            if schedule.makespan == bound.value:
                break
        if best is None:
            raise NoScheduleError(instance.num_microbatches, reasons, is_proved=False)
        return best


def _checked(schedule: Schedule, name: str, bound: Bound) -> Schedule:
    violations = check_schedule(schedule.problem, schedule)
    if violations:
        raise WrongScheduleError(f"{name}: {violations[0]} ({len(violations)} in all)")
    if schedule.makespan < bound.value:
        raise WrongScheduleError(
            f"{name} found {schedule.makespan} below the bound {bound.value} of {bound.name}"
        )
    return schedule

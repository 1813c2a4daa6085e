"""Measures how the makespan of a pipeline grows with its micro-batches, by checked schedules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from ppsolve.models.core.arrays import whole_numbers
from ppsolve.models.core.problem import IntArray, Objective
from ppsolve.models.core.result import Status
from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import ErrorCode, InputError, PpsolveError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.api import check, optimize
from ppsolve.solver.api.kinds import lower as lower_instance
from ppsolve.solver.api.registry import quick_heuristics
from ppsolve.solver.board import WrongScheduleError
from ppsolve.solver.bounds import work_bound
from ppsolve.solver.run.progress import Progress, ProgressListener
from ppsolve.solver.studies.goodput.curve import ScheduleCurve, timed_replicas
from ppsolve.solver.studies.goodput.step import StepTime


class NoScheduleError(PpsolveError):
    """No schedule of a pipeline was found for one number of micro-batches.

    `reasons` has one sentence per heuristic, or that of the exact solver; `is_proved` says whether
    it is proved that there is none.
    """

    def __init__(
        self, microbatches: int, reasons: Sequence[str], *, is_proved: bool
    ) -> None:
        self.microbatches = microbatches
        self.reasons = list(reasons)
        self.is_proved = is_proved
        outcome = (
            "there is no schedule (proved)" if is_proved else "no schedule was found"
        )
        super().__init__(
            f"with {microbatches} micro-batches {outcome}: {'; '.join(reasons)}"
        )


def measure_curve(
    instance: PipelineInstance,
    microbatches: Sequence[int],
    *,
    replicas: int | None = None,
    heuristics: Sequence[str] | None = None,
    exact: bool = False,
    on_progress: ProgressListener | None = None,
    **options: Any,
) -> ScheduleCurve:
    """Measure the makespan of a pipeline at several numbers of micro-batches.

    All schedules are checked, and their makespan is measured whatever the objective of the
    instance. If fewer micro-batches took longer than more, the schedule for more is used, with some
    left out.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline; its own number of micro-batches is ignored. Its micro-batches are alike.
    microbatches : sequence of int
        Where to measure. Published orders with latency repeat after a divisor of the D devices, so
        all numbers from 4D to 6D show their period, and 8D refutes one that was warm-up.
    replicas : int, optional
        Data-parallel copies that the all-reduces (or reduce-scatters) of the pipeline were timed
        for. The curve then answers for that number only.
    heuristics : sequence of str, optional
        The best of these is taken; by default of all that apply and do not search. Schedules that
        exceed the memory do not count; extrapolated ones are not known to fit.
    exact : bool
        Solve every point with `ppsolve.optimize`.
    on_progress : callable, optional
        Called with the next point, and with all events of exact runs.
    **options
        Of exact runs; `time_limit` is 10 seconds for each point by default.

    Returns
    -------
    ScheduleCurve
        In the time unit of the instance.

    Raises
    ------
    InputError
        Unknown heuristic, durations per micro-batch, numbers of micro-batches that the placement
        does not allow, or a number of replicas of a pipeline without all-reduces.
    NoScheduleError
        No schedule was found for one of the numbers.
    KeyboardInterrupt
        Interrupted; the points measured so far are lost.
    """
    _check_alike(instance)
    copies = timed_replicas(replicas, has_sync=_has_sync(instance))
    _check_heuristics(heuristics)
    numbers = np.unique(_whole(microbatches)).tolist()
    run = {"time_limit": 10.0, "on_progress": on_progress, **options}
    steps, work = [], []
    for sized in _points(instance, numbers, on_progress):
        if exact:
            steps.append(_measured(sized, exact=True, heuristics=heuristics, **run))
        else:
            steps.append(_quick(sized, heuristics))
        work.append(_work_time(sized))
    _leave_out(steps)
    return ScheduleCurve(
        microbatches=numbers,
        makespans=[step.time.high for step in steps],
        bounds=[float(step.floor) for step in steps],
        work_bounds=work,
        methods=[step.method or "" for step in steps],
        time_unit=instance.time_unit,
        multiple=2 if instance.placement == "bidirectional" else 1,
        has_sync=_has_sync(instance),
        replicas=copies,
    )


def with_microbatches(instance: PipelineInstance, number: int) -> PipelineInstance:
    """Return the pipeline with another number of micro-batches, judged by its makespan.

    Raises `InputError` where the placement does not allow that number, or the pipeline becomes too
    large.
    """
    changed = {"num_microbatches": number, "objective": Objective.MAKESPAN}
    return PipelineInstance.parse({**dict(instance), **changed}, instance.name)


def _has_sync(instance: PipelineInstance) -> bool:
    collectives = instance.collectives
    scatters = collectives is not None and collectives.reduce_scatter is not None
    return scatters or instance.allreduce is not None


def _whole(microbatches: Sequence[int]) -> IntArray:
    numbers = whole_numbers("microbatches", microbatches)
    if not numbers.size:
        raise InputError(
            "expected at least one number of micro-batches",
            field="microbatches",
            code=ErrorCode.LENGTH,
        )
    return numbers


def _check_alike(instance: PipelineInstance) -> None:
    if instance.lengths is not None:
        raise InputError(
            "expected none: lengths per micro-batch say nothing of other numbers of micro-batches",
            source=instance.name,
            field="lengths",
            code=ErrorCode.CONFLICT,
        )
    for field, entry in instance.amounts().items():
        for index, item in enumerate(entry if isinstance(entry, tuple) else ()):
            if isinstance(item, tuple):
                noun = "durations" if field.startswith("times.") else "amounts"
                owner = "stage boundary" if field == "p2p.bytes" else "stage"
                raise InputError(
                    f"expected one number per {owner}: {noun} per micro-batch say nothing of "
                    "other numbers of micro-batches",
                    source=instance.name,
                    field=f"{field}[{index}]",
                    code=ErrorCode.UNSUPPORTED,
                )


def _check_heuristics(heuristics: Sequence[str] | None) -> None:
    if isinstance(heuristics, str) or (heuristics is not None and not len(heuristics)):
        text = f"expected at least one heuristic in a list, got {describe(heuristics)}"
        raise InputError(text, field="heuristics", code=ErrorCode.RANGE)


def _points(
    instance: PipelineInstance,
    numbers: Sequence[int],
    on_progress: ProgressListener | None,
) -> Iterator[PipelineInstance]:
    began = time.monotonic()
    for index, number in enumerate(numbers):
        if on_progress is not None:
            told = f"{number} micro-batches ({index + 1} of {len(numbers)})"
            on_progress(Progress("phase", time.monotonic() - began, told))
        yield with_microbatches(instance, number)


def _work_time(instance: PipelineInstance) -> float:
    problem = lower_instance(instance)
    return problem.scale.time(max(0, work_bound(problem) - problem.tick_error))


def _quick(instance: PipelineInstance, heuristics: Sequence[str] | None) -> StepTime:
    names = heuristics or quick_heuristics(instance)
    if instance.memory is None and len(names) > 1:
        # GPipe, the first, is optimal for most pipelines without a limit; all of them took 3 to 5
        # times as long.
        with suppress(NoScheduleError):
            step = _measured(
                instance, exact=False, heuristics=names[:1], time_limit=0.0
            )
            if step.time.high == step.floor:
                return step
    return _measured(instance, exact=False, heuristics=names, time_limit=0.0)


def _measured(instance: PipelineInstance, *, exact: bool, **options: Any) -> StepTime:
    result, step = optimize(instance, **options), StepTime()
    step.learn(result)
    if result.stop_reason.is_by_caller:
        raise KeyboardInterrupt
    if step.reached is None:
        reasons = [result.reason or f"stopped: {result.stop_reason}"]
        if not exact and result.reason is None:
            failed = (
                (e.name, e.status.replace("_", " "), e.reason) for e in step.failures
            )
            reasons = [f"{name} {status}: {reason}" for name, status, reason in failed]
        is_proved = result.status is Status.INFEASIBLE
        raise NoScheduleError(instance.num_microbatches, reasons, is_proved=is_proved)
    # Runs check every schedule; of exact ones also the document that holds it is checked.
    violations = check(instance, result) if exact else ()
    if violations:
        raise WrongScheduleError(
            f"{step.method}: {violations[0]} ({len(violations)} in all)"
        )
    return step


def _leave_out(steps: Sequence[StepTime]) -> None:
    # Fewer micro-batches take no longer than more: by their schedule, some left out.
    for smaller, larger in reversed(list(pairwise(steps))):
        if smaller.time.high > larger.time.high:
            smaller.reached, smaller.method = larger.reached, larger.method

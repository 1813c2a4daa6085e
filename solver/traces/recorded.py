"""The recorded schedule of a replica-step as a result that other commands take."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.result import Result, ScheduleDocument, Status, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.trace.check import tolerance_of
from ppsolve.models.trace.table import Trace
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.run.entries import figures, versions
from ppsolve.solver.structure.timing import time_orders
from ppsolve.solver.traces.clocks import aligned
from ppsolve.solver.traces.instances import part_name
from ppsolve.solver.traces.replay import Recorded, impossible


@dataclass(frozen=True)
class RecordedStep:
    """The documents of one replica-step.

    Parameters
    ----------
    name : str
        Beginning of the names of its files.
    instance : PipelineInstance
        With the recorded durations.
    result : Result
        With the recorded schedule.
    shift : int
        Most nanoseconds by which an op was moved so that the schedule keeps the rules.
    moved : str
        The op that was moved most; empty where none was.
    """

    name: str
    instance: PipelineInstance
    result: Result
    shift: int
    moved: str


def recorded_step(part: Trace, tolerance: int | None = None) -> RecordedStep:
    """Return instance and recorded schedule of one replica-step.

    Parameters
    ----------
    part : Trace
        One replica-step, checked.
    tolerance : int, optional
        Most nanoseconds by which an op may be moved; by default as `tolerance_of` allows.

    Returns
    -------
    RecordedStep
        Its schedule starts at 0 and passes the checker.

    Raises
    ------
    InputError
        An op would have to be moved by more than the tolerance.
    """
    allowed = tolerance_of(part) if tolerance is None else tolerance
    part = aligned(part.where(part.is_compute))
    recorded = Recorded.of(part)
    starts = part.start - part.start.min()
    if recorded.tick > 1 and np.any(starts % recorded.tick):
        # All durations are multiples of a tick that moments are not multiples of.
        recorded = Recorded.of(part, "ns")
    begun = np.rint(starts[recorded.row] / recorded.tick).astype(np.int64)
    schedule = _earliest_from(recorded, begun)
    moved = ((schedule.start - begun) * recorded.tick).astype(np.int64)
    most = int(np.argmax(moved))
    shift, row = int(moved[most]), int(recorded.row[most])
    if shift > allowed:
        amount, limit = part.times((shift, allowed))
        raise part.error(
            row,
            f"starts {amount} {part.unit} before what it needs has ended; expected clocks that "
            f"are off by at most {limit}",
        )
    result = _result(recorded.instance, schedule)
    event = part.event(row).split(": ")[1] if shift else ""
    return RecordedStep(part_name(part), recorded.instance, result, shift, event)


def _earliest_from(recorded: Recorded, begun: IntArray) -> Schedule:
    """Return the schedule with the least starts that are not before `begun` and keep the rules."""
    problem = replace(recorded.problem, release=begun)
    try:
        return Schedule(recorded.problem, time_orders(problem, recorded.orders).start)
    except DeadlockError as error:
        raise impossible(recorded.part, error) from None


def _result(instance: PipelineInstance, schedule: Schedule) -> Result:
    violations = check_schedule(schedule.problem, schedule)
    assert not violations, violations[0]
    problem = schedule.problem
    return Result(
        instance=instance.name,
        kind=instance.kind,
        status=Status.FEASIBLE,
        objective=problem.objective,
        time_unit=instance.time_unit,
        value_unit=instance.time_unit,
        best_by="recorded",
        stop_reason=StopReason.RECORDED,
        wall_seconds=0.0,
        versions=versions(),
        instance_document=instance_data(instance),
        schedule=ScheduleDocument.of(schedule),
        **figures(schedule),
    )

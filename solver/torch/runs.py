"""Ops measured where they count, in recorded steps: an instance of them, and orders timed by it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import mean, median

from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.documents.errors import InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.trace.table import NANOSECONDS, Trace
from ppsolve.solver.formats.program import read_program
from ppsolve.solver.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.pipeline.programs.rules import simulated_entry
from ppsolve.solver.traces.clocks import recorded_span
from ppsolve.solver.traces.fits import fit
from ppsolve.solver.traces.replay import Recorded, median_instance, pipeline_of


@dataclass(frozen=True)
class Compared:
    """A predicted time and the median of recorded ones, microseconds.

    The name is ``step``, ``replay``, or kind and stage of ops, as ``F2``.
    """

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Measured over predicted, less 1; 0 for ops that were predicted to take no time."""
        return self.measured / self.predicted - 1 if self.predicted else 0.0


def measured_again(instance: PipelineInstance, trace: Trace) -> PipelineInstance:
    """Return an instance with the times that its ops had in recorded steps.

    In a step an op takes longer than by itself: its data are cold, memory is taken and given back,
    transfers go on at once and a profiler counts. Raises `InputError` where the steps are those of
    another pipeline, or in another unit.

    Parameters
    ----------
    instance : PipelineInstance
        The pipeline, as `profile_stages` returns it.
    trace : Trace
        Recorded steps of it, as `read_trace` reads them.

    Returns
    -------
    PipelineInstance
        Times are medians of the steps, each with the time for which its device is held after the
        op; the latency is that of the recorded transfers. All else is as given.
    """
    found = median_instance(trace, fit(trace), instance.name)
    for field, wanted, got in (
        ("time_unit", instance.time_unit, found.time_unit),
        ("placement", list(instance.stage_to_device), list(found.stage_to_device)),
        ("num_microbatches", instance.num_microbatches, found.num_microbatches),
        ("times", [*instance.times.by_kind()], [*found.times.by_kind()]),
    ):
        if wanted != got:
            text = f"expected {wanted}, as in the instance, the run has {got}"
            raise InputError(text, field=field)
    return instance.model_copy(update={"times": found.times, "p2p": found.p2p})


def timed_again(result: Result | HeuristicEntry, instance: PipelineInstance) -> HeuristicEntry:
    """Return the schedule that the orders of a result give with the times of another instance.

    Raises `InputError` where there is no schedule that one rank per stage can run.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule.
    instance : PipelineInstance
        The same pipeline with other times.

    Returns
    -------
    HeuristicEntry
        Every op as early as its order allows; infeasible where that breaks a rule such as memory.
    """
    program = read_program(result.model_dump(mode="json"))
    return simulated_entry(program.rows, instance, "timed-again")[0]


def compare_in_turn(result: Result | HeuristicEntry, run: Trace, beside: Trace) -> list[Compared]:
    """Compare steps of a schedule with what the steps of another one, run in turn, predict.

    The speed of a machine changes within seconds. So each step is held against the two steps of
    the other schedule that were run just before and just after it.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule.
    run : Trace
        Recorded steps of that schedule.
    beside : Trace
        Recorded steps of the other one: the step before each of `run`, as `record_steps` makes
        them of two schedules.

    Returns
    -------
    list of Compared
        A row per step of `run`, that of the least error first, so that the median step is in the
        middle: the mean of both predictions (the one before, for the last step), microseconds.
    """
    steps = [number for number, _, _ in beside.parts()]
    predicted = dict(zip(steps, predictions_of(result, beside), strict=True))
    rows = []
    for number, _, part in run.parts():
        around = [predicted[near] for near in (number - 1, number + 1) if near in predicted]
        rows.append(Compared("step, by others", mean(around), recorded_span(part) / 1000))
    return sorted(rows, key=lambda row: row.error)


def predictions_of(result: Result | HeuristicEntry, trace: Trace) -> list[float]:
    """Return the makespans of a schedule with the durations of recorded steps of another.

    Where ops jitter, a step is longer than their medians say: the latest of several ops decides
    when another begins. So the orders of the result are timed with the durations of each step.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule.
    trace : Trace
        Recorded steps of the same pipeline, in any order of ops.

    Returns
    -------
    list of float
        A makespan per step, microseconds; transfers take the latency fitted to the whole trace.
    """
    p2p = median_instance(trace, fit(trace)).p2p
    found = []
    for _, _, part in trace.parts():
        step = pipeline_of(part, "us")
        timed = timed_again(result, step.model_copy(update={"p2p": p2p}))
        assert timed.makespan is not None, timed.reason
        found.append(float(timed.makespan))
    return found


def compare_run(result: Result | HeuristicEntry, trace: Trace) -> list[Compared]:
    """Compare the schedule of a result with recorded steps in which it was run.

    Raises `InputError` where there is no schedule, its unit is none of ns, us, ms and s, or the run
    has other ops.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule.
    trace : Trace
        Recorded steps of one replica, as `read_trace` reads them.

    Returns
    -------
    list of Compared
        The step, from its first start to its last end; the replay: the recorded order with the
        recorded durations of each step, transfers free; then ops by kind and stage: medians over
        micro-batches and steps, with the time for which a device is held after such an op.
    """
    if result.schedule is None:
        raise InputError("expected a result with a schedule, it has none", field="schedule")
    time_unit = result.schedule.time_unit
    if time_unit not in NANOSECONDS:
        known = ", ".join(NANOSECONDS)
        raise InputError(f'expected one of {known}, got "{time_unit}"', field="schedule.time_unit")
    unit = NANOSECONDS[time_unit] / 1000
    ops = [op for op in result.schedule.ops if op.kind in COMPUTE_KINDS]
    told: dict[tuple[str, int], list[float]] = defaultdict(list)
    for op in ops:
        told[str(op.kind), int(op.stage or 0)].append(float(op.end) - float(op.start))
    found = {(one.kind, one.stage): one.median + one.held for one in fit(trace).stage_times}
    if told.keys() != found.keys():
        missing = ", ".join(f"{kind}{stage}" for kind, stage in sorted(told.keys() ^ found.keys()))
        raise InputError(f"expected the ops of the schedule, {missing} are in one only")
    steps = [part for _, _, part in trace.parts()]
    taken = median(map(recorded_span, steps)) / 1000
    step = float(max(op.end for op in ops)) - float(min(op.start for op in ops))
    return [
        Compared("step", step * unit, taken),
        Compared("replay", median(Recorded.of(part).replayed for part in steps) / 1000, taken),
        *(
            Compared(f"{kind}{stage}", median(told[kind, stage]) * unit, time / 1000)
            for (kind, stage), time in sorted(found.items())
        ),
    ]

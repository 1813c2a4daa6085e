"""What a schedule predicted beside what its run was recorded to take, per op and in all."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from ppsolve.models.core.result import HeuristicEntry, Result, ScheduledOp
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.trace.table import NANOSECONDS, Trace
from ppsolve.solver.pipeline.grammar import COMPUTE_KINDS
from ppsolve.solver.traces.clocks import recorded_span
from ppsolve.solver.traces.fits import fit
from ppsolve.solver.traces.replay import Recorded, impossible


@dataclass(frozen=True)
class Compared:
    """A predicted time beside the median of recorded ones.

    Parameters
    ----------
    name : str
        ``step``, ``replay``, or kind and stage of ops, as ``F2``.
    predicted, measured : float
        Microseconds.
    """

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Measured over predicted, less 1; 0 for ops that were predicted to take no time."""
        return self.measured / self.predicted - 1 if self.predicted else 0.0


def compare_run(result: Result | HeuristicEntry, trace: Trace) -> list[Compared]:
    """Compare the schedule of a result with recorded steps in which it was run.

    Parameters
    ----------
    result : Result or HeuristicEntry
        A pipeline's result with a schedule.
    trace : Trace
        Recorded steps of one replica, as `read_trace` reads them.

    Returns
    -------
    list of Compared
        The step, from its first start to its last end, median over steps; the replay: the recorded
        order with the recorded durations of each step, transfers free, beside the steps; then ops
        by kind and stage: medians over micro-batches and steps, with the time for which a device is
        held after such an op (`StageTime`).

    Raises
    ------
    InputError
        There is no schedule, its unit is none of ns, us, ms and s, or the run has other ops.
    """
    if result.schedule is None:
        raise InputError("expected a result with a schedule, it has none", field="schedule")
    time_unit = result.schedule.time_unit
    if time_unit not in NANOSECONDS:
        known = ", ".join(NANOSECONDS)
        raise InputError(f'expected one of {known}, got "{time_unit}"', field="schedule.time_unit")
    unit = NANOSECONDS[time_unit] / 1000
    ops = [op for op in result.schedule.ops if op.kind in COMPUTE_KINDS]
    told, found = _told(ops), _recorded(trace)
    if told.keys() != found.keys():
        missing = ", ".join(f"{kind}{stage}" for kind, stage in sorted(told.keys() ^ found.keys()))
        raise InputError(f"expected the ops of the schedule, {missing} are in one only")
    steps = [part for _, _, part in trace.parts()]
    taken = median(map(recorded_span, steps)) / 1000
    step = float(max(op.end for op in ops)) - float(min(op.start for op in ops))
    return [
        Compared("step", step * unit, taken),
        Compared("replay", median(map(_replayed, steps)) / 1000, taken),
        *(
            Compared(f"{kind}{stage}", median(told[kind, stage]) * unit, time / 1000)
            for (kind, stage), time in sorted(found.items())
        ),
    ]


def _replayed(part: Trace) -> int:
    """Return the nanoseconds of a replica-step whose ops start as early as their order allows."""
    try:
        return Recorded.of(part).replayed
    except DeadlockError as error:
        raise impossible(part, error) from None


def _told(ops: list[ScheduledOp]) -> dict[tuple[str, int], list[float]]:
    """Return the predicted times by kind and stage."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for op in ops:
        times[str(op.kind), int(op.stage or 0)].append(float(op.end) - float(op.start))
    return times


def _recorded(trace: Trace) -> dict[tuple[str, int], float]:
    """Return the median times by kind and stage, with what is held after them, nanoseconds."""
    return {(one.kind, one.stage): one.median + one.held for one in fit(trace).stage_times}

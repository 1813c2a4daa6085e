"""Recorded orders run again: durations as recorded, everything as early as possible."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.lowering import lower_pipeline
from ppsolve.models.trace.table import KINDS, NANOSECONDS, Trace
from ppsolve.solver.structure.timing import time_orders
from ppsolve.solver.traces.clocks import B, F, I, W, recorded_span
from ppsolve.solver.traces.instances import pipeline_of


@dataclass(frozen=True, eq=False)
class Recorded:
    """One replica-step as an instance, its problem, and where each of its ops is recorded.

    Parameters
    ----------
    part : Trace
        The compute ops of the replica-step.
    instance : PipelineInstance
        Its instance, in `unit`.
    problem : Problem
        The instance lowered, n ops.
    row : int64[n]
        Row of `part` that each op is.
    """

    part: Trace
    instance: PipelineInstance
    problem: Problem
    row: IntArray

    @classmethod
    def of(cls, part: Trace, unit: str | None = None) -> Recorded:
        """Make the instance and the problem of a replica-step.

        Parameters
        ----------
        part : Trace
            One replica-step, checked.
        unit : str, optional
            Time unit of the instance; by default that of the trace.

        Returns
        -------
        Recorded
            Of the compute ops.
        """
        compute = part.where(part.is_compute)
        instance = pipeline_of(compute, unit)
        problem = lower_pipeline(instance)
        row = np.full(problem.num_ops, FREE, dtype=np.int64)
        rows = np.arange(len(compute))
        for kind, name in enumerate(KINDS):
            if name in problem.kinds:
                mine = rows[compute.kind == kind]
                ops = problem.grid(name)[compute.stage[mine], compute.microbatch[mine]]
                row[ops] = mine
        return cls(compute, instance, problem, row)

    @property
    def tick(self) -> float:
        """Length of a tick of the problem in nanoseconds."""
        return float(self.problem.scale.tick * NANOSECONDS[self.instance.time_unit])

    @cached_property
    def orders(self) -> list[IntArray]:
        """Recorded order of the ops of each device; ties by stage and micro-batch."""
        part, row = self.part, self.row
        by_time = np.lexsort(
            (part.microbatch[row], part.stage[row], part.end[row], part.start[row])
        )
        device = part.device[row][by_time]
        return [by_time[device == one] for one in range(self.instance.num_devices)]

    @cached_property
    def span(self) -> int:
        """Recorded nanoseconds, see `recorded_span`."""
        return recorded_span(self.part)

    @cached_property
    def replay(self) -> Schedule:
        """The recorded order with the recorded durations, everything as early as possible.

        Raises
        ------
        DeadlockError
            Orders that wait for each other, which clocks that are off can make.
        """
        return time_orders(self.problem, self.orders)

    @property
    def replayed(self) -> int:
        """Nanoseconds that `replay` takes."""
        return round(self.replay.makespan * self.tick)

    @property
    def order(self) -> list[str]:
        """Recorded order of every stage as text, ``F0 F1 B0 F2 B1 B2``."""
        part = self.part
        texts = []
        for stage in range(self.instance.num_stages):
            rows = np.flatnonzero(part.stage == stage)
            rows = rows[np.lexsort((part.end[rows], part.start[rows]))]
            texts.append(" ".join(f"{KINDS[part.kind[r]]}{part.microbatch[r]}" for r in rows))
        return texts


def impossible(part: Trace, error: DeadlockError) -> InputError:
    """Return the error that an order makes in which ops wait for each other.

    Parameters
    ----------
    part : Trace
        The replica-step.
    error : DeadlockError
        Names the ops.

    Returns
    -------
    InputError
        Names file, step and replica.
    """
    return InputError(
        f"the recorded order is impossible ({error}); are clocks off, or two runs mixed?",
        source=part.sources[int(part.origin[0])],
        field=f"step {part.step[0]}, replica {part.replica[0]}",
    )


def least_span(part: Trace) -> int:
    """Return nanoseconds that no order of the ops of a replica-step can beat, transfers free.

    The largest, over devices, of the least time before its first op, all its work, and the least
    time after its last op: forwards of earlier stages, then backwards of earlier stages.
    """
    compute = part.where(part.is_compute)
    shape = (len(KINDS), int(compute.stage.max()) + 1, int(compute.microbatch.max()) + 1)
    length = np.zeros(shape, dtype=np.int64)
    length[compute.kind, compute.stage, compute.microbatch] = compute.duration
    back = length[I] if np.any(compute.kind == I) else length[B]
    head = (np.cumsum(length[F], axis=0) - length[F]).min(axis=1)
    # A W may be the last op of its device, and nothing waits for it.
    after = np.cumsum(back, axis=0) - back
    tail = np.where(np.any(compute.kind == W), 0, after.min(axis=1))
    best = 0
    for device in range(int(compute.device.max()) + 1):
        mine = compute.device == device
        stages = np.unique(compute.stage[mine])
        load = int(compute.duration[mine].sum())
        best = max(best, int(head[stages].min()) + load + int(tail[stages].min()))
    return best

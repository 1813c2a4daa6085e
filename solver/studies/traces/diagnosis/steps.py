"""Recorded steps as pipelines with replicas, and the best orders of their micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.joint import lower_replicas
from ppsolve.models.studies.trace.table import Trace
from ppsolve.solver.bounds.flow.flow import Flow, flow_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.kinds.pipeline.replicas.step import StepAnswer, StepScheduler
from ppsolve.solver.studies.traces.fits import F, op_table
from ppsolve.solver.studies.traces.replay import FIELDS, Recorded, least_time

Times = dict[str, IntArray]
"""Nanoseconds by field of the times of an instance, each int64[stages, micro-batches of all]."""


@dataclass(frozen=True)
class DiagnosisParams:
    """How the time of a diagnosis is shared."""

    work_share: float = (
        0.95  # of the time limit, for computing; the rest is for printing
    )
    steps_share: float = (
        0.75  # of what is left after preparing; the rest is for changes
    )
    least_steps_share: float = 0.5  # where changes need more than the rest
    changes: int = 3  # that are searched
    patience: float = 0.2  # seconds without an answer better by 0.1 % that end a search
    preparing: float = (
        1.5  # seconds that must be left for a change, else it is not computed
    )
    per_step: float = 0.5  # most seconds for the search of one step of a change


DIAGNOSIS = DiagnosisParams()


@dataclass(frozen=True, eq=False)
class DiagnosedStep:
    """The replicas of one recorded step, each recorded in nanoseconds."""

    number: int
    replicas: tuple[int, ...]
    parts: tuple[Recorded, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Micro-batches of each replica."""
        return tuple(recorded.instance.num_microbatches for recorded in self.parts)

    @cached_property
    def times(self) -> Times:
        """Recorded durations, replica by replica."""
        tables = [
            (recorded.part.duration, op_table(recorded.part)) for recorded in self.parts
        ]
        return {
            name: np.concatenate(
                [duration[table[kind]] for duration, table in tables], axis=1
            )
            for kind, name in FIELDS.items()
            if tables[0][1][kind, 0, 0] != FREE
        }

    @cached_property
    def key(self) -> Hashable:
        """What two steps have in common that are alike in shape, order and times."""
        rows = (
            (recorded.span, recorded.replayed, *(o.tobytes() for o in recorded.orders))
            for recorded in self.parts
        )
        times = (table.tobytes() for table in self.times.values())
        return self.replicas, self.counts, *rows, *times

    @cached_property
    def replays(self) -> tuple[int, ...]:
        """Nanoseconds of the replay of each replica."""
        return tuple(recorded.replayed for recorded in self.parts)


def steps_of(trace: Trace) -> list[DiagnosedStep]:
    """Return the steps of a checked trace, with their orders replayed.

    Raises `InputError` where a recorded order is impossible; names file, step and replica.
    """
    by_step: dict[int, list[tuple[int, Recorded]]] = {}
    for number, replica, replica_step in trace.parts():
        recorded = Recorded.of(replica_step, "ns")
        assert recorded.replay.makespan >= 0
        by_step.setdefault(number, []).append((replica, recorded))
    return [
        DiagnosedStep(number, *zip(*pairs, strict=True))
        for number, pairs in by_step.items()
    ]


def held_by(steps: Sequence[DiagnosedStep]) -> list[int]:
    """Return the most activations that each device held in any step: forwards without backward."""
    recordings = [recorded for step in steps for recorded in step.parts]
    peaks = [0] * max(recorded.instance.num_devices for recorded in recordings)
    for recorded in recordings:
        kind = recorded.part.kind[recorded.row]
        # The activation is given back by the W where backwards are split.
        last = int(kind.max())
        for device, order in enumerate(recorded.orders):
            change = (kind[order] == F).astype(np.int64) - (kind[order] == last)
            peaks[device] = max(peaks[device], int(np.cumsum(change).max(initial=0)))
    return peaks


def replayed(recorded: Recorded, duration: IntArray, lags: IntArray | int = 0) -> int:
    """Return the nanoseconds that the recorded order takes with other durations.

    `recorded`: a replica-step in nanoseconds, n ops.
    `duration`: int64[n], nanoseconds of each op.
    `lags`: int64[edges] or int, nanoseconds between ops that follow one another.
    """
    changed = replace(
        recorded.problem, duration=duration, lag=recorded.problem.lag + lags
    )
    return recorded.timed(changed).makespan


@dataclass(frozen=True)
class Variant:
    """The run as it is, or with a change."""

    # the change, and what is assumed of it
    name: str
    assumes: str
    times: Callable[[Times], Times]  # makes its times of the recorded ones
    capacity: tuple[int, ...]  # activations that each device has room for
    # Fields of the instance that say which device runs which stage.
    placement: dict[str, Any]
    has_recorded: bool = (
        True  # any schedule of the run as it is serves with the change too
    )
    is_searched: bool = (
        True  # what it takes is not known from the recorded order and its verdict
    )

    def devices(self, stages: int) -> IntArray:
        """Return the device of each stage, int64[stages]."""
        placement = self.placement.get("placement")
        if isinstance(placement, dict):
            return np.array(placement["stage_to_device"], dtype=np.int64)
        return np.arange(stages) % len(self.capacity)

    def least(self, step: DiagnosedStep) -> int:
        """Return nanoseconds that no order of a step can beat, however much memory there is."""
        times = self.times(step.times)
        (shape,) = {table.shape for table in times.values()}
        absent = np.zeros(shape, dtype=np.int64)
        length = np.stack([times.get(name, absent) for name in FIELDS.values()])
        cuts = np.cumsum(step.counts)[:-1]
        owners = self.devices(shape[0])
        return max(
            least_time(block, owners) for block in np.split(length, cuts, axis=2)
        )

    def pipeline(self, step: DiagnosedStep, *, is_free: bool) -> PipelineInstance:
        """Return all replicas of a step as one pipeline in nanoseconds.

        Its micro-batches are numbered replica by replica.

        `is_free`: micro-batches may be exchanged between replicas.
        """
        counts = step.counts
        stops = np.cumsum(counts).tolist()
        replicas: dict[str, Any] = {
            "count": len(counts),
            "assignment": "free" if is_free else "fixed",
            "counts": "equal" if len(set(counts)) == 1 else "any",
        }
        if not is_free:
            pairs = zip(counts, stops, strict=True)
            replicas["members"] = [
                list(range(end - count, end)) for count, end in pairs
            ]
        data = {
            "name": f"step{step.number}",
            "time_unit": "ns",
            "num_devices": len(self.capacity),
            "num_microbatches": stops[-1],
            "times": {
                name: table.tolist() for name, table in self.times(step.times).items()
            },
            "memory": {"capacity": list(self.capacity), "activation": 1},
            "replicas": replicas,
            **self.placement,
        }
        return PipelineInstance.parse(data, str(data["name"]))

    def flows(self, step: DiagnosedStep, *, is_free: bool) -> list[Flow]:
        """Return the flow of each replica, or that of all micro-batches on one.

        `is_free`: micro-batches may be exchanged between replicas: all are in one flow.
        """
        pipeline = self.pipeline(step, is_free=is_free)
        assert pipeline.replicas is not None
        count = pipeline.num_microbatches
        blocks = (tuple(range(count)),) if is_free else pipeline.replicas.blocks(count)
        flows = [flow_of(problem) for problem in lower_replicas(pipeline, blocks)]
        complete = [flow for flow in flows if flow is not None]
        assert len(complete) == len(flows), "one pipe without transfers is a flow"
        return complete


class Searches:
    """Searches over steps; what does not change between steps is worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, tuple[int, ...]], StepScheduler] = {}
        self._preparing: list[float] = []

    @property
    def seconds_of_change(self) -> float:
        """Wall seconds without which a change is not begun, and those of its first step."""
        # The quickest preparation so far: the first ones may compile. A busy machine takes longer.
        preparing = 2 * min(self._preparing, default=0.0)
        return max(DIAGNOSIS.preparing, preparing) + DIAGNOSIS.per_step

    def answer(
        self,
        variant: Variant,
        step: DiagnosedStep,
        *,
        is_free: bool,
        seconds: float,
        seed: int = 1,
    ) -> StepAnswer | None:
        """Return the best schedule found for a step, checked, with its bound, in nanoseconds.

        None where no order was found that fits the memory.

        `variant`: the run as it is, or with a change.
        `is_free`: micro-batches may be exchanged between replicas.
        `seconds`: wall seconds; preparing the first step of a kind takes more.
        `seed`: seed of the random numbers, from 1.
        """
        patience = DIAGNOSIS.patience
        try:
            scheduler = self._scheduler(variant, step, is_free=is_free)
            times = variant.times(step.times)
            return scheduler.schedule(
                times=times, deadline=seconds, patience=patience, seed=seed
            )
        except InputError as error:
            if error.field != "memory.capacity":
                raise
            return None

    def prepare(self, variant: Variant, step: DiagnosedStep, *, is_free: bool) -> None:
        """Work out what does not change between steps of as many micro-batches."""
        with suppress(InputError):
            self._scheduler(variant, step, is_free=is_free)

    def _scheduler(
        self, variant: Variant, step: DiagnosedStep, *, is_free: bool
    ) -> StepScheduler:
        key = variant.name, is_free, step.counts
        if key not in self._known:
            clock = Clock()
            pipeline = variant.pipeline(step, is_free=is_free)
            self._known[key] = StepScheduler(pipeline, digits=0)
            self._preparing.append(clock.elapsed)
        return self._known[key]

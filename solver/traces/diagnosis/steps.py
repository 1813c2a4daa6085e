"""Recorded steps as pipelines with replicas, and the best orders of their micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.documents.errors import DeadlockError, InputError
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.models.pipeline.joint import lower_replicas
from ppsolve.models.trace.table import Trace
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.bounds import flow_bounds
from ppsolve.solver.flow.exchange_bounds import exchange_bound
from ppsolve.solver.flow.flow import Flow, flow_of
from ppsolve.solver.flow.holds import memory_time
from ppsolve.solver.flow.paths import Paths
from ppsolve.solver.pipeline.replicas.step import StepAnswer, StepScheduler
from ppsolve.solver.traces.clocks import F, op_table
from ppsolve.solver.traces.instances import FIELDS
from ppsolve.solver.traces.replay import Recorded, impossible

Times = dict[str, IntArray]
"""Nanoseconds by field of the times of an instance, each int64[stages, micro-batches of all]."""


@dataclass(frozen=True, eq=False)
class DiagnosedStep:
    """The replicas of one recorded step.

    Parameters
    ----------
    number : int
        Number of the step.
    replicas : tuple of int
        Numbers of its replicas.
    parts : tuple of Recorded
        Each replica, in nanoseconds.
    """

    number: int
    replicas: tuple[int, ...]
    parts: tuple[Recorded, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Micro-batches of each replica."""
        return tuple(one.instance.num_microbatches for one in self.parts)

    @cached_property
    def times(self) -> Times:
        """Recorded durations, replica by replica."""
        tables = [(one.part.duration, op_table(one.part)) for one in self.parts]
        return {
            name: np.concatenate([duration[table[kind]] for duration, table in tables], axis=1)
            for kind, name in FIELDS.items()
            if tables[0][1][kind, 0, 0] != FREE
        }

    @cached_property
    def replays(self) -> tuple[int, ...]:
        """Nanoseconds of the replay of each replica."""
        return tuple(one.replayed for one in self.parts)


def steps_of(trace: Trace) -> list[DiagnosedStep]:
    """Return the steps of a checked trace, with their orders replayed.

    Raises
    ------
    InputError
        A recorded order is impossible; names file, step and replica.
    """
    found: dict[int, list[tuple[int, Recorded]]] = {}
    for number, replica, part in trace.parts():
        recorded = Recorded.of(part, "ns")
        try:
            assert recorded.replay.makespan >= 0
        except DeadlockError as error:
            raise impossible(recorded.part, error) from None
        found.setdefault(number, []).append((replica, recorded))
    return [
        DiagnosedStep(
            number, tuple(replica for replica, _ in pairs), tuple(one for _, one in pairs)
        )
        for number, pairs in found.items()
    ]


def held_by(steps: Sequence[DiagnosedStep]) -> list[int]:
    """Return the most activations that each device held in any step: forwards without backward."""
    most = np.zeros(max(one.instance.num_devices for step in steps for one in step.parts), np.int64)
    for step in steps:
        for one in step.parts:
            kind = one.part.kind[one.row]
            last = int(kind.max())  # a W where backwards are split, it gives back the activation
            for device, order in enumerate(one.orders):
                change = (kind[order] == F).astype(np.int64) - (kind[order] == last)
                most[device] = max(most[device], int(np.cumsum(change).max(initial=0)))
    return [int(count) for count in most]


@dataclass(frozen=True)
class Variant:
    """The run as it is, or with a change.

    Parameters
    ----------
    name, assumes : str
        The change, and what is assumed of it.
    times : callable
        Makes its times of the recorded ones.
    capacity : tuple of int
        Activations that each device has room for.
    placement : dict of str to object
        Fields of the instance that say which device runs which stage.
    has_recorded : bool
        Any schedule of the run as it is serves with the change too.
    """

    name: str
    assumes: str
    times: Callable[[Times], Times]
    capacity: tuple[int, ...]
    placement: dict[str, Any]
    has_recorded: bool = True

    def pipeline(self, step: DiagnosedStep, *, is_free: bool) -> PipelineInstance:
        """Return all replicas of a step as one pipeline.

        Parameters
        ----------
        step : DiagnosedStep
            The step.
        is_free : bool
            Micro-batches may be exchanged between replicas.

        Returns
        -------
        PipelineInstance
            In nanoseconds; micro-batches are numbered replica by replica.
        """
        counts = step.counts
        ends = np.cumsum(counts).tolist()
        replicas: dict[str, Any] = {
            "count": len(counts),
            "assignment": "free" if is_free else "fixed",
            "counts": "equal" if len(set(counts)) == 1 else "any",
        }
        if not is_free:
            pairs = zip(counts, ends, strict=True)
            replicas["members"] = [list(range(end - count, end)) for count, end in pairs]
        data = {
            "name": f"step{step.number}",
            "time_unit": "ns",
            "num_devices": len(self.capacity),
            "num_microbatches": ends[-1],
            "times": {name: table.tolist() for name, table in self.times(step.times).items()},
            "memory": {"capacity": list(self.capacity), "activation": 1},
            "replicas": replicas,
            **self.placement,
        }
        return PipelineInstance.parse(data, str(data["name"]))


class Searches:
    """Searches over steps; what does not change between steps is worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, tuple[int, ...]], StepScheduler] = {}
        self._preparing: list[float] = []

    @property
    def preparing_seconds(self) -> float:
        """Wall seconds of the quickest preparation so far: the first ones may compile."""
        return min(self._preparing, default=0.0)

    def answer(
        self,
        variant: Variant,
        step: DiagnosedStep,
        *,
        is_free: bool,
        seconds: float,
        patience: float,
        seed: int = 1,
    ) -> StepAnswer | None:
        """Return the best schedule found for a step, checked, with its bound.

        Parameters
        ----------
        variant : Variant
            The run as it is, or with a change.
        step : DiagnosedStep
            The step.
        is_free : bool
            Micro-batches may be exchanged between replicas.
        seconds : float
            Wall seconds; preparing the first step of a kind takes more.
        patience : float
            Seconds without an answer that is better by 0.1 % after which to stop.
        seed : int
            Seed of the random numbers, from 1.

        Returns
        -------
        StepAnswer or None
            In nanoseconds; None where no order was found that fits the memory.
        """
        try:
            scheduler = self._scheduler(variant, step, is_free=is_free)
            times = variant.times(step.times)
            return scheduler.schedule(times=times, deadline=seconds, patience=patience, seed=seed)
        except InputError as error:
            if error.field != "memory.capacity":
                raise
            return None

    def prepare(self, variant: Variant, step: DiagnosedStep, *, is_free: bool) -> None:
        """Work out what does not change between steps.

        Parameters
        ----------
        variant : Variant
            The run as it is, or with a change.
        step : DiagnosedStep
            A step with as many micro-batches in each replica as later ones.
        is_free : bool
            Micro-batches may be exchanged between replicas.
        """
        with suppress(InputError):  # told by `answer`
            self._scheduler(variant, step, is_free=is_free)

    def _scheduler(self, variant: Variant, step: DiagnosedStep, *, is_free: bool) -> StepScheduler:
        key = variant.name, is_free, step.counts
        if key not in self._known:
            clock = Clock()
            pipeline = variant.pipeline(step, is_free=is_free)
            self._known[key] = StepScheduler(pipeline, digits=0)
            self._preparing.append(clock.elapsed)
        return self._known[key]


def replica_bounds(variant: Variant, step: DiagnosedStep, clock: Clock) -> list[int]:
    """Return the least that each replica of a step can take with its micro-batches.

    Parameters
    ----------
    variant : Variant
        The run as it is, or with a change.
    step : DiagnosedStep
        The step.
    clock : Clock
        What it leaves no time for makes bounds weaker only.

    Returns
    -------
    list of int
        Nanoseconds.
    """
    pipeline = variant.pipeline(step, is_free=False)
    assert pipeline.replicas is not None
    problems = lower_replicas(pipeline, pipeline.replicas.blocks(pipeline.num_microbatches))
    return [flow_bounds(_flow(problem), clock)[0].value for problem in problems]


def memory_bound(variant: Variant, step: DiagnosedStep) -> int:
    """Return the nanoseconds that activations of the only replica of a step are held at the least.

    Parameters
    ----------
    variant : Variant
        The run as it is; its memory counts.
    step : DiagnosedStep
        A step of one replica.

    Returns
    -------
    int
        A bound on its span, see `memory_time`.
    """
    pipeline = variant.pipeline(step, is_free=False)
    (problem,) = lower_replicas(pipeline, (tuple(range(pipeline.num_microbatches)),))
    return memory_time(Paths(_flow(problem)))


def exchanged_bound(variant: Variant, step: DiagnosedStep) -> int:
    """Return the least that a step can take where micro-batches are exchanged.

    Parameters
    ----------
    variant : Variant
        The run as it is, or with a change.
    step : DiagnosedStep
        The step.

    Returns
    -------
    int
        Nanoseconds.
    """
    pipeline = variant.pipeline(step, is_free=True)
    (whole,) = lower_replicas(pipeline, (tuple(range(pipeline.num_microbatches)),))
    counts = step.counts
    return exchange_bound(_flow(whole), len(counts), equal=len(set(counts)) == 1)


def _flow(problem: Any) -> Flow:
    flow = flow_of(problem)
    assert flow is not None, "one pipe without transfers is a flow"
    return flow

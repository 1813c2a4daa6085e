"""Lowering of K-FAC work around a described pipeline: iterations of one refresh cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np

from ppsolve.models.core.builder import OpLabels
from ppsolve.models.core.keys import DeviceName
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance, KfacModule
from ppsolve.models.kinds.kfac.labels import KIND_OF, PRECONDITION_KIND
from ppsolve.models.kinds.pipeline.instance import MAX_OPS, PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.steps import JobBlock, PipelineSteps, Place

FACTORS = ("A", "B")

_TIME_FIELDS = {"cov": "curvature", "sync": "sync", "inv": "inverse"}
_SAVED_FIELDS = {"A": "input_bytes", "B": "error_bytes"}


def holders_of(pipeline: PipelineInstance) -> list[list[int]]:
    """Return the devices that hold each stage, ascending."""
    pipes = pipeline.stage_devices_of_pipes()
    return [sorted(set(devices)) for devices in zip(*pipes, strict=True)]


def modules_by_stage(instance: KfacInstance) -> dict[int, list[KfacModule]]:
    """Return the modules of each stage in the order of the instance; a stage may have none."""
    modules: dict[int, list[KfacModule]] = defaultdict(list)
    for module in instance.modules or ():
        modules[module.stage].append(module)
    return modules


def sync_devices(module: KfacModule, holders: Iterable[int]) -> tuple[int, ...]:
    """Return the devices that meet in a module's syncs: its replicas and its stage's holders."""
    return tuple(sorted({*holders, *(module.replicas or ())}))


def work_time(module: KfacModule, kind: str, factor: str) -> Fraction:
    """Return the time of a module's curvature (per micro-batch), sync or inversion.

    The kind is ``cov``, ``sync`` or ``inv``; times are in the instance's unit.
    """
    return Fraction(getattr(module, f"{_TIME_FIELDS[kind]}_{factor.lower()}"))


def saved_bytes(module: KfacModule, factor: str) -> Fraction:
    """Return the memory that a module holds per micro-batch until its curvature is done.

    Factor ``A`` saves inputs, ``B`` errors; amounts are in the instance's unit of memory.
    """
    return Fraction(getattr(module, _SAVED_FIELDS[factor]))


def lower_iteration(instance: KfacInstance, *, exact: bool = False) -> Problem:
    """Lower one iteration of the pipeline alone, in ticks, at the scale of the whole instance.

    Times without a common tick within the limit are rounded up, or refused with an `InputError` if
    `exact` is true.
    """
    assert instance.pipeline is not None
    return lower_pipeline(instance.pipeline, exact=exact, extra_times=_times(instance))


def _times(instance: KfacInstance) -> Iterator[Fraction]:
    for module in instance.modules or ():
        yield Fraction(module.precondition)
        for factor in FACTORS:
            for kind in _TIME_FIELDS:
                yield work_time(module, kind, factor)


def lower_cycle(instance: KfacInstance, *, exact: bool = False) -> Problem:
    """Return the problem of a `LoweredCycle`."""
    return LoweredCycle(instance, exact=exact).problem


class LoweredCycle:
    """`cycle_length` iterations of the pipeline and the K-FAC work of one refresh, lowered.

    Curvature comes from the micro-batches of iteration 0 only. A stage begins an iteration on a
    device once it has finished the one before there: its weight gradients, all-reduce,
    preconditions and optimizer. The makespan is minimised. n ops of one iteration, N iterations.

    Times without a common tick within the limit are rounded up, or refused with an `InputError` if
    `exact` is true; so are too many ops.
    """

    def __init__(self, instance: KfacInstance, *, exact: bool = False) -> None:
        assert instance.pipeline is not None
        assert instance.modules is not None
        self.instance = instance
        self.modules = instance.modules
        self.modules_of = modules_by_stage(instance)
        self.holders = holders_of(instance.pipeline)
        self._refuse_too_many_ops(instance.pipeline)
        self.iteration = lower_iteration(instance, exact=exact)
        self.cycle = PipelineSteps(self.iteration, instance.cycle_length, instance.name)
        self.cycle.builder.objective = Objective.MAKESPAN
        # Op of the cycle for each op of the iteration, int64[N, n].
        self.op_of = self.cycle.op_of
        self.compute = self.iteration.span_resources
        syncing = [module for module in self.modules if module.sync_a or module.sync_b]
        devices = {
            device for module in syncing for device in self._sync_devices(module)
        }
        self.comm = {
            device: self.cycle.stream(DeviceName("comm", (device,)))
            for device in sorted(devices)
        }
        # Of each stage and device: int64[N, modules], and int64[N - 1] between two iterations.
        self.preconditions: dict[Place, IntArray] = {}
        self.steps: dict[Place, IntArray] = {}
        for place in self.cycle.places:
            self._end_iterations(place)
        curvature = {
            factor: self._add_curvature(factor, instance.pipeline.device_grid)
            for factor in FACTORS
        }
        for number, module in enumerate(self.modules):
            for factor in FACTORS:
                self._add_refresh(module, factor, curvature[factor][number])
        self.problem = self.cycle.build()

    def _refuse_too_many_ops(self, pipeline: PipelineInstance) -> None:
        of_iteration = pipeline.num_stages * pipeline.num_microbatches * 3
        of_refresh = 2 * len(self.modules) * pipeline.num_microbatches
        repeated = of_iteration + 2 * (len(self.modules) + pipeline.num_stages)
        if self.instance.cycle_length * repeated + of_refresh > MAX_OPS:
            raise InputError(
                f"expected at most {MAX_OPS} ops in all iterations of the cycle",
                field="refresh_interval",
                code=ErrorCode.RANGE,
            )

    def _sync_devices(self, module: KfacModule) -> tuple[int, ...]:
        return sync_devices(module, self.holders[module.stage])

    def _ticks(self, *times: Fraction) -> IntArray:
        return np.array(
            [self.iteration.scale.ticks(time) for time in times], dtype=np.int64
        )

    def _at(self, stage: int, device: int) -> str:
        return f"@{device}" if len(self.holders[stage]) > 1 else ""

    def _end_iterations(self, place: Place) -> None:
        last = self.cycle.gradients(place)
        if self.modules_of[place[0]]:
            last = self.preconditions[place] = self._add_preconditions(*place)
        optimizer = self.cycle.optimizers(place)
        if optimizer.size:
            self.cycle.builder.add_precedences(last, optimizer)
            last = optimizer
        if self.cycle.count > 1:
            self.steps[place] = self.cycle.end_steps(place, last)

    def _add_preconditions(self, stage: int, device: int) -> IntArray:
        modules, count, suffix = (
            self.modules_of[stage],
            self.cycle.count,
            self._at(stage, device),
        )
        names = [
            f"{PRECONDITION_KIND}{stage}:{module.name}{suffix}@{k}"
            for k in range(count)
            for module in modules
        ]
        ticks = self._ticks(*(Fraction(module.precondition) for module in modules))
        block = JobBlock(
            PRECONDITION_KIND,
            np.broadcast_to(ticks[:, None], (count, len(modules), 1)),
            self.compute[[device]],
            names,
            after=self.cycle.gradients((stage, device))[:, None],
            labels=OpLabels(stage, device),
        )
        return self.cycle.add_jobs(block)[..., 0]

    def _add_curvature(self, factor: str, devices: IntArray) -> IntArray:
        # int64[modules, m]
        kind, microbatches = KIND_OF["cov", factor], range(devices.shape[1])
        stages = np.array([module.stage for module in self.modules], dtype=np.int64)
        ticks = self._ticks(
            *(work_time(module, "cov", factor) for module in self.modules)
        )
        backward = "I" if "I" in self.iteration.kinds else "B"
        data = self.iteration.grid("F" if factor == "A" else backward)[stages]
        data = self.op_of[0][data]
        block = JobBlock(
            kind,
            np.broadcast_to(ticks[:, None, None], (*data.shape, 1)),
            self.compute[devices[stages]][..., None],
            [
                f"{kind}{module.stage}.{m}:{module.name}"
                for module in self.modules
                for m in microbatches
            ],
            after=data[..., None],
            labels=OpLabels(stages[:, None], devices[stages], np.array(microbatches)),
        )
        ops = self.cycle.add_jobs(block)[..., 0]
        for microbatch in microbatches:
            self.cycle.attached[0, microbatch].append((factor, ops[:, microbatch]))
        for (number, microbatch), saving in np.ndenumerate(data):
            module = self.modules[number]
            if amount := saved_bytes(module, factor):
                hold = (int(saving), int(ops[number, microbatch]), amount)
                self.cycle.holds[int(devices[module.stage, microbatch])].append(hold)
        return ops

    def _add_refresh(
        self, module: KfacModule, factor: str, curvature: IntArray
    ) -> None:
        gate, kind, stage = curvature, KIND_OF["inv", factor], module.stage
        if work_time(module, "sync", factor) > 0:
            gate = self._add_sync(module, factor, curvature)
        holders, age = self.holders[stage], self.instance.max_age
        index = self.modules_of[stage].index(module)
        users = [
            [] if age is None else [self.preconditions[stage, device][age, index]]
            for device in holders
        ]
        block = JobBlock(
            kind,
            np.broadcast_to(
                self._ticks(work_time(module, "inv", factor)), (len(holders), 1)
            ),
            self.compute[holders][:, None],
            [
                f"{kind}{stage}:{module.name}{self._at(stage, device)}"
                for device in holders
            ],
            after=gate,
            before=users,
            labels=OpLabels(stage, np.array(holders)),
        )
        self.cycle.add_jobs(block)

    def _add_sync(
        self, module: KfacModule, factor: str, curvature: IntArray
    ) -> IntArray:
        devices, kind = self._sync_devices(module), KIND_OF["sync", factor]
        block = JobBlock(
            kind,
            self._ticks(work_time(module, "sync", factor)),
            np.array([self.comm[device] for device in devices]),
            [f"{kind}{module.stage}:{module.name}"],
            after=curvature,
            labels=OpLabels(module.stage, devices[0]),
        )
        return self.cycle.add_jobs(block)

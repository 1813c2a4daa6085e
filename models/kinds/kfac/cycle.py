"""Lowering of K-FAC work around a described pipeline: iterations of one refresh cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, OpLabels, Pool, Problem, ProblemBuilder
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.instance import KfacInstance, KfacModule
from ppsolve.models.kinds.kfac.labels import KIND_OF, PRECONDITION_KIND
from ppsolve.models.kinds.pipeline.instance import MAX_OPS, PipelineInstance
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline
from ppsolve.models.kinds.pipeline.steps import ALLREDUCE_KIND, OPTIMIZER_KIND, STEP_KIND

Place = tuple[int, int]
"""A stage and a device that holds it."""

FACTORS = ("A", "B")

_TIME_FIELDS = {"cov": "curvature", "sync": "sync", "inv": "inverse"}
_SAVED_FIELDS = {"A": "input_bytes", "B": "error_bytes"}


def places(pipeline: PipelineInstance) -> list[Place]:
    """Return every stage with each device that holds it, sorted."""
    return sorted(
        {place for devices in pipeline.stage_devices_of_pipes() for place in enumerate(devices)}
    )


def modules_by_stage(instance: KfacInstance) -> dict[int, list[KfacModule]]:
    """Return the modules of each stage in the order of the instance; a stage may have none."""
    found: dict[int, list[KfacModule]] = defaultdict(list)
    for module in instance.modules or ():
        found[module.stage].append(module)
    return found


def sync_devices(module: KfacModule, holders: Iterable[int]) -> tuple[int, ...]:
    """Return the devices that meet in a module's syncs: its replicas and the holders of its stage.

    Parameters
    ----------
    module : KfacModule
    holders : iterable of int
        Devices that hold its stage.

    Returns
    -------
    tuple of int
        Devices, ascending.
    """
    return tuple(sorted({*holders, *(module.replicas or ())}))


def work_time(module: KfacModule, kind: str, factor: str) -> Fraction:
    """Return the time of a module's curvature (per micro-batch), sync or inversion.

    Parameters
    ----------
    module : KfacModule
    kind : str
        ``cov``, ``sync`` or ``inv``.
    factor : str
        ``A`` or ``B``.

    Returns
    -------
    Fraction
        Time in the instance's unit.
    """
    return Fraction(getattr(module, f"{_TIME_FIELDS[kind]}_{factor.lower()}"))


def saved_bytes(module: KfacModule, factor: str) -> Fraction:
    """Return the memory that a module holds per micro-batch until its curvature is done.

    Parameters
    ----------
    module : KfacModule
    factor : str
        ``A`` (saved inputs) or ``B`` (saved errors).

    Returns
    -------
    Fraction
        Amount in the instance's unit of memory.
    """
    return Fraction(getattr(module, _SAVED_FIELDS[factor]))


def lower_iteration(instance: KfacInstance, *, exact: bool = False) -> Problem:
    """Lower one iteration of the pipeline alone, at the scale of the whole instance.

    Parameters
    ----------
    instance : KfacInstance
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Returns
    -------
    Problem
        One iteration in ticks.

    Raises
    ------
    InputError
        The times have no common tick within the limit and `exact` is true.
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
    """Return the problem of a `LoweredCycle`.

    Parameters
    ----------
    instance : KfacInstance
    exact : bool

    Returns
    -------
    Problem
    """
    return LoweredCycle(instance, exact=exact).problem


class LoweredCycle:
    """`cycle_length` iterations of the pipeline and the K-FAC work of one refresh, lowered.

    Curvature comes from the micro-batches of iteration 0 only. A stage begins an iteration on a
    device once it has finished the one before there: its weight gradients, all-reduce,
    preconditions and optimizer. The makespan is minimised. n ops of one iteration, N iterations.

    Parameters
    ----------
    instance : KfacInstance
        An instance with a pipeline and modules.
    exact : bool
        Refuse times without a common tick within the limit instead of rounding them up.

    Raises
    ------
    InputError
        The times have no common tick and `exact` is true, or there are too many ops.
    """

    def __init__(self, instance: KfacInstance, *, exact: bool = False) -> None:
        assert instance.pipeline is not None
        assert instance.modules is not None
        self.instance = instance
        self.pipeline = instance.pipeline
        self.modules = instance.modules
        self.modules_of = modules_by_stage(instance)
        self.length = instance.cycle_length
        self._refuse_too_many_ops()
        self.iteration = lower_iteration(instance, exact=exact)
        self.scale = self.iteration.scale
        self.builder = ProblemBuilder(instance.name, self.scale)
        self.devices = self.pipeline.device_grid
        self.holders: dict[int, list[int]] = defaultdict(list)
        for stage, device in places(self.pipeline):
            self.holders[stage].append(device)
        self.gradients = self._grid("W", "B")
        self.data = {"A": self._grid("F"), "B": self._grid("I", "B")}
        self.optimizers = self.iteration.by_place(OPTIMIZER_KIND)
        reductions = self.iteration.by_place(ALLREDUCE_KIND)
        self.reduction_of = {stage: ops for (stage, _), ops in reductions.items()}
        # Op of the cycle for each op of the iteration, int64[N, n].
        self.op_of = np.zeros((self.length, self.iteration.num_ops), dtype=np.int64)
        self.curvature: dict[str, IntArray] = {}
        # Of each stage and device: int64[N, modules], and int64[N - 1] between two iterations.
        self.preconditions: dict[Place, IntArray] = {}
        self.steps: dict[Place, IntArray] = {}
        self.names = self.builder.explicit_names
        self._add_resources()
        self._repeat_pipeline()
        for stage in range(self.pipeline.num_stages):
            self._end_iterations(stage)
        for factor in FACTORS:
            self._add_curvature(factor)
        for number, module in enumerate(self.modules):
            self._add_refresh(number, module)
        self.builder.span_resources = self.iteration.span_resources
        self.builder.pools = [self._pool(d, pool) for d, pool in enumerate(self.iteration.pools)]
        self.builder.families = self._families()
        self.problem = self.builder.build()

    def _refuse_too_many_ops(self) -> None:
        of_iteration = self.pipeline.num_stages * self.pipeline.num_microbatches * 3
        of_refresh = 2 * len(self.modules) * self.pipeline.num_microbatches
        repeated = of_iteration + 2 * (len(self.modules) + self.pipeline.num_stages)
        if self.length * repeated + of_refresh > MAX_OPS:
            raise InputError(
                f"expected at most {MAX_OPS} ops in all iterations of the cycle",
                field="refresh_interval",
            )

    def _add_resources(self) -> None:
        names = {name: self.builder.add_resource(name) for name in self.iteration.resource_names}
        self.compute = self.iteration.span_resources
        devices = {
            device
            for module in self.modules
            if module.sync_a or module.sync_b
            for device in self._sync_devices(module)
        }
        self.comm: dict[int, int] = {}
        for device in sorted(devices):
            name = f"comm {device}"
            self.comm[device] = names[name] if name in names else self.builder.add_resource(name)

    def _sync_devices(self, module: KfacModule) -> tuple[int, ...]:
        return sync_devices(module, self.holders[module.stage])

    def _repeat_pipeline(self) -> None:
        iteration, op_of = self.iteration, self.op_of
        table = _resource_table(iteration)
        for index, kind in enumerate(iteration.kinds):
            ops = np.flatnonzero(iteration.kind == index)
            op_of[:, ops] = self.builder.add_ops(
                kind,
                np.broadcast_to(iteration.duration[ops], (self.length, len(ops))),
                table[ops],
                OpLabels(iteration.stage[ops], iteration.device[ops], iteration.microbatch[ops]),
            )
        self.builder.add_precedences(
            op_of[:, iteration.before], op_of[:, iteration.after], iteration.lag
        )
        self.names |= {int(op_of[0, op]): name for op, name in iteration.explicit_names.items()}
        names = iteration.op_names(range(iteration.num_ops)) if self.length > 1 else []
        for k in range(1, self.length):
            ends = [f"{name}@{k}" for name in names]
            self.names.update(zip(op_of[k].tolist(), ends, strict=True))

    def _grid(self, kind: str, alternative: str = "") -> IntArray:
        return self.iteration.grid(kind if kind in self.iteration.kinds else alternative)

    def _end_iterations(self, stage: int) -> None:
        modules = self.modules_of[stage]
        for device in self.holders[stage]:
            last = ready = self._gradient(stage, device)
            if modules:
                last = self._add_preconditions(stage, device, modules)
                self.builder.add_precedences(ready[:, :, None], last[:, None, :])
            if (stage, device) in self.optimizers:
                optimizer = self.op_of[:, self.optimizers[stage, device]]
                self.builder.add_precedences(last, optimizer)
                last = optimizer
            if self.length > 1:
                self._add_steps(stage, device, last)

    def _gradient(self, stage: int, device: int) -> IntArray:
        # int64[N, ...]
        if stage in self.reduction_of:
            return self.op_of[:, self.reduction_of[stage]]
        own = self.devices[stage] == device
        return self.op_of[:, self.gradients[stage, own]]

    def _add_preconditions(
        self, stage: int, device: int, modules: Sequence[KfacModule]
    ) -> IntArray:
        ticks = [self.scale.ticks(Fraction(module.precondition)) for module in modules]
        shape = (self.length, len(modules))
        ops = self.builder.add_ops(
            PRECONDITION_KIND,
            np.broadcast_to(np.array(ticks, dtype=np.int64), shape),
            self.compute[[device]],
            OpLabels(stage, device),
        )
        at = self._at(stage, device)
        for (k, x), op in np.ndenumerate(ops):
            self.names[int(op)] = f"{PRECONDITION_KIND}{stage}:{modules[x].name}{at}@{k}"
        self.preconditions[stage, device] = ops
        return ops

    def _at(self, stage: int, device: int) -> str:
        return f"@{device}" if len(self.holders[stage]) > 1 else ""

    def _add_steps(self, stage: int, device: int, last: IntArray) -> None:
        steps = self.builder.add_ops(
            STEP_KIND,
            np.zeros(self.length - 1, dtype=np.int64),
            np.array([FREE]),
            OpLabels(stage, device),
        )
        self.builder.add_precedences(last[:-1], steps[:, None])
        forwards = self.data["A"][stage, self.devices[stage] == device]
        self.builder.add_precedences(steps[:, None], self.op_of[1:, forwards])
        for k, op in enumerate(steps.tolist()):
            self.names[op] = f"{STEP_KIND}{stage}{self._at(stage, device)}@{k}"
        self.steps[stage, device] = steps

    def _add_curvature(self, factor: str) -> None:
        # int64[modules, m]
        stages = np.array([module.stage for module in self.modules], dtype=np.int64)
        ticks = [self.scale.ticks(work_time(module, "cov", factor)) for module in self.modules]
        kind = KIND_OF["cov", factor]
        shape = (len(self.modules), self.pipeline.num_microbatches)
        ops = self.builder.add_ops(
            kind,
            np.broadcast_to(np.array(ticks, dtype=np.int64)[:, None], shape),
            self.compute[self.devices[stages]][..., None],
            OpLabels(stages[:, None], self.devices[stages], np.arange(shape[1])),
        )
        self.builder.add_precedences(self._data(factor)[stages], ops)
        for module, row in zip(self.modules, ops.tolist(), strict=True):
            for microbatch, op in enumerate(row):
                self.names[op] = f"{kind}{module.stage}.{microbatch}:{module.name}"
        self.curvature[factor] = ops

    def _data(self, factor: str) -> IntArray:
        found: IntArray = self.op_of[0][self.data[factor]]
        return found

    def _add_refresh(self, number: int, module: KfacModule) -> None:
        for factor in FACTORS:
            gate = self.curvature[factor][number]
            if work_time(module, "sync", factor) > 0:
                gate = self._add_sync(module, factor, gate)
            inversions = self._add_inversions(module, factor)
            self.builder.add_precedences(gate[:, None], inversions)
            if self.instance.max_age is not None:
                place = self.modules_of[module.stage].index(module)
                users = [
                    self.preconditions[module.stage, device][self.instance.max_age, place]
                    for device in self.holders[module.stage]
                ]
                self.builder.add_precedences(inversions, users)

    def _add_sync(self, module: KfacModule, factor: str, gate: IntArray) -> IntArray:
        devices = self._sync_devices(module)
        kind = KIND_OF["sync", factor]
        sync = self.builder.add_ops(
            kind,
            np.array([self.scale.ticks(work_time(module, "sync", factor))], dtype=np.int64),
            np.array([self.comm[device] for device in devices]),
            OpLabels(module.stage, devices[0]),
        )
        self.builder.add_precedences(gate, sync)
        self.names[int(sync[0])] = f"{kind}{module.stage}:{module.name}"
        return sync

    def _add_inversions(self, module: KfacModule, factor: str) -> IntArray:
        stage, kind = module.stage, KIND_OF["inv", factor]
        holders = np.array(self.holders[stage])
        ticks = self.scale.ticks(work_time(module, "inv", factor))
        ops = self.builder.add_ops(
            kind,
            np.full(len(holders), ticks, dtype=np.int64),
            self.compute[holders][:, None],
            OpLabels(stage, holders),
        )
        for device, op in zip(self.holders[stage], ops.tolist(), strict=True):
            self.names[op] = f"{kind}{stage}:{module.name}{self._at(stage, device)}"
        return ops

    def _families(self) -> list[IntArray]:
        # With their curvature in iteration 0, plain in the others.
        found = []
        for family in self.iteration.families:
            members = self.iteration.microbatch[family[:, 0]]
            curvature = [self.curvature[factor][:, members].T for factor in FACTORS]
            found.append(np.concatenate([self.op_of[0][family], *curvature], axis=1))
        later = self.op_of[1:]
        return found + [row[family] for row in later for family in self.iteration.families]

    def _pool(self, device: int, pool: Pool) -> Pool:
        # Saved inputs and errors come on top of the pipeline in iteration 0.
        taken = [pool.amounts[amount] for amount in pool.acquire_amount.tolist()]
        given = [pool.amounts[amount] for amount in pool.release_amount.tolist()]
        first, *later = self.op_of
        acquired = dict(zip(first[pool.acquire_op].tolist(), taken, strict=True))
        released = list(zip(first[pool.release_op].tolist(), given, strict=True))
        for saving, freeing, amount in self._saved(device):
            acquired[saving] = acquired.get(saving, Fraction(0)) + amount
            released.append((freeing, amount))
        acquires = [*acquired.items()]
        for row in later:
            acquires += zip(row[pool.acquire_op].tolist(), taken, strict=True)
            released += zip(row[pool.release_op].tolist(), given, strict=True)
        return Pool.of(pool.name, pool.capacity, acquires, released, pool.initial)

    def _saved(self, device: int) -> Iterator[tuple[int, int, Fraction]]:
        # Inputs first: they are held longest.
        for factor in FACTORS:
            data = self._data(factor)
            for number, module in enumerate(self.modules):
                amount = saved_bytes(module, factor)
                own = np.flatnonzero(self.devices[module.stage] == device)
                for microbatch in own.tolist() if amount else ():
                    saving = int(data[module.stage, microbatch])
                    yield saving, int(self.curvature[factor][number, microbatch]), amount


def _resource_table(problem: Problem) -> IntArray:
    count = np.diff(problem.resource_ptr)
    table = np.full((problem.num_ops, int(count.max(initial=1))), FREE, dtype=np.int64)
    inside = np.arange(table.shape[1]) < count[:, None]
    table[inside] = problem.resource_idx
    return table

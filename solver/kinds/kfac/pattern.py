"""The refresh pattern of an instance: measured, or the schedule of a heuristic pinned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ppsolve.models.core.timescale import no_common_tick
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_in
from ppsolve.models.kinds.kfac.cycle import (
    FACTORS,
    holders_of,
    modules_by_stage,
    saved_bytes,
    sync_devices,
    work_time,
)
from ppsolve.models.kinds.kfac.instance import FREE_PIPELINE, KfacInstance, KfacModule
from ppsolve.models.kinds.kfac.labels import UP_PIPE, Label, precondition_label
from ppsolve.models.kinds.kfac.pattern import (
    DevicePattern,
    PinnedOp,
    RefreshPattern,
    Work,
    measured_pattern,
)
from ppsolve.models.kinds.pipeline.labels import OPTIMIZER_KIND
from ppsolve.solver.kinds.kfac.pinned import (
    PinnedIteration,
    check_pattern,
    pinned_iteration,
)


def pattern_of(instance: KfacInstance) -> RefreshPattern:
    """Return the pinned pipeline of an instance and its K-FAC work.

    Raises `InputError` where the timelines or the pattern cannot be used; names the field and the
    instance.
    """
    with errors_in(instance.name):
        if instance.timelines is not None:
            return measured_pattern(instance)

        return simulated_pattern(instance)


def refuse_overlaps(pattern: RefreshPattern) -> None:
    """Refuse pipeline ops of one device that overlap: no schedule could keep both.

    The `InputError` names the device, both ops and by how much they overlap.
    """
    time, unit = pattern.scale.time, pattern.scale.unit
    for device in pattern.devices:
        busy = sorted(
            (op for op in device.ops if op.end > op.start),
            key=lambda op: (op.start, op.end),
        )
        for first, second in pairwise(busy):
            if second.start < first.end:
                raise InputError(
                    f"expected pipeline ops that do not overlap, {first.label} runs until "
                    f"{time(first.end)} {unit} and {second.label} starts at {time(second.start)} "
                    f"{unit} on device {device.device}",
                    source=pattern.name,
                    field=f"timelines[{device.device}]",
                )


_CALLS = {
    "F": ("forward", "call_forward"),
    "I": ("backward", "call_backward"),
    "B": ("backward", "call_backward"),
    "W": ("backward_weight", "call_backward_weight"),
}
"""Kind and label of a pinned op by the kind of op that it is in the pipeline."""


def simulated_pattern(instance: KfacInstance) -> RefreshPattern:
    """Return the pattern of a described pipeline that is pinned to a heuristic's schedule.

    The backward of a pattern makes the error signal; preconditions and optimizer steps are of kind
    ``precondition``. Module names begin with ``stage<k>.`` where devices have work of several
    stages. A stage that two pipes share gets a sync of its factors, of length 0 where the instance
    has none: its inversions wait for the curvature of both pipes.

    Raises `InputError` where the pattern is no pipeline heuristic or not feasible, a device holds
    several stages of a pipe, or saved inputs and errors count against a memory limit, and
    `NotApplicableError` where the heuristic does not apply to the pipeline.
    """
    _refuse_what_has_no_pattern(instance)
    iteration = pinned_iteration(instance, instance.pattern)
    if not iteration.problem.scale.is_exact:
        raise no_common_tick("give fewer digits: pinned ops leave no room to round up")
    return _SimulatedPattern(instance, iteration).run()


def _refuse_what_has_no_pattern(instance: KfacInstance) -> None:
    assert instance.pipeline is not None
    if instance.pattern == FREE_PIPELINE:
        raise InputError(
            "expected a pipeline heuristic whose schedule is pinned, got a free pipeline",
            field="pattern",
            code=ErrorCode.CONFLICT,
        )
    check_pattern(instance.pattern)
    devices = instance.pipeline.stage_to_device
    if len(set(devices)) < len(devices):
        raise InputError(
            "iterations need one stage per device and pipe; "
            'ask for the objective "makespan" with several stages on a device',
            field="pattern",
            code=ErrorCode.UNSUPPORTED,
        )
    for number, module in enumerate(instance.modules or ()):
        if instance.pipeline.memory is not None and any(
            saved_bytes(module, f) for f in FACTORS
        ):
            raise InputError(
                "iterations of a described pipeline know no memory limit of saved inputs and "
                'errors; ask for the objective "makespan", or leave out the bytes',
                field=f"modules[{number}]",
                code=ErrorCode.UNSUPPORTED,
            )


class _SimulatedPattern:
    def __init__(self, instance: KfacInstance, iteration: PinnedIteration) -> None:
        assert instance.pipeline is not None
        self.instance = instance
        self.iteration = iteration
        self.problem = iteration.problem
        self.holders = holders_of(instance.pipeline)
        self.pipes = instance.pipeline.stage_devices_of_pipes()
        self.pipe_of = instance.pipeline.pipe_of_microbatch.tolist()
        self.modules_of = modules_by_stage(instance)
        self.modules_at: dict[int, list[KfacModule]] = defaultdict(list)
        stages_at: dict[int, set[int]] = defaultdict(set)
        for stage, device in iteration.preconditions:
            stages_at[device].add(stage)
        for module in instance.modules or ():
            for device in self._sync_devices(module):
                stages_at[device].add(module.stage)
                self.modules_at[device].append(module)
        self.names_stages = any(len(stages) > 1 for stages in stages_at.values())

    def run(self) -> RefreshPattern:
        ops: dict[int, list[PinnedOp]] = defaultdict(list)
        for device, op in self._pinned_ops():
            ops[device].append(op)
        return RefreshPattern(
            name=self.instance.name,
            scale=self.problem.scale,
            period=self.iteration.period,
            margin=Fraction(self.instance.margin_ratio),
            devices=tuple(
                DevicePattern(
                    device,
                    tuple(sorted(ops[device], key=lambda op: (op.start, op.end))),
                    self._recorded(device),
                )
                for device in range(self.instance.num_devices)
            ),
            syncs_in_holes=False,
        )

    def _recorded(self, device: int) -> tuple[Work, ...]:
        # As if it had been measured after the pipeline, in turn.
        start = self.iteration.period
        entries = []
        for work in self._work(device):
            end = start + work.parts * work.length
            entries.append(replace(work, recorded=(start, end)))
            start = end
        return tuple(entries)

    def _sync_devices(self, module: KfacModule) -> tuple[int, ...]:
        return sync_devices(module, self.holders[module.stage])

    def _name(self, module: KfacModule) -> str:
        return (
            f"stage{module.stage}.{module.name}" if self.names_stages else module.name
        )

    def _pinned_ops(self) -> Iterator[tuple[int, PinnedOp]]:
        """Yield each op of the pinned iteration with its device."""
        problem, begin = self.problem, self.iteration.start
        spans = np.stack([begin, begin + problem.duration], axis=1).tolist()
        devices = problem.device.tolist()
        for op in np.flatnonzero(problem.kind_mask(*_CALLS)).tolist():
            kind, label = _CALLS[problem.kinds[problem.kind[op]]]
            pipe = self.pipe_of[problem.microbatch[op]]
            yield devices[op], PinnedOp(label + UP_PIPE * pipe, kind, pipe, *spans[op])
        for (stage, device), starts in self.iteration.preconditions.items():
            for module, start in zip(
                self.modules_of[stage], starts.tolist(), strict=True
            ):
                label = precondition_label(self._name(module))
                end = start + problem.scale.ticks(Fraction(module.precondition))
                yield device, PinnedOp(label, "precondition", 0, start, end)
        for op in np.flatnonzero(problem.kind_mask(OPTIMIZER_KIND)).tolist():
            label = "optimizer" + (
                f":stage{problem.stage[op]}" if self.names_stages else ""
            )
            yield devices[op], PinnedOp(label, "precondition", 0, *spans[op])

    def _work(self, device: int) -> Iterator[Work]:
        pairs = [
            (module, factor) for module in self.modules_at[device] for factor in FACTORS
        ]
        for module, factor in pairs:
            for pipe, devices in enumerate(self.pipes):
                if devices[module.stage] == device:
                    yield self._entry("cov", factor, module, (device,), pipe)
        for module, factor in pairs:
            if work_time(module, "sync", factor) or len(self.pipes) > 1:
                yield self._entry("sync", factor, module, self._sync_devices(module))
        for module, factor in pairs:
            if device in self.holders[module.stage]:
                yield self._entry("inv", factor, module, (device,))

    def _entry(
        self,
        kind: str,
        factor: str,
        module: KfacModule,
        participants: tuple[int, ...],
        pipe: int = 0,
    ) -> Work:
        name = self._name(module)
        text = f"{kind}_kron_{factor}:{name}" + UP_PIPE * pipe
        return Work(
            label=Label(text, kind, factor, name, pipe),
            parts=self.pipe_of.count(pipe) if kind == "cov" else 1,
            length=self.problem.scale.ticks(work_time(module, kind, factor)),
            recorded=None,
            participants=participants,
        )

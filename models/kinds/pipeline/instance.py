"""Pipeline instances: stages on devices, micro-batches, transfers and memory, in human units."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from ppsolve.models.core.problem import IntArray, Objective, ScheduleObjective
from ppsolve.models.documents.base import Whole
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.measures import Time
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.collectives import Collectives, ModelParallel
from ppsolve.models.kinds.pipeline.combinations import check_combination
from ppsolve.models.kinds.pipeline.entries import (
    BACKWARDS,
    Lengths,
    PerDevice,
    PerStage,
    check_length,
    count_slices,
    count_stages,
    decimals,
    entry_at,
    has_costs,
    in_amounts,
    rows_per_microbatch,
    stages_per_device,
    worked_out,
)
from ppsolve.models.kinds.pipeline.fields import (
    P2P,
    ExplicitPlacement,
    Memory,
    Placement,
    Times,
)
from ppsolve.models.kinds.pipeline.fillers import Filler, check_fillers
from ppsolve.models.kinds.pipeline.layers import (
    Layers,
    has_open_chunks,
    with_even_layers,
)
from ppsolve.models.kinds.pipeline.mode_checks import check_modes
from ppsolve.models.kinds.pipeline.origin import PlanOrigin
from ppsolve.models.kinds.pipeline.overlap_blocks import FusedBlocks
from ppsolve.models.kinds.pipeline.replicas import Replicas
from ppsolve.models.kinds.pipeline.slices import (
    Slices,
    check_row,
    check_slices,
    per_unit,
    unit_sums,
)
from ppsolve.models.kinds.pipeline.speeds import at_speeds
from ppsolve.models.kinds.pipeline.transfers import hops

MAX_OPS = 5_000_000
"""Larger instances are refused instead of exhausting the memory of the machine."""


def _times_or_layers(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema of pipelines that layers stand in for times and activations."""
    schema["required"].remove("times")
    is_absent = {"type": "null"}
    with_layers = {
        "properties": {"layers": {"not": is_absent}},
        "required": ["layers"],
    }
    memory = {"anyOf": [is_absent, {"required": ["activation"]}]}
    by_stage = {
        "properties": {
            "times": {"required": ["forward"], **BACKWARDS},
            "memory": memory,
        },
        "required": ["times"],
    }
    schema |= {"if": with_layers, "else": by_stage}


class PipelineInstance(Instance):
    """One training step of a pipeline-parallel model. All times share `time_unit`.

    Several `steps` follow each other: on each device, a stage begins a step when it has ended the
    previous one. `fillers` are other jobs that run in the bubbles of all of them.

    The times of ops, recomputing, blocks and the optimizer are divided by the `speed` of their
    device; those of transfers, collectives, copies and fillers are not.

    `lengths` has an entry per micro-batch: the length of its sequence, or a list with those of its
    packed sequences. Costs of times, memory and transfers are worked out over them. With `slices`
    each micro-batch runs slice by slice, and these fields are those of one slice. With `layers`
    times and activations are those of an even split, and another split may be chosen. `plan` says
    what else was chosen by the plan that made the pipeline.
    """

    memory_unit_at: ClassVar[tuple[str, ...]] = ("memory", "unit")
    model_config = ConfigDict(json_schema_extra=_times_or_layers)

    kind: Literal["pipeline"] = "pipeline"
    name: str = "pipeline"
    num_devices: Annotated[Whole, Field(ge=1, le=4096)]
    stages_per_device: Annotated[Whole, Field(ge=1, le=1024)] | None = None
    num_microbatches: Annotated[Whole, Field(ge=1, le=1_000_000)]
    speed: PerDevice | None = None
    lengths: Lengths | None = None
    slices: Slices | None = None
    placement: Placement = "linear"
    times: Times
    layers: Layers | None = None
    p2p: P2P = P2P()
    memory: Memory | None = None
    allreduce: Time[PerStage] | None = None
    optimizer: Time[PerStage] | None = None
    collectives: Collectives | None = None
    steps: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    fillers: tuple[Filler, ...] = ()
    overlap: FusedBlocks | None = None
    replicas: Replicas | None = None
    plan: PlanOrigin | None = None
    objective: ScheduleObjective = Objective.MAKESPAN

    _is_by_rank: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _capacity_in_amounts(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("layers") is not None:
            data = with_even_layers(data, count_stages(data))
        return in_amounts(data)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_placement()
        check_combination(self)
        if self.num_stages * self.num_units * 3 * self.steps > MAX_OPS:
            raise InputError(
                f"expected at most {MAX_OPS} ops (stages x micro-batches x 3 x steps)",
                field="num_microbatches",
                code=ErrorCode.RANGE,
            )
        self._check_lengths()
        self._check_speed()
        has_key_values = self.memory is not None and self.memory.key_value is not None
        if self.slices is not None or has_key_values:
            check_slices(self)
        for field, entry in self.amounts().items():
            label, count = self._items_of(field)
            check_length(field, entry, count, label)
            for index, item in enumerate(entry if isinstance(entry, tuple) else ()):
                check_row(f"{field}[{index}]", item, self)
        if self.memory is not None:
            check_length(
                "memory.capacity", self.memory.capacity, self.num_devices, "device"
            )
            for field in ("static", "released_by_backward_weight"):
                entry = getattr(self.memory, field)
                check_length(f"memory.{field}", entry, self.num_stages, "stage")
        numbers = self.in_numbers()
        if not any(any(decimals(entry)) for entry in numbers.times.by_kind().values()):
            raise InputError(
                "expected some time above 0, all are 0",
                field="times",
                code=ErrorCode.RANGE,
            )
        if numbers.memory is not None:
            self._check_amounts(numbers.memory)
        check_length("allreduce", self.allreduce, self.num_stages, "stage")
        check_length("optimizer", self.optimizer, self.num_stages, "stage")
        if self.plan is not None:
            split = self.plan.layers_per_stage
            check_length("plan.layers_per_stage", split, self.num_stages, "stage")
        if self.collectives is not None:
            self._check_collectives(self.collectives)
        self._check_matrix("p2p.latency", self.p2p.latency)
        self._check_matrix("p2p.bandwidth", self.p2p.bandwidth)
        self._check_bandwidth()
        if self.fillers:
            check_fillers(self)
        if self.replicas is not None:
            self._check_replicas(self.replicas)
        if numbers.memory is not None and self.has_modes:
            check_modes(numbers, numbers.memory)
        if self.overlap is not None:
            self.overlap.check(self)
        return self

    def _check_replicas(self, replicas: Replicas) -> None:
        if replicas.is_free and self.objective is not Objective.MAKESPAN:
            raise InputError(
                'expected "makespan" where micro-batches may be exchanged',
                field="objective",
                code=ErrorCode.CONFLICT,
            )
        replicas.check(self.num_microbatches)

    def _check_placement(self) -> None:
        per_device = self.stages_per_device
        if self.placement in {"linear", "bidirectional"} and per_device not in {
            None,
            1,
        }:
            raise InputError(
                f'expected 1 with placement "{self.placement}", got {per_device}',
                field="stages_per_device",
                code=ErrorCode.CONFLICT,
            )
        if self.placement == "vshape" and per_device not in {None, 2}:
            raise InputError(
                f'expected 2 with placement "vshape", got {per_device} (use "wave" for more)',
                field="stages_per_device",
                code=ErrorCode.CONFLICT,
            )
        if self.placement == "bidirectional" and self.num_microbatches % 2:
            raise InputError(
                "expected an even number with bidirectional pipes (half of the micro-batches run "
                f"each way), got {self.num_microbatches}",
                field="num_microbatches",
                code=ErrorCode.RANGE,
            )
        if isinstance(self.placement, ExplicitPlacement):
            self._check_explicit(self.placement.stage_to_device)

    def _check_explicit(self, devices: tuple[int, ...]) -> None:
        for stage, device in enumerate(devices):
            if not 0 <= device < self.num_devices:
                raise InputError(
                    f"expected a device from 0 to {self.num_devices - 1}, got {device}",
                    field=f"placement.stage_to_device[{stage}]",
                    code=ErrorCode.RANGE,
                )
        empty = sorted(set(range(self.num_devices)) - set(devices))
        if empty:
            raise InputError(
                f"expected at least one stage on every device, device {empty[0]} has none",
                field="placement.stage_to_device",
            )

    def _check_collectives(self, collectives: Collectives) -> None:
        names = "backward_input", "backward"
        right, wrong = names if self.times.is_split else names[::-1]
        if getattr(collectives, wrong) is not None:
            raise InputError(
                f'expected "{right}", as in the times of the pipeline, got "{wrong}"',
                field=f"collectives.{wrong}",
                code=ErrorCode.CONFLICT,
            )
        if self.allreduce is not None and collectives.reduce_scatter is not None:
            raise InputError(
                'expected either "allreduce" of the pipeline or "reduce_scatter", not both',
                field="collectives.reduce_scatter",
                code=ErrorCode.CONFLICT,
            )
        for field, entry in collectives:
            if isinstance(entry, ModelParallel):
                entry.check(f"collectives.{field}", self.num_stages)
            else:
                check_length(f"collectives.{field}", entry, self.num_stages, "stage")
        self._check_segments(collectives)

    def _check_segments(self, collectives: Collectives) -> None:
        ops = self.num_stages
        for inside in collectives.by_kind().values():
            ops += 2 * sum(map(inside.num_pieces, range(self.num_stages)))
        if ops * self.num_units > MAX_OPS:
            raise InputError(
                f"expected at most {MAX_OPS} ops, collectives and pieces included",
                field="collectives",
                code=ErrorCode.RANGE,
            )

    def _check_speed(self) -> None:
        check_length("speed", self.speed, self.num_devices, "device")
        speeds = self.device_speeds
        if not all(speeds):
            raise InputError(
                "expected a speed above 0, got 0", field="speed", code=ErrorCode.RANGE
            )
        if self.placement == "bidirectional" and speeds != speeds[::-1]:
            raise InputError(
                "expected one speed for the two devices of each stage where pipes are "
                "bidirectional",
                field="speed",
                code=ErrorCode.UNSUPPORTED,
            )

    def _check_lengths(self) -> None:
        if self.lengths is not None and len(self.lengths) != self.num_microbatches:
            raise InputError(
                f"expected {self.num_microbatches} entries (one per micro-batch), got "
                f"{len(self.lengths)}",
                field="lengths",
                code=ErrorCode.LENGTH,
            )

    def _check_amounts(self, memory: Memory) -> None:
        if memory.left_to_weight is not None and self.layers is not None:
            raise InputError(
                "expected a share with layers", field="memory.left_to_weight"
            )
        kept, peak = memory.activation, memory.forward_peak
        if peak is None:
            return
        rows = any(rows_per_microbatch(entry) for entry in (kept, peak))
        for stage in range(self.num_stages):
            for unit in range(self.num_units if rows else 1):
                low, high = entry_at(kept, stage, unit), entry_at(peak, stage, unit)
                if low > high:
                    label = f"stage {stage}"
                    if rows:
                        label += f", micro-batch {unit}"
                    raise InputError(
                        f"expected at least the activation ({float(low):g}) of {label}, "
                        f"got {float(high):g}",
                        field="memory.forward_peak",
                        code=ErrorCode.RANGE,
                    )

    def _check_matrix(self, field: str, entry: Any) -> None:
        if not isinstance(entry, tuple):
            return
        size = self.num_devices
        if len(entry) != size:
            raise InputError(
                f"expected a number or a {size} x {size} matrix, got {len(entry)} rows",
                field=field,
                code=ErrorCode.LENGTH,
            )
        for row, values in enumerate(entry):
            if len(values) != size:
                raise InputError(
                    f"expected {size} numbers in every row of the matrix, got {len(values)}",
                    field=f"{field}[{row}]",
                    code=ErrorCode.LENGTH,
                )

    def _check_bandwidth(self) -> None:
        bandwidth = self.p2p.bandwidth
        for _, source, target in hops(self) if isinstance(bandwidth, tuple) else ():
            if entry_at(bandwidth, source, target) == 0:
                raise InputError(
                    "expected a bandwidth > 0 on a link that is used, got 0",
                    field=f"p2p.bandwidth[{source}][{target}]",
                    code=ErrorCode.RANGE,
                )

    def amounts(self) -> dict[str, Any]:
        """Return every entry that may differ from micro-batch to micro-batch, by its path."""
        entries = {f"times.{field}": entry for field, entry in self.times}
        if self.memory is not None:
            for field in ("activation", "forward_peak", "left_to_weight", "key_value"):
                entries[f"memory.{field}"] = getattr(self.memory, field)
        return {**entries, "p2p.bytes": self.p2p.bytes}

    def _items_of(self, field: str) -> tuple[str, int]:
        if field == "p2p.bytes":
            return "stage boundary", self.num_stages - 1
        return "stage", self.num_stages

    def in_numbers(self) -> Self:
        """Return the pipeline with numbers in place of costs over lengths and of speeds.

        Lists have a number per micro-batch; with slices one per slice of each micro-batch.

        Raises
        ------
        InputError
            There are costs and no lengths, or a number is too large; names the entry.
        """
        numbers = self
        if self.slices is not None or any(map(has_costs, self.amounts().values())):
            sums = unit_sums(self)
            numbers = self.with_amounts(
                lambda path, entry: per_unit(
                    worked_out(path, entry, self._items_of(path)[1], sums), self
                )
            )
        if self.speed is None:
            return numbers
        return numbers.model_copy(update=at_speeds(numbers))

    def with_amounts(self, change: Callable[[str, Any], Any], **update: Any) -> Self:
        """Return a copy with other entries in place of those of `amounts`, and other fields.

        Parameters
        ----------
        change : callable
            Returns the new entry for a path and an entry.
        **update : Any
            Values of fields.

        Returns
        -------
        PipelineInstance
        """
        groups: dict[str, dict[str, Any]] = {}
        for path, entry in self.amounts().items():
            changed = change(path, entry)
            if changed is not entry:
                group, field = path.split(".")
                groups.setdefault(group, {})[field] = changed
        for group, fields in groups.items():
            update[group] = getattr(self, group).model_copy(update=fields)
        return self.model_copy(update=update)

    @property
    def is_by_rank(self) -> bool:
        """Whether ranks run their ops one after the other, those of no time too.

        No document says so: it follows from the runtime that runs the pipeline.
        """
        return self._is_by_rank

    def by_rank(self) -> Self:
        """Return the pipeline as a runtime runs it: no op runs across an op of no time."""
        copy = self.model_copy()
        copy._is_by_rank = True  # noqa: SLF001 - of this class
        return copy

    @property
    def unsaid(self) -> frozenset[str]:
        """The placement, where it is left open."""
        return frozenset({"placement"}) if has_open_chunks(self) else frozenset()

    @property
    def is_one_plain_step(self) -> bool:
        """Whether its ops are those of one step, without fillers."""
        return self.steps == 1 and not self.fillers

    @property
    def has_whole_ops(self) -> bool:
        """Whether micro-batches and ops run whole, in one step of one replica, without fillers."""
        if self.slices is not None or self.replicas is not None:
            return False
        inside = self.collectives is not None and bool(self.collectives.by_kind())
        return self.is_one_plain_step and not inside

    @property
    def factors(self) -> dict[str, str | float]:
        """p, m, stages, and the capacity in units of one activation per stage."""
        devices, count = self.num_devices, self.num_microbatches
        factors: dict[str, str | float] = {
            "p": devices,
            "m": count,
            "m/p": round(count / devices, 3),
            "stages": self.num_stages,
        }
        if self.memory is not None:
            capacity, activation = self.memory.capacity, self.memory.activation
            if isinstance(capacity, Decimal) and isinstance(activation, Decimal):
                whole = activation * self.num_stages
                factors |= (
                    {"memory": round(float(capacity / whole), 6)} if whole else {}
                )
        return factors

    @property
    def has_unequal_microbatches(self) -> bool:
        """Whether micro-batches differ in times, memory or transfers."""
        count = self.num_slices
        return any(
            isinstance(row, tuple)
            and len({row[i : i + count] for i in range(0, len(row), count)}) > 1
            for entry in self.in_numbers().amounts().values()
            for row in (entry if isinstance(entry, tuple) else ())
        )

    @property
    def has_fillers_or_steps(self) -> bool:
        """Whether fillers run beside the micro-batches, or several steps follow each other."""
        return not self.is_one_plain_step

    @property
    def has_modes(self) -> bool:
        """Whether activations need not be kept."""
        return self.memory is not None and self.memory.has_modes

    @property
    def has_device_choice(self) -> bool:
        """Whether some filler may run on one of several devices."""
        return any(filler.devices for filler in self.fillers)

    @property
    def unit_of_memory(self) -> str:
        """Unit of all amounts of memory, empty where none is declared."""
        return (self.memory and self.memory.unit) or ""

    @property
    def num_slices(self) -> int:
        """Slices of each micro-batch, 1 where it runs as a whole."""
        return count_slices(self.slices)

    @property
    def num_units(self) -> int:
        """Slices of all micro-batches together: what passes through the stages one by one."""
        return self.num_microbatches * self.num_slices

    @property
    def num_stages(self) -> int:
        """Number of stages S of one pipe."""
        if isinstance(self.placement, ExplicitPlacement):
            return len(self.placement.stage_to_device)
        return self.num_devices * stages_per_device(
            self.stages_per_device, self.placement
        )

    @property
    def stage_to_device(self) -> tuple[int, ...]:
        """Device of every stage (of the first pipe, where pipes are bidirectional)."""
        if isinstance(self.placement, ExplicitPlacement):
            return self.placement.stage_to_device
        devices = []
        for stage in range(self.num_stages):
            chunk, rank = divmod(stage, self.num_devices)
            turns_back = self.placement in {"wave", "vshape"} and chunk % 2 == 1
            devices.append(self.num_devices - 1 - rank if turns_back else rank)
        return tuple(devices)

    @property
    def device_speeds(self) -> tuple[Fraction, ...]:
        """Speed of every device, 1 by default."""
        speed = 1 if self.speed is None else self.speed
        return tuple(entry_at(speed, device) for device in range(self.num_devices))

    @property
    def stage_speeds(self) -> tuple[Fraction, ...]:
        """Speed of the device of every stage; both pipes have the same."""
        speeds = self.device_speeds
        return tuple(speeds[device] for device in self.stage_to_device)

    def stage_devices_of_pipes(self) -> tuple[tuple[int, ...], ...]:
        """Return the device of every stage for each pipe: one pipe, or two if bidirectional."""
        down = self.stage_to_device
        return (down, down[::-1]) if self.placement == "bidirectional" else (down,)

    @property
    def pipe_of_microbatch(self) -> IntArray:
        """Pipe of each micro-batch or slice, int64[units]: 0, or 0 then 1 if bidirectional."""
        pipe = np.zeros(self.num_units, dtype=np.int64)
        if self.placement == "bidirectional":
            pipe[self.num_units // 2 :] = 1
        return pipe

    @property
    def device_grid(self) -> IntArray:
        """Device of each stage and micro-batch or slice, int64[S, units]."""
        pipes = np.asarray(self.stage_devices_of_pipes(), dtype=np.int64)
        return pipes[self.pipe_of_microbatch].T

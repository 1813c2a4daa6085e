"""K-FAC instances: second-order work around a pipeline, measured or described."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from ppsolve.models.core.problem import Objective
from ppsolve.models.documents.base import (
    MAX_CLOCK,
    Number,
    StrictModel,
    Whole,
    alternatives,
    as_clock,
    as_json_number,
    describe,
)
from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean
from ppsolve.models.documents.measures import MemoryAmount, Time
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.kfac.labels import KNOWN_LABELS, MAX_LABEL, parse_label
from ppsolve.models.kinds.pipeline.entries import PerDevice, check_length
from ppsolve.models.kinds.pipeline.instance import PipelineInstance

FREE_PIPELINE = "free"
"""Pattern of a pipeline whose ops are scheduled together with the K-FAC work."""

MAX_PAIRS = 1_000_000
"""Most intervals of one device: shipped timelines have up to 189, 100,000 take 27 MB to read."""


def _pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"expected a pair [start, end], got {describe(value)}")
    start, end = value
    if (start is None) != (end is None):
        raise ValueError(
            "expected [start, end] or [null, null], got only one of the two"
        )
    if start is None:
        return (None, None)
    start, end = as_clock(start), as_clock(end)
    if end < start:
        raise ValueError(f"expected an end at or after the start {start}, got {end}")
    return (start, end)


Clock = Annotated[
    Decimal,
    PlainSerializer(as_json_number),
    WithJsonSchema(
        {"type": "number", "minimum": -float(MAX_CLOCK), "maximum": float(MAX_CLOCK)}
    ),
]
"""A reading of a clock: an exact decimal of either sign."""

Pair = Annotated[tuple[Clock, Clock] | tuple[None, None], BeforeValidator(_pair)]
"""Start and end of one measured interval, or two nulls where nothing ran."""


def _timeline(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(
            f"expected an object {{label: [[start, end], ...]}}, got {describe(value)}"
        )
    for label in value:
        if (
            not isinstance(label, str)
            or len(label) > MAX_LABEL
            or parse_label(label) is None
        ):
            name = label[:60] if isinstance(label, str) else describe(label)
            raise ValueError(
                f'unknown label "{name}"'
                + did_you_mean(name.partition(":")[0], KNOWN_LABELS)
            )
    if (
        sum(len(pairs) for pairs in value.values() if isinstance(pairs, list))
        > MAX_PAIRS
    ):
        raise ValueError(f"expected at most {MAX_PAIRS} intervals per device")
    return value


Timeline = Annotated[dict[str, tuple[Pair, ...]], BeforeValidator(_timeline)]
"""Measured intervals of one device by label, as in a PipeFisher timeline."""


class TieBreak(StrEnum):
    """Secondary objective among the schedules with the fewest iterations."""

    STALENESS = "staleness"
    USAGE = "usage"
    NONE = "none"


class KfacModule(StrictModel):
    """K-FAC work of one module (layer) of a stage; times in the instance's unit.

    Parameters
    ----------
    stage : int
        Stage that holds the module.
    name : str
        Name, unique within the stage.
    curvature_a, curvature_b : number
        Curvature of factor A (after a forward) and B (after a backward), per micro-batch.
    sync_a, sync_b : number
        All-reduce of each factor over the replicas, once a refresh.
    replicas : list of int, optional
        Devices that share the module's factors and meet in its sync, besides those that hold
        the stage.
    inverse_a, inverse_b : number
        Inversion of each factor, once a refresh, on each device that holds the stage.
    precondition : number
        Preconditioning of the module's gradient, at the end of each iteration.
    input_bytes, error_bytes : number
        Memory per micro-batch held from the forward (backward) until its curvature is done.
    """

    stage: Annotated[Whole, Field(ge=0)]
    name: Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
    curvature_a: Time[Number]
    curvature_b: Time[Number]
    sync_a: Time[Number] = Field(default=0, validate_default=True)
    sync_b: Time[Number] = Field(default=0, validate_default=True)
    replicas: tuple[Whole, ...] | None = None
    inverse_a: Time[Number]
    inverse_b: Time[Number]
    precondition: Time[Number] = Field(default=0, validate_default=True)
    input_bytes: MemoryAmount[Number] = Field(default=0, validate_default=True)
    error_bytes: MemoryAmount[Number] = Field(default=0, validate_default=True)


class SavedMemory(StrictModel):
    """Saved inputs and errors of measured timelines: the size of each, and the capacity for them.

    A forward of the refresh step saves one `input` per module with a factor A, a backward one
    `error` per module with a factor B; each is given back at the end of its curvature part.
    """

    capacity: MemoryAmount[PerDevice]
    input: MemoryAmount[Number] = Field(default=1, validate_default=True)
    error: MemoryAmount[Number] = Field(default=1, validate_default=True)


class KfacInstance(Instance):
    """K-FAC work of one refresh, hidden in the bubbles of a pipeline.

    Parameters
    ----------
    timelines : list of objects
        Measured intervals per device, as in PipeFisher's timelines; the pipeline is pinned.
    pipeline : PipelineInstance
        Instead of timelines: a described pipeline.
    modules : list of KfacModule
        K-FAC work of a described pipeline.
    pattern : str
        Of a described pipeline: ``free`` (scheduled together with the K-FAC work), or the name of
        a pipeline heuristic whose schedule is pinned and repeated.
    margin_ratio : number
        An op of length d in a hole needs (1 + margin) d before the end of the hole (strictly).
    objective : {"iterations", "makespan"}
        Fewest iterations for one refresh (pinned pipelines), or the makespan of a refresh cycle
        of `refresh_interval` iterations (described pipelines; default for free ones).
    refresh_interval : int, optional
        Iterations of a refresh cycle (makespan, default 1), or the most that are allowed.
    max_age : int, optional
        Of the makespan: inverses must be ready for the preconditioning of this iteration of the
        cycle (0: the one their curvature comes from). Default: the end of the cycle.
    tie_break : {"staleness", "usage", "none"}
        Among schedules with fewest iterations: least total completion time of inversions, or of
        all K-FAC work, or the first one found.
    sync_groups : list of lists of int
        Of timelines: devices that hold replicas of the same modules and meet in their syncs.
    saved : SavedMemory, optional
        Of timelines: memory for saved inputs and errors.
    """

    memory_unit_at: ClassVar[tuple[str, ...]] = ("pipeline", "memory", "unit")

    model_config = ConfigDict(
        json_schema_extra=alternatives(("timelines",), ("pipeline", "modules"))
    )

    kind: Literal["kfac"] = "kfac"
    name: str = "kfac"
    timelines: Annotated[tuple[Timeline, ...], Field(min_length=1)] | None = None
    pipeline: PipelineInstance | None = None
    modules: Annotated[tuple[KfacModule, ...], Field(min_length=1)] | None = None
    pattern: str = FREE_PIPELINE
    margin_ratio: Number = Field(default=Decimal("0.05"), validate_default=True)
    objective: Literal[Objective.ITERATIONS, Objective.MAKESPAN] | None = None
    refresh_interval: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    max_age: Annotated[Whole, Field(ge=0)] | None = None
    tie_break: TieBreak = TieBreak.STALENESS
    sync_groups: tuple[tuple[Whole, ...], ...] = ()
    saved: SavedMemory | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_unit(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("pipeline"), dict):
            return data
        unit = data.get("time_unit", cls.model_fields["time_unit"].default)
        return {**data, "pipeline": {"time_unit": unit, **data["pipeline"]}}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.timelines is None) == (self.pipeline is None):
            raise InputError(
                'expected either "timelines", or "pipeline" and "modules"',
                code=ErrorCode.CONFLICT,
            )
        if self.timelines is not None:
            self._check_timelines()
        else:
            self._check_described()
        return self

    def _check_timelines(self) -> None:
        for field in ("modules", "max_age"):
            if getattr(self, field) is not None:
                raise InputError(
                    "expected only with a described pipeline",
                    field=field,
                    code=ErrorCode.CONFLICT,
                )
        if self.pattern != FREE_PIPELINE:
            raise InputError(
                "timelines are pinned as they were measured",
                field="pattern",
                code=ErrorCode.CONFLICT,
            )
        if self.objective is Objective.MAKESPAN:
            raise InputError(
                'expected "iterations" with timelines',
                field="objective",
                code=ErrorCode.CONFLICT,
            )
        seen: set[int] = set()
        for index, group in enumerate(self.sync_groups):
            field = f"sync_groups[{index}]"
            self._check_devices(group, field, seen)
            seen.update(group)
        if self.saved is not None:
            check_length(
                "saved.capacity", self.saved.capacity, self.num_devices, "device"
            )

    def _check_devices(
        self, devices: tuple[int, ...], field: str, used: set[int]
    ) -> None:
        for index, device in enumerate(devices):
            if not 0 <= device < self.num_devices:
                raise InputError(
                    f"expected a device from 0 to {self.num_devices - 1}, got {device}",
                    field=f"{field}[{index}]",
                    code=ErrorCode.RANGE,
                )
            if device in used or device in devices[:index]:
                raise InputError(
                    f"device {device} is named twice",
                    field=f"{field}[{index}]",
                    code=ErrorCode.CONFLICT,
                )

    def _check_described(self) -> None:
        assert self.pipeline is not None
        for field in ("sync_groups", "saved"):
            if getattr(self, field):
                raise InputError(
                    "expected only with timelines", field=field, code=ErrorCode.CONFLICT
                )
        if self.modules is None:
            raise InputError(
                "this field is required with a pipeline",
                field="modules",
                code=ErrorCode.MISSING,
            )
        if self.pipeline.collectives is not None:
            raise InputError(
                "expected a pipeline without collectives around K-FAC work (its syncs are fields "
                "of the modules)",
                field="pipeline.collectives",
                code=ErrorCode.CONFLICT,
            )
        if not self.pipeline.is_one_plain_step:
            raise InputError(
                'expected one step without fillers ("refresh_interval" is the number of steps)',
                field="pipeline",
                code=ErrorCode.CONFLICT,
            )
        for field, right in (
            ("slices", "whole micro-batches"),
            ("speed", "devices of one speed"),
            ("overlap", "a pipeline without fused blocks"),
        ):
            if getattr(self.pipeline, field) is not None:
                raise InputError(
                    f"expected {right}",
                    field=f"pipeline.{field}",
                    code=ErrorCode.UNSUPPORTED,
                )
        if self.pipeline.time_unit != self.time_unit:
            raise InputError(
                f'expected "{self.time_unit}" as of the instance, got "{self.pipeline.time_unit}"',
                field="pipeline.time_unit",
                code=ErrorCode.CONFLICT,
            )
        if self.pattern == FREE_PIPELINE and self.objective is Objective.ITERATIONS:
            raise InputError(
                'expected "makespan" with a free pipeline (iterations need a pinned pattern)',
                field="objective",
                code=ErrorCode.CONFLICT,
            )
        self._check_modules(self.modules, self.pipeline.num_stages)
        if self.max_age is not None and self.judged_by is Objective.ITERATIONS:
            raise InputError(
                'expected only with the objective "makespan"',
                field="max_age",
                code=ErrorCode.CONFLICT,
            )
        if self.max_age is not None and self.max_age >= self.cycle_length:
            raise InputError(
                f"expected less than the refresh interval {self.cycle_length}, got {self.max_age}",
                field="max_age",
                code=ErrorCode.RANGE,
            )

    def _check_modules(self, modules: tuple[KfacModule, ...], num_stages: int) -> None:
        names = set()
        for index, module in enumerate(modules):
            field = f"modules[{index}]"
            if module.stage >= num_stages:
                raise InputError(
                    f"expected a stage from 0 to {num_stages - 1}, got {module.stage}",
                    field=f"{field}.stage",
                    code=ErrorCode.RANGE,
                )
            if (module.stage, module.name) in names:
                raise InputError(
                    f'stage {module.stage} has two modules "{module.name[:60]}"',
                    field=f"{field}.name",
                    code=ErrorCode.CONFLICT,
                )
            names.add((module.stage, module.name))
            if module.replicas is not None:
                self._check_devices(module.replicas, f"{field}.replicas", set())

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        if self.timelines is not None:
            return len(self.timelines)
        assert self.pipeline is not None
        return self.pipeline.num_devices

    @property
    def cycle_length(self) -> int:
        """Iterations of a refresh cycle with the makespan objective."""
        return self.refresh_interval or 1

    @property
    def judged_by(self) -> Objective:
        """The objective, with its default filled in."""
        if self.objective is not None:
            return self.objective
        is_free = self.timelines is None and self.pattern == FREE_PIPELINE
        return Objective.MAKESPAN if is_free else Objective.ITERATIONS

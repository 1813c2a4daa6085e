"""Changes of a pipeline, each on one axis: what a what-if asks for, and what a curve varies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from ppsolve.models.core.units import amount_in
from ppsolve.models.documents.base import as_json_number
from ppsolve.models.documents.errors import ErrorCode, InputError, errors_about
from ppsolve.models.documents.text import instance_data
from ppsolve.models.kinds.pipeline.entries import rows_per_microbatch
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.modes import DECISIONS
from ppsolve.solver.studies.generate.flags import PerDevice, parse_amount, parse_number
from ppsolve.solver.studies.plan.placements import (
    NamedPlacement,
    on_layout,
    parsed_pipeline,
)


@dataclass(frozen=True)
class PipelineChange:
    """A named function from pipelines to pipelines."""

    axis: str  # name of its axis, or of the function of a user
    value: str  # as it is typed; empty for the function of a user
    make: Callable[[PipelineInstance], PipelineInstance]

    def __call__(self, instance: PipelineInstance) -> PipelineInstance:
        """Return the changed pipeline; an `InputError` names the option."""
        try:
            return self.make(instance)
        except InputError as error:
            name = f"--{self.axis}" if self.value else self.axis
            field = " ".join(filter(None, (name, error.field)))
            raise error.moved(instance.name, field) from None


@dataclass(frozen=True)
class ChangeAxis:
    """What can be changed: how its values are read from text, and what each does."""

    name: str  # of the option
    shown: str  # a change in tables, {} is its value
    read: Callable[[str], Iterable[Any]]
    apply: Callable[[PipelineInstance, Any], PipelineInstance]


@dataclass(frozen=True)
class TimeFactor:
    """A multiple of times, ``x1.5``, or of those of a device, ``2x1.5``."""

    times: Decimal
    device: int | None = None

    def __str__(self) -> str:
        """Return the text that stands for it."""
        return (
            f"{'' if self.device is None else self.device}x{self.times.normalize():f}"
        )


def values_of(text: str) -> list[Decimal | PerDevice]:
    """Read ``FROM:TO:STEP``, ``FROM:TO`` or a list with commas; all may be multiples of p.

    There are at most 1000 values, both ends included where the step meets them. An `InputError`
    says what would be right.
    """
    if ":" not in text:
        return [parse_amount(entry) for entry in text.split(",")]
    entries = [parse_amount(entry) for entry in text.split(":")]
    if len(entries) not in {2, 3} or len({type(entry) for entry in entries}) > 1:
        raise InputError(
            f"expected FROM:TO:STEP in one unit, got {text[:40]!r}",
            code=ErrorCode.SYNTAX,
        )
    is_multiple = isinstance(entries[0], PerDevice)
    first, last, *steps = (p.factor if isinstance(p, PerDevice) else p for p in entries)
    step = steps[0] if steps else Decimal(1)
    if step <= 0 or last < first:
        raise InputError(
            f"expected FROM <= TO and STEP > 0, got {text[:40]!r}", code=ErrorCode.RANGE
        )
    count = int((last - first) / step) + 1
    if count > 1000:
        raise InputError(
            f"expected at most 1000 points, got {count}", code=ErrorCode.RANGE
        )
    values = [first + index * step for index in range(count)]
    return [PerDevice(value) if is_multiple else value for value in values]


def _listed(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [read(word.strip()) for word in text.split(",")]


def _decision(word: str) -> str:
    words = ("none", *DECISIONS)
    if word not in words:
        raise InputError(
            f'expected one of {", ".join(words)}, got "{word[:40]}"',
            code=ErrorCode.UNKNOWN_NAME,
        )
    return word


def _factor(word: str, *, of_device: bool = False) -> TimeFactor:
    match = re.fullmatch(r"(\d{0,9})x(.+)", word)
    if match is None or bool(match[1]) is not of_device:
        expected = (
            "a device and a factor such as 2x1.5"
            if of_device
            else "a factor such as x0.5"
        )
        raise InputError(
            f'expected {expected}, got "{word[:40]}"', code=ErrorCode.RANGE
        )
    return TimeFactor(parse_number(match[2]), int(match[1]) if of_device else None)


_slow_device = partial(_factor, of_device=True)


def _with_microbatches(
    instance: PipelineInstance, value: Decimal | PerDevice
) -> PipelineInstance:
    if isinstance(value, PerDevice) or value != int(value) or value < 1:
        raise InputError(
            f"expected a whole number >= 1, got {value}", code=ErrorCode.RANGE
        )
    return parsed_pipeline(instance_data(instance) | {"num_microbatches": int(value)})


def _with_capacity(
    instance: PipelineInstance, value: Decimal | PerDevice
) -> PipelineInstance:
    data = instance_data(instance)
    if instance.memory is None:
        raise InputError(
            "this pipeline has no memory; give memory.activation",
            field="memory",
            code=ErrorCode.MISSING,
        )
    capacity = as_json_number(value) if isinstance(value, Decimal) else str(value)
    return parsed_pipeline(data | {"memory": data["memory"] | {"capacity": capacity}})


def with_decision(instance: PipelineInstance, decide: str) -> PipelineInstance:
    """Return a pipeline where others choose what is recomputed or copied to the host.

    Raises `InputError`: it has no memory modes.
    """
    data = instance_data(instance)
    if instance.memory is None or not instance.memory.has_modes:
        example = '"recompute": {"modes": [{"name": "full", "time": 2, "held": 0.1}]}'
        raise InputError(
            f"expected memory modes; add {example} to it",
            field="memory",
            code=ErrorCode.MISSING,
        )
    memory = dict(data["memory"])
    for name in ("recompute", "offload"):
        options = memory.pop(name, None)
        if options is not None and decide != "none":
            memory[name] = options | {"decide": decide}
    return parsed_pipeline(data | {"memory": memory})


COMM = ("latency", "bytes", "allreduce", "alltoall", "reduce_scatter", "all_gather")
"""Fields of transfers and collectives that take longer in proportion."""


def _with_comm(instance: PipelineInstance, factor: TimeFactor) -> PipelineInstance:
    data = instance_data(instance)
    entries: dict[str, Any] = {
        name: data[name] for name in ("p2p", "allreduce", "collectives") if name in data
    }
    if _scaled_comm(entries, Decimal(2)) == entries:
        raise InputError(
            "expected transfers or collectives that take time; give p2p.latency",
            code=ErrorCode.MISSING,
        )
    return parsed_pipeline(data | _scaled_comm(entries, factor.times))


def _scaled_comm(entry: dict[str, Any], factor: Decimal) -> dict[str, Any]:
    inner = {
        n: _scaled_comm(child, factor)
        for n, child in entry.items()
        if isinstance(child, dict)
    }
    return entry | inner | {n: _scaled(entry[n], factor) for n in COMM if n in entry}


def _scaled(entry: Any, factor: Decimal) -> Any:
    if isinstance(entry, dict):
        return {name: _scaled(child, factor) for name, child in entry.items()}
    if isinstance(entry, list):
        return [_scaled(child, factor) for child in entry]
    return as_json_number(Decimal(str(entry)) * factor)


def _with_slow_device(instance: PipelineInstance, slow: TimeFactor) -> PipelineInstance:
    if slow.device not in range(instance.num_devices):
        last = instance.num_devices - 1
        raise InputError(
            f"expected a device from 0 to {last}, got {slow.device}",
            code=ErrorCode.RANGE,
        )
    if instance.placement == "bidirectional" or instance.layers is not None:
        raise InputError(
            "expected stages with one device and times of their own",
            code=ErrorCode.UNSUPPORTED,
        )
    factors = [
        slow.times if d == slow.device else Decimal(1) for d in instance.stage_to_device
    ]

    def slowed(entry: Any) -> list[Any]:
        entries = entry if isinstance(entry, list) else [entry] * len(factors)
        return [
            _scaled(time, factor) for time, factor in zip(entries, factors, strict=True)
        ]

    data = instance_data(instance)
    data["times"] = {name: slowed(entry) for name, entry in data["times"].items()}
    for mode in data.get("memory", {}).get("recompute", {}).get("modes", ()):
        mode["time"] = slowed(mode["time"])
    return parsed_pipeline(data)


def _with_fillers(instance: PipelineInstance, factor: TimeFactor) -> PipelineInstance:
    if not instance.fillers:
        raise InputError(
            "this pipeline has no fillers", field="fillers", code=ErrorCode.MISSING
        )
    data = instance_data(instance)
    for filler in data["fillers"]:
        filler["pieces"] = _scaled(filler["pieces"], factor.times)
    return parsed_pipeline(data)


def _slices(word: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,4}(:(uniform|balanced))?", word):
        raise InputError(
            f'expected slices such as 8 or 8:balanced, got "{word[:40]}"',
            code=ErrorCode.SYNTAX,
        )
    return word


def _with_slices(instance: PipelineInstance, value: str) -> PipelineInstance:
    # Numbers are those of one slice; costs over lengths say by themselves what a slice takes.
    count, _, cuts = value.partition(":")
    share = Decimal(instance.num_slices) / int(count)
    data = instance_data(instance)
    for path, entry in instance.amounts().items():
        group, name = path.split(".")
        if rows_per_microbatch(entry):
            raise InputError(
                "expected one number or cost per stage",
                field=path,
                code=ErrorCode.UNSUPPORTED,
            )
        if entry is not None:
            data[group][name] = _cut(data[group][name], share)
    return parsed_pipeline(
        data | {"slices": {"count": int(count), "cuts": cuts or "uniform"}}
    )


def _cut(entry: Any, share: Decimal) -> Any:
    if isinstance(entry, list):
        return [_cut(child, share) for child in entry]
    return entry if isinstance(entry, dict) else _scaled(entry, share)


AXES = {
    axis.name: axis
    for axis in (
        ChangeAxis("microbatches", "{} micro-batches", values_of, _with_microbatches),
        ChangeAxis("slices", "{} slices", _listed(_slices), _with_slices),
        ChangeAxis("capacity", "capacity {}", values_of, _with_capacity),
        ChangeAxis("placements", "{}", _listed(NamedPlacement.read), on_layout),
        ChangeAxis("recompute", "recompute: {}", _listed(_decision), with_decision),
        ChangeAxis("comm", "communication {}", _listed(_factor), _with_comm),
        ChangeAxis(
            "slow", "times of device {}", _listed(_slow_device), _with_slow_device
        ),
        ChangeAxis("fillers", "fillers {}", _listed(_factor), _with_fillers),
    )
}
"""What can be changed, in the order in which changes are made: stages first, then their times."""


def changes_of(name: str, values: Any, unit: str = "") -> list[PipelineChange]:
    """Return the changes on one axis.

    An `InputError` names the option: an unknown axis, no value, or one that cannot be read.

    `name`: of `AXES`, or of a function of one's own.
    `values`: values, or texts of values as the command line takes them, equal ones counted once; or
        a function from pipelines to pipelines.
    `unit`: of the memory of the pipelines, where it is declared: capacities may be ``80GB``.
    """
    if name not in AXES and callable(values):
        return [PipelineChange(name, "", values)]
    if name not in AXES:
        raise InputError.unknown(
            "unknown change",
            name,
            AXES,
        )
    axis = AXES[name]
    listed = (
        values
        if isinstance(values, Iterable) and not isinstance(values, str)
        else [values]
    )
    with errors_about(f"--{name}"):
        texts = [
            _in_unit(str(value), unit) if name == "capacity" else str(value)
            for value in listed
        ]
        read = {_text(value): value for text in texts for value in axis.read(text)}
        if not read:
            raise InputError("expected at least one value", code=ErrorCode.RANGE)
    return [
        PipelineChange(name, text, partial(_applied, axis, value))
        for text, value in read.items()
    ]


def _in_unit(text: str, unit: str) -> str:
    return re.sub("[^,:]+", lambda match: str(amount_in(match[0], unit)), text)


def _applied(
    axis: ChangeAxis, value: Any, instance: PipelineInstance
) -> PipelineInstance:
    return axis.apply(instance, value)


def _text(value: Any) -> str:
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


def shown(changes: Sequence[tuple[str, str]]) -> str:
    """Return changes in words, from pairs of axis and value: ``64 micro-batches, vshape``."""
    words = (
        AXES[axis].shown.format(value) if axis in AXES else axis
        for axis, value in changes
    )
    return ", ".join(words)

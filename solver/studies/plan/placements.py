"""One pipeline on several placements: stages split evenly, or layers grouped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

from ppsolve.models.core.result import Figure
from ppsolve.models.documents.base import as_json_number
from ppsolve.models.documents.errors import (
    ErrorCode,
    InputError,
    did_you_mean,
    errors_in,
)
from ppsolve.models.documents.text import instance_data
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.pipeline.entries import stages_per_device
from ppsolve.models.kinds.pipeline.fields import NAMED_PLACEMENTS
from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.api.kinds import kind_of, parse_instance
from ppsolve.solver.studies.plan.split import SplitParams, SplitProblem, best_split

Convert = Callable[[str, Any], Any]


@dataclass(frozen=True)
class NamedPlacement:
    """A named placement, and its stages per device (None: the default of the placement)."""

    placement: str
    chunks: int | None = None

    @classmethod
    def read(cls, text: str) -> NamedPlacement:
        """Read ``vshape``, ``v`` or ``interleaved:4`` (stages per device); raise `InputError`."""
        name, colon, count = text.strip().partition(":")
        matches = [full for full in NAMED_PLACEMENTS if full.startswith(name)]
        name = matches[0] if len(matches) == 1 else name
        if name not in NAMED_PLACEMENTS:
            names = ", ".join(NAMED_PLACEMENTS)
            raise InputError(
                f'expected {names} (interleaved:4 for four stages per device), got "{name[:40]}"'
                + did_you_mean(name, NAMED_PLACEMENTS),
                code=ErrorCode.UNKNOWN_NAME,
                expected=tuple(NAMED_PLACEMENTS),
            )
        if colon and not (count.isascii() and count.isdecimal() and int(count[:9]) > 0):
            raise InputError(
                f'expected stages per device, a whole number >= 1, got "{count[:40]}"',
                code=ErrorCode.RANGE,
            )
        return cls(name, int(count[:9]) if colon else None)

    def __str__(self) -> str:
        """Return the text that `read` reads."""
        return (
            self.placement if self.chunks is None else f"{self.placement}:{self.chunks}"
        )


def on_layout(instance: Instance, layout: NamedPlacement) -> PipelineInstance:
    """Return a pipeline on another placement.

    If it has one stage per device, the work, activations, gradients and states of each device are
    split evenly over its new stages. If it has more, its stages are taken for layers: they form the
    new stages in their order, so that the slowest device is as fast as can be (`best_split`), and
    figures of a stage are sums over its layers.

    Raises `InputError` where it is not a pipeline, has fewer layers than stages, or amounts that
    cannot be divided: collectives, amounts per micro-batch or over lengths.
    """
    pipeline = pipeline_of(instance)
    with errors_in(pipeline.name):
        return _placed(pipeline, layout)


def pipeline_of(instance: Instance) -> PipelineInstance:
    """Return an instance that is a pipeline; raises `InputError` for another one."""
    if kind_of(instance).name != "pipeline":
        text = f'expected a pipeline, this is of kind "{instance.kind}"'
        raise InputError(text, source=instance.name, code=ErrorCode.UNSUPPORTED)
    return cast("PipelineInstance", instance)


def _placed(instance: PipelineInstance, layout: NamedPlacement) -> PipelineInstance:
    data = instance_data(instance)
    shape = {name: data[name] for name in ("kind", "num_devices", "num_microbatches")}
    shape |= {"placement": layout.placement}
    if stages_per_device(layout.chunks, layout.placement) > 1:
        shape["stages_per_device"] = stages_per_device(layout.chunks, layout.placement)
    for stale in ("stages_per_device", "plan"):
        data.pop(stale, None)
    if instance.layers is not None:
        return parsed_pipeline(_of_layers(data) | shape)
    devices = parsed_pipeline(
        shape | {"times": {"forward": 1, "backward": 1}}
    ).stage_to_device
    if instance.num_stages == instance.num_devices:
        convert = _even_parts(instance, devices)
    else:
        convert = _grouped(instance, devices, data)
    return parsed_pipeline(_converted(data, convert) | shape)


def _of_layers(data: dict[str, Any]) -> dict[str, Any]:
    # Layers say what every stage takes and holds, however many there are.
    if "memory" in data:
        held = {"activation", "static"}
        data["memory"] = {
            n: entry for n, entry in data["memory"].items() if n not in held
        }
    return {name: entry for name, entry in data.items() if name != "times"}


def _even_parts(instance: PipelineInstance, devices: Sequence[int]) -> Convert:
    count = len(devices) // instance.num_devices
    if count > 1 and instance.collectives is not None:
        raise InputError(
            "expected none where stages are split",
            field="collectives",
            code=ErrorCode.CONFLICT,
        )
    stage_of = {device: stage for stage, device in enumerate(instance.stage_to_device)}

    def split(field: str, amounts: Any) -> Any:
        if isinstance(amounts, list):
            return [
                _part(field, amounts[stage_of[device]], count) for device in devices
            ]
        return _part(field, amounts, count)

    return split


def _part(field: str, amount: Any, count: int) -> Any:
    if count == 1:
        return amount
    if isinstance(amount, list | dict):
        raise InputError(
            "expected times that are alike for all micro-batches",
            field=field,
            code=ErrorCode.UNSUPPORTED,
        )
    return as_json_number(Decimal(str(amount)) / count)


def _grouped(
    instance: PipelineInstance, devices: Sequence[int], data: dict[str, Any]
) -> Convert:
    # Sets transferred bytes in `data`.
    if instance.collectives is not None:
        raise InputError(
            "expected none where stages are layers to be grouped",
            field="collectives",
            code=ErrorCode.CONFLICT,
        )
    if instance.memory is not None and instance.memory.forward_peak is not None:
        raise InputError(
            "expected none where layers are grouped",
            field="memory.forward_peak",
            code=ErrorCode.CONFLICT,
        )
    layers = instance.num_stages
    if layers < len(devices):
        text = f"expected at most {layers} stages, one of the layers each, got {len(devices)}"
        raise InputError(text, field="placement", code=ErrorCode.RANGE)
    boundaries = _boundaries(_work(data["times"], layers), devices)
    sent = data.get("p2p", {}).get("bytes")
    if isinstance(sent, list):
        data["p2p"] = data["p2p"] | {
            "bytes": [sent[last - 1] for last in boundaries[1:-1]]
        }

    def total(field: str, amounts: Any) -> list[Figure]:
        by_layer = _numbers(field, amounts, layers)
        return [
            as_json_number(sum(by_layer[first:last], Decimal(0)))
            for first, last in pairwise(boundaries)
        ]

    return total


def _work(times: dict[str, Any], layers: int) -> list[Decimal]:
    columns = (
        _numbers(f"times.{name}", entry, layers) for name, entry in times.items()
    )
    return [sum(amounts, Decimal(0)) for amounts in zip(*columns, strict=True)]


def _numbers(field: str, amounts: Any, layers: int) -> list[Decimal]:
    by_layer = amounts if isinstance(amounts, list) else [amounts] * layers
    if any(isinstance(amount, list | dict) for amount in by_layer):
        raise InputError(
            "expected amounts that are alike for all micro-batches",
            field=field,
            code=ErrorCode.UNSUPPORTED,
        )
    return [Decimal(str(amount)) for amount in by_layer]


def _boundaries(work: Sequence[Decimal], devices: Sequence[int]) -> Sequence[int]:
    # Work is rounded to 1 / 2^30 of all.
    shortest, total = min(filter(None, work), default=Decimal(1)), sum(work, Decimal(0))
    limit = SplitParams.most_searched_ticks
    is_small = all(time % shortest == 0 for time in work) and total / shortest < limit
    tick = shortest if is_small else total / (limit // 2)
    times = (round(time / tick) for time in work)
    split = best_split(SplitProblem.without_memory(times, devices))
    assert split is not None
    return split.boundaries


def _converted(data: dict[str, Any], convert: Convert) -> dict[str, Any]:
    def with_parts(
        path: str, fields: dict[str, Any], names: Sequence[str]
    ) -> dict[str, Any]:
        present = (name for name in names if fields.get(name) is not None)
        return fields | {
            name: convert(f"{path}{name}", fields[name]) for name in present
        }

    changed = with_parts("", data, ("allreduce", "optimizer"))
    changed["times"] = with_parts("times.", data["times"], tuple(data["times"]))
    if "memory" in data:
        held = ("activation", "forward_peak", "static")
        memory = with_parts("memory.", data["memory"], held)
        if recompute := memory.get("recompute"):
            path = "memory.recompute.modes."
            modes = [
                with_parts(path, mode, ("time", "held")) for mode in recompute["modes"]
            ]
            memory["recompute"] = recompute | {"modes": modes}
        if offload := memory.get("offload"):
            copied = ("amount", "out", "back")
            memory["offload"] = with_parts("memory.offload.", offload, copied)
        changed["memory"] = memory
    return changed


def parsed_pipeline(data: dict[str, Any]) -> PipelineInstance:
    """Validate the data of a pipeline."""
    return cast("PipelineInstance", parse_instance(data))

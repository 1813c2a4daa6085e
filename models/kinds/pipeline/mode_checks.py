"""Memory modes that contradict each other or their pipeline are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.entries import (
    check_length,
    decimals,
    entry_at,
    row_of,
)
from ppsolve.models.kinds.pipeline.modes import (
    KEEP,
    OFFLOAD,
    MemoryModes,
    Offload,
    Recompute,
    decision_in_words,
)

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.fields import Memory
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def check_modes(instance: PipelineInstance, memory: Memory) -> None:
    """Refuse modes that contradict each other or the pipeline, whose amounts are numbers.

    An `InputError` names the field and what would be right.
    """
    modes = MemoryModes(instance, memory.recompute, memory.offload)
    if memory.recompute is not None and memory.offload is not None:
        _check_same_decision(memory.recompute, memory.offload)
    if memory.recompute is not None:
        _check_recompute(instance, memory, memory.recompute)
    if memory.offload is not None:
        _check_offload(instance, memory, memory.offload)
    _check_decision(modes, "recompute" if memory.recompute is not None else "offload")


def _check_same_decision(recompute: Recompute, offload: Offload) -> None:
    if recompute.decide != offload.decide:
        raise InputError(
            f"expected {decision_in_words(recompute.decide)} as of recompute, got "
            f"{decision_in_words(offload.decide)}",
            field="memory.offload.decide",
            code=ErrorCode.CONFLICT,
        )


def _check_recompute(
    instance: PipelineInstance, memory: Memory, recompute: Recompute
) -> None:
    seen: set[str] = set()
    for number, mode in enumerate(recompute.modes):
        path = f"memory.recompute.modes[{number}]"
        if mode.name in {KEEP, OFFLOAD} or mode.name in seen:
            raise InputError(
                f'expected a name of its own, other than "{KEEP}" and "{OFFLOAD}", got '
                f'"{mode.name}"',
                field=f"{path}.name",
                code=ErrorCode.CONFLICT,
            )
        seen.add(mode.name)
        check_length(f"{path}.time", mode.time, instance.num_stages, "stage")
        check_length(f"{path}.held", mode.held, instance.num_stages, "stage")
        _check_within(instance, memory, f"{path}.held", mode.held)


def _check_offload(
    instance: PipelineInstance, memory: Memory, offload: Offload
) -> None:
    for field in ("amount", "out", "back"):
        entry = getattr(offload, field)
        check_length(f"memory.offload.{field}", entry, instance.num_stages, "stage")
    _check_within(instance, memory, "memory.offload.amount", offload.amount)
    host, devices = offload.host_capacity, instance.num_devices
    check_length("memory.offload.host_capacity", host, devices, "device")
    linked: set[int] = set()
    for number, link in enumerate(offload.links or ()):
        field = f"memory.offload.links[{number}]"
        for device in link:
            if device >= devices:
                raise InputError(
                    f"expected devices from 0 to {devices - 1}, got {device}",
                    field=field,
                    code=ErrorCode.RANGE,
                )
            if device in linked:
                raise InputError(
                    f"expected every device at most once in links, got {device} twice",
                    field=field,
                    code=ErrorCode.CONFLICT,
                )
            linked.add(device)


def _check_within(
    instance: PipelineInstance, memory: Memory, field: str, entry: Any
) -> None:
    for stage in range(instance.num_stages):
        limit = min(decimals(row_of(memory.activation, stage)))
        if entry_at(entry, stage) > limit:
            raise InputError(
                f"expected at most the activation ({float(limit):g}) of stage {stage}, got "
                f"{float(entry_at(entry, stage)):g}",
                field=field,
                code=ErrorCode.RANGE,
            )


def _check_decision(modes: MemoryModes, field: str) -> None:
    path, instance, decide = f"memory.{field}.decide", modes.instance, modes.decide
    if decide == "window" and instance.placement not in {"linear", "interleaved"}:
        raise InputError(
            'expected placement "linear" or "interleaved" where windows decide',
            field="placement",
            code=ErrorCode.CONFLICT,
        )
    if isinstance(decide, str):
        return
    if len(decide) != instance.num_stages:
        raise InputError(
            f"expected the mode of each of {instance.num_stages} stages, got {len(decide)}",
            field=path,
            code=ErrorCode.LENGTH,
        )
    for stage, entry in enumerate(decide):
        row = entry if isinstance(entry, tuple) else (entry,)
        if isinstance(entry, tuple) and len(row) != instance.num_microbatches:
            raise InputError(
                f"expected the mode of each of {instance.num_microbatches} micro-batches, got "
                f"{len(row)}",
                field=f"{path}[{stage}]",
                code=ErrorCode.LENGTH,
            )
        for name in row:
            if name not in modes.names:
                raise InputError(
                    f'expected one of {", ".join(modes.names)}, got "{name}"',
                    field=f"{path}[{stage}]",
                    code=ErrorCode.UNKNOWN_NAME,
                )

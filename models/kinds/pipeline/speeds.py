"""Devices of unequal speed: what their stages take."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.fields import Memory
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance
    from ppsolve.models.kinds.pipeline.overlap_blocks import FusedBlocks


def at_speeds(instance: PipelineInstance) -> dict[str, Any]:
    """Return the fields of a pipeline in numbers whose devices are of one speed again.

    Stages take what they take on their devices, in fractions, which no document has.
    """
    speeds = instance.stage_speeds
    times = {
        field: _divided(entry, speeds)
        for field, entry in instance.times
        if entry is not None
    }
    update: dict[str, Any] = {
        "speed": None,
        "times": instance.times.model_copy(update=times),
    }
    if instance.optimizer is not None:
        update["optimizer"] = _divided(instance.optimizer, speeds)
    if instance.memory is not None:
        update["memory"] = _recomputing(instance.memory, speeds)
    if instance.overlap is not None:
        update["overlap"] = _fused(instance.overlap, speeds)
    return update


def _divided(entry: Any, speeds: Sequence[Fraction]) -> tuple[Any, ...]:
    """Return an entry with a number for each stage, or one for each of its micro-batches."""
    rows: list[Any] = []
    for stage, speed in enumerate(speeds):
        row = entry[stage] if isinstance(entry, tuple) else entry
        if isinstance(row, tuple):
            rows.append(tuple(Fraction(number) / speed for number in row))
        else:
            rows.append(Fraction(row) / speed)
    return tuple(rows)


def _recomputing(memory: Memory, speeds: Sequence[Fraction]) -> Memory:
    if memory.recompute is None:
        return memory
    modes = tuple(
        mode.model_copy(update={"time": _divided(mode.time, speeds)})
        for mode in memory.recompute.modes
    )
    recompute = memory.recompute.model_copy(update={"modes": modes})
    return memory.model_copy(update={"recompute": recompute})


def _fused(blocks: FusedBlocks, speeds: Sequence[Fraction]) -> FusedBlocks:
    if blocks.time is None:
        return blocks
    rows = []
    for stage, speed in enumerate(speeds):
        row = blocks.time[stage] if isinstance(blocks.time, tuple) else blocks.time
        cells = row if isinstance(row, tuple) else (row,) * len(speeds)
        # Blocks are of stages on one device, which have its speed.
        rows.append(tuple(_time_of_block(cell, speed) for cell in cells))
    return blocks.model_copy(update={"time": tuple(rows)})


def _time_of_block(cell: Any, speed: Fraction) -> Any:
    # The time of a program is not known yet.
    return cell if cell is None or isinstance(cell, str) else Fraction(cell) / speed

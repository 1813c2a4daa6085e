"""The field ``overlap`` of a pipeline: forwards and backwards that may run as one block.

DualPipe (DeepSeek-V3, 2024) and the combined 1F1B of Megatron-LM run the forward of one micro-batch
and the backward of another one together, so that the all-to-alls of one hide behind the compute of
the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain, product
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from ppsolve.models.core.problem import Objective
from ppsolve.models.documents.base import (
    Number,
    StrictModel,
    as_decimal,
    describe,
    error_at,
)
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.measures import MemoryAmount, NamesBeside, Time
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.pipeline.entries import entry_at

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def _table(value: Any) -> Any:
    """Read a number or a name, or rows of them and nulls."""

    def number(entry: Any, *path: int) -> Any:
        try:
            is_other = isinstance(entry, str) or (path and entry is None)
            return entry if is_other else as_decimal(entry)
        except ValueError as error:
            raise error_at(path, error) from None

    if not isinstance(value, list | tuple):
        return number(value)
    for row, values in enumerate(value):
        if not isinstance(values, list | tuple):
            expected = "a row with an entry per stage of the backward"
            raise error_at((row,), f"expected {expected}, got {describe(values)}")
    return tuple(
        tuple(number(e, r, c) for c, e in enumerate(row)) for r, row in enumerate(value)
    )


PerPair = Annotated[
    str | Number | tuple[tuple[str | Number | None, ...], ...], BeforeValidator(_table)
]
"""A number, or a row for each stage of the forward with an entry for each of the backward.

A name stands for the time of a program.
"""

PROGRAMS = "programs"
"""Field of the programs of blocks, and of results that have solved them."""


class FusedBlocks(StrictModel):
    """Forwards that may run with backwards of other micro-batches on their device, as one op.

    Both start together, when all is there that either waits for, and end together.

    Parameters
    ----------
    time : number or matrix, optional
        Time of a block, or of the forward of stage s with the backward of stage t in row s and
        column t; null where these two may not be fused. The name of a program stands for the time
        of its best order, which is searched first.
    programs : dict of str to OverlapInstance
        Kernels and collectives of blocks, in the time unit of the pipeline.
    ratio : number, optional
        Instead of `time`: time of a block over that of its ops one after the other.
    memory : number or matrix
        What a block holds while it runs, beside what its ops hold.
    with_weight : bool
        Whether the block has the weight gradient too, where backwards are split.
    """

    time: Annotated[Time[PerPair], NamesBeside(PROGRAMS)] | None = None
    ratio: Annotated[Number, Field(gt=0, le=1)] | None = None
    memory: MemoryAmount[PerPair] = Field(default=0, validate_default=True)
    with_weight: bool = True
    programs: dict[str, OverlapInstance] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.time is None) == (self.ratio is None):
            raise ValueError('expected either "time" or "ratio"')
        return self

    def with_times(self, times: Mapping[str, Any]) -> Self:
        """Return the blocks with numbers, by name, in place of programs."""

        def filled(entry: Any) -> Any:
            if isinstance(entry, tuple):
                return tuple(map(filled, entry))
            return as_decimal(times[entry]) if isinstance(entry, str) else entry

        return self.model_copy(update={"time": filled(self.time), PROGRAMS: {}})

    def entries_of(
        self, forward: int, backward: int, sequential: Fraction, again: Fraction
    ) -> tuple[Fraction, Fraction] | None:
        """Return the time of a block of two stages and what it holds, None where there is none.

        Times are in the unit of the instance: of its ops one after the other, and for which the
        backward recomputes before, which only a ratio hides.
        """
        time = _entry(self.time, forward, backward)
        if self.ratio is not None:
            time = Fraction(self.ratio) * (sequential + again)
        elif time:
            time += again
        memory = _entry(self.memory, forward, backward) or Fraction(0)
        return (time, memory) if time else None

    def kinds(self, *, is_split: bool) -> tuple[str, ...]:
        """Return the kinds of the ops of a block, the forward first."""
        if not is_split:
            return "F", "B"
        return ("F", "I", "W") if self.with_weight else ("F", "I")

    def check(self, instance: PipelineInstance) -> None:
        """Refuse another objective, and matrices that do not fit, by an `InputError`."""
        if instance.objective is not Objective.MAKESPAN:
            raise InputError(
                'expected "makespan" beside "overlap"',
                field="objective",
                code=ErrorCode.CONFLICT,
            )
        if instance.layers is not None and self.ratio is None:
            text = 'expected "ratio" beside "layers", on which times of blocks depend'
            raise InputError(text, field="overlap.time", code=ErrorCode.CONFLICT)
        self._check_programs(instance)
        for name in ("time", "memory"):
            if isinstance(getattr(self, name), tuple):
                self._check_table(f"overlap.{name}", getattr(self, name), instance)
        for forward, backward in stage_pairs(instance) if self.ratio is None else ():
            if _cell(self.time, forward, backward) == 0:
                text = f"expected a time > 0 of stages {forward} and {backward}, got 0"
                raise InputError(text, field="overlap.time", code=ErrorCode.RANGE)

    def _check_programs(self, instance: PipelineInstance) -> None:
        for name in sorted(_names(self.time) ^ self.programs.keys()):
            if name in self.programs:
                text = f'expected each program to be the time of a block, "{name[:60]}" is not'
                raise InputError(text, field=f"overlap.{PROGRAMS}")
            text = f'expected a number or the name of a program, got "{name[:60]}"'
            raise InputError(text, field="overlap.time")
        if _names(self.memory):
            raise InputError(
                "expected a number, got a text",
                field="overlap.memory",
                code=ErrorCode.TYPE,
            )
        for name, program in self.programs.items():
            if program.time_unit != instance.time_unit:
                unit = program.time_unit
                text = (
                    f'expected "{instance.time_unit}", as of the pipeline, got "{unit}"'
                )
                raise InputError(
                    text,
                    field=f"overlap.{PROGRAMS}.{name}.time_unit",
                    code=ErrorCode.CONFLICT,
                )

    def _check_table(self, field: str, entry: Any, instance: PipelineInstance) -> None:
        stages = instance.num_stages
        for path, row in [
            (field, entry),
            *((f"{field}[{n}]", r) for n, r in enumerate(entry)),
        ]:
            if len(row) != stages:
                text = f"expected {stages} entries (one per stage), got {len(row)}"
                raise InputError(text, field=path, code=ErrorCode.LENGTH)


def _names(entry: Any) -> set[str]:
    cells = chain.from_iterable(entry) if isinstance(entry, tuple) else (entry,)
    return {cell for cell in cells if isinstance(cell, str)}


def _cell(entry: Any, forward: int, backward: int) -> Any:
    return entry[forward][backward] if isinstance(entry, tuple) else entry


def _entry(entry: Any, forward: int, backward: int) -> Fraction | None:
    cell = _cell(entry, forward, backward)
    if isinstance(cell, str):
        text = f'expected a number: only what optimizes it knows the time of program "{cell}"'
        raise InputError(text, field="overlap.time")
    return None if cell is None else Fraction(cell)


def timed_by(instance: PipelineInstance, document: Any) -> PipelineInstance:
    """Return the pipeline whose blocks take as long as the programs of its result.

    It is the same where no block is a program, or the document has none. An `InputError` says that
    a program is missing, or has no value.
    """
    blocks = instance.overlap
    results = document.get(PROGRAMS) if isinstance(document, dict) else None
    if blocks is None or not blocks.programs or results is None:
        return instance
    values = {}
    for name in blocks.programs:
        result = results.get(name) if isinstance(results, dict) else None
        value = result.get("value") if isinstance(result, dict) else None
        if not isinstance(value, int | float) or value <= 0:
            raise InputError(
                "expected the result of the program", field=f"{PROGRAMS}.{name}"
            )
        values[name] = value
    return instance.model_copy(update={"overlap": blocks.with_times(values)})


def stage_pairs(instance: PipelineInstance) -> Iterator[tuple[int, int]]:
    """Yield the stages of a forward and a backward that are on one device, in some pipe each."""
    devices = np.array(instance.stage_devices_of_pipes())
    shared = (devices[:, None, :, None] == devices[None, :, None, :]).any(axis=(0, 1))
    yield from zip(*(column.tolist() for column in np.nonzero(shared)), strict=True)


def times_alone(
    instance: PipelineInstance, stage: int, microbatch: int
) -> list[Fraction]:
    """Return the times of the forward and of the backward part of a block, each by itself.

    The pipeline is in numbers, with fused blocks.
    """
    assert instance.overlap is not None
    kinds = instance.overlap.kinds(is_split=instance.times.is_split)
    entries = instance.times.by_kind()
    forward, *backward = (entry_at(entries[kind], stage, microbatch) for kind in kinds)
    return [forward, sum(backward, Fraction(0))]


def block_times(
    instance: PipelineInstance, again: Iterable[Fraction] = ()
) -> Iterator[Fraction]:
    """Yield times of which those of all fused blocks of a pipeline in numbers are sums.

    A block has a share of the further times of ops in `again`.
    """
    blocks, rows = instance.overlap, range(instance.num_microbatches)
    if blocks is None:
        return
    if blocks.ratio is not None:
        yield from (Fraction(blocks.ratio) * time for time in again)
    for pair in stage_pairs(instance):
        op_times = [
            {times_alone(instance, s, i)[index] for i in rows}
            for index, s in enumerate(pair)
        ]
        for forward, backward in product(*op_times):
            entries = blocks.entries_of(*pair, forward + backward, Fraction(0))
            yield from () if entries is None else entries[:1]

"""Fillers of a pipeline instance: other work that runs in its bubbles."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from ppsolve.models.core.keys import DeviceName
from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.measures import MemoryAmount, Time
from ppsolve.models.kinds.pipeline.collectives import DATA_PARALLEL, Collectives

if TYPE_CHECKING:
    from ppsolve.models.kinds.pipeline.instance import PipelineInstance

_OP = re.compile(r"([A-Z]+)(\d{1,7})(?:\.(\d{1,7}))?(?:@(\d{1,7}))?", re.ASCII)


class OpOfStep(NamedTuple):
    """An op of a pipeline with several steps: ``F0.3@1``; of all micro-batches: ``F0``."""

    kind: str
    stage: int
    microbatch: int | None
    step: int

    @classmethod
    def parse(cls, text: str) -> OpOfStep | None:
        """Return the parts of a name, None if it is none of an op."""
        match = _OP.fullmatch(text)
        if match is None:
            return None
        kind, stage, index, step = match.groups()
        return cls(
            kind, int(stage), None if index is None else int(index), int(step or 0)
        )


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda value: (value,) if isinstance(value, str) else value,
        json_schema_input_type=str | tuple[str, ...],
    ),
]
"""One op or filler, or a list of them."""


class FillerMemory(StrictModel):
    """Memory of a filler on its device.

    `waiting` is held from the start of the op `after` which it runs until the filler has ended,
    `running` from its start until it has ended.
    """

    waiting: MemoryAmount[Number] = Field(default=0, validate_default=True)
    running: MemoryAmount[Number] = Field(default=0, validate_default=True)


class Filler(StrictModel):
    """A job beside the ops of a pipeline, on one device.

    Parameters
    ----------
    name : str
        Name, unique; its op is called so. It begins with a small letter.
    device : int
        The device.
    devices : list of int
        Other devices that may run it instead; then it is one piece without memory.
    stream : str
        What it occupies: the ``compute`` stream of the device, its ``comm`` stream (with
        `comm_streams` ``per_kind`` that of gradients and parameters), or its ``host`` (copies to
        the host's memory).
    pieces : list of numbers
        Times of its pieces, which run in order; between two of them the device may run other ops.
    release : number
        It starts at this moment or later.
    after, before : op or list of ops
        It starts after these have ended, and ends before these start, on whatever device. It may
        also start after fillers that stand above it.
    per_step : bool
        It runs once in each step, after and before the ops of that step. A step that an op names
        is counted from there; where that is behind the last one, nothing waits.
    memory : FillerMemory, optional
    """

    name: Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9_.:-]*$", max_length=100)]
    device: Annotated[Whole, Field(ge=0)]
    devices: tuple[Whole, ...] = ()
    stream: Literal["compute", "comm", "host"] = "compute"
    pieces: Time[Annotated[tuple[Number, ...], Field(min_length=1, max_length=10_000)]]
    release: Time[Number] = Field(default=Decimal(0), validate_default=True)
    after: Names = ()
    before: Names = ()
    per_step: bool = False
    memory: FillerMemory = FillerMemory()

    def stream_on(self, device: int, instance: PipelineInstance) -> DeviceName:
        """Return the resource that it takes on a device of a pipeline beside whose ops it runs."""
        collectives = instance.collectives or Collectives()
        roles = {"compute": "device", "comm": collectives.comm_stream(DATA_PARALLEL)}
        return DeviceName(roles.get(self.stream, self.stream), (device,))


def check_fillers(instance: PipelineInstance) -> None:
    """Refuse fillers of one name, or on what is not there; an `InputError` says which field."""
    names = set()
    for index, filler in enumerate(instance.fillers):
        field = f"fillers[{index}]"
        if filler.name in names:
            raise InputError(
                f'two fillers are called "{filler.name}"',
                field=f"{field}.name",
                code=ErrorCode.CONFLICT,
            )
        names.add(filler.name)
        for device in (filler.device, *filler.devices):
            if device not in range(instance.num_devices):
                raise InputError(
                    f"expected devices from 0 to {instance.num_devices - 1}, got {device}",
                    field=f"{field}.device{'s' * bool(filler.devices)}",
                    code=ErrorCode.RANGE,
                )
        if filler.devices and (
            len(filler.pieces) > 1
            or filler.memory != FillerMemory()
            or len({filler.device, *filler.devices}) <= len(filler.devices)
        ):
            raise InputError(
                "expected different devices, and a filler of one piece without memory",
                field=f"{field}.devices",
                code=ErrorCode.CONFLICT,
            )
        if any(amount for _, amount in filler.memory) and instance.memory is None:
            raise InputError(
                'expected "memory" of the pipeline beside that of a filler',
                field=f"{field}.memory",
                code=ErrorCode.MISSING,
            )

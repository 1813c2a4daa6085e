"""Fields of a pipeline instance: placement, times, transfers and memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from ppsolve.models.documents.base import StrictModel, Whole, describe, error_at
from ppsolve.models.documents.errors import ErrorCode, InputError, did_you_mean
from ppsolve.models.documents.measures import Bandwidth, ByteCount, MemoryAmount, Time
from ppsolve.models.kinds.pipeline.entries import (
    DeviceMatrix,
    HasBackward,
    PerBoundaryAndMicrobatch,
    PerDevice,
    PerStage,
    PerStageAndMicrobatch,
    PerStageShare,
    with_multiples,
)
from ppsolve.models.kinds.pipeline.modes import Offload, Recompute

NAMED_PLACEMENTS = ("linear", "interleaved", "vshape", "wave", "bidirectional")


class ExplicitPlacement(StrictModel):
    """Device of every stage; its length fixes the number of stages."""

    stage_to_device: tuple[Whole, ...] = Field(min_length=1)


def _placement(value: Any) -> Any:
    if isinstance(value, str) and value not in NAMED_PLACEMENTS:
        raise error_at(
            (),
            f'expected a known placement, got "{value}"'
            + did_you_mean(value, NAMED_PLACEMENTS),
            ErrorCode.UNKNOWN_NAME,
        )
    if not isinstance(value, str | dict | ExplicitPlacement):
        names = ", ".join(NAMED_PLACEMENTS)
        raise ValueError(
            f'expected one of {names}, or {{"stage_to_device": [...]}}, got {describe(value)}'
        )
    return value


# The tags have a dash, which keeps them out of the field paths of errors.
Placement = Annotated[
    Annotated[
        Literal["linear", "interleaved", "vshape", "wave", "bidirectional"],
        Tag("by-name"),
    ]
    | Annotated[ExplicitPlacement, Tag("by-stage")],
    Discriminator(lambda value: "by-name" if isinstance(value, str) else "by-stage"),
    BeforeValidator(_placement),
]


def _optional(name: str) -> Any:
    """Change of a JSON Schema that requires a field elsewhere: not in pipelines with layers."""
    return lambda schema: schema["required"].remove(name)


class Times(HasBackward):
    """Op durations per stage; an entry may be a list with one duration per micro-batch.

    An entry, or the item of a stage, may also be a cost over the lengths of the pipeline. Either
    `backward` (fused) or both `backward_input` and `backward_weight` (split).
    """

    model_config = ConfigDict(json_schema_extra=_optional("forward"))

    forward: Time[PerStageAndMicrobatch]
    backward: Time[PerStageAndMicrobatch] | None = None
    backward_input: Time[PerStageAndMicrobatch] | None = None
    backward_weight: Time[PerStageAndMicrobatch] | None = None


class P2P(StrictModel):
    """Transfers between stages on different devices.

    Mode ``delay``: a lag, unlimited in parallel. Mode ``link``: an op of bytes / bandwidth on the
    directed link between two devices, then the latency as lag. Mode ``nic``: the same op on the
    one NIC of the sender and the one of the receiver. Mode ``send_queue``: the same op on the one
    queue of the sender, whatever the receiver (DynaPipe, Jiang et al. 2024). `bytes` is a number
    or has an entry per boundary: a number, a list with one per micro-batch, or a cost over lengths.

    Modes ``buffered`` and ``rendezvous``: devices post sends and receives and wait for them where
    their runtime does. The n-th send from one device to another meets its n-th receive. Data arrive
    after the latency, counted from the send (``buffered``, where a send ends at once), or from the
    later one of send and receive (``rendezvous``, where both end then). A device that may run any
    program posts a receive when the data are sent, so that it waits as for a delay.
    """

    mode: Literal["delay", "link", "nic", "send_queue", "buffered", "rendezvous"] = (
        "delay"
    )
    latency: Time[DeviceMatrix] = Field(default=0, validate_default=True)
    bytes: ByteCount[PerBoundaryAndMicrobatch] | None = None
    bandwidth: Bandwidth[DeviceMatrix] | None = None

    @property
    def has_ops(self) -> bool:
        """Whether a transfer is an op that occupies something."""
        return self.mode in {"link", "nic", "send_queue"}

    @property
    def is_waited_for(self) -> bool:
        """Whether devices post transfers and wait for them."""
        return self.mode in {"buffered", "rendezvous"}

    @model_validator(mode="after")
    def _bytes_need_a_link(self) -> Self:
        present = (self.bytes is not None, self.bandwidth is not None)
        if not self.has_ops and any(present):
            raise ValueError(
                'expected mode "link", "nic" or "send_queue" where bytes or bandwidth are given'
            )
        if self.has_ops and not all(present):
            raise ValueError(
                f'expected "bytes" and "bandwidth" with mode "{self.mode}"'
            )
        if self.bandwidth == 0:
            raise InputError(
                "expected a bandwidth > 0, got 0",
                field="p2p.bandwidth",
                code=ErrorCode.RANGE,
            )
        return self


class Memory(StrictModel):
    """Memory of each device and the amounts that its stages hold.

    A forward acquires `activation`; the share `released_by_backward_weight` of it is held until
    the weight-gradient backward ends (default 1, as PyTorch's weight gradient needs the saved
    activation), the rest until the input-gradient backward ends. `left_to_weight` is the amount in
    place of the share; what it has more than the activation is taken when the input-gradient
    backward starts. With fused backwards both are ignored.

    While it runs, a forward holds `forward_peak` (default `activation`, never less) and gives the
    excess back at its end. Entries of both may be lists with one amount per micro-batch, or costs
    over lengths. With slices a forward takes `key_value` besides, the keys and values that later
    slices attend to; all of a micro-batch are given back when its last backward on the stage ends,
    that of slice 0. A pipeline takes the text ``1.25p`` for a capacity of 1.25 activations (of
    whole micro-batches) per stage of all its devices together. With a `unit`, that of all numbers,
    amounts may be texts such as ``80GB``. With `recompute` or `offload` activations need not be
    kept, see `ppsolve.models.kinds.pipeline.modes`.
    """

    model_config = ConfigDict(json_schema_extra=_optional("activation"))

    unit: Literal["B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"] | None = None
    capacity: MemoryAmount[PerDevice] = Field(json_schema_extra=with_multiples)
    activation: MemoryAmount[PerStageAndMicrobatch]
    forward_peak: MemoryAmount[PerStageAndMicrobatch] | None = None
    left_to_weight: MemoryAmount[PerStageAndMicrobatch] | None = None
    key_value: MemoryAmount[PerStageAndMicrobatch] | None = None
    released_by_backward_weight: PerStageShare = Field(default=1, validate_default=True)
    static: MemoryAmount[PerStage] = Field(default=0, validate_default=True)
    recompute: Recompute | None = None
    offload: Offload | None = None

    @property
    def has_modes(self) -> bool:
        """Whether activations need not be kept."""
        return self.recompute is not None or self.offload is not None

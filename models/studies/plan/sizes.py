"""Sizes of a decoder, of a cluster and of a step, from which requests for plans are written."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.kinds.pipeline.origin import LayerRecompute
from ppsolve.models.studies.plan.profile import MAX_LAYERS

Count = Annotated[Whole, Field(ge=1, le=10**9)]
CountOrNone = Annotated[Whole, Field(ge=0, le=10**9)]
Positive = Annotated[Number, Field(gt=0)]


class Sizes(StrictModel):
    """Sizes of a decoder, of its cluster and of a step.

    Parameters
    ----------
    layers, hidden, heads, sequence_length, vocabulary : int
        Of the model; layers are transformer blocks.
    kv_heads, head_dim : int, optional
        Heads of keys and values, `heads` by default, and the width of a head, hidden / heads.
    ffn, gated
        Width of the feed-forward layer, 4 x hidden by default. Gated ones have three matrices; such
        models have no biases, no learned positions and no dropout, as Llama's.
    experts, experts_per_token, shared_experts, expert_ffn, dense_layers : int
        Experts that a router chooses from for each token, those beside that all tokens pass, their
        width (`ffn` by default), and the blocks before the first one with experts.
    query_rank, kv_rank, rope_dim : int
        Latent attention (DeepSeek-V2): ranks of queries and of keys and values, and the part of a
        head that has positions.
    microbatch_sizes : list of int
        Samples of a micro-batch to choose from.
    batch_size : int
        Samples of a step.
    devices, devices_per_node : int
        Of the whole cluster; `devices_per_node` is all of them by default.
    memory : number
        Bytes of each device.
    flops : number
        Floating-point operations per second of a device, as measured: about half the promised peak.
    bandwidth, node_bandwidth : number
        Bytes per second of one device's transfers within a node, and between nodes.
    latency : number
        Microseconds until a transfer begins.
    tensor_parallel, context_parallel : int
        Devices that share each layer, and each sequence; such a group is one device of a pipeline.
    sequence_parallel : bool
        They also share what tensor parallelism leaves whole (Korthikanti et al. 2022).
    expert_parallel : int
        Replicas among which the experts of a block are shared out.
    optimizer_shards : int
        Replicas that share the optimizer's states: a distributed optimizer, or FSDP that keeps
        gathered parameters during a step.
    flash_attention : bool
        Attention keeps no scores.
    recompute : str
        ``selective`` runs the attention core again in the backward, ``full`` whole layers.
    """

    name: str = "plan"
    layers: Annotated[Whole, Field(ge=1, le=MAX_LAYERS - 2)]
    hidden: Count
    heads: Count
    sequence_length: Count
    vocabulary: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count | None = None
    gated: bool = False
    experts: CountOrNone = 0
    experts_per_token: Count = 1
    shared_experts: CountOrNone = 0
    expert_ffn: Count | None = None
    dense_layers: CountOrNone = 0
    query_rank: CountOrNone = 0
    kv_rank: CountOrNone = 0
    rope_dim: CountOrNone = 0
    microbatch_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    batch_size: Count
    devices: Count
    devices_per_node: Count | None = None
    memory: Positive
    flops: Positive
    bandwidth: Positive
    node_bandwidth: Positive | None = None
    latency: Number = Field(default=0, validate_default=True)
    tensor_parallel: Count = 1
    context_parallel: Count = 1
    expert_parallel: Count = 1
    optimizer_shards: Count = 1
    sequence_parallel: bool = False
    flash_attention: bool = False
    recompute: LayerRecompute = "none"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.head_dim is None:
            self._check_divides("heads", "hidden")
        self._check_divides("tensor_parallel", "heads")
        if self.kv_heads is not None:
            self._check_divides("kv_heads", "heads")
        self._check_divides("context_parallel", "sequence_length")
        self._check_experts()
        self._check_latent_attention()
        self._check_cluster()
        if all(self.batch_size % size for size in self.microbatch_sizes):
            raise InputError(
                f"expected a divisor of batch_size ({self.batch_size}) among them, got "
                + ", ".join(map(str, self.microbatch_sizes)),
                field="microbatch_sizes",
            )
        return self

    def _check_cluster(self) -> None:
        if self.devices_per_node is not None:
            self._check_divides("devices_per_node", "devices")
        if self.context_parallel == 1:
            self._check_group("tensor_parallel", "", self.tensor_parallel)
        else:
            self._check_group("context_parallel", " x tensor_parallel", self.group_size)
        if self.devices % (self.group_size * self.replica_unit):
            raise InputError(
                f"expected replicas, of {self.group_size} devices or more each, to be a multiple "
                f"of {self.replica_unit} on {self.devices} devices",
                field="expert_parallel"
                if self.expert_parallel > 1
                else "optimizer_shards",
            )
        if self.devices > self.node_size and self.node_bandwidth is None:
            text = f"this is required with {self.devices // self.node_size} nodes"
            raise InputError(text, field="node_bandwidth", code=ErrorCode.MISSING)

    def _check_experts(self) -> None:
        if not self.experts:
            for field in ("shared_experts", "expert_ffn", "dense_layers"):
                if getattr(self, field):
                    text = f"expected experts beside {field}"
                    raise InputError(text, field=field, code=ErrorCode.MISSING)
            if self.experts_per_token > 1 or self.expert_parallel > 1:
                raise InputError(
                    "expected experts, there are none",
                    field="experts",
                    code=ErrorCode.CONFLICT,
                )
            return
        self._check_divides("expert_parallel", "experts")
        if self.experts_per_token > self.experts:
            text = f"expected at most the {self.experts} experts, got "
            raise InputError(
                f"{text}{self.experts_per_token}", field="experts_per_token"
            )
        if self.dense_layers >= self.layers:
            text = (
                f"expected less than the {self.layers} layers, got {self.dense_layers}"
            )
            raise InputError(text, field="dense_layers", code=ErrorCode.MISSING)

    def _check_latent_attention(self) -> None:
        ranks = self.query_rank, self.kv_rank, self.rope_dim
        if any(ranks) and not all(ranks):
            text = "expected query_rank, kv_rank and rope_dim together"
            raise InputError(text, field="kv_rank", code=ErrorCode.MISSING)

    def _check_divides(self, field: str, name: str) -> None:
        divisor, number = getattr(self, field), getattr(self, name)
        if number % divisor:
            raise InputError(
                f"expected a divisor of {name} ({number}), got {divisor}", field=field
            )

    def _check_group(self, field: str, factors: str, size: int) -> None:
        if self.node_size % size:
            raise InputError(
                f"expected a divisor of devices_per_node ({self.node_size}), got {size}"
                + (f" ({field}{factors})" if factors else ""),
                field=field,
            )

    @property
    def node_size(self) -> int:
        """Devices of a node."""
        return self.devices_per_node or self.devices

    @property
    def group_size(self) -> int:
        """Devices that are one device of a pipeline."""
        return self.tensor_parallel * self.context_parallel

    @property
    def replica_unit(self) -> int:
        """Number that divides the number of replicas of every plan."""
        return math.lcm(self.expert_parallel, self.optimizer_shards)

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Width of all keys, and of all values."""
        return (self.kv_heads or self.heads) * self.head_width

    @property
    def feed_forward(self) -> int:
        """Width of the feed-forward layer."""
        return self.ffn or 4 * self.hidden

    @property
    def expert_width(self) -> int:
        """Width of an expert."""
        return self.expert_ffn or self.feed_forward

    @property
    def block_kinds(self) -> dict[bool, int]:
        """Number of blocks by whether they have experts, in the order of the model."""
        dense = self.dense_layers if self.experts else self.layers
        counts = {False: dense, True: self.layers - dense}
        return {has_experts: count for has_experts, count in counts.items() if count}

"""Requests for plans from the sizes of a decoder: operations, activations, parameters by formula.

Times are operations over an achieved rate, not measurements: a request to begin with. In all
formulas s is the sequence length, h the hidden size, a the number of heads, V the vocabulary and t
the tensor parallelism, amounts are of one sample, and 2-byte activations and parameters are meant.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ppsolve.models.documents.base import Number, StrictModel, Whole
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.pipeline.origin import LayerRecompute
from ppsolve.models.studies.plan.profile import MAX_LAYERS
from ppsolve.models.studies.plan.request import PlanRequest, parse_request

Count = Annotated[Whole, Field(ge=1, le=10**9)]
Positive = Annotated[Number, Field(gt=0)]

MICROSECONDS = 10**6
DECIMALS = 3
"""Of times in microseconds: nanoseconds."""


class Sizes(StrictModel):
    """Sizes of a decoder, of its cluster and of a step.

    Parameters
    ----------
    layers, hidden, heads, sequence_length, vocabulary : int
        Of the model; layers are transformer blocks.
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
    tensor_parallel : int
        Devices t that share each layer; such a group is one device of a pipeline.
    sequence_parallel : bool
        They also share what tensor parallelism leaves whole (Korthikanti et al. 2022).
    recompute : str
        ``selective`` runs the attention core again in the backward, ``full`` whole layers.
    """

    name: str = "plan"
    layers: Annotated[Whole, Field(ge=1, le=MAX_LAYERS - 2)]
    hidden: Count
    heads: Count
    sequence_length: Count
    vocabulary: Count
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
    sequence_parallel: bool = False
    recompute: LayerRecompute = "none"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_divides("heads", self.heads, "hidden", self.hidden)
        self._check_divides(
            "tensor_parallel", self.tensor_parallel, "heads", self.heads
        )
        per_node = self.node_size
        self._check_divides("devices_per_node", per_node, "devices", self.devices)
        self._check_divides(
            "tensor_parallel", self.tensor_parallel, "devices_per_node", per_node
        )
        if self.devices > per_node and self.node_bandwidth is None:
            text = f"this is required with {self.devices // per_node} nodes"
            raise InputError(text, field="node_bandwidth")
        if all(self.batch_size % size for size in self.microbatch_sizes):
            raise InputError(
                f"expected a divisor of batch_size ({self.batch_size}) among them, got "
                + ", ".join(map(str, self.microbatch_sizes)),
                field="microbatch_sizes",
            )
        return self

    @staticmethod
    def _check_divides(field: str, divisor: int, name: str, number: int) -> None:
        if number % divisor:
            raise InputError(
                f"expected a divisor of {name} ({number}), got {divisor}", field=field
            )

    @property
    def node_size(self) -> int:
        """Devices of a node."""
        return self.devices_per_node or self.devices


def block_operations(sizes: Sizes) -> dict[str, int]:
    """Return the operations of a transformer block by field of a layer, for one sample.

    Forward 24 s h^2 + 4 s^2 h (Narayanan et al. 2021, appendix: 24 B s h^2 (1 + s / 6h) of B
    samples); the backward takes twice that. Attention itself has no weights, so 24 s h^2 of it is
    the weight gradient and 24 s h^2 + 8 s^2 h the input gradient (Qi et al. 2023, table 1). What
    is recomputed belongs to the input gradient: attention's 4 s^2 h (selective) or the forward.
    """
    products = 24 * sizes.sequence_length * sizes.hidden**2
    attention = 4 * sizes.sequence_length**2 * sizes.hidden
    again = {"none": 0, "selective": attention, "full": products + attention}
    return {
        "forward": products + attention,
        "backward_input": products + 2 * attention + again[sizes.recompute],
        "backward_weight": products,
    }


def head_operations(sizes: Sizes) -> dict[str, int]:
    """Return the operations of the logits: 2 s h V, and as many for each gradient (Narayanan)."""
    operations = 2 * sizes.sequence_length * sizes.hidden * sizes.vocabulary
    return dict.fromkeys(("forward", "backward_input", "backward_weight"), operations)


def block_activations(sizes: Sizes) -> float:
    """Return the bytes that a block keeps on a device, for one sample.

    Korthikanti et al. 2022, table 2: s h (10 + 24/t + 5 a s / (h t)) with tensor parallelism,
    s h / t (34 + 5 a s / h) with sequence parallelism too. Selective recomputation drops the last
    term, full recomputation keeps the input alone, 2 s h (over t where sequences are shared).
    """
    s, h, t = sizes.sequence_length, sizes.hidden, sizes.tensor_parallel
    shared = t if sizes.sequence_parallel else 1
    if sizes.recompute == "full":
        return 2 * s * h / shared
    scores = 0 if sizes.recompute == "selective" else 5 * sizes.heads * s * s / t
    return 10 * s * h / shared + 24 * s * h / t + scores


def end_activations(sizes: Sizes) -> tuple[float, float]:
    """Return the bytes that the embedding and the head keep on a device, for one sample.

    Korthikanti et al. 2022, section 4.3: the mask of the embedding's dropout, s h; inputs of the
    last layer norm and of the logits, 2 s h each, and the logits in 32 bits, 4 s V / t.
    """
    s, h, t = sizes.sequence_length, sizes.hidden, sizes.tensor_parallel
    shared = t if sizes.sequence_parallel else 1
    return s * h / shared, 4 * s * h / shared + 4 * s * sizes.vocabulary / t


def parameters(sizes: Sizes) -> tuple[int, int, int]:
    """Return the parameters of the embedding, of one block and of the head.

    A block has 12 h^2 + 13 h, the embedding (V + s) h (Narayanan et al. 2021, section 5.1). The
    head has the last layer norm, 2 h, and its own copy of the word embedding, V h, as the last
    stage of a pipeline has.
    """
    h, words = sizes.hidden, sizes.vocabulary
    return (words + sizes.sequence_length) * h, 12 * h * h + 13 * h, words * h + 2 * h


def plan_request(sizes: Sizes, *variants: Sizes) -> PlanRequest:
    """Return a request for the plan of a decoder on a cluster, in microseconds.

    It has one batch size and allows any schedule. With tensor parallelism each device of a group
    has a share of the operations and parameters, and sends a share of the next stage's input
    (scatter and gather, Narayanan et al. 2021, section 4.1); a block all-reduces its output twice
    there and twice back (section 2.3), and twice again where its forward is run again. Parameters
    and gradients take 2 bytes each, with weights, gradients and Adam in mixed precision 16 bytes,
    the default of requests.

    `variants`: the same sizes with other tensor parallelism or recomputation, each of which has a
        profile that the plan may choose.
    """
    return parse_request(
        {
            "schema": 1,
            "kind": "plan",
            "name": sizes.name,
            "time_unit": "us",
            "model": _profile(sizes),
            "variants": [_profile(variant) for variant in variants],
            "cluster": _cluster(sizes),
            "goodput": {
                "init_batch_size": sizes.batch_size,
                "max_batch_size": sizes.batch_size,
            },
            "search": {
                "placements": ["linear", "interleaved", "vshape"],
                "batch_sizes": [sizes.batch_size],
                "backward": ["fused", "split"],
            },
        }
    )


def _profile(sizes: Sizes) -> dict[str, Any]:
    first, last = end_activations(sizes)
    embedding, block, head = parameters(sizes)
    none = dict.fromkeys(("forward", "backward_input", "backward_weight"), 0)
    kept, again = block_activations(sizes), 2 if sizes.recompute == "full" else 0
    block_reduces = {"forward": 2, "backward_input": 2 + again}
    return {
        "tensor_parallel": sizes.tensor_parallel,
        "recompute": sizes.recompute,
        "microbatch_sizes": sizes.microbatch_sizes,
        "layers": [
            {"name": "embedding", "activation_bytes": round(first)}
            | _layer(sizes, none, {"forward": 1}, embedding),
            {"name": "block", "count": sizes.layers, "activation_bytes": round(kept)}
            | _layer(sizes, block_operations(sizes), block_reduces, block),
            {"name": "head", "activation_bytes": round(last)}
            | _layer(sizes, head_operations(sizes), {"backward_input": 1}, head),
        ],
    }


def _layer(
    sizes: Sizes, operations: dict[str, int], reduces: dict[str, int], held: int
) -> dict[str, Any]:
    # Times with the all-reduces of tensor parallelism, which nothing hides.
    shared = sizes.tensor_parallel
    rate = float(sizes.flops) * shared / MICROSECONDS
    sent = 2 * sizes.sequence_length * sizes.hidden
    steps = {field: 2 * (shared - 1) * count for field, count in reduces.items()}
    return {
        field: {
            "fixed": round(steps.get(field, 0) * float(sizes.latency), DECIMALS),
            "per_sample": round(
                number / rate
                + steps.get(field, 0)
                * sent
                / shared
                / float(sizes.bandwidth)
                * MICROSECONDS,
                DECIMALS,
            ),
        }
        for field, number in operations.items()
    } | {
        "output_bytes": round(sent / shared),
        "parameter_bytes": round(2 * held / shared),
    }


def _cluster(sizes: Sizes) -> dict[str, Any]:
    links = {"within_node": sizes.bandwidth, "between_nodes": sizes.node_bandwidth}
    return {
        "nodes": sizes.devices // sizes.node_size,
        "devices_per_node": sizes.node_size,
        "memory": sizes.memory,
        **{
            name: {"latency": sizes.latency, "bandwidth": bandwidth / MICROSECONDS}
            for name, bandwidth in links.items()
            if bandwidth is not None
        },
    }

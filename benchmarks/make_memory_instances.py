"""Write pipelines with memory modes, byte for byte: ``python benchmarks/make_memory_instances.py``.

Llama-like models whose activations need not be kept. Times are those of matrix products at
400 TFLOP/s; a layer keeps 34 bytes x hidden size per token, 2 when all of it is recomputed and 13
when its MLP is, as flash attention and bf16 leave them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance

FLOPS = 400e12
STATE_BYTES = 7.5
"""Bytes per parameter: weights, gradients, and an eighth of the optimizer's state."""

CAPACITY = 74.0
"""GB of a device of 80 that are left for states and activations."""


@dataclass(frozen=True)
class Model:
    """A Llama-like model."""

    hidden: int
    ffn: int
    layers: int
    kv_share: float  # of key and value heads among all heads
    vocabulary: int = 128_256

    @property
    def attention(self) -> float:
        """Parameters of the attention of a layer."""
        return self.hidden**2 * (2 + 2 * self.kv_share)

    @property
    def mlp(self) -> float:
        """Parameters of the MLP of a layer."""
        return 3 * self.hidden * self.ffn


MODELS = {
    "8b": Model(4096, 14336, 32, 0.25),
    "13b": Model(5120, 13824, 40, 1.0, 32_000),
    "34b": Model(8192, 22016, 48, 0.125, 32_000),
    "70b": Model(8192, 28672, 80, 0.125),
}


@dataclass(frozen=True)
class Case:
    """One instance."""

    name: str
    model: str
    devices: int
    microbatches: int
    tokens: int  # of a micro-batch on one device of a tensor-parallel group
    placement: str = "linear"
    decide: str = "stage"
    place: str = "before_backward"
    bandwidth: float | None = None  # GB/s of a copy link; None: no offload
    pairs: bool = False  # two devices share a link
    tensor_parallel: int = 1


CASES = (
    Case("8b-4x16", "8b", 4, 16, 32_768),
    Case("8b-4x16-anytime", "8b", 4, 16, 32_768, place="anytime"),
    Case("8b-4x16-microbatch", "8b", 4, 16, 32_768, decide="microbatch"),
    Case("8b-4x16-offload", "8b", 4, 16, 32_768, bandwidth=25.0, pairs=True),
    Case("13b-4x16-interleaved", "13b", 4, 16, 16_384, placement="interleaved"),
    Case("13b-8x32", "13b", 8, 32, 24_576),
    Case("34b-8x32-v", "34b", 8, 32, 16_384, placement="vshape", tensor_parallel=2),
    Case("70b-16x64", "70b", 16, 64, 16_384, tensor_parallel=2, bandwidth=50.0),
)


def instance_of(case: Case) -> dict[str, Any]:
    """Return the instance of a case as JSON data; times in ms, memory in GB."""
    model, tp = MODELS[case.model], case.tensor_parallel
    chunks = 1 if case.placement == "linear" else 2
    stages = case.devices * chunks
    layers = [
        model.layers // stages + (stage < model.layers % stages)
        for stage in range(stages)
    ]

    def milliseconds(parameters: float) -> float:
        return round(2e3 * parameters * case.tokens / FLOPS / tp, 1)

    def gigabytes(bytes_per_token: float) -> float:
        return round(bytes_per_token * case.tokens / 1e9 / tp, 2)

    head = model.vocabulary * model.hidden
    work = [count * (model.attention + model.mlp) for count in layers]
    work[-1] += head
    states = [count * (model.attention + model.mlp) for count in layers]
    states[0] += head
    states[-1] += head
    kept = [gigabytes(34 * model.hidden * count) for count in layers]
    memory: dict[str, Any] = {
        "capacity": CAPACITY,
        "activation": kept,
        "released_by_backward_weight": 0.5,
        "static": [round(STATE_BYTES * each / 1e9 / tp, 2) for each in states],
        "recompute": {
            "modes": [
                {
                    "name": "mlp",
                    "time": [milliseconds(count * model.mlp) for count in layers],
                    "held": [gigabytes(13 * model.hidden * count) for count in layers],
                },
                {
                    "name": "full",
                    "time": [
                        milliseconds(count * (model.attention + model.mlp))
                        for count in layers
                    ],
                    "held": [gigabytes(2 * model.hidden * count) for count in layers],
                },
            ],
            "decide": case.decide,
            "place": case.place,
        },
    }
    if case.bandwidth is not None:
        moved = [round(each * 0.9, 2) for each in kept]
        time = [round(1e3 * each / case.bandwidth, 1) for each in moved]
        memory["offload"] = {
            "amount": moved,
            "out": time,
            "back": time,
            "decide": case.decide,
        }
        if case.pairs:
            memory["offload"]["links"] = [[d, d + 1] for d in range(0, case.devices, 2)]
    return {
        "name": f"llama-{case.name}",
        "description": f"A Llama-like {case.model} model, {case.tokens} tokens in a micro-batch",
        "time_unit": "ms",
        "num_devices": case.devices,
        "num_microbatches": case.microbatches,
        "placement": case.placement,
        **({"stages_per_device": chunks} if chunks > 1 else {}),
        "times": {
            "forward": list(map(milliseconds, work)),
            "backward_input": list(map(milliseconds, work)),
            "backward_weight": list(map(milliseconds, work)),
        },
        "p2p": {"latency": 1.5},
        "memory": memory,
    }


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance."""
    return {
        f"memory/llama-{case.name}.json": PipelineInstance.parse(instance_of(case))
        for case in CASES
    }


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

"""Write pipelines of sequence slices, byte for byte: ``python benchmarks/make_slice_instances.py``.

Llama-like models on long contexts, eight devices side by side in tensor parallelism. Times are
those of matrix products at 400 TFLOP/s: of a token's, and of the causal half of the attention
matrix, whose backward has five products for two. Both are rounded to binary fractions, balanced
cuts to 64 tokens, so that best-known values stay below 10^9 ticks. A layer keeps 34 bytes x hidden
size per token; keys and values stay until the last backward of their sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from make_memory_instances import FLOPS, MODELS, STATE_BYTES
from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.models.kinds.pipeline.slices import unit_sums

TENSOR_PARALLEL = 8
BACKWARD_ATTENTION = 2.5
MULTIPLE = 64
"""Tokens of which balanced slices have a multiple."""


@dataclass(frozen=True)
class Case:
    """One instance."""

    name: str
    model: str
    devices: int
    microbatches: int
    tokens: int
    slices: int
    capacity: float  # GB that are left for states and activations
    cuts: str = "uniform"
    chunks: int = 1
    is_split: bool = True


CASES = (
    Case("8b-32k-4x2", "8b", 4, 2, 32_768, 4, 8.5),
    Case("70b-64k-8x4-1f1b", "70b", 8, 4, 65_536, 16, 44.0, is_split=False),
    Case("70b-64k-8x4-uniform", "70b", 8, 4, 65_536, 16, 48.0),
    Case("70b-64k-8x4-balanced", "70b", 8, 4, 65_536, 16, 48.0, cuts="balanced"),
    Case("8b-256k-4x2-interleaved", "8b", 4, 2, 262_144, 8, 60.0, chunks=2),
)


def instance_of(case: Case) -> dict[str, Any]:
    """Return the instance of a case as JSON data; times in us, memory in GB."""
    model = MODELS[case.model]
    layers = model.layers // (case.devices * case.chunks)
    parameters = model.attention + model.mlp
    flops = FLOPS * TENSOR_PARALLEL / 1e6
    linear = _binary(2 * layers * parameters / flops, 6)
    square = 2 * layers * model.hidden / flops

    def per_token(count: float) -> dict[str, float]:
        return {"per_token": round(layers * count / TENSOR_PARALLEL / 1e9, 8)}

    forward = {"per_token": linear, "per_square": _binary(square, 18)}
    inputs = {
        "per_token": linear,
        "per_square": _binary(BACKWARD_ATTENTION * square, 18),
    }
    whole = {**inputs, "per_token": 2 * linear}
    halves = {"backward_input": inputs, "backward_weight": {"per_token": linear}}
    states = STATE_BYTES * layers * parameters / TENSOR_PARALLEL / 1e9
    return {
        "name": f"llama-{case.name}",
        "description": f"A Llama-like {case.model} model, sequences of {case.tokens} tokens",
        "num_devices": case.devices,
        "num_microbatches": case.microbatches,
        "lengths": [case.tokens] * case.microbatches,
        "slices": case.slices,
        **(
            {"placement": "interleaved", "stages_per_device": 2}
            if case.chunks == 2
            else {}
        ),
        "times": {
            "forward": forward,
            **(halves if case.is_split else {"backward": whole}),
        },
        "p2p": {"latency": 200},
        "memory": {
            "capacity": case.capacity,
            "activation": per_token(34 * model.hidden),
            "key_value": per_token(4 * model.hidden * model.kv_share),
            "released_by_backward_weight": 0.5,
            "static": round(states, 2),
        },
    }


def _binary(number: float, bits: int) -> float:
    return round(number * 2**bits) / 2**bits


def _instance(case: Case) -> PipelineInstance:
    data = instance_of(case)
    if case.cuts == "balanced":
        data["slices"] = {"count": case.slices, "cuts": case.cuts}
        sums = unit_sums(PipelineInstance.parse(data))
        assert sums is not None
        ends = accumulate(sums.tokens[: case.slices])
        cuts = [0, *(round(end / MULTIPLE) * MULTIPLE for end in ends)]
        data["slices"] = [after - before for before, after in pairwise(cuts)]
    return PipelineInstance.parse(data)


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance."""
    return {f"slices/llama-{case.name}.json": _instance(case) for case in CASES}


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

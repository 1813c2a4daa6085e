"""Write pipelines of parts beside each other: ``python benchmarks/make_combined_instances.py``.

Two or three parts of the other sets in one pipeline, each by the arithmetic of its own script: long
contexts and fillers that recompute where memory is short, blocks and experts that do, layers that
are shared out beside blocks, Muon and slices, replicas of unequal sequences. What is recomputed
takes as long as the forward, and leaves a seventeenth of the activation (2 of 34 bytes).
"""

from __future__ import annotations

import json
from typing import Any

import make_fused_instances as fused
import make_moe_instances as moe
import make_slice_instances as slices
from make_filler_instances import MODEL, TOKENS, encoders, matrices, milliseconds, muon
from shipped import run_writer

from ppsolve.models.documents.text import instance_text
from ppsolve.models.kinds.pipeline.instance import PipelineInstance

FAMILY = "combined"
HELD = round(2 / 34, 3)
"""Share of an activation that full recomputing leaves."""

LENGTHS = (8192, 1024, 2048, 6144, 512, 4096, 3072, 7168)
"""Tokens of unequal micro-batches."""


def data_of(instance: PipelineInstance) -> dict[str, Any]:
    """Return what the file of an instance holds, without its name and description."""
    data = json.loads(instance_text(instance))
    return {
        name: value
        for name, value in data.items()
        if name not in {"name", "description", "kind", "schema"}
    }


def full(time: Any, held: Any, decide: str = "stage", **more: Any) -> dict[str, Any]:
    """Return full recomputing, and nothing else."""
    modes = [{"name": "full", "time": time, "held": held}]
    return {"recompute": {"modes": modes, "decide": decide, **more}}


def long_context(*, offloads: bool) -> dict[str, Any]:
    """Return slices of 8 k tokens of an 8B model whose memory is short."""
    case = slices.Case("32k", "8b", 4, 2, 32_768, 4, 8.0)
    data = slices.instance_of(case)
    tokens = case.tokens // case.slices
    activation = round(data["memory"]["activation"]["per_token"] * tokens, 3)
    if offloads:
        # 25 GB/s for each device, whose eight ranks copy beside each other.
        time = round(1e6 * 0.9 * activation / 25)
        amount = round(0.9 * activation, 3)
        copies = {"amount": amount, "out": time, "back": time}
        return data | {"memory": data["memory"] | {"offload": copies}}
    forward = data["times"]["forward"]
    time = round(
        forward["per_token"] * tokens + forward["per_square"] * case.tokens * tokens
    )
    again = full(time, round(HELD * activation, 3))
    return data | {"memory": data["memory"] | again}


def beside_fillers(instance: PipelineInstance, capacity: float) -> dict[str, Any]:
    """Return a pipeline with fillers whose activations may be recomputed."""
    data = data_of(instance)
    forward = data["times"]["forward"]
    memory = {**data["memory"], "capacity": capacity, **full(forward, HELD)}
    return data | {"memory": memory}


def layers_of_model(devices: int, microbatches: int, **fields: Any) -> dict[str, Any]:
    """Return a pipeline of the layers of the 8B model, in ms and GB."""
    layer, head = MODEL.attention + MODEL.mlp, MODEL.vocabulary * MODEL.hidden
    time = milliseconds(2 * layer * TOKENS)
    kept = round(34 * MODEL.hidden * TOKENS / 1e9, 3)
    state = round(7.5 * layer / 1e9, 3)
    return {
        "time_unit": "ms",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "layers": {
            "first": {
                "forward": 0,
                "backward": 0,
                "static": round(7.5 * head / 1e9, 3),
            },
            "body": {
                "count": MODEL.layers,
                "forward": time,
                "backward": 2 * time,
                "activation": kept,
                "static": state,
            },
            "last": {
                "forward": milliseconds(2 * head * TOKENS),
                "backward": milliseconds(4 * head * TOKENS),
                "static": round(7.5 * head / 1e9, 3),
            },
            "recompute": [
                {"name": "full", "time": time, "held": round(HELD * kept, 3)}
            ],
        },
        "p2p": {"latency": 0.7},
        **fields,
    }


def muon_of_layers() -> dict[str, Any]:
    """Return two steps of shared-out layers, with Muon's matrices of each stage between them."""
    work = sum(
        milliseconds(5 * (4 * m * m * n + 2 * m**3)) for m, n in matrices().values()
    )
    fillers = [
        {
            "name": f"muon{stage}",
            "device": stage,
            "pieces": [round(work, 1)] * (MODEL.layers // 4),
            "after": f"B{stage}",
            "before": f"F{stage}@1",
            "per_step": True,
        }
        for stage in range(4)
    ]
    memory = {"capacity": 30.0}
    return layers_of_model(4, 6, steps=2, fillers=fillers, memory=memory)


def unequal_replicas() -> dict[str, Any]:
    """Return two replicas that share out unequal sequences, of which some are recomputed."""
    data = slices.instance_of(slices.Case("8k", "8b", 2, 8, 8192, 1, 8.0))
    # A mode has one time for all: that of the mean length.
    mean, forward = sum(LENGTHS) / len(LENGTHS), data["times"]["forward"]
    time = round(forward["per_token"] * mean + forward["per_square"] * mean**2)
    memory = {
        name: value for name, value in data["memory"].items() if name != "key_value"
    }
    kept = [round(34 * MODEL.hidden * 16 * n / 8 / 1e9, 3) for n in LENGTHS]
    again = full(time, 0, decide="stage", place="anytime")
    return {
        **{name: value for name, value in data.items() if name != "slices"},
        "lengths": LENGTHS,
        "memory": {
            **memory,
            "capacity": round(memory["static"] + 3.0, 2),
            "activation": [kept, kept],
            **again,
        },
        "replicas": {"count": 2, "assignment": "free", "counts": "any"},
    }


def blocks_recompute() -> dict[str, Any]:
    """Return DeepSeek's blocks on a V, with room for less than half of what DualPipeV holds."""
    data = fused.pipeline("v", 8) | {"num_devices": 4, "num_microbatches": 8}
    overlap = {"ratio": round(fused.BLOCK / sum(fused.alone().values()), 3)}
    memory = data["memory"] | {"capacity": 5} | full(data["times"]["forward"], HELD)
    return data | {"overlap": overlap, "memory": memory}


def experts_recompute() -> dict[str, Any]:
    """Return layers with experts whose memory is that of half of the micro-batches in flight."""
    data = moe.pipeline(4, 8, 2)
    return data | {
        "memory": data["memory"] | full(data["times"]["forward"], HELD),
    }


def every_case() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what each instance is about, and its fields, by its name."""
    llama = "A Llama-like 8b model"
    blocks = layers_of_model(
        4, 8, placement="vshape", memory={"capacity": 30.0}, overlap={"ratio": 0.85}
    )
    return {
        "llama-8b-slices-recompute": (
            f"{llama}, slices of 8 k tokens, recomputed where memory is short",
            long_context(offloads=False),
        ),
        "llama-8b-slices-offload": (
            f"{llama}, slices of 8 k tokens, copied to the host where memory is short",
            long_context(offloads=True),
        ),
        "llama-8b-encoders-recompute": (
            f"{llama}, encoders before the first stage, memory of two micro-batches",
            beside_fillers(encoders(4, 8), 2),
        ),
        "llama-8b-muon-recompute": (
            f"{llama}, Muon on any device, memory of two micro-batches",
            beside_fillers(muon(4, 8, 1, anywhere=True), 2),
        ),
        "llama-8b-muon-layers": (
            f"{llama}, layers shared out, two steps with Muon between them",
            muon_of_layers(),
        ),
        "llama-8b-blocks-layers": (
            f"{llama}, layers shared out over a V, forwards and backwards in blocks",
            blocks,
        ),
        "llama-8b-replicas-recompute": (
            f"{llama}, unequal sequences for two replicas, recomputed where they must",
            unequal_replicas(),
        ),
        "deepseek-blocks-recompute": (
            "Blocks of DeepSeek's profile on a V, memory of 5 activations",
            blocks_recompute(),
        ),
        "deepseek-experts-recompute": (
            "Layers with the mean times of DeepSeek's profile, memory of 2 activations",
            experts_recompute(),
        ),
    }


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    return {
        f"{FAMILY}/{name}.json": PipelineInstance.parse(
            {**fields, "name": name, "description": about}
        )
        for name, (about, fields) in every_case().items()
    }


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

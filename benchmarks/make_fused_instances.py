"""Write pipelines of fused blocks, byte for byte: ``python benchmarks/make_fused_instances.py``.

DeepSeek's measured block (`deepseek_block.py`): four layers forward of one micro-batch and backward
of another take 129.0 ms together. Alone, a forward takes as long as its chain of kernels and
all-to-alls, an input gradient as long as its own; weight gradients are the rest of the kernels.
"""

from __future__ import annotations

from typing import Any

from deepseek_block import LAYERS, MEASURED, SPAN
from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance

FAMILY = "fused"
DEVICES, MICROBATCHES = 8, 16
BLOCK = 129_012
"""Measured span of the block in microseconds."""

CHAINS = {
    "forward": ("attn_f", "dispatch_f", "mlp_f", "combine_f"),
    "backward_input": ("combine_b", "mlp_b", "dispatch_b", "attn_b"),
    "backward_weight": ("mlp_w", "attn_w"),
}
"""What an op of four layers runs one after the other."""

PLACEMENTS = {
    "v": ("vshape", 2),
    "interleaved": ("interleaved", 2),
    "linear": ("linear", 1),
}
CAPACITIES = (17, 32)
"""Activations of four layers that a device holds: DualPipeV's 2p + 1, and combined 1F1B's 4p."""


def alone() -> dict[str, int]:
    """Return the time of each op of four layers by itself, in microseconds."""
    return {
        field: sum(
            MEASURED[part][layer][SPAN] for part in parts for layer in range(LAYERS)
        )
        for field, parts in CHAINS.items()
    }


def pipeline(placement: str, capacity: int) -> dict[str, Any]:
    """Return the fields of a pipeline whose devices have eight layers, in milliseconds."""
    style, chunks = PLACEMENTS[placement]

    def milliseconds(microseconds: int) -> float:
        return round(microseconds / 1000, 1) * 2 / chunks

    return {
        "time_unit": "ms",
        "num_devices": DEVICES,
        "num_microbatches": MICROBATCHES,
        "placement": style,
        "stages_per_device": chunks,
        "times": {field: milliseconds(time) for field, time in alone().items()},
        "memory": {"capacity": capacity, "activation": 2 // chunks},
        "overlap": {"time": milliseconds(BLOCK)},
    }


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    names = {
        f"deepseek-{placement}-8x16-{capacity}": pipeline(placement, capacity)
        for placement in PLACEMENTS
        for capacity in CAPACITIES
    }
    return {
        f"{FAMILY}/{name}.json": PipelineInstance.parse({"name": name, **fields})
        for name, fields in names.items()
    }


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

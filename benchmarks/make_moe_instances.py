"""Write pipelines with experts, byte for byte: ``python benchmarks/make_moe_instances.py``.

A layer has the mean times of the four layers in DeepSeek's profile (`deepseek_block.py`), in ms to
one digit: kernels while they are busy, all-to-alls without waiting for peers. A backward begins
with an all-to-all, which returns gradients to the experts. A transfer between stages is that of
4,096 tokens of 7,168 numbers in bf16 at 50 GB/s: 1.2 ms.
"""

from __future__ import annotations

from typing import Any

from deepseek_block import BUSY, LAYERS, MEASURED, NET
from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    node = {"devices_per_node": 2}
    made = {
        "moe-fused-4x16-1.5p": pipeline(4, 16, 6, is_split=False),
        "moe-split-4x16-2p": pipeline(4, 16, 8),
        "moe-split-4x16-2p-node": pipeline(4, 16, 8, **node),
        "moe-dense-first-4x16-2p": pipeline(4, 16, 8, dense=1),
        "moe-two-layers-2x8-2p": pipeline(2, 8, 4, layers=2),
        "moe-v-2x8-1p-node": {**pipeline(2, 8, 4, **node), "placement": "vshape"},
    }
    return {
        f"moe/{name}.json": PipelineInstance.parse({"name": name, **fields})
        for name, fields in made.items()
    }


def pipeline(
    devices: int,
    microbatches: int,
    capacity: int,
    *,
    layers: int = 1,
    is_split: bool = True,
    dense: int = 0,
    **collectives: Any,
) -> dict[str, Any]:
    """Return the fields of a pipeline with `dense` stages before those with experts."""
    time = {part: _mean(part) for part in MEASURED}
    forward = [time["attn_f"], time["mlp_f"]]
    gradients = [0, time["mlp_b"], time["attn_b"]]
    weights = time["mlp_w"], time["attn_w"]
    if is_split:
        back, times = "backward_input", {"backward_weight": layers * sum(weights)}
    else:
        back, times = "backward", {}
        gradients = [0, time["mlp_b"] + time["mlp_w"], time["attn_b"] + time["attn_w"]]
    times |= {"forward": layers * sum(forward), back: layers * sum(gradients)}
    return {
        "description": "Layers with the mean times of DeepSeek's profile",
        "time_unit": "ms",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {field: round(each, 1) for field, each in times.items()},
        "p2p": {"latency": 1.2},
        "memory": {"capacity": capacity, "activation": 1},
        "collectives": {
            "forward": {
                "segments": layers,
                "pieces": _by_stage(forward, 1, devices, dense),
                "alltoall": _by_stage(
                    [time["dispatch_f"], time["combine_f"]], 0, devices, dense
                ),
            },
            back: {
                "segments": layers,
                "pieces": _by_stage(
                    [round(each, 1) for each in gradients], 1, devices, dense
                ),
                "alltoall": _by_stage(
                    [time["combine_b"], time["dispatch_b"], 0], 0, devices, dense
                ),
            },
            "comm_streams": "per_kind",
            **collectives,
        },
    }


def _by_stage(row: list[float], alone: float, stages: int, dense: int) -> list[Any]:
    return [alone] * dense + [row] * (stages - dense) if dense else row


def _mean(part: str) -> float:
    column = NET if part.startswith(("dispatch", "combine")) else BUSY
    return round(sum(times[column] for times in MEASURED[part]) / LAYERS / 1000, 1)


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

"""Pipelines of tests of runtimes, solved without a search of their own."""

from __future__ import annotations

import random
from typing import Any

import ppsolve

FUSED = {"forward": 1, "backward": 2}
SPLIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}
MODES = ({"name": "full", "time": 1}, {"name": "selective", "time": 0.5, "held": 0.5})
LOOPED = {"placement": "interleaved", "stages_per_device": 2}


def pipeline(
    devices: int, microbatches: int, **fields: Any
) -> ppsolve.PipelineInstance:
    data = {
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": FUSED,
        **fields,
    }
    return ppsolve.PipelineInstance.parse(data)


def recomputing(
    capacity: float, decide: Any, devices: int = 3, *, memory: Any = None, **fields: Any
) -> Any:
    """Return a pipeline of 6 micro-batches whose activations may be recomputed."""
    recompute = {"modes": list(MODES), "decide": decide}
    held = {"capacity": capacity, "activation": 1, "recompute": recompute}
    return pipeline(devices, 6, memory=held | (memory or {}), **fields)


def drawn(seed: int) -> dict[str, Any]:
    """Return a random pipeline, linear or interleaved, as JSON; of some, links have a bandwidth."""
    rng = random.Random(seed)
    devices, chunks = rng.randint(2, 5), rng.choice([1, 2, 3])
    stages, count = devices * chunks, devices + rng.randint(0, 9)
    names = rng.choice(
        [("forward", "backward"), ("forward", "backward_input", "backward_weight")]
    )
    times = {name: [rng.randint(1, 40) for _ in range(stages)] for name in names}
    placed = (
        {} if chunks == 1 else {"placement": "interleaved", "stages_per_device": chunks}
    )
    shape = {"num_devices": devices, "num_microbatches": count, **placed}
    p2p: dict[str, Any] = {"latency": rng.randint(0, 9)}
    if seed % 3 == 0:
        p2p |= {"mode": "link", "bytes": rng.randint(10, 60), "bandwidth": 2}
    return {"kind": "pipeline", **shape, "times": times, "p2p": p2p}


def solved(instance: Any, runtime: str, **options: Any) -> Any:
    few: dict[str, Any] = {"time_limit": 0, "heuristics": ["1f1b"]}
    return ppsolve.optimize(instance, runtime=runtime, **few | options)


def flags_of(ranks: int, chunks: int, size: int) -> str:
    flags = [f"--pipeline-model-parallel-size {ranks}"]
    if chunks > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {chunks}")
        flags.append(f"--microbatch-group-size-per-virtual-pipeline-stage {size}")
    return "\n".join(flags)

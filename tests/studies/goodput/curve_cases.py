"""Pipelines whose curves tests measure, and curves of given figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppsolve.models.kinds.pipeline.instance import PipelineInstance
from ppsolve.solver.studies.goodput.curve import ScheduleCurve


def pipeline(**fields: Any) -> PipelineInstance:
    plain = {
        "num_devices": 4,
        "num_microbatches": 4,
        "times": {"forward": 1, "backward": 2},
    }
    return PipelineInstance.parse({**plain, "p2p": {"latency": 1}, **fields})


def uneven(seed: int, *, equal: bool = False, **fields: Any) -> PipelineInstance:
    """Return a random pipeline of 2 to 4 devices with latency; equal seeds give equal ones."""
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(2, 5))
    stages = devices * fields.get("stages_per_device", 1)

    def times(most: int) -> Any:
        return (
            int(rng.integers(1, most))
            if equal
            else rng.integers(1, most, stages).tolist()
        )

    return pipeline(
        num_devices=devices,
        times={"forward": times(9), "backward": times(17)},
        p2p={"latency": int(rng.integers(0, 5))},
        **fields,
    )


def curve(points: dict[int, float], **fields: Any) -> ScheduleCurve:
    """Return a curve of these makespans, with bounds of 0 unless given."""
    none = [0.0] * len(points)
    plain = {"bounds": none, "work_bounds": none, "methods": ["x"] * len(points)}
    times = {
        "microbatches": list(points),
        "makespans": list(points.values()),
        "time_unit": "s",
    }
    return ScheduleCurve(**{**times, **plain, **fields})


def numbers_of(instance: PipelineInstance) -> tuple[int, ...]:
    """Return numbers of micro-batches that show the warm-up, the steady state and its period.

    They double up to 4 D devices, then all follow up to 6 D, where a period that divides D repeats
    in D neighbours. Both pipes of a Chimera have D of their own; looped placements take whole D.
    """
    pipes = 2 if instance.placement == "bidirectional" else 1
    cycle = pipes * instance.num_devices
    is_looped = instance.placement == "interleaved"
    step, first = (cycle, 2 * cycle) if is_looped else (pipes, 4 * instance.num_devices)
    run = range(first, first + 2 * max(cycle, 2 * step) + 1, step)
    few = [pipes * 2**k for k in range(first.bit_length()) if pipes * 2**k < first]
    return (*few, *run, run[-1] + 2 * cycle)

"""Write pipelines of recorded training runs: ``python benchmarks/make_measured_instances.py``.

The times are from the artifact of Perseus (SOSP 2024): ml-energy/zeus, branch ``kronos``,
``sosp24_data``, Apache-2.0. Those of the recorded runs are medians over micro-batches and over the
iterations from the third on; those of the emulated runs are profiled per stage. All are in ms, at
the highest clocks. Every device keeps at most as many activations as there are devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shipped import run_writer

from ppsolve.models.kinds.pipeline.instance import PipelineInstance


@dataclass(frozen=True)
class Run:
    """A recorded training run: its micro-batches, how long one step took, times by stage."""

    name: str
    microbatches: int
    step: float
    forward: tuple[float, ...]
    backward: tuple[float, ...]


RUNS = (
    Run(
        "a100-bert-huge-uncased-4x32",
        32,
        6313.8,
        (44.883, 36.424, 36.463, 39.019),
        (130.113, 108.177, 109.747, 107.964),
    ),
    Run(
        "a100-bloom-3b-4x128",
        128,
        61699.4,
        (120.386, 103.354, 102.855, 121.31),
        (345.488, 294.934, 294.479, 310.565),
    ),
    Run(
        "a100-gpt3-xl-4x128",
        128,
        59997.7,
        (103.648, 104.593, 122.138, 111.893),
        (279.253, 277.833, 331.151, 291.017),
    ),
    Run(
        "a100-t5-3b-4x32",
        32,
        9228.6,
        (65.786, 58.231, 56.093, 58.137),
        (190.719, 173.126, 174.858, 177.237),
    ),
    Run(
        "a100-wide-resnet101_8-4x24",
        24,
        11725.8,
        (94.643, 104.957, 96.626, 109.314),
        (305.738, 323.48, 308.564, 322.773),
    ),
    Run(
        "a40-bert-huge-uncased-8x32",
        32,
        7873.4,
        (40.611, 40.186, 40.099, 40.467, 39.488, 40.119, 39.66, 54.986),
        (113.581, 110.181, 111.42, 111.238, 110.551, 110.293, 109.516, 139.908),
    ),
    Run(
        "a40-bloom-3b-8x128",
        128,
        81023.8,
        (150.915, 119.437, 120.023, 119.817, 119.304, 119.651, 119.153, 165.208),
        (441.152, 333.106, 334.682, 334.563, 332.973, 333.862, 331.842, 398.678),
    ),
    Run(
        "a40-gpt3-2.7b-8x256",
        256,
        150707.3,
        (127.206, 126.474, 126.53, 126.47, 125.942, 126.435, 126.465, 159.102),
        (346.691, 344.904, 345.246, 345.104, 343.903, 344.18, 345.191, 408.539),
    ),
    Run(
        "a40-t5-3b-8x32",
        32,
        24475.7,
        (83.944, 58.248, 66.485, 68.913, 63.952, 64.007, 64.28, 69.111),
        (223.262, 172.657, 197.535, 192.19, 191.153, 190.879, 191.862, 198.646),
    ),
    Run(
        "a40-wide-resnet101_8-8x48",
        48,
        15587.9,
        (69.694, 70.482, 57.798, 68.561, 49.498, 52.374, 68.885, 71.657),
        (216.519, 207.293, 159.435, 160.695, 153.589, 156.731, 200.555, 182.501),
    ),
    Run(
        "a40-gpt3-6.7b-4x64",
        64,
        136832.2,
        (473.852, 471.66, 470.768, 479.996),
        (1364.557, 1357.608, 1357.573, 1367.375),
    ),
)

EMULATED = {
    "a100-bloom-176b": ((512.312, 450.827), (990.643, 891.401)),
    "a40-bloom-176b": ((1334.447, 1178.906), (2483.272, 2270.188)),
    "a100-gpt3-175b": ((501.617, 540.333), (929.538, 988.586)),
    "a40-gpt3-175b": ((1124.803, 1169.68), (2770.792, 2846.514)),
}
"""Forward and backward of the first seven of eight stages and of the last one."""

EMULATED_MICROBATCHES = 12, 24, 48, 96


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance."""
    instances = [*map(recorded, RUNS), *emulated()]
    return {f"measured/{instance.name}.json": instance for instance in instances}


def recorded(run: Run, *, is_even: bool = False) -> PipelineInstance:
    """Return the pipeline of a recorded run, or one of the same work in equal stages."""
    devices = len(run.forward)
    times = {"forward": run.forward, "backward": run.backward}
    if is_even:
        times = {op: (sum(by) / devices,) * devices for op, by in times.items()}
    return pipeline(run.name, devices, run.microbatches, times)


def emulated() -> Iterator[PipelineInstance]:
    """Yield the pipelines of the emulated runs."""
    for name, pairs in EMULATED.items():
        forward, backward = ([first] * 7 + [last] for first, last in pairs)
        for microbatches in EMULATED_MICROBATCHES:
            times = {"forward": forward, "backward": backward}
            yield pipeline(f"{name}-8x{microbatches}", 8, microbatches, times)


def pipeline(
    name: str, devices: int, microbatches: int, times: Any
) -> PipelineInstance:
    """Return an instance with memory for as many activations as devices."""
    data = {
        "name": name,
        "time_unit": "ms",
        "num_devices": devices,
        "num_microbatches": microbatches,
        "times": {op: list(by) for op, by in times.items()},
        "memory": {"capacity": devices, "activation": 1},
    }
    return PipelineInstance.parse(data)


if __name__ == "__main__":
    run_writer(__doc__, every_instance)

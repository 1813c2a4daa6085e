"""Write the shipped instances again, byte for byte: ``python benchmarks/make_instances.py [DIR]``.

Without DIR the instances go where they are kept. Files that are not in the set are left alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from ppsolve.models.documents.text import write_instances
from ppsolve.models.pipeline.instance import PipelineInstance
from ppsolve.solver.generate.flags import Capacity, Range, Recipe
from ppsolve.solver.generate.instances import generate
from ppsolve.solver.generate.profiles import LARGE_MODEL_SHARE

HOME = Path(__file__).resolve().parent.parent / "instances"

Named = tuple[str, PipelineInstance]
SPAN = "device_span"


def every_instance() -> dict[str, PipelineInstance]:
    """Return the set: file name below the directory -> instance, named after its file."""
    families = {
        "published": published(),
        "memory_scan": memory_scan(),
        "memory_curve": memory_curve(),
        "uniform": uniform(),
        "heterogeneous": heterogeneous(),
        "tight_memory": tight_memory(),
        "p2p_heavy": p2p_heavy(),
        "virtual_stages": virtual_stages(),
        "few_microbatches": few_microbatches(),
        "step_end": step_end(),
        "large": large(),
    }
    return {
        f"{family}/{name}.json": instance.model_copy(update={"name": name})
        for family, members in families.items()
        for name, instance in members
    }


def activations(factor: str) -> Capacity:
    """Return a capacity of `factor` times the number of devices."""
    return Capacity(Decimal(factor), per_device=True)


def pipeline(devices: int, microbatches: int, times: dict[str, Any], **fields: Any) -> Any:
    """Return a valid instance of that shape."""
    return PipelineInstance.parse(
        {"num_devices": devices, "num_microbatches": microbatches, "times": times, **fields}
    )


def split(forward: Any, backward_input: Any, backward_weight: Any) -> dict[str, Any]:
    """Return times with split backwards."""
    return {
        "forward": forward,
        "backward_input": backward_input,
        "backward_weight": backward_weight,
    }


def published() -> Iterator[Named]:
    """Measured profiles of the zero-bubble papers, with memory p and 2p."""
    for profile, factor, objective in (
        ("zb-1.5b-8x24", "1", "makespan"),
        ("zb-1.5b-8x24", "2", SPAN),
        ("zb-8x64", "1", "makespan"),
        ("zb-8x64", "2", SPAN),
        ("zb-6.2b-8x24", "1", "makespan"),
        ("zb-6.2b-8x24", "2", "makespan"),
        ("zb-6.2b-8x24", "2", SPAN),
        ("zb-16x48-a", "1", "makespan"),
        ("zb-16x48-a", "2", SPAN),
        ("zb-16x48-b", "1", "makespan"),
        ("zb-32x96-a", "1", "makespan"),
        ("zb-32x96-b", "2", SPAN),
        ("zb-32x256", "1", "makespan"),
        ("zb-32x256", "2", SPAN),
    ):
        recipe = Recipe(capacity=activations(factor), objective=objective)
        end = "-span" if objective == SPAN else ""
        yield f"{profile}-{factor}p{end}", generate(recipe, profile=profile)
    fused = {"forward": 29718, "backward": 29444 + 19927}
    yield (
        "zb-6.2b-8x24-1p-fused",
        pipeline(8, 24, fused, p2p={"latency": 527}, memory=_memory(8)),
    )


def memory_scan() -> Iterator[Named]:
    """Scan memory on the 6.2B profile, 4 devices, 8 micro-batches: from 1 to 7 activations."""
    for capacity in ("1", "1.5", "2", "2.5", "3", "3.5", "4.5", "5", "6", "7"):
        recipe = Recipe(
            devices=4, microbatches=8, capacity=Capacity(Decimal(capacity), per_device=False)
        )
        yield f"scan-4x8-{capacity}", generate(recipe, profile="6.2b")


def memory_curve() -> Iterator[Named]:
    """Follow the 16-device profile as memory grows, with one and with two stages a device."""
    for factor in ("1", "1.25", "1.5", "1.625", "1.75", "2"):
        recipe = Recipe(capacity=activations(factor), objective=SPAN)
        yield f"curve-16x48-{factor}p", generate(recipe, profile="zb-16x48-b")
    for factor in ("1", "1.5"):
        recipe = Recipe(capacity=activations(factor), objective=SPAN, placement="vshape")
        yield f"curve-16x48-v-{factor}p", generate(recipe, profile="zb-16x48-b")


def uniform() -> Iterator[Named]:
    """F = I = W, no transfer time, W releases all; memory p and 2p."""
    for devices, microbatches in ((4, 8), (8, 16), (8, 32), (16, 64), (32, 256)):
        for factor in ("1", "2"):
            recipe = Recipe(
                devices=devices,
                microbatches=microbatches,
                forward=Decimal(100),
                backward_input=Decimal(100),
                backward_weight=Decimal(100),
                capacity=activations(factor),
            )
            yield f"uniform-{devices}x{microbatches}-{factor}p", generate(recipe)


def heterogeneous() -> Iterator[Named]:
    """Uneven stages: embedding and head, a slow device, uneven micro-batches, random times."""
    for devices, microbatches, factor in ((4, 8, "1"), (8, 24, "1"), (8, 24, "1.5")):
        yield (
            f"embedding-head-{devices}x{microbatches}-{factor}p",
            _embedding_head(devices, microbatches, factor),
        )
    slow = [100] * 8
    slow[3] = 140
    yield (
        "slow-device-8x16-1p",
        pipeline(8, 16, split(slow, slow, slow), p2p={"latency": 5}, memory=_memory(8)),
    )
    yield "uneven-microbatches-4x8-1p", _uneven_microbatches()
    for seed in range(5):
        instance = generate(seed=seed)
        yield instance.name, instance
    recipe = Recipe(devices=16, microbatches=32)
    yield "random-16x32-seed0", generate(recipe, seed=0)


def _memory(capacity: Any, activation: Any = 1, share: Any = 1, **more: Any) -> dict[str, Any]:
    return {
        "capacity": capacity,
        "activation": activation,
        "released_by_backward_weight": share,
        **more,
    }


def _embedding_head(devices: int, microbatches: int, factor: str) -> PipelineInstance:
    middle = devices - 2
    times = split(
        [115, *[100] * middle, 150], [100, *[105] * middle, 155], [85, *[70] * middle, 120]
    )
    capacity = Decimal(factor) * devices
    return pipeline(
        devices,
        microbatches,
        times,
        p2p={"latency": 4},
        memory=_memory(capacity, share=LARGE_MODEL_SHARE),
    )


def _uneven_microbatches() -> PipelineInstance:
    lengths = [100, 60, 140, 100, 80, 120, 60, 140]
    forward = [lengths] * 4
    return pipeline(
        4,
        8,
        split(forward, forward, [[length // 2 for length in lengths]] * 4),
        p2p={"latency": 3},
        memory=_memory(4),
    )


def tight_memory() -> Iterator[Named]:
    """Less memory than p activations, fractions of one, unequal stages and devices."""
    for factor in ("0.5", "0.75", "1.125"):
        recipe = Recipe(devices=8, microbatches=12, capacity=activations(factor))
        yield f"random-8x12-{factor}p", generate(recipe, seed=11)
    times = split(100, 110, 70)
    unequal = [1.5, 1, 1, 0.75]
    yield (
        "activations-differ-4x12",
        pipeline(4, 12, times, p2p={"latency": 5}, memory=_memory(4, unequal, LARGE_MODEL_SHARE)),
    )
    yield (
        "devices-differ-4x12",
        pipeline(4, 12, times, p2p={"latency": 5}, memory=_memory([5, 3, 2.5, 2], 1, 0.5)),
    )
    yield (
        "static-4x12",
        pipeline(4, 12, times, memory=_memory(8, 1.25, 0.4, static=[3.2, 2, 2, 4.1])),
    )


def p2p_heavy() -> Iterator[Named]:
    """Transfers as long as compute: delays, two nodes, links and NICs that fill up."""
    times = split(100, 100, 60)
    for latency in (50, 100):
        yield (
            f"delay-{latency}-8x16",
            pipeline(8, 16, times, p2p={"latency": latency}, memory=_memory(12)),
        )
    nodes = [[5 if a // 4 == b // 4 else 60 for b in range(8)] for a in range(8)]
    yield "two-nodes-8x16", pipeline(8, 16, times, p2p={"latency": nodes}, memory=_memory(10))
    for mode in ("link", "nic"):
        for size in (40, 90):
            p2p = {"mode": mode, "latency": 5, "bytes": size, "bandwidth": 1}
            yield (
                f"{mode}-{size}-4x8",
                pipeline(4, 8, times, p2p=p2p, memory=_memory(6)),
            )
    p2p = {"mode": "link", "latency": 2, "bytes": [30, 60, 30], "bandwidth": 0.75}
    yield (
        "link-uneven-4x12",
        pipeline(4, 12, times, p2p=p2p, memory=_memory(5, 1, LARGE_MODEL_SHARE)),
    )


def virtual_stages() -> Iterator[Named]:
    """Several stages on a device, and pipes in both directions."""
    v_times = split(29718 // 2, 29444 // 2, 9963)
    yield (
        "v-4x8-cap8",
        pipeline(
            4, 8, v_times, placement="vshape", p2p={"latency": 527}, memory=_memory(8, 1, 0.43)
        ),
    )
    yield (
        "v-4x8-cap6",
        pipeline(4, 8, v_times, placement="vshape", p2p={"latency": 527}, memory=_memory(6)),
    )
    interleaved: dict[str, Any] = {"placement": "interleaved", "stages_per_device": 2}
    yield (
        "interleaved-4x8-fused",
        pipeline(4, 8, {"forward": 50, "backward": 100}, p2p={"latency": 2}, **interleaved),
    )
    yield (
        "interleaved-4x8-split",
        pipeline(4, 8, split(50, 50, 35), p2p={"latency": 2}, memory=_memory(10), **interleaved),
    )
    yield (
        "wave-4x8",
        pipeline(
            4,
            8,
            split(25, 25, 18),
            placement="wave",
            stages_per_device=4,
            p2p={"latency": 1},
            memory=_memory(16),
        ),
    )
    yield (
        "explicit-3x6",
        pipeline(
            3,
            6,
            split([40, 70, 30, 60], [45, 70, 30, 65], [30, 50, 20, 40]),
            placement={"stage_to_device": [0, 1, 2, 0]},
            p2p={"latency": 3},
            memory=_memory(5),
        ),
    )
    yield from _bidirectional()


def _bidirectional() -> Iterator[Named]:
    for devices, microbatches in ((4, 8), (8, 16)):
        yield (
            f"bidirectional-{devices}x{microbatches}",
            pipeline(
                devices,
                microbatches,
                {"forward": 100, "backward": 200},
                placement="bidirectional",
                p2p={"latency": 5},
                memory=_memory(devices),
            ),
        )


def few_microbatches() -> Iterator[Named]:
    """Fewer micro-batches than devices: fill and drain is all there is."""
    for devices, microbatches in ((8, 1), (8, 4), (16, 8)):
        recipe = Recipe(devices=devices, microbatches=microbatches)
        yield f"random-{devices}x{microbatches}", generate(recipe, seed=5)
    recipe = Recipe(microbatches=6, capacity=activations("0.5"))
    yield "zb-6.2b-8x6-0.5p", generate(recipe, profile="6.2b")


def step_end() -> Iterator[Named]:
    """Gradient all-reduce and optimizer after the last backward of a stage."""
    yield (
        "allreduce-4x8",
        pipeline(4, 8, split(100, 100, 70), p2p={"latency": 4}, memory=_memory(4), allreduce=250),
    )
    yield (
        "allreduce-optimizer-8x16",
        pipeline(
            8,
            16,
            split(100, 100, 70),
            p2p={"latency": 4},
            memory=_memory(8),
            allreduce=[300, *[200] * 6, 300],
            optimizer=40,
        ),
    )
    yield (
        "bidirectional-allreduce-4x8",
        pipeline(
            4,
            8,
            {"forward": 100, "backward": 200},
            placement="bidirectional",
            p2p={"latency": 5},
            allreduce=150,
            optimizer=30,
        ),
    )


def large() -> Iterator[Named]:
    """Heterogeneous stages in large shapes, up to 24,576 ops."""
    for devices, microbatches, factor in ((16, 128, "1"), (32, 128, "1"), (32, 256, "1.5")):
        recipe = Recipe(
            devices=devices,
            microbatches=microbatches,
            forward=Range(90, 110),
            backward_input=Range(90, 110),
            backward_weight=Range(60, 80),
            capacity=activations(factor),
            share=LARGE_MODEL_SHARE,
        )
        yield f"random-{devices}x{microbatches}-{factor}p", generate(recipe, seed=1)
    yield "embedding-head-32x128-1p", _embedding_head(32, 128, "1")


def main() -> None:
    """Write the set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=HOME)
    directory = parser.parse_args().directory
    files = every_instance()
    write_instances(files, directory)
    print(f"{len(files)} instances written below {directory}")


if __name__ == "__main__":
    main()
